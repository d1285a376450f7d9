//! A connection that one thread reads and another writes, with TLS or without.
//!
//! TLS keeps one state for both directions. It is locked while bytes go through it, never while a socket waits, so that
//! neither direction blocks the other.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::Connection;

use crate::certificate::{explain, refusal};
use crate::error::LinkError;
use crate::protocol::{Protocol, Side};
use crate::secret::{ChannelBinding, Credential, Secret};
use crate::socket::Socket;

/// The label of the channel binding `tls-exporter` (RFC 9266).
const BINDING_LABEL: &[u8] = b"EXPORTER-Channel-Binding";
/// How long a read waits before it returns to its caller.
const READ_WAIT: Duration = Duration::from_millis(100);
const RAW_BYTES: usize = 64 << 10;
/// The number of bytes encrypted at once.
const SEAL_BYTES: usize = 48 << 10;

/// A connection.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Stream {
    socket: Socket,
    protocol: &'static Protocol,
    tls: Option<Mutex<Connection>>,
    /// The channel binding of the TLS connection.
    binding: Option<ChannelBinding>,
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

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum ReadOutcome {
    /// This many bytes were read.
    Bytes(usize),
    /// Nothing has arrived in time.
    Nothing,
    /// The other side has closed the connection.
    Closed,
}

impl Stream {
    /// Sets the options of a socket before the handshake. A write fails after `patience`.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn prepare(socket: &Socket, patience: Duration) -> Result<(), LinkError> {
        let set = socket
            .set_nodelay()
            .and_then(|()| socket.set_write_timeout(Some(patience)));
        set.map_err(|source| broken("cannot set up the connection", source))
    }

    /// A connection after its TLS handshake, or without TLS.
    pub(crate) fn new(
        socket: Socket,
        protocol: &'static Protocol,
        tls: Option<Connection>,
    ) -> Result<Self, LinkError> {
        socket
            .set_read_timeout(Some(READ_WAIT))
            .map_err(|source| broken("cannot set up the connection", source))?;
        let binding = tls.as_ref().map(|tls| {
            tls.export_keying_material([0; 32], BINDING_LABEL, Some(&[]))
                .map_err(|error| LinkError::Tls(error.to_string()))
        });
        Ok(Stream {
            socket,
            protocol,
            binding: binding.transpose()?,
            tls: tls.map(Mutex::new),
            raw: Mutex::default(),
            sending: Mutex::default(),
        })
    }

    /// Returns the secret on this connection. Without TLS there is none to be proved.
    #[must_use]
    pub fn credential(&self, secret: Option<&Secret>) -> Option<Credential> {
        let binding = self.binding?;
        secret.map(|secret| Credential::new(self.protocol, secret.clone(), binding))
    }

    /// Waits no longer than this in a read.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn limit_read_wait(&self, wait: Duration) -> Result<(), LinkError> {
        let wait = wait.clamp(Duration::from_millis(1), READ_WAIT);
        self.socket
            .set_read_timeout(Some(wait))
            .map_err(|source| broken("cannot set up the connection", source))
    }

    /// Waits in a read until bytes arrive or the connection ends, however long it takes.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn wait_in_reads(&self) -> Result<(), LinkError> {
        self.socket
            .set_read_timeout(None)
            .map_err(|source| broken("cannot set up the connection", source))
    }

    /// Waits in a write as long as the other side is there, however slowly it reads.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn wait_in_writes(&self) -> Result<(), LinkError> {
        self.socket
            .set_write_timeout(None)
            .map_err(|source| broken("cannot set up the connection", source))
    }

    /// Reads the available bytes, or waits for a moment.
    ///
    /// # Errors
    /// The connection is lost, or TLS is violated.
    pub fn read(&self, into: &mut [u8]) -> Result<ReadOutcome, LinkError> {
        let read = match &self.tls {
            None => (&self.socket).read(into),
            Some(tls) => self.read_sealed(tls, into),
        };
        match read {
            Ok(0) => Ok(ReadOutcome::Closed),
            Ok(count) => Ok(ReadOutcome::Bytes(count)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {
                    Ok(ReadOutcome::Nothing)
                }
                ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => Ok(ReadOutcome::Closed),
                _ => Err(read_failed(error, self.protocol)),
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

    /// Writes all of it.
    ///
    /// # Errors
    /// The connection is lost, or the other side has read nothing for too long.
    pub fn write(&self, bytes: &[u8]) -> Result<(), LinkError> {
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

    /// Ends this direction, after all that was written.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn finish(&self) -> io::Result<()> {
        if let Some(tls) = &self.tls {
            lock(tls).send_close_notify();
            self.send(&[])?;
        }
        self.socket.shutdown(Shutdown::Write)
    }

    /// Ends both directions, also for a thread that waits in one of them.
    pub fn close(&self) {
        if let Some(tls) = &self.tls {
            lock(tls).send_close_notify();
            // A thread that is blocked in a write would block this one, and the peer needs no close_notify then.
            if self.sending.try_lock().is_ok() {
                let _gone_already = self.send(&[]);
            }
        }
        let _gone_already = self.socket.shutdown(Shutdown::Both);
    }
}

/// A refusal of the caller's certificate comes after the handshake, as an alert; it comes again at the next attempt.
fn read_failed(error: io::Error, protocol: &Protocol) -> LinkError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(inner @ rustls::Error::AlertReceived(alert))
            if refusal(*alert, protocol).is_some() =>
        {
            LinkError::Tls(explain(inner, Side::Caller, protocol))
        }
        _ => broken("cannot read from the other side", error),
    }
}

fn broken(verb: &str, source: io::Error) -> LinkError {
    LinkError::Connection {
        verb: verb.to_owned(),
        source,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
