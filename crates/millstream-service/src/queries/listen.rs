//! The socket of a service with queries: a thread that accepts, and one for each connection, which has one question.

use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use super::ask::{connect, socket_beside, with_short_path};
use super::fault::{Fault, QueryError};
use super::message::{Reply, Request, VERSION, read, write};
use super::questions::{Desk, Questions, desk};

/// How many clients may ask at once; further ones have to try again.
const CLIENTS_MAX: usize = 64;
/// How long a client may take to send its question, and to receive the answer.
const CLIENT: Duration = Duration::from_secs(10);
/// How long a question waits for the component.
const COMPONENT: Duration = Duration::from_secs(60);

/// The socket and its thread, until it is dropped.
pub(crate) struct Listening {
    path: PathBuf,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    /// Listens beside the output of the service, which no other service writes.
    pub fn start(output: &Path) -> io::Result<(Self, Questions)> {
        let path = socket_beside(output);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = with_short_path(&path, |path| UnixListener::bind(path))?;
        let (desk, questions) = desk();
        let stopped = Arc::<AtomicBool>::default();
        let is_stopped = Arc::clone(&stopped);
        let thread = std::thread::Builder::new()
            .name("service queries".to_owned())
            .spawn(move || accept(&listener, &desk, &is_stopped))?;
        let listening = Self {
            path,
            stopped,
            thread: Some(thread),
        };
        Ok((listening, questions))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stopped.store(true, Relaxed);
        // Wakes the thread.
        let woken = connect(&self.path);
        let _ = fs::remove_file(&self.path);
        if let (Some(thread), Ok(_)) = (self.thread.take(), woken) {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &UnixListener, desk: &Desk, stopped: &AtomicBool) {
    let clients = Arc::new(());
    for stream in listener.incoming() {
        if stopped.load(Relaxed) {
            return;
        }
        let Ok(mut stream) = stream else {
            // For instance too many open files.
            std::thread::park_timeout(Duration::from_millis(100));
            continue;
        };
        let limited = stream.set_read_timeout(Some(CLIENT));
        if limited
            .and_then(|()| stream.set_write_timeout(Some(CLIENT)))
            .is_err()
        {
            continue;
        }
        if Arc::strong_count(&clients) > CLIENTS_MAX {
            // A client that does not read is left alone: the answer fits into its socket.
            let _ = write(
                &mut stream,
                &late("the service has too many questions; ask again"),
            );
            continue;
        }
        let desk = desk.clone();
        let client = Arc::clone(&clients);
        let spawned = std::thread::Builder::new().spawn(move || {
            // A client that breaks off has no answer.
            let _ = serve(&mut stream, &desk);
            drop(client);
        });
        if let Err(error) = spawned {
            tracing::warn!("service queries: cannot start a thread: {error}");
        }
    }
}

fn late(reason: &str) -> Reply {
    Reply::Fault(Fault::Late, reason.to_owned())
}

fn serve(stream: &mut UnixStream, desk: &Desk) -> io::Result<()> {
    let request: Request = read(stream)?;
    if request.version != VERSION {
        let reason = format!(
            "a query of version {}; this service answers {VERSION}",
            request.version
        );
        return write(stream, &Reply::of(Err(QueryError::arguments(reason))));
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    desk.count.fetch_add(1, Relaxed);
    let reply = match desk.sender.send((request, sender)) {
        Ok(()) => receiver.recv_timeout(COMPONENT).ok(),
        Err(_) => None,
    };
    let reply = reply.unwrap_or_else(|| late("the component did not answer"));
    write(stream, &reply).or_else(|error| match error.kind() {
        io::ErrorKind::InvalidData => write(
            stream,
            &Reply::of(Err(QueryError::failed(error.to_string()))),
        ),
        _ => Err(error),
    })
}
