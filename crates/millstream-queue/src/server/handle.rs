//! The handle of a server that runs on a thread of its own: its addresses, stop, wait, reload, figures.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, mpsc as blocking};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tracing::warn;

use super::error::ServerError;
use super::options::ServerOptions;
use super::outcome::Outcome;
use super::requests::{REQUESTS_MAX, Request, send};
use super::serve::{self, Shared};
use super::watch::ServerWatch;
use crate::address::Address;

/// The longest time that a handle which is dropped waits for its server: more than a stop takes, unless the disk does
/// not answer.
const DROP_WAIT: Duration = Duration::from_secs(10);

/// A server of queues inside this program, on a thread of its own.
///
/// It prints nothing, and changes nothing of the process: [`owns_process`](ServerOptions::owns_process) is for programs
/// that only serve. It takes no signals but SIGBUS, as each journal does for its mapped files. What it logs are events
/// of `tracing`. Several servers may run in a process, each with a directory of its own. They share the limit on open
/// files: `limits.connections` of the configuration leaves some for the rest of the program.
///
/// It needs no runtime of `tokio`, and works beside one of any kind. [`start`](Self::start), [`wait`](Self::wait),
/// [`reload`](Self::reload) and the drop of the handle block their thread; `server.await` does not.
///
/// When the handle is dropped, the server is [stopped](Self::stop), and the drop waits for its end, at most for 10
/// seconds. A failure that no wait has returned is logged.
///
/// ```
/// use std::io::{BufRead, BufReader, Write};
/// use std::net::{SocketAddr, TcpStream};
///
/// use millstream_queue::server::{Server, ServerOptions};
/// use millstream_queue::session::Compat;
///
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
/// let server = Server::start(ServerOptions {
///     listen: vec![(any_port.into(), Compat::Memcached)],
///     ..ServerOptions::new(directory)
/// })?;
///
/// let address = server.addresses()[0].to_string();
/// let mut client = BufReader::new(TcpStream::connect(address)?);
/// client.get_mut().write_all(b"set jobs 0 0 5\r\nhello\r\n")?;
/// let mut answer = String::new();
/// client.read_line(&mut answer)?;
/// assert_eq!(answer, "STORED\r\n");
///
/// server.stop();
/// server.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a server is stopped when its handle is dropped: call wait"]
#[derive(Debug)]
pub struct Server {
    dir: PathBuf,
    addresses: Vec<Address>,
    control: ServerControl,
    watch: ServerWatch,
    is_watched: Arc<Notify>,
    /// Until a wait for it begins.
    outcome: Option<Arc<Outcome>>,
}

impl Server {
    /// Starts a server, and returns when its queues are open and it accepts connections: with many queues that takes a
    /// while.
    ///
    /// # Errors
    /// An address cannot be bound ([`ServerError::Listen`]); the directory cannot be used, or another server has it
    /// open ([`ServerError::File`]); a file of the options is missing or invalid; the system refuses a thread. A
    /// damaged queue is no error: it stays closed, and the log says so.
    pub fn start(options: ServerOptions) -> Result<Self, ServerError> {
        let (requests, received) = mpsc::channel(REQUESTS_MAX);
        let (started, addresses) = blocking::channel();
        let stop = Arc::new(Notify::new());
        let is_watched = Arc::new(Notify::new());
        if options.watch.is_some() {
            is_watched.notify_one();
        }
        let watch = options.watch.clone().unwrap_or_default();
        let shared = Shared {
            stop: Arc::clone(&stop),
            watch: watch.clone(),
            is_watched: Arc::clone(&is_watched),
            requests: received,
            started,
        };
        let dir = options.dir.clone();
        let outcome = Arc::new(Outcome::new(dir.clone()));
        let of_thread = (dir.clone(), Arc::clone(&outcome));
        let thread = std::thread::Builder::new().name("queue-server".to_owned());
        let spawned = thread.spawn(move || {
            let (dir, outcome) = of_thread;
            let ended = catch_unwind(AssertUnwindSafe(|| serve::run(options, shared)));
            // All that the server had is dropped by now: another one may start in its directory.
            outcome.set(ended.unwrap_or_else(|panic| Err(ServerError::panicked(&dir, &*panic))));
        });
        spawned.map_err(ServerError::Start)?;
        let Ok(addresses) = addresses.recv() else {
            return outcome.wait().and(Err(ServerError::NotRunning));
        };
        watch.connect(requests.clone());
        Ok(Server {
            dir,
            addresses,
            control: ServerControl { stop, requests },
            watch,
            is_watched,
            outcome: Some(outcome),
        })
    }

    /// The addresses at which it listens, in the order of the options: for port 0 the port that the system has chosen.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Asks the server to stop, as SIGTERM does with `millstream queue serve`; [`wait`](Self::wait) returns when it
    /// has. It accepts no more connections, answers the requests that have arrived, ends waits, returns open items to
    /// their queues, and syncs. Clients have at most 4 seconds for this, followers 3 more.
    pub fn stop(&self) {
        self.control.stop();
    }

    /// Reads configuration, credentials and certificates again, as [`ServerControl::reload`].
    ///
    /// # Errors
    /// As [`ServerControl::reload`].
    pub fn reload(&self) -> Result<Vec<String>, ServerError> {
        self.control.reload()
    }

    /// Returns a handle with which another thread or task stops the server, or lets it read its files again.
    #[must_use]
    pub fn control(&self) -> ServerControl {
        self.control.clone()
    }

    /// Returns the figures of the server, for a page and for metrics: those of [`ServerOptions::watch`] if it is given.
    /// They are published once a second from the first call on.
    pub fn watch(&self) -> &ServerWatch {
        self.is_watched.notify_one();
        &self.watch
    }

    /// Waits until the server has ended: it was stopped, by [`stop`](Self::stop) or a client's `shutdown`, or it has
    /// failed. Blocks the thread; `server.await` does the same in asynchronous code.
    ///
    /// # Errors
    /// What ended it: another machine serves these queues ([`ServerError::Superseded`]), changes for followers could
    /// not be written ([`ServerError::Replica`]), or it panicked ([`ServerError::Panicked`]).
    pub fn wait(mut self) -> Result<(), ServerError> {
        match self.outcome.take() {
            Some(outcome) => outcome.wait(),
            None => Err(ServerError::NotRunning),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(outcome) = self.outcome.take() else {
            return;
        };
        self.stop();
        if !outcome.ended_within(DROP_WAIT) {
            warn!(
                "{}: the server of the queues has not ended in {DROP_WAIT:?}, and is not waited for any longer",
                self.dir.display()
            );
        }
        outcome.abandon();
    }
}

/// Stops a server or lets it read its files again, from any thread. Clones are of the same server; none keeps it from
/// ending.
#[derive(Clone, Debug)]
pub struct ServerControl {
    stop: Arc<Notify>,
    requests: mpsc::Sender<Request>,
}

impl ServerControl {
    /// Asks the server to stop, as [`Server::stop`]. Has no effect on one that has ended.
    pub fn stop(&self) {
        self.stop.notify_one();
    }

    /// Reads configuration, credentials and certificates again, as a client's `reload` does, and blocks until that is
    /// done. Returns the settings that need a restart, each with the reason. [`ServerWatch::reload`] does the same in
    /// asynchronous code.
    ///
    /// # Errors
    /// [`ServerError::Reload`]: the first invalid file; nothing changes. [`ServerError::NotRunning`], or
    /// [`ServerError::Busy`]: the server has too many other requests of its page to answer.
    pub fn reload(&self) -> Result<Vec<String>, ServerError> {
        let (reply, answer) = blocking::channel();
        // Nothing waits any more where the receiver is gone.
        let reply = Box::new(move |outcome| drop(reply.send(outcome)));
        send(&self.requests, Request::Reload(reply))?;
        answer.recv().unwrap_or(Err(ServerError::NotRunning))
    }
}

/// The end of a server, which an asynchronous program awaits: made by `server.await` and [`Server::into_future`].
///
/// When it is dropped before the end, the server is stopped, and nothing waits for that: a failure is logged.
#[must_use = "a server is stopped when its end is dropped: await it"]
#[derive(Debug)]
pub struct Ending {
    control: ServerControl,
    outcome: Option<Arc<Outcome>>,
}

impl IntoFuture for Server {
    type Output = Result<(), ServerError>;
    type IntoFuture = Ending;

    /// Waits as [`wait`](Server::wait) does, without blocking the thread.
    fn into_future(mut self) -> Ending {
        Ending {
            control: self.control(),
            outcome: self.outcome.take(),
        }
    }
}

impl Future for Ending {
    type Output = Result<(), ServerError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = match &self.outcome {
            Some(outcome) => outcome.poll(context),
            None => Poll::Ready(Err(ServerError::NotRunning)),
        };
        if ended.is_ready() {
            self.outcome = None;
        }
        ended
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome.take() {
            self.control.stop();
            outcome.abandon();
        }
    }
}
