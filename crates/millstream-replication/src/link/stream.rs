//! A connection that one thread reads and another writes, with TLS or without.
//!
//! TLS keeps one state for both directions. It is locked while bytes go through it, never while a socket waits, so that neither
//! direction holds up the other.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millstream_journal::clock::monotonic_ns;
use rustls::Connection;

use super::certificate::explain;
use super::error::ReplicationError;

/// How long a read waits before it gives its caller the word.
const READ_WAIT: Duration = Duration::from_millis(100);
const RAW_BYTES: usize = 64 << 10;
/// What is encrypted at once.
const SEAL_BYTES: usize = 48 << 10;

/// A connection.
pub(super) struct Stream {
    socket: TcpStream,
    tls: Option<Mutex<Connection>>,
    raw: Mutex<Raw>,
    /// Held while bytes go out, so that they go in order.
    sending: Mutex<()>,
}

/// Encrypted bytes that were read and not taken yet.
#[derive(Default)]
struct Raw {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Bytes(usize),
    Nothing,
    Closed,
}

impl Stream {
    /// Greet in TLS, if asked for, until `deadline_ns`. A write fails after `patience`.
    pub fn open(
        socket: TcpStream,
        tls: Option<Connection>,
        deadline_ns: u64,
        patience: Duration,
    ) -> Result<Self, ReplicationError> {
        let failed = |source| ReplicationError::Connection {
            verb: "cannot set up the connection".to_owned(),
            source,
        };
        socket.set_nodelay(true).map_err(failed)?;
        socket.set_write_timeout(Some(patience)).map_err(failed)?;
        let mut tls = tls;
        if let Some(tls) = &mut tls {
            let mut limited = Limited {
                socket: &socket,
                deadline_ns,
            };
            while tls.is_handshaking() {
                tls.complete_io(&mut limited).map_err(tls_failed)?;
            }
        }
        socket.set_read_timeout(Some(READ_WAIT)).map_err(failed)?;
        Ok(Stream {
            socket,
            tls: tls.map(Mutex::new),
            raw: Mutex::default(),
            sending: Mutex::default(),
        })
    }

    /// Wait no longer than this in a read.
    pub fn look_every(&self, wait: Duration) -> Result<(), ReplicationError> {
        let wait = wait.clamp(Duration::from_millis(1), READ_WAIT);
        self.socket
            .set_read_timeout(Some(wait))
            .map_err(|source| broken("cannot set up the connection", source))
    }

    /// Read what there is, or wait for a moment.
    pub fn read(&self, into: &mut [u8]) -> Result<Heard, ReplicationError> {
        let read = match &self.tls {
            None => (&self.socket).read(into),
            Some(tls) => self.read_sealed(tls, into),
        };
        match read {
            Ok(0) => Ok(Heard::Closed),
            Ok(count) => Ok(Heard::Bytes(count)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {
                    Ok(Heard::Nothing)
                }
                ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => Ok(Heard::Closed),
                _ => Err(broken("cannot read from the other side", error)),
            },
        }
    }

    fn read_sealed(&self, tls: &Mutex<Connection>, into: &mut [u8]) -> io::Result<usize> {
        let mut raw = lock(&self.raw);
        loop {
            let wants_write = {
                let mut tls = lock(tls);
                match tls.reader().read(into) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    read => return read,
                }
                if raw.start < raw.end {
                    let mut rest = &raw.bytes[raw.start..raw.end];
                    let taken = tls.read_tls(&mut rest)?;
                    raw.start += taken;
                    let state = tls.process_new_packets();
                    state.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
                    tls.wants_write()
                } else {
                    raw.bytes.resize(RAW_BYTES, 0);
                    (raw.start, raw.end) = (0, 0);
                    drop(tls);
                    match (&self.socket).read(&mut raw.bytes)? {
                        0 => return Ok(0),
                        count => raw.end = count,
                    }
                    false
                }
            };
            if wants_write {
                self.send(&[])?;
            }
        }
    }

    /// Write all of it.
    pub fn write(&self, bytes: &[u8]) -> Result<(), ReplicationError> {
        self.send(bytes)
            .map_err(|error| broken("cannot write to the other side", error))
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let _turn = lock(&self.sending);
        let Some(tls) = &self.tls else {
            return (&self.socket).write_all(bytes);
        };
        let mut sealed = Vec::with_capacity(SEAL_BYTES + 1_024);
        let mut rest = bytes;
        loop {
            let (part, later) = rest.split_at(rest.len().min(SEAL_BYTES));
            {
                let mut tls = lock(tls);
                tls.writer().write_all(part)?;
                while tls.wants_write() {
                    tls.write_tls(&mut sealed)?;
                }
            }
            (&self.socket).write_all(&sealed)?;
            sealed.clear();
            rest = later;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// End both directions, also for a thread that waits in one of them.
    pub fn close(&self) {
        if let Some(tls) = &self.tls {
            lock(tls).send_close_notify();
            // Who waits in a write would hold us up, and needs no farewell.
            if self.sending.try_lock().is_ok() {
                let _gone_already = self.send(&[]);
            }
        }
        let _gone_already = self.socket.shutdown(Shutdown::Both);
    }
}

/// A socket until a moment: who greets byte by byte does not hold us up.
struct Limited<'a> {
    socket: &'a TcpStream,
    deadline_ns: u64,
}

impl Limited<'_> {
    fn left(&self) -> io::Result<Duration> {
        match self.deadline_ns.saturating_sub(monotonic_ns()) {
            0 => Err(ErrorKind::TimedOut.into()),
            left => Ok(Duration::from_nanos(left)),
        }
    }
}

impl Read for Limited<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        (&mut &*self.socket).read(into)
    }
}

impl Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left()?;
        (&mut &*self.socket).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A greeting that failed: by what TLS says it will fail again, by what the network says it may not.
fn tls_failed(error: io::Error) -> ReplicationError {
    let inner = error.get_ref();
    if let Some(tls) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return ReplicationError::Tls(explain(tls));
    }
    match error.kind() {
        ErrorKind::UnexpectedEof => ReplicationError::Closed {
            hint: " while TLS was set up: does it speak TLS?",
        },
        _ => broken("cannot set up TLS", error),
    }
}

fn broken(verb: &str, source: io::Error) -> ReplicationError {
    ReplicationError::Connection {
        verb: verb.to_owned(),
        source,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
