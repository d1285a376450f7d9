//! The signals of a process that serves queues: SIGTERM and SIGINT stop the server, SIGHUP lets it read its files
//! again.

use std::io;
use std::thread::JoinHandle;

use millstream_journal::chain;
use millstream_queue::server::{Server, ServerControl, ServerError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use tracing::warn;

use super::systemd;

/// Passes signals to a server, until it is dropped.
pub(super) struct PassedSignals {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl PassedSignals {
    /// Passes them to this server.
    pub(super) fn begin(server: &Server) -> io::Result<Self> {
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let handle = signals.handle();
        let server = server.control();
        let thread = std::thread::Builder::new().name("signals".to_owned());
        let thread = thread.spawn(move || {
            for signal in signals.forever() {
                match signal {
                    SIGHUP => reload(&server),
                    _ => {
                        systemd::notify("STOPPING=1");
                        server.stop();
                    }
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
        Err(error) => warn!("the files were not read again: {}", chain(&error)),
    }
}

impl Drop for PassedSignals {
    fn drop(&mut self) {
        self.handle.close();
        // A panic of it was reported.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
