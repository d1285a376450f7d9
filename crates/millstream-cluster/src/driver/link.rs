//! The data links of a run, and the calls of the flow.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millstream_flow::cluster::{HandledLoad, Link, Member, Raise, Status};
use millstream_flow::error::chain;
use millstream_link::{LinkError, ReadOutcome, Stream};

use super::hub::{Hub, MadeLink};
use crate::protocol::Notice;

/// How often a data link whose other side has ended is checked, beside each event.
const END_CHECK: Duration = Duration::from_secs(1);
/// How long the last words of this process may take.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A connection for data to another process.
///
/// A read or write after its loss never returns: the process at the other end has died, or the run ends, and the thread
/// has nothing to say about it that the events of the run do not say.
pub(super) struct DataLink {
    stream: Arc<Stream>,
    /// Data that was read with the handshake.
    rest: Arc<Mutex<Vec<u8>>>,
    hub: Arc<Hub>,
    process: usize,
}

impl DataLink {
    pub(super) fn new(
        hub: &Arc<Hub>,
        process: usize,
        (stream, rest): MadeLink,
    ) -> Result<Self, LinkError> {
        stream.wait_in_reads()?;
        stream.wait_in_writes()?;
        Ok(DataLink {
            stream,
            rest: Arc::new(Mutex::new(rest)),
            hub: Arc::clone(hub),
            process,
        })
    }

    fn take_rest(&self, into: &mut [u8]) -> usize {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        rest.drain(..count);
        count
    }

    /// Waits until the run has ended; it does not return after a death.
    ///
    /// The workers of the other process have ended. Its last commit and its last deliveries may take any time, during
    /// which its control link tells that it lives; a death is reported by the control links.
    fn wait_for_end(&self) {
        let ended = || {
            self.hub.wait(END_CHECK, |state| {
                (state.died.is_some() || state.is_ended(self.process)).then_some(())
            })
        };
        while ended().is_none() {}
        if self.hub.has_died() {
            park();
        }
    }

    fn report_lost(&self, cause: &str) {
        self.hub.notice(Notice::Lost {
            process: self.process,
            cause: cause.to_owned(),
        });
    }

    /// Reports the loss, and does not return unless the run has ended.
    fn lost(&self, error: &LinkError) {
        if !self.hub.has_ended(self.process) {
            self.report_lost(&chain(error).to_string());
            park();
        }
    }
}

/// Waits for the end of the process.
fn park() -> ! {
    loop {
        std::thread::park();
    }
}

impl Read for DataLink {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.take_rest(into);
        if count > 0 || into.is_empty() {
            return Ok(count);
        }
        loop {
            match self.stream.read(into) {
                Ok(ReadOutcome::Bytes(count)) => return Ok(count),
                Ok(ReadOutcome::Nothing) => {}
                Ok(ReadOutcome::Closed) => {
                    self.wait_for_end();
                    return Ok(0);
                }
                Err(error) => {
                    self.lost(&error);
                    return Ok(0);
                }
            }
        }
    }
}

impl Write for DataLink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.stream.write(bytes) {
            self.lost(&error);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Link for DataLink {
    fn try_clone(&self) -> io::Result<Box<dyn Link>> {
        Ok(Box::new(DataLink {
            stream: Arc::clone(&self.stream),
            rest: Arc::clone(&self.rest),
            hub: Arc::clone(&self.hub),
            process: self.process,
        }))
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match how {
            Shutdown::Write => {
                // The other side may have closed the connection already: it has ended, or the control links report its
                // death.
                let _gone_already = self.stream.finish();
            }
            Shutdown::Read | Shutdown::Both => self.stream.close(),
        }
        Ok(())
    }
}

/// Passes the calls of the flow to the state machine. Its end closes the connections of this process.
pub(super) struct MemberOfRun(Arc<Hub>);

impl MemberOfRun {
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        MemberOfRun(hub)
    }
}

impl Drop for MemberOfRun {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Member for MemberOfRun {
    fn built(&self) {
        self.0.notice(Notice::Built);
    }

    fn drained(&self, has_input: bool) {
        self.0.notice(Notice::Drained { has_input });
    }

    fn raise(&self, raise: Raise) {
        self.0.notice(Notice::Raise(raise));
    }

    fn prepared(&self, epoch: u64, changed: bool, last: bool) {
        self.0.notice(Notice::Prepared {
            epoch,
            changed,
            last,
        });
    }

    fn committed(&self, epoch: u64) {
        self.0.notice(Notice::Committed(epoch));
    }

    fn handled(&self, handled: &[HandledLoad]) {
        self.0.notice(Notice::Handled(handled.to_vec()));
    }

    fn status(&self, status: Status) {
        self.0.notice(Notice::Status(status));
    }

    fn stop(&self) {
        self.0.notice(Notice::Stop);
    }

    fn failed(&self, cause: &str) {
        self.0.notice(Notice::Failed(cause.to_owned()));
        self.0.flush(LAST_WORDS);
    }

    fn ended(&self) {
        self.0.notice(Notice::Ended);
        self.0.flush(LAST_WORDS);
    }

    fn flush(&self) {
        self.0.flush(LAST_WORDS);
        self.0.wait_for_leave(LAST_WORDS);
    }
}
