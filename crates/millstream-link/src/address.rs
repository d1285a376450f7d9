//! The address of a process: a host and a port, or the path of a Unix socket.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::LinkError;

/// Where a process listens.
///
/// ```
/// use millstream_link::Address;
/// let address: Address = "[::1]:7600".parse()?;
/// assert_eq!(address, Address::Tcp { host: "::1".to_owned(), port: 7600 });
/// assert!(address.is_local());
/// let address: Address = "/run/flow/0.sock".parse()?;
/// assert!(address.is_local() && matches!(address, Address::Unix(_)));
/// assert!("flow-1".parse::<Address>().is_err());
/// # Ok::<(), millstream_link::LinkError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A name or number of a machine, and a port.
    Tcp {
        /// The name, or the number without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// The file of a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// The addresses of the name, as of now.
    ///
    /// # Errors
    /// The name is not known, or it is the path of a socket.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn resolve(&self) -> io::Result<std::vec::IntoIter<SocketAddr>> {
        match self {
            Address::Tcp { host, port } => (host.as_str(), *port).to_socket_addrs(),
            Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Whether only processes of this machine reach it: a Unix socket, or a name with addresses of the loopback
    /// interface only.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp { .. } => self.resolve().is_ok_and(|mut addresses| {
                addresses.len() > 0
                    && addresses.all(|address| address.ip().to_canonical().is_loopback())
            }),
        }
    }

    /// The name of the machine, for its certificate; `localhost` for a Unix socket.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn host(&self) -> &str {
        match self {
            Address::Tcp { host, .. } => host,
            Address::Unix(_) => "localhost",
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Address::Tcp {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }
}

impl FromStr for Address {
    type Err = LinkError;

    /// `HOST:PORT`, `[ADDRESS]:PORT`, or a path with a slash.
    fn from_str(text: &str) -> Result<Self, LinkError> {
        if text.contains('/') {
            return Ok(Address::Unix(text.into()));
        }
        let wrong = || {
            LinkError::Usage(format!(
                "'{text}' is no address: HOST:PORT, or the path of a Unix socket, with a slash"
            ))
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = match bare {
            Some(bare) => bare,
            None if host.is_empty() || host.contains(':') => return Err(wrong()),
            None => host,
        };
        let port = port.parse().map_err(|_| wrong())?;
        Ok(Address::Tcp {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}
