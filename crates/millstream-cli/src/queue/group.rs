//! Queues on several machines, of which an arbiter lets one serve: the options of `queue serve` and `queue promote`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_journal::Sync as JournalSync;
use millstream_queue::config::Sync;
use millstream_queue::pair::{self, PairOptions, TakenOver};
use millstream_queue::server::{Server, ServerOptions};
use millstream_replication::arbiter::{ArbiterAddress, ArbiterTls, LeaseTimes};
use millstream_replication::{FollowOptions, Secret};

use super::signals::PassedSignals;
use crate::failure::Failure;
use crate::journal::following::own_name;
use crate::journal::leader;
use crate::moment;
use crate::stop::Stop;
use tracing::warn;

/// Which machine serves the queues.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct GroupArgs {
    /// Serve only while this arbiter lets this machine do so, and follow the machine that serves otherwise: file:DIR on
    /// storage that all machines share, etcd://HOST:PORT/KEY, etcds://HOST:PORT/KEY, or kubernetes:NAMESPACE/NAME.
    /// Answers wait for the followers that may take over.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) arbiter: Option<ArbiterAddress>,
    /// This machine's name, which no other one has [default: this host's name and the directory's].
    #[arg(long = "as", value_name = "NAME", requires = "arbiter")]
    name: Option<String>,
    /// Where the other machines reach --replica of this one [default: --replica].
    #[arg(long, value_name = "HOST:PORT", requires = "arbiter", value_parser = leader::parse_address)]
    advertise: Option<(String, u16)>,
    /// How long another machine waits for one that is silent before it takes over [default: 5s].
    #[arg(long, value_name = "TIME", requires = "arbiter", value_parser = moment::parse_duration)]
    lease: Option<Duration>,
    /// How much earlier a machine that cannot renew its lease answers nothing any more [default: a fifth of --lease].
    /// The clocks of the machines may not differ by more in a lease.
    #[arg(long, value_name = "TIME", requires = "arbiter", value_parser = moment::parse_duration)]
    lease_margin: Option<Duration>,
    /// The authorities, in PEM, by whose certificates etcd is recognised.
    #[arg(long, value_name = "FILE", requires = "arbiter")]
    arbiter_ca: Option<PathBuf>,
    /// The certificate that is shown to etcd, in PEM.
    #[arg(long, value_name = "FILE", requires = "arbiter_key")]
    arbiter_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "arbiter_cert")]
    arbiter_key: Option<PathBuf>,
}

/// The usual lease.
const LEASE: Duration = Duration::from_secs(5);
/// The shortest lease: each renewal has a fifth of it.
const LEASE_MIN: Duration = Duration::from_millis(500);

/// Serve or follow, as the arbiter says, until a signal comes.
pub(super) fn run(
    args: GroupArgs,
    server: ServerOptions,
    secret: Option<Secret>,
    announce: impl Fn(&Server),
) -> Result<(), Failure> {
    if std::env::var_os("LISTEN_FDS").is_some() {
        return Err(Failure::usage(
            "with --arbiter a machine listens only while it serves, and does not take sockets from systemd: give --listen",
        ));
    }
    let stop = Stop::on_signals()?;
    let options = options(args, server, secret)?;
    let mut signals = None;
    let ready = |server: &Server| {
        // In place of those to an earlier server.
        signals = Some(PassedSignals::begin(server));
        if let Some(Err(error)) = &signals {
            warn!("the server does not take signals: {error}");
        }
        announce(server);
    };
    pair::run(&options, &stop.flag(), ready).map_err(Failure::failed)
}

/// Let this machine serve the queues in a directory from now on; with `yes` also where they may lack what was answered.
pub(super) fn take_over(args: GroupArgs, dir: &Path, yes: bool) -> Result<TakenOver, Failure> {
    let stop = Stop::on_signals()?;
    let options = options(args, ServerOptions::new(dir), None)?;
    options
        .take_over(yes, &stop.flag())
        .map_err(Failure::failed)
}

fn options(
    args: GroupArgs,
    server: ServerOptions,
    secret: Option<Secret>,
) -> Result<PairOptions, Failure> {
    let arbiter = args
        .arbiter
        .ok_or_else(|| Failure::usage("give --arbiter"))?;
    // It is noted in the directory of the queues, and named from other directories too.
    let arbiter = match arbiter {
        ArbiterAddress::File(dir) => {
            ArbiterAddress::File(std::path::absolute(dir).map_err(Failure::failed)?)
        }
        other => other,
    };
    let lease = args.lease.unwrap_or(LEASE);
    let margin = args.lease_margin.unwrap_or(lease / 5);
    if lease < LEASE_MIN || margin >= lease / 2 {
        return Err(Failure::usage(format!(
            "--lease {lease:?} with --lease-margin {margin:?}: a lease has at least {LEASE_MIN:?}, and its margin less than half of it"
        )));
    }
    let replica = server.replica.as_ref().map(|replica| replica.serve.listen);
    let advertise = match (args.advertise, replica) {
        (Some((host, port)), _) if host.contains(':') => format!("[{host}]:{port}"),
        (Some((host, port)), _) => format!("{host}:{port}"),
        (None, Some(replica)) => reachable(replica)?.to_string(),
        (None, None) => String::new(),
    };
    let follow = FollowOptions {
        sync: match server.sync {
            Sync::Always => JournalSync::Always,
            Sync::Never => JournalSync::Never,
            Sync::Every(time) => JournalSync::Every(time),
        },
        secret,
        retry_max: Duration::from_secs(1),
        ..FollowOptions::new("", 0, Path::new(""))
    };
    Ok(PairOptions {
        name: args.name.unwrap_or_else(|| own_name(&server.dir)),
        arbiter,
        arbiter_tls: ArbiterTls {
            ca: args.arbiter_ca,
            certificate: args.arbiter_cert.zip(args.arbiter_key),
        },
        times: LeaseTimes { lease, margin },
        advertise,
        server,
        follow,
    })
}

/// The address of --replica, if other machines reach this one by it.
fn reachable(replica: SocketAddr) -> Result<SocketAddr, Failure> {
    if replica.ip().is_unspecified() || replica.port() == 0 {
        Err(Failure::usage(format!(
            "--replica {replica} is no address by which other machines reach this one: give it by --advertise HOST:PORT"
        )))
    } else {
        Ok(replica)
    }
}
