//! One connection of `millstream receive`: its socket, the bytes that are not yet a frame, and the cutter.

use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};

use millstream_flow::framing::{Cutter, Framing};

use super::intake::Intake;
use crate::failure::Failure;

const READ_BYTES: usize = 256 * 1024;

/// What one read brought.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Whether there were bytes.
    pub(super) arrived: bool,
    /// Complete messages.
    pub(super) messages: u64,
    /// The bytes of these messages, with prefixes and line ends.
    pub(super) bytes: u64,
    /// Whether the sender has closed.
    pub(super) closed: bool,
}

/// A connection that is read.
pub(super) struct Connection {
    socket: TcpStream,
    peer: SocketAddr,
    framing: Framing,
    cutter: Cutter,
    buffer: Vec<u8>,
    filled: usize,
    spans: Vec<(u32, u32)>,
}

impl Connection {
    pub(super) fn new(
        socket: TcpStream,
        peer: SocketAddr,
        framing: Framing,
        max_frame: usize,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let cutter = Cutter::new(framing.clone(), max_frame);
        Ok(Self {
            socket,
            peer,
            framing,
            cutter,
            buffer: vec![0; READ_BYTES],
            filled: 0,
            spans: Vec::new(),
        })
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Read once, and take in what is complete. `progress` holds on failure too.
    pub(super) fn read(
        &mut self,
        intake: &mut Intake,
        several: bool,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        if self.filled == self.buffer.len() {
            // Only one frame can fill it all, and the cutter has a limit on that.
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let count = match self.socket.read(&mut self.buffer[self.filled..]) {
            Ok(0) => {
                progress.closed = true;
                return self.finish(intake, several, progress);
            }
            Ok(count) => count,
            Err(error) if is_transient(&error) => return Ok(()),
            Err(error) => return Err(self.fault(error)),
        };
        progress.arrived = true;
        self.filled += count;
        let base = self.cutter.offset();
        let outcome = self
            .cutter
            .cut(&self.buffer[..self.filled], 0, &mut self.spans);
        // Also on an error: the frames before it are good.
        let consumed = (self.cutter.offset() - base) as usize;
        self.take(base, intake, progress)?;
        outcome.map_err(|error| self.fault(error))?;
        self.buffer.copy_within(consumed..self.filled, 0);
        self.filled -= consumed;
        Ok(())
    }

    fn finish(
        &mut self,
        intake: &mut Intake,
        several: bool,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let base = self.cutter.offset();
        let rest = &self.buffer[..self.filled];
        self.cutter
            .finish(rest, 0, &mut self.spans)
            .map_err(|error| self.fault(error))?;
        self.take(base, intake, progress)?;
        if several && self.framing == Framing::Lines && progress.messages > 0 {
            // Another connection's line may follow in the file.
            intake.write(b"\n")?;
        }
        Ok(())
    }

    /// Check and count the frames of `spans`, as many as are still wanted, and write them.
    fn take(
        &mut self,
        base: u64,
        intake: &mut Intake,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let wanted = self
            .spans
            .len()
            .min(usize::try_from(intake.left).unwrap_or(usize::MAX));
        let spans = &self.spans[..wanted];
        if let Some(length) = intake.expect_length
            && let Some(&(start, end)) = spans
                .iter()
                .find(|(start, end)| (end - start) as usize != length)
        {
            let prefix = if let Framing::Prefix { width, .. } = self.framing {
                width.bytes() as u64
            } else {
                0
            };
            let offset = base + u64::from(start) - prefix;
            let found = end - start;
            return Err(self.fault(format!(
                "the message at offset {offset} has {found} bytes, not {length}"
            )));
        }
        if let Some(&last) = spans.last() {
            let bytes = self.framing.end_of(&self.buffer, last).min(self.filled);
            if intake.dedupe.is_some() {
                self.take_new(wanted, intake, progress)?;
            } else {
                intake.write(&self.buffer[..bytes])?;
                intake.left -= wanted as u64;
                progress.messages += wanted as u64;
                progress.bytes += bytes as u64;
            }
        }
        self.spans.clear();
        Ok(())
    }

    /// Writes those of the first `count` frames that have not come before.
    fn take_new(
        &self,
        count: usize,
        intake: &mut Intake,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let mut start = 0;
        for &span in &self.spans[..count] {
            let end = self.framing.end_of(&self.buffer, span);
            let message = &self.buffer[span.0 as usize..span.1 as usize];
            if intake.admit(message).map_err(|what| self.fault(what))? {
                intake.write(&self.buffer[start..end])?;
                intake.left -= 1;
                progress.messages += 1;
                progress.bytes += (end - start) as u64;
            }
            start = end;
        }
        Ok(())
    }

    fn fault(&self, error: impl std::fmt::Display) -> Failure {
        Failure::failed(format!("connection from {}: {error}", self.peer))
    }
}

/// Whether the next attempt may succeed.
pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
    )
}
