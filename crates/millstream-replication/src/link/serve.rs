//! The leader: listens, and serves journals to a limited number of followers.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, Scope};
use std::time::Duration;

use millstream_journal::Journal;
use millstream_journal::clock::monotonic_ns;
use millstream_journal::named::Named;
use millstream_link::{LinkError, ListenerSide, Secret};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{info, warn};

use super::conversation;
use super::error::ReplicationError;
use super::leader::Leader;
use super::notify;
use super::served::{Served, list};
use super::{FollowerTls, LeaderTls, PROTOCOL};

/// What followers prove that they know.
const SECRET: Named = Named(["ServeOptions::secret", "secret_file=", "--secret-file"]);
/// How followers are known by their certificates.
const CERTIFICATES: Named = Named([
    "ServeOptions::tls",
    "tls_cert=, tls_key= and tls_client_ca=",
    "--tls-cert, --tls-key and --tls-client-ca",
]);

/// The time that followers have to end when the leader stops.
const STOP_TIME: Duration = Duration::from_secs(2);

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The journals, each with the name by which followers ask for it.
    pub journals: Vec<(String, PathBuf)>,
    /// The secret that followers must prove.
    pub secret: Option<Secret>,
    /// The leader's certificate, for followers that verify it. With a secret alone, the leader makes a key when it
    /// starts.
    pub tls: Option<LeaderTls>,
    /// The interval of heartbeats. A side that is silent for ten times as long is considered dead.
    pub heartbeat: Duration,
    /// The maximum number of connections.
    pub followers_max: usize,
    /// Whether followers are let count by themselves, see `millstream journal followers`; otherwise the caller
    /// [admits](crate::Followers::admit) them.
    pub admits: bool,
    /// Old leaders, by host and port. Each is notified that these journals are in newer terms, until it knows.
    pub notify: Vec<(String, u16)>,
    /// How the old leaders are recognised by their certificates.
    pub notify_tls: Option<FollowerTls>,
}

impl ServeOptions {
    /// Serve these directories under their own names.
    pub fn new(listen: SocketAddr, dirs: impl IntoIterator<Item = PathBuf>) -> Self {
        let named = |dir: PathBuf| {
            let name = dir.file_name().unwrap_or(dir.as_os_str());
            (name.to_string_lossy().into_owned(), dir)
        };
        ServeOptions {
            listen,
            journals: dirs.into_iter().map(named).collect(),
            secret: None,
            tls: None,
            heartbeat: Duration::from_secs(1),
            followers_max: 64,
            admits: true,
            notify: Vec::new(),
            notify_tls: None,
        }
    }
}

/// Serve until `stop` is raised. `ready` is called with the address when connections are accepted there.
///
/// A journal that does not exist yet is served once it does, and never created. With each journal `NAME`, the
/// companions of a service's output are served too if they exist: `NAME.schedule` and `NAME.snapshots`.
///
/// # Errors
/// A journal that cannot be opened, two of one name, an address or a file that cannot be used.
pub fn serve(
    options: &ServeOptions,
    stop: &AtomicBool,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), ReplicationError> {
    serve_open(options, &[], stop, ready)
}

/// The same, with journals that this process has open, each with its name; those upstream first.
///
/// # Errors
/// As for [`serve`].
pub(crate) fn serve_open(
    options: &ServeOptions,
    open: &[(String, Journal)],
    stop: &AtomicBool,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), ReplicationError> {
    check_authenticates(options)?;
    let leader = Leader {
        served: list(&options.journals, open)?,
        secret: options.secret.clone(),
        tls: ListenerSide::new(&PROTOCOL, options.tls.as_ref(), options.secret.is_some())?,
        heartbeat: options.heartbeat,
        admits: options.admits,
        stop,
    };
    let connections = Connections {
        leader: &leader,
        connected: AtomicUsize::new(0),
        connected_max: options.followers_max,
    };
    let failed =
        |source| LinkError::connection(format!("cannot listen on {}", options.listen), source);
    let listener = TcpListener::bind(options.listen).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    ready(listener.local_addr().map_err(failed)?);
    for served in leader.served.iter().filter(|served| !served.is_companion) {
        if served.opened()?.is_none() {
            let dir = served.dir.display();
            info!(
                "'{}' does not exist yet; waiting for it: {dir}",
                served.name
            );
        }
    }
    std::thread::scope(|scope| {
        notify::begin(scope, &leader, &options.notify, options.notify_tls.as_ref())?;
        let mut number = 0;
        let outcome = loop {
            if stop.load(Ordering::Relaxed) {
                break Ok(());
            }
            match accept(&listener) {
                Ok(None) => {}
                Ok(Some((socket, peer))) => {
                    number += 1;
                    connections.begin(scope, socket, peer, number);
                }
                Err(error) => break Err(failed(error).into()),
            }
        };
        // Sessions look at it too.
        stop.store(true, Ordering::Relaxed);
        connections.wind_up();
        outcome
    })
}

/// An address that other machines reach requires followers to authenticate.
fn check_authenticates(options: &ServeOptions) -> Result<(), ReplicationError> {
    let tls = options.tls.as_ref();
    let authenticates =
        options.secret.is_some() || tls.is_some_and(|tls| tls.client_authorities.is_some());
    if authenticates || options.listen.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let address = options.listen;
    Err(ReplicationError::Usage(format!(
        "{address} is reached from other machines: followers must prove a secret ({SECRET}), or show a certificate ({CERTIFICATES})"
    )))
}

/// A connection, if a peer connects within a tenth of a second.
fn accept(listener: &TcpListener) -> std::io::Result<Option<(TcpStream, SocketAddr)>> {
    let mut waiting = [PollFd::new(listener, PollFlags::IN)];
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    match poll(&mut waiting, Some(&moment)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    match listener.accept() {
        Ok((socket, peer)) => {
            socket.set_nonblocking(false)?;
            Ok(Some((socket, peer)))
        }
        // The peer has disconnected; or too many files are open, and some will be closed.
        Err(error) => {
            if error.kind() != ErrorKind::WouldBlock {
                info!("a connection was not taken: {error}");
            }
            Ok(None)
        }
    }
}

/// The connections of followers, and their maximum number.
struct Connections<'a> {
    leader: &'a Leader<'a>,
    connected: AtomicUsize,
    connected_max: usize,
}

impl Connections<'_> {
    /// Serve a connection on a thread of its own, unless the limit is reached.
    fn begin<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        socket: TcpStream,
        peer: SocketAddr,
        number: usize,
    ) {
        if self.connected.fetch_add(1, Ordering::Relaxed) >= self.connected_max {
            self.connected.fetch_sub(1, Ordering::Relaxed);
            let limit = self.connected_max;
            return warn!("{peer}: {limit} followers are connected, which is the limit");
        }
        let session = move || {
            conversation::run(self.leader, socket, peer, number);
            self.connected.fetch_sub(1, Ordering::Relaxed);
        };
        let thread = Builder::new().name("leader".to_owned());
        if let Err(error) = thread.spawn_scoped(scope, session) {
            self.connected.fetch_sub(1, Ordering::Relaxed);
            warn!("{peer}: cannot start a thread: {error}");
        }
    }

    /// Wait for followers to end, and end those that do not.
    #[expect(
        clippy::disallowed_methods,
        reason = "sessions end by themselves, mostly at once"
    )]
    fn wind_up(&self) {
        let end = monotonic_ns() + STOP_TIME.as_nanos() as u64;
        while self.connected.load(Ordering::Relaxed) > 0 && monotonic_ns() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.leader.served.iter().for_each(Served::close_all);
    }
}
