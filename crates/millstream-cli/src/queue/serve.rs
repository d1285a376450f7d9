//! `millstream queue serve`: the server.

use std::net::SocketAddr;
use std::path::PathBuf;

use millstream_observe::sections::journals::Journals;
use millstream_observe::sections::queues::Queues;
use millstream_queue::address::Address;
use millstream_queue::config::Sync;
use millstream_queue::server::watch::ServerWatch;
use millstream_queue::server::{ReplicaOptions, Server, ServerOptions};
use millstream_queue::session::Compat;
use millstream_replication::{Secret, ServeOptions};
use tracing::level_filters::LevelFilter;

use super::group;
use super::signals::PassedSignals;
use super::systemd;
use crate::failure::Failure;
use crate::journal::leader;
use crate::{address, log, page};

/// The options of `millstream queue serve`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
What --sync promises:
  always    STORED means that the item survives a loss of power. Sets at the same time share one sync. The default
  TIME      a loss of power costs at most what this time brought; the death of the process costs nothing
  never     the death of the process costs nothing; a loss of power about half a minute

SIGHUP reads the configuration again, SIGTERM stops: what is in flight is finished, at most for 5 seconds.

Example:
  millstream queue serve --dir queues &
  printf 'set jobs 0 0 5\\r\\nhello\\r\\nget jobs\\r\\nquit\\r\\n' | nc 127.0.0.1 22133")]
pub(super) struct Args {
    /// Where to listen, as often as you like: HOST:PORT, or unix:PATH for clients on this machine. Port 0 takes a free
    /// one, which is printed to stderr.
    #[arg(long, value_name = "ADDRESS", value_parser = address::parse_server, default_value = "127.0.0.1:22133")]
    listen: Vec<Address>,
    /// Where to listen with Kestrel's replies, besides.
    #[arg(long, value_name = "ADDRESS", value_parser = address::parse_server)]
    listen_kestrel: Vec<Address>,
    /// Whose replies clients get at --listen: memcached or kestrel.
    #[arg(long, default_value = "memcached")]
    compat: Compat,
    /// The folder in which the queues are kept.
    #[arg(long, default_value = "queues")]
    dir: PathBuf,
    /// When an item is durable, unless the configuration says otherwise: always, never, or a time such as 100ms.
    #[arg(long, default_value = "always")]
    sync: Sync,
    /// Limits, defaults and settings of single queues, in TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A file with a line NAME:PASSWORD for each user. Clients authenticate first, as those of memcached do.
    #[arg(long, value_name = "FILE")]
    auth_file: Option<PathBuf>,
    /// Listen beyond this machine without passwords: each machine that reaches the address may read and remove all
    /// items.
    #[arg(long, conflicts_with = "auth_file")]
    no_auth: bool,
    /// Speak TLS over TCP, with the certificates in this PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Let clients stop the server with `shutdown`.
    #[arg(long)]
    allow_shutdown: bool,
    /// Let followers on other machines keep copies of all queues: `millstream queue follow HOST:PORT`.
    #[arg(long, value_name = "HOST:PORT", value_parser = address::parse)]
    replica: Option<SocketAddr>,
    /// Answer clients only when all followers that count have what the answer depends on.
    #[arg(long, requires = "replica", conflicts_with = "arbiter")]
    commit_on_replica: bool,
    /// A file with a secret, which server and followers prove to each other over TLS.
    #[arg(long, value_name = "FILE", requires = "replica")]
    secret_file: Option<PathBuf>,
    /// The server that was before, by its --replica: it is notified after `queue promote` that a copy was promoted,
    /// until it knows. May be repeated.
    #[arg(long, value_name = "HOST:PORT", requires = "replica", conflicts_with = "arbiter", value_parser = leader::parse_address)]
    tell: Vec<(String, u16)>,
    #[command(flatten)]
    group: group::GroupArgs,
    /// Log more: each connection that ends early.
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    page: page::PageOptions,
    #[command(flatten)]
    log: log::Logging,
}

/// Clients of other machines need a password, unless --no-auth allows them to do without.
fn check_open(args: &Args) -> Result<(), Failure> {
    let is_open = |address: &&Address| match address {
        Address::Tcp(address) => !address.ip().to_canonical().is_loopback(),
        Address::Unix(_) => false,
    };
    let mut addresses = args.listen.iter().chain(&args.listen_kestrel);
    match addresses.find(is_open) {
        Some(address) if args.auth_file.is_none() && !args.no_auth => Err(Failure::usage(format!(
            "--listen {address} is open to other machines, which could read and remove all items: --auth-file FILE asks \
             for passwords, --no-auth does without"
        ))),
        _ => Ok(()),
    }
}

/// Serve until a signal comes.
pub(super) fn run(args: Args) -> Result<(), Failure> {
    let usual = if args.verbose {
        LevelFilter::DEBUG
    } else {
        LevelFilter::INFO
    };
    check_open(&args)?;
    if args.group.arbiter.is_some() && args.replica.is_none() {
        return Err(Failure::usage(
            "--arbiter needs --replica HOST:PORT, where the other machines follow this one",
        ));
    }
    args.log.begin(usual);
    let secret = args.secret_file.as_deref().map(Secret::read).transpose();
    let secret = secret.map_err(Failure::failed)?;
    let replica = args.replica.map(|address| ReplicaOptions {
        serve: ServeOptions {
            secret: secret.clone(),
            notify: args.tell,
            ..ServeOptions::new(address, [])
        },
        waits: args.commit_on_replica,
        keeper: None,
    });
    let own = args
        .listen
        .into_iter()
        .map(|address| (address, args.compat));
    let kestrel = args
        .listen_kestrel
        .into_iter()
        .map(|address| (address, Compat::Kestrel));
    let observer = args.page.observer()?;
    let watch = observer.as_ref().map(|observer| {
        let watch = ServerWatch::default();
        // Items are shown to readers with a token where clients authenticate.
        let shows_items = args.auth_file.is_none() || args.page.has_token();
        observer.show(Queues::new(watch.clone(), shows_items));
        watch
    });
    if let (Some(observer), Some(_)) = (&observer, &replica) {
        // The followers. What the changes are is shown by the queues.
        let changes = vec![(".changes".to_owned(), args.dir.join(".changes"))];
        observer.show(Journals::watch(changes, false, None).map_err(Failure::failed)?);
    }
    let options = ServerOptions {
        replica,
        watch,
        listen: own.chain(kestrel).collect(),
        config: args.config,
        sync: args.sync,
        credentials: args.auth_file,
        tls: args.tls_cert.zip(args.tls_key),
        shutdown: args.allow_shutdown,
        owns_process: true,
        ..ServerOptions::new(args.dir)
    };
    if args.group.arbiter.is_some() {
        return group::run(args.group, options, secret, announce);
    }
    let server = Server::start(options).map_err(Failure::failed)?;
    // Signals are handled before the server is announced.
    let _signals = PassedSignals::begin(&server).map_err(Failure::failed)?;
    announce(&server);
    server.wait().map_err(Failure::failed)
}

/// Prints where clients are served, and notifies systemd.
fn announce(server: &Server) {
    for address in server.addresses() {
        eprintln!("listening on {address}");
    }
    systemd::notify("READY=1");
}
