//! The leader: listens, and lets a limited number of followers have the journals that it serves.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, Scope};
use std::time::Duration;

use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Error, Identity, Journal, Options, Term};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{info, warn};

use super::error::ReplicationError;
use super::message::NAME_MAX;
use super::secret::Secret;
use super::session;
use super::stream::Stream;
use super::tell;
use super::tls::{FollowerTls, LeaderTls};

/// How long followers have to end when the leader stops.
const STOP_TIME: Duration = Duration::from_secs(2);

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The journals, each with the name by which followers ask for it.
    pub journals: Vec<(String, PathBuf)>,
    /// What followers must know.
    pub secret: Option<Secret>,
    /// Certificates and key as PEM files: then all connections are TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// How often each side says something at least. Who is silent for ten times as long is taken for dead.
    pub heartbeat: Duration,
    /// How many connections there may be at once.
    pub followers_max: usize,
    /// Old leaders, by host and port. Each is told that these journals are in newer terms, again and again until it knows.
    pub tell: Vec<(String, u16)>,
    /// Speak TLS with the old leaders.
    pub tell_tls: Option<FollowerTls>,
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
            tell: Vec::new(),
            tell_tls: None,
        }
    }
}

/// A journal that is served, or will be when it is there.
pub(super) struct Served {
    pub name: String,
    dir: PathBuf,
    /// Served because it stands beside a journal that is: what a service keeps beside its output.
    pub is_companion: bool,
    opened: OnceLock<Opened>,
    /// The followers that are connected, by name.
    live: Mutex<HashMap<String, Live>>,
}

/// A journal that is there.
pub(super) struct Opened {
    pub journal: Journal,
    pub segment_bytes: u64,
}

impl Opened {
    pub fn identity(&self) -> Result<Identity, ReplicationError> {
        Ok(self.journal.identify(None)?)
    }

    pub fn terms(&self) -> Result<Vec<Term>, ReplicationError> {
        Ok(self.journal.terms()?)
    }
}

/// A follower that is connected.
struct Live {
    /// Its copy's own number.
    own: u64,
    /// The connection, counted.
    number: usize,
    stream: Arc<Stream>,
}

/// What all sessions share.
pub(super) struct Leader<'a> {
    pub served: Vec<Served>,
    pub secret: Option<Secret>,
    pub tls: Option<LeaderTls>,
    pub heartbeat: Duration,
    pub stop: &'a AtomicBool,
    followers_max: usize,
    connected: AtomicUsize,
}

/// Serve until `stop` is raised. `ready` is told the address when connections are taken there.
///
/// A journal that is not there yet is waited for, and never made. Beside each journal `NAME`, those that a service keeps beside its output
/// are served too when they are there: `NAME.schedule` and `NAME.snapshots`.
///
/// # Errors
/// A journal that cannot be opened, two of one name, an address or a file that cannot be used.
pub fn serve(
    options: &ServeOptions,
    stop: &AtomicBool,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), ReplicationError> {
    let tls = options.tls.as_ref();
    let leader = Leader {
        served: list(&options.journals)?,
        secret: options.secret.clone(),
        tls: tls
            .map(|(certificates, key)| LeaderTls::read(certificates, key))
            .transpose()?,
        heartbeat: options.heartbeat,
        stop,
        followers_max: options.followers_max,
        connected: AtomicUsize::new(0),
    };
    let failed = |source| ReplicationError::Connection {
        verb: format!("cannot listen on {}", options.listen),
        source,
    };
    let listener = TcpListener::bind(options.listen).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    ready(listener.local_addr().map_err(failed)?);
    for served in leader.served.iter().filter(|served| !served.is_companion) {
        if served.opened()?.is_none() {
            let dir = served.dir.display();
            info!("'{}' is not there yet; waiting for it: {dir}", served.name);
        }
    }
    std::thread::scope(|scope| {
        tell::begin(scope, &leader, options, stop)?;
        let mut number = 0;
        let outcome = loop {
            if stop.load(Ordering::Relaxed) {
                break Ok(());
            }
            match accept(&listener) {
                Ok(None) => {}
                Ok(Some((socket, peer))) => {
                    number += 1;
                    leader.begin(scope, socket, peer, number);
                }
                Err(error) => break Err(failed(error)),
            }
        };
        // Sessions look at it too.
        stop.store(true, Ordering::Relaxed);
        leader.wind_up();
        outcome
    })
}

/// What a service keeps beside its output: what comes before it, and after.
const BEFORE: &str = ".schedule";
const AFTER: &str = ".snapshots";

/// These journals and what stands beside them, each with its name and whether it is such a companion; those upstream first.
#[must_use]
pub fn with_companions(journals: &[(String, PathBuf)]) -> Vec<(String, PathBuf, bool)> {
    let beside = |name: &str, dir: &Path, suffix: &str| {
        // Without what a path may end with: "orders/".
        let mut path = dir.components().as_path().as_os_str().to_owned();
        path.push(suffix);
        (format!("{name}{suffix}"), PathBuf::from(path), true)
    };
    let mut all: Vec<(String, PathBuf, bool)> = Vec::new();
    for (name, dir) in journals {
        all.push(beside(name, dir, BEFORE));
        all.push((name.clone(), dir.clone(), false));
        all.push(beside(name, dir, AFTER));
    }
    // One that was named itself stands where it was named.
    let named = |name: &str| journals.iter().any(|(other, _)| other == name);
    all.retain(|(name, _, is_companion)| !is_companion || !named(name));
    all
}

fn list(journals: &[(String, PathBuf)]) -> Result<Vec<Served>, ReplicationError> {
    for (at, (name, dir)) in journals.iter().enumerate() {
        if name.is_empty() || name.len() > NAME_MAX {
            let what = format!("{}: a name has 1 to {NAME_MAX} bytes", dir.display());
            return Err(ReplicationError::Usage(what));
        }
        if let Some((_, other)) = journals[..at].iter().find(|(other, _)| other == name) {
            return Err(ReplicationError::Usage(format!(
                "two journals are called '{name}': {} and {} (NAME=DIR gives another name)",
                other.display(),
                dir.display()
            )));
        }
    }
    let all = with_companions(journals).into_iter();
    let served = all.map(|(name, dir, is_companion)| Served {
        name,
        dir,
        is_companion,
        opened: OnceLock::new(),
        live: Mutex::default(),
    });
    Ok(served.collect())
}

/// A connection, if one comes in a moment.
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
        // It has gone again; or there are too many files open, and some will be closed.
        Err(error) => {
            if error.kind() != ErrorKind::WouldBlock {
                info!("a connection was not taken: {error}");
            }
            Ok(None)
        }
    }
}

impl Leader<'_> {
    /// Serve a connection on a thread of its own, if there may be one more.
    fn begin<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        socket: TcpStream,
        peer: SocketAddr,
        number: usize,
    ) {
        if self.connected.fetch_add(1, Ordering::Relaxed) >= self.followers_max {
            self.connected.fetch_sub(1, Ordering::Relaxed);
            let limit = self.followers_max;
            return warn!("{peer}: {limit} followers are connected, which is the limit");
        }
        let session = move || {
            session::run(self, socket, peer, number);
            self.connected.fetch_sub(1, Ordering::Relaxed);
        };
        let thread = Builder::new().name("leader".to_owned());
        if let Err(error) = thread.spawn_scoped(scope, session) {
            self.connected.fetch_sub(1, Ordering::Relaxed);
            warn!("{peer}: cannot start a thread: {error}");
        }
    }

    /// Let followers end, and end those that do not.
    #[expect(
        clippy::disallowed_methods,
        reason = "sessions end by themselves, mostly at once"
    )]
    fn wind_up(&self) {
        let end = monotonic_ns() + STOP_TIME.as_nanos() as u64;
        while self.connected.load(Ordering::Relaxed) > 0 && monotonic_ns() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        for served in &self.served {
            served.live().values().for_each(|live| live.stream.close());
        }
    }
}

impl Served {
    /// The journal, if it is there by now.
    pub fn opened(&self) -> Result<Option<&Opened>, ReplicationError> {
        if let Some(opened) = self.opened.get() {
            return Ok(Some(opened));
        }
        let options = Options {
            create: false,
            ..Options::default()
        };
        let journal = match Journal::open(&self.dir, options) {
            Err(Error::NotFound { .. }) => return Ok(None),
            // A folder of that name which holds other things is no companion.
            Err(Error::NotAJournal { .. }) if self.is_companion => return Ok(None),
            journal => journal?,
        };
        let segment_bytes = journal.info()?.segment_bytes;
        Ok(Some(self.opened.get_or_init(|| Opened {
            journal,
            segment_bytes,
        })))
    }

    /// Whether it has appeared since it was last looked for: a cheap question.
    pub fn has_come(&self) -> Result<bool, ReplicationError> {
        Ok(self.opened.get().is_some() || (self.dir.exists() && self.opened()?.is_some()))
    }

    fn live(&self) -> MutexGuard<'_, HashMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Let the follower in, unless another one has its name. A connection that it had before, and that has not noticed its end, is ended.
    pub fn enter(&self, name: &str, own: u64, number: usize, stream: &Arc<Stream>) -> bool {
        let mut live = self.live();
        if let Some(other) = live.get(name) {
            if other.own != own {
                return false;
            }
            other.stream.close();
        }
        let stream = Arc::clone(stream);
        live.insert(
            name.to_owned(),
            Live {
                own,
                number,
                stream,
            },
        );
        true
    }

    /// Do something as this follower, unless a newer connection has taken its place.
    pub fn as_current<T>(&self, name: &str, number: usize, act: impl FnOnce() -> T) -> Option<T> {
        let live = self.live();
        let current = live.get(name).is_some_and(|live| live.number == number);
        current.then(act)
    }

    /// The connection has ended.
    pub fn leave(&self, name: &str, number: usize) {
        let mut live = self.live();
        if live.get(name).is_some_and(|live| live.number == number) {
            live.remove(name);
        }
    }
}
