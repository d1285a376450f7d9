//! The address of a server: TCP, or the path of a Unix socket for programs on the same machine.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// The prefix of a Unix socket's address.
const UNIX: &str = "unix:";

/// The address of a server. In text `HOST:PORT`, or `unix:` and a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl Address {
    /// Parses the address of a Unix socket; `None` if the text is another address.
    pub fn unix(text: &str) -> Option<Self> {
        let path = text.strip_prefix(UNIX).filter(|path| !path.is_empty())?;
        Some(Address::Unix(path.into()))
    }

    /// Connects, and blocks until that is done.
    ///
    /// # Errors
    /// No server listens there, or this user may not connect.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn connect(&self) -> io::Result<Stream> {
        match self {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Address::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Address::Tcp(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

/// A connection of a client.
#[derive(Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Stream {
    /// Over TCP, without Nagle's delay.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Sets the time limit of a read; `None` for no limit.
    ///
    /// # Errors
    /// The time is zero.
    pub fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(time),
            Stream::Unix(stream) => stream.set_read_timeout(time),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.flush(),
            Stream::Unix(stream) => stream.flush(),
        }
    }
}
