//! A socket of TCP or of this machine (Unix), and what listens for them.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use crate::address::Address;

/// A connected socket.
#[derive(Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Socket {
    /// Between machines, or over the loopback interface.
    Tcp(TcpStream),
    /// Between processes of this machine.
    Unix(UnixStream),
}

impl From<TcpStream> for Socket {
    fn from(socket: TcpStream) -> Self {
        Socket::Tcp(socket)
    }
}

impl From<UnixStream> for Socket {
    fn from(socket: UnixStream) -> Self {
        Socket::Unix(socket)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }
}

impl Socket {
    /// Connects, in `wait` at most for each address that a name has.
    ///
    /// # Errors
    /// The name has no address, nothing listens there, or the time is over.
    pub fn connect(address: &Address, wait: Duration) -> io::Result<Self> {
        match address {
            Address::Unix(path) => Ok(Socket::Unix(UnixStream::connect(path)?)),
            Address::Tcp { .. } => {
                let mut outcome = Err(ErrorKind::NotFound.into());
                for address in address.resolve()? {
                    outcome = TcpStream::connect_timeout(&address, wait);
                    if outcome.is_ok() {
                        break;
                    }
                }
                outcome.map(Socket::Tcp)
            }
        }
    }

    /// Sends small messages at once.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.set_nodelay(true),
            Socket::Unix(_) => Ok(()),
        }
    }

    /// Ends the connection when the other machine has not answered for `patience`, with data under way and without.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        let Socket::Tcp(socket) = self else {
            return Ok(());
        };
        let millis = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(socket, millis)?;
        sockopt::set_socket_keepalive(socket, true)?;
        let second = Duration::from_secs(1);
        sockopt::set_tcp_keepidle(socket, (patience / 4).max(second))?;
        sockopt::set_tcp_keepintvl(socket, (patience / 8).max(second))?;
        sockopt::set_tcp_keepcnt(socket, 6)?;
        Ok(())
    }

    /// The longest wait of a read; `None` waits for ever.
    ///
    /// # Errors
    /// The socket is closed, or the time is zero.
    pub fn set_read_timeout(&self, wait: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.set_read_timeout(wait),
            Socket::Unix(socket) => socket.set_read_timeout(wait),
        }
    }

    /// The longest wait of a write; `None` waits for ever.
    ///
    /// # Errors
    /// The socket is closed, or the time is zero.
    pub fn set_write_timeout(&self, wait: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.set_write_timeout(wait),
            Socket::Unix(socket) => socket.set_write_timeout(wait),
        }
    }

    /// Reads without removing the bytes.
    ///
    /// # Errors
    /// As of a read.
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        let flags = rustix::net::RecvFlags::PEEK;
        let (count, _) = rustix::net::recv(self, into, flags)?;
        Ok(count)
    }

    /// Ends one direction, or both.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.shutdown(how),
            Socket::Unix(socket) => socket.shutdown(how),
        }
    }

    /// Returns another handle of this socket.
    ///
    /// # Errors
    /// Too many files are open.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Socket::Tcp(socket) => Socket::Tcp(socket.try_clone()?),
            Socket::Unix(socket) => Socket::Unix(socket.try_clone()?),
        })
    }
}

impl Read for &Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&mut &*socket).read(into),
            Socket::Unix(socket) => (&mut &*socket).read(into),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&mut &*socket).write(bytes),
            Socket::Unix(socket) => (&mut &*socket).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where connections arrive. The file of a Unix socket is removed with it.
#[derive(Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Listener {
    kind: ListenerKind,
    address: Address,
}

#[derive(Debug)]
enum ListenerKind {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens. A name is that of this machine, the first of its addresses that can be used; the file of a Unix socket
    /// on which no process listens is replaced.
    ///
    /// # Errors
    /// The address is in use, or not one of this machine.
    pub fn bind(address: &Address) -> io::Result<Self> {
        let kind = match address {
            Address::Unix(path) => ListenerKind::Unix(bind_unix(path)?, path.clone()),
            Address::Tcp { .. } => {
                let resolved: Vec<_> = address.resolve()?.collect();
                ListenerKind::Tcp(TcpListener::bind(&resolved[..])?)
            }
        };
        let address = match &kind {
            ListenerKind::Tcp(listener) => listener.local_addr()?.into(),
            ListenerKind::Unix(..) => address.clone(),
        };
        match &kind {
            ListenerKind::Tcp(listener) => listener.set_nonblocking(true)?,
            ListenerKind::Unix(listener, _) => listener.set_nonblocking(true)?,
        }
        Ok(Listener { kind, address })
    }

    /// The address, with the port that port 0 was replaced by.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns a connection and where it comes from, if one arrives within `wait`.
    ///
    /// # Errors
    /// The connection has ended, or too many files are open: a later call may succeed.
    pub fn accept(&self, wait: Duration) -> io::Result<Option<(Socket, String)>> {
        let fd = match &self.kind {
            ListenerKind::Tcp(listener) => listener.as_fd(),
            ListenerKind::Unix(listener, _) => listener.as_fd(),
        };
        let moment = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&moment)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let accepted = match &self.kind {
            ListenerKind::Tcp(listener) => listener.accept().and_then(|(socket, peer)| {
                socket.set_nonblocking(false)?;
                Ok((socket.into(), peer.to_string()))
            }),
            ListenerKind::Unix(listener, path) => listener.accept().and_then(|(socket, _)| {
                socket.set_nonblocking(false)?;
                Ok((socket.into(), path.display().to_string()))
            }),
        };
        match accepted {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            accepted => accepted.map(Some),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let ListenerKind::Unix(_, path) = &self.kind {
            let _gone_already = std::fs::remove_file(path);
        }
    }
}

/// A process that was killed leaves the file of its socket.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let is_socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
            match UnixStream::connect(path) {
                Err(refused) if is_socket && refused.kind() == ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path)?;
                    UnixListener::bind(path)
                }
                _ => Err(error),
            }
        }
        outcome => outcome,
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_dead_listener_is_replaced_and_that_of_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.sock");
        let address = Address::Unix(path.clone());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let live = Listener::bind(&address).unwrap();
        let refused = Listener::bind(&address).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);
        // The second listener has looked whether the first one lives.
        live.accept(Duration::from_secs(10)).unwrap().unwrap();
        let socket = Socket::connect(&address, Duration::from_secs(10)).unwrap();
        let (accepted, _) = live.accept(Duration::from_secs(10)).unwrap().unwrap();
        (&socket).write_all(b"ab").unwrap();
        let mut bytes = [0; 2];
        assert_eq!(accepted.peek(&mut bytes[..1]).unwrap(), 1);
        (&accepted).read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"ab");
        drop(live);
        assert!(!path.exists());
    }

    #[test]
    fn another_file_at_the_path_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        std::fs::write(&path, "of the user").unwrap();
        assert!(Listener::bind(&Address::Unix(path.clone())).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"of the user");
    }
}
