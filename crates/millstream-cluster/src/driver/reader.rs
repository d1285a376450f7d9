//! Frames from a connection, each within a time limit.

use std::sync::Arc;

use millstream_link::{Deadline, Frame, Frames, LinkError, ReadOutcome, Stream};

use crate::protocol::{Kind, PAYLOAD_MAX};

/// The longest payload before authentication.
const UNKNOWN_MAX: usize = 4 << 10;

/// The reading side of a connection.
pub(super) struct Reader {
    pub(super) stream: Arc<Stream>,
    frames: Frames<Kind>,
}

impl Reader {
    pub(super) fn new(stream: Arc<Stream>) -> Self {
        Reader {
            stream,
            frames: Frames::new(UNKNOWN_MAX),
        }
    }

    /// The other side is authenticated: longer frames are allowed.
    pub(super) fn allow(&mut self) {
        self.frames.allow(PAYLOAD_MAX);
    }

    /// Returns the next frame, which must arrive before `deadline`.
    pub(super) fn expect(&mut self, deadline: Deadline) -> Result<Frame<'_, Kind>, LinkError> {
        while !self.frames.is_ready() {
            if deadline.left().is_none() {
                return Err(LinkError::protocol("the handshake takes too long"));
            }
            self.read()?;
        }
        self.next()?.ok_or_else(|| LinkError::protocol("no frame"))
    }

    /// Returns the next frame, if it has arrived.
    pub(super) fn next(&mut self) -> Result<Option<Frame<'_, Kind>>, LinkError> {
        self.frames.next_frame()
    }

    /// Reads once, waiting for a moment at most.
    pub(super) fn read(&mut self) -> Result<(), LinkError> {
        match self.stream.read(self.frames.space())? {
            ReadOutcome::Bytes(count) => {
                self.frames.filled(count);
                Ok(())
            }
            ReadOutcome::Nothing => Ok(()),
            ReadOutcome::Closed => Err(LinkError::Closed { hint: "" }),
        }
    }

    /// The bytes of data that were read with the last frame of the handshake.
    pub(super) fn rest(&self) -> &[u8] {
        self.frames.rest()
    }
}
