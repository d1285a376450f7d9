//! Receives frames from a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_journal::clock::monotonic_ns;
use millstream_link::{LinkError, ReadOutcome, Stream};

use super::error::ReplicationError;
use super::frames::{Frame, Frames};
use super::message::PAYLOAD_MAX;

/// The reading side of a connection.
pub(super) struct Incoming {
    pub stream: Arc<Stream>,
    pub frames: Frames,
    /// When bytes were received last.
    received_ns: u64,
    /// Whether a complete frame was received.
    has_frame: bool,
}

impl Incoming {
    pub fn new(stream: Arc<Stream>) -> Self {
        Incoming {
            stream,
            frames: Frames::new(PAYLOAD_MAX),
            received_ns: monotonic_ns(),
            has_frame: false,
        }
    }

    /// Read once, waiting for a moment at most.
    pub fn read(&mut self) -> Result<(), ReplicationError> {
        match self.stream.read(self.frames.space())? {
            ReadOutcome::Bytes(count) => {
                self.frames.filled(count);
                self.received_ns = monotonic_ns();
                Ok(())
            }
            ReadOutcome::Nothing => Ok(()),
            ReadOutcome::Closed => {
                let hint = if self.has_frame {
                    ""
                } else {
                    " before it has sent anything: it may speak TLS only, or have as many followers as it may have"
                };
                Err(LinkError::Closed { hint }.into())
            }
        }
    }

    /// Returns an error when nothing was received for `most`.
    pub fn check_alive(&self, most: Duration) -> Result<(), ReplicationError> {
        let silent = Duration::from_nanos(monotonic_ns().saturating_sub(self.received_ns));
        if silent > most {
            return Err(LinkError::Silent { waited: most }.into());
        }
        Ok(())
    }

    /// The next frame, which must arrive before `deadline_ns`; `None` when `stop` is raised first.
    pub fn expect(
        &mut self,
        deadline_ns: u64,
        stop: &AtomicBool,
    ) -> Result<Option<Frame<'_>>, ReplicationError> {
        let start = monotonic_ns();
        while !self.frames.is_ready() {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let now = monotonic_ns();
            if now >= deadline_ns {
                let waited = Duration::from_nanos(now - start);
                return Err(LinkError::Silent { waited }.into());
            }
            self.read()?;
        }
        self.has_frame = true;
        Ok(self.frames.next_frame()?)
    }
}
