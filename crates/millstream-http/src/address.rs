//! Addresses as a person writes them: `HOST:PORT`, `:PORT` or `PORT` on this machine alone, or `unix:PATH`.

use std::io::{Error, ErrorKind, Result};
use std::net::{TcpListener, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The prefix of the address of a Unix socket.
const UNIX: &str = "unix:";

/// A bound socket.
pub(crate) enum Bound {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket, which is removed with it.
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A file that stays is taken over by the next listener.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Bound {
    /// Binds `address`.
    ///
    /// # Errors
    /// An address that is in use, or none; the error names it.
    pub(crate) fn bind(address: &str) -> Result<Self> {
        let named = |error: Error| match error.kind() {
            // It is named already.
            ErrorKind::InvalidInput => error,
            kind => Error::new(kind, format!("{address}: {error}")),
        };
        let bound = match address.strip_prefix(UNIX) {
            Some(path) => bind_unix(Path::new(path)),
            None => bind_tcp(address).map(Bound::Tcp),
        };
        bound.map_err(named)
    }

    /// Whether only this machine can connect, over TCP.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Bound::Tcp(listener) => listener
                .local_addr()
                .is_ok_and(|address| address.ip().to_canonical().is_loopback()),
            Bound::Unix(..) => false,
        }
    }

    /// The address, with the port that the system has chosen if it was 0.
    pub(crate) fn address(&self) -> Result<String> {
        Ok(match self {
            Bound::Tcp(listener) => listener.local_addr()?.to_string(),
            Bound::Unix(_, file) => format!("{UNIX}{}", file.0.display()),
        })
    }
}

/// Refuses what is no address.
///
/// # Errors
/// One line that says what an address is.
pub(crate) fn check(address: &str) -> std::result::Result<(), String> {
    match address.strip_prefix(UNIX) {
        Some(_) => Ok(()),
        None => host_and_port(address).map(|_| ()),
    }
}

/// The host and the port that a text names; the host is 127.0.0.1 unless it names one.
///
/// # Errors
/// One line that says what an address is.
pub fn host_and_port(text: &str) -> std::result::Result<(&str, u16), String> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let port = port.parse::<u16>();
    let port =
        port.map_err(|_| format!("'{text}' is no address like 8080, :8080 or 127.0.0.1:8080"))?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    Ok((if host.is_empty() { "127.0.0.1" } else { host }, port))
}

fn bind_tcp(address: &str) -> Result<TcpListener> {
    let (host, port) =
        host_and_port(address).map_err(|error| Error::new(ErrorKind::InvalidInput, error))?;
    let mut outcome = Err(Error::other("no such address"));
    for at in (host, port).to_socket_addrs()? {
        outcome = TcpListener::bind(at);
        if outcome.is_ok() {
            break;
        }
    }
    let listener = outcome?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Binds a Unix socket; the socket of a process that has ended is replaced.
fn bind_unix(path: &Path) -> Result<Bound> {
    let bound = match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let is_socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
            let is_refused = || {
                let refused = UnixStream::connect(path).map_err(|error| error.kind());
                refused.err() == Some(ErrorKind::ConnectionRefused)
            };
            if !is_socket || !is_refused() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    };
    let listener = bound?;
    listener.set_nonblocking(true)?;
    Ok(Bound::Unix(listener, SocketFile(path.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_left_socket_is_replaced_and_one_in_use_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = format!("unix:{}", path.display());
        drop(UnixListener::bind(&path).unwrap());
        let bound = Bound::bind(&address).unwrap();
        assert_eq!(bound.address().unwrap(), address);
        let error = Bound::bind(&address).err().unwrap().to_string();
        assert!(error.starts_with(&address), "{error}");
        drop(bound);
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        assert!(Bound::bind(&address).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
    }

    #[test]
    fn a_port_alone_is_one_of_this_machine() {
        for (address, full) in [
            ("80", ("127.0.0.1", 80)),
            (":80", ("127.0.0.1", 80)),
            ("h:80", ("h", 80)),
            ("[::1]:80", ("::1", 80)),
        ] {
            assert_eq!(host_and_port(address).unwrap(), full);
        }
        for wrong in ["", "h", "h:", "h:70000", "70000", ":x"] {
            assert!(host_and_port(wrong).is_err(), "{wrong}");
        }
        assert!(Bound::bind("0").unwrap().is_loopback());
    }

    #[test]
    fn an_address_that_is_none_is_named() {
        for address in [
            "nonsense",
            "70000",
            "127.0.0.1:no",
            "unix:/no/such/directory/s",
        ] {
            let error = Bound::bind(address).err().unwrap().to_string();
            assert!(error.contains(address), "{error}");
        }
    }
}
