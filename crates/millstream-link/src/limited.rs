//! A socket with a deadline: a peer that sends its handshake byte by byte, or not at all, occupies a connection until
//! then only.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::deadline::Deadline;
use crate::error::LinkError;
use crate::socket::Socket;

/// The time that the other side has to end a connection.
#[doc(hidden)] // For the other crates of Millstream.
pub const FAREWELL: Duration = Duration::from_secs(1);
/// How often a waiting thread checks whether it must stop.
const STOP_CHECK: Duration = Duration::from_millis(100);
/// The first byte of a TLS connection: a record of the handshake. A frame of a protocol without TLS begins with another
/// one.
const TLS_HANDSHAKE: u8 = 0x16;

/// A socket until a deadline.
#[derive(Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Limited<'a> {
    /// The socket.
    pub socket: &'a Socket,
    /// After this moment each operation fails.
    pub deadline: Deadline,
}

impl Limited<'_> {
    fn time_left(&self) -> io::Result<Duration> {
        self.deadline
            .left()
            .ok_or_else(|| ErrorKind::TimedOut.into())
    }

    /// Whether the peer begins with TLS; `None` when `stop` is raised first.
    ///
    /// # Errors
    /// The peer has closed the connection, or has sent nothing until the deadline.
    pub fn begins_with_tls(&self, stop: &AtomicBool) -> Result<Option<bool>, LinkError> {
        let broken = |source| LinkError::connection("cannot read from the other side", source);
        let mut first = [0];
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let wait = self.time_left().map_err(broken)?.min(STOP_CHECK);
            let peeked = self.socket.set_read_timeout(Some(wait));
            match peeked.and_then(|()| self.socket.peek(&mut first)) {
                Ok(0) => {
                    let hint = " before it has sent anything";
                    return Err(LinkError::Closed { hint });
                }
                Ok(_) => return Ok(Some(first[0] == TLS_HANDSHAKE)),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return Err(broken(error)),
                },
            }
        }
    }

    /// Closes after the peer, or after a moment: closing while bytes of the peer are unread would be a reset, which may
    /// overtake the last message to it.
    pub fn linger(&mut self) {
        self.deadline = self.deadline.min(Deadline::after(FAREWELL));
        let _gone_already = self.socket.shutdown(Shutdown::Write);
        let mut rest = [0; 4 << 10];
        while matches!(self.read(&mut rest), Ok(1..)) {}
    }
}

impl Read for Limited<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.time_left()?))?;
        (&mut &*self.socket).read(into)
    }
}

impl Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.time_left()?;
        (&mut &*self.socket).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
