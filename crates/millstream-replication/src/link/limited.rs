//! A socket with a deadline: a peer that sends its handshake byte by byte, or not at all, occupies a connection until then only.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_journal::clock::monotonic_ns;

use super::error::ReplicationError;
use super::{FAREWELL, STOP_CHECK};

/// The first byte of a TLS connection: a record of the handshake. HELLO without TLS begins with another one.
const TLS_HANDSHAKE: u8 = 0x16;

/// A socket until a deadline.
pub(super) struct Limited<'a> {
    pub socket: &'a TcpStream,
    pub deadline_ns: u64,
}

impl Limited<'_> {
    fn time_left(&self) -> io::Result<Duration> {
        match self.deadline_ns.saturating_sub(monotonic_ns()) {
            0 => Err(ErrorKind::TimedOut.into()),
            left => Ok(Duration::from_nanos(left)),
        }
    }

    /// Whether the peer begins with TLS; `None` when `stop` is raised first.
    pub fn begins_with_tls(&self, stop: &AtomicBool) -> Result<Option<bool>, ReplicationError> {
        let broken = |source| ReplicationError::Connection {
            verb: "cannot read from the other side".to_owned(),
            source,
        };
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
                    return Err(ReplicationError::Closed { hint });
                }
                Ok(_) => return Ok(Some(first[0] == TLS_HANDSHAKE)),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return Err(broken(error)),
                },
            }
        }
    }

    /// Close after the peer, or after a moment: closing while bytes of the peer are unread would be a reset, which may overtake the last
    /// message to it.
    pub fn linger(&mut self) {
        let end_ns = monotonic_ns() + FAREWELL.as_nanos() as u64;
        self.deadline_ns = self.deadline_ns.min(end_ns);
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
