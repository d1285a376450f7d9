//! The signals of a process that serves queues: SIGTERM and SIGINT stop the server, SIGHUP lets it read its files again.

use std::io;
use std::thread::JoinHandle;

use millstream_queue::server::{Server, ServerControl, ServerError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use tracing::warn;

/// Passes signals to a server, until it is dropped.
pub(super) struct PassedSignals {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl PassedSignals {
    /// Passes all signals of a server to this one.
    pub(super) fn all(server: &Server) -> io::Result<Self> {
        Self::pass(&[SIGTERM, SIGINT, SIGHUP], server.control())
    }

    /// Passes SIGHUP alone, where others than the server stop too.
    pub(super) fn reload(server: &Server) -> io::Result<Self> {
        Self::pass(&[SIGHUP], server.control())
    }

    fn pass(signals: &[i32], server: ServerControl) -> io::Result<Self> {
        let mut signals = Signals::new(signals)?;
        let handle = signals.handle();
        let thread = std::thread::Builder::new().name("signals".to_owned());
        let thread = thread.spawn(move || {
            for signal in signals.forever() {
                match signal {
                    SIGHUP => reload(&server),
                    _ => server.stop(),
                }
            }
        });
        Ok(PassedSignals {
            handle,
            thread: Some(thread?),
        })
    }
}

/// Lets the server read its files again. It logs the outcome.
fn reload(server: &ServerControl) {
    match server.reload() {
        Ok(_) | Err(ServerError::Reload(_)) => {}
        Err(error) => warn!("the files were not read again: {error}"),
    }
}

impl Drop for PassedSignals {
    fn drop(&mut self) {
        self.handle.close();
        // A panic of it was reported.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
