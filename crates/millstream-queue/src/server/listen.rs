//! Accepting connections, on addresses and on sockets from systemd.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketType, getsockname, sockopt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::attempts::ThrottleKey;
use super::connection::{log_rejected, serve};
use super::core::Core;
use super::error::ServerError;
use super::options::ServerOptions;
use crate::address::Address;
use crate::session::{Compat, Session};

/// The pause when the system has no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
/// The backlog of pending connections: as many as the system allows (`net.core.somaxconn`), which takes the lower
/// number. With a shorter backlog, clients in a burst of connects retry after a second.
const BACKLOG: i32 = i32::MAX;
/// The limit of a TLS handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

pub(super) struct Listeners(Vec<(Listener, Compat)>);

enum Listener {
    Tcp {
        listener: TcpListener,
        address: Address,
    },
    Unix {
        listener: UnixListener,
        address: Address,
        _file: Option<SocketFile>,
    },
}

/// A new connection.
enum Client {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The file of a socket that this process has made. It is removed with this value.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may be gone already; if it stays, the next start replaces it.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listeners {
    /// Listens on all addresses, or on the sockets from systemd if this process owns any.
    pub(super) fn bind(options: &ServerOptions) -> Result<Self, ServerError> {
        let addresses = &options.listen;
        let mut listeners = Vec::new();
        let passed = if options.owns_process {
            // Variables that are malformed are not those of systemd.
            sd_listen_fds::get().unwrap_or_default()
        } else {
            Vec::new()
        };
        for (index, (_, socket)) in passed.into_iter().enumerate() {
            let listener =
                Listener::inherited(socket.into_std()).map_err(|source| ServerError::Listen {
                    address: format!("socket {index} of systemd"),
                    source,
                })?;
            let compat = addresses
                .get(index)
                .map_or(Compat::default(), |(_, compat)| *compat);
            listeners.push((listener, compat));
        }
        if listeners.is_empty() {
            for (address, compat) in addresses {
                let listener = Listener::bind(address).map_err(|source| ServerError::Listen {
                    address: address.to_string(),
                    source,
                })?;
                listeners.push((listener, *compat));
            }
        }
        Ok(Listeners(listeners))
    }

    /// Starts accepting connections. Returns what ends this, and the addresses.
    pub(super) fn spawn(
        self,
        core: &Rc<Core>,
        tasks: &mut JoinSet<()>,
    ) -> (Vec<AbortHandle>, Vec<Address>) {
        let accepting = self.0.into_iter().map(|(listener, compat)| {
            let address = listener.address().clone();
            let accepting = tasks.spawn_local(accept(listener, Rc::clone(core), compat));
            (accepting, address)
        });
        accepting.unzip()
    }
}

impl Listener {
    fn bind(address: &Address) -> io::Result<Self> {
        match address {
            // On Linux, std sets SO_REUSEADDR, so that a restart does not wait for old connections.
            Address::Tcp(address) => Listener::tcp(std::net::TcpListener::bind(address)?),
            Address::Unix(path) => {
                let listener = bind_unix(path)?;
                Listener::unix(listener, Some(SocketFile(path.clone())))
            }
        }
    }

    /// A socket from systemd, which programs that this process starts do not get.
    fn inherited(socket: OwnedFd) -> io::Result<Self> {
        fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
        let stream = sockopt::socket_type(&socket)? == SocketType::STREAM;
        match getsockname(&socket)?.address_family() {
            AddressFamily::UNIX if stream => Listener::unix(socket.into(), None),
            AddressFamily::INET | AddressFamily::INET6 if stream => Listener::tcp(socket.into()),
            _ => Err(io::Error::other(
                "it is neither a TCP nor a Unix stream socket",
            )),
        }
    }

    fn tcp(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        rustix::net::listen(&listener, BACKLOG)?;
        Ok(Listener::Tcp {
            address: listener.local_addr()?.into(),
            listener: TcpListener::from_std(listener)?,
        })
    }

    fn unix(
        listener: std::os::unix::net::UnixListener,
        file: Option<SocketFile>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        rustix::net::listen(&listener, BACKLOG)?;
        let path = listener.local_addr()?.as_pathname().map(Path::to_path_buf);
        let address = Address::Unix(path.unwrap_or_default());
        Ok(Listener::Unix {
            listener: UnixListener::from_std(listener)?,
            address,
            _file: file,
        })
    }

    fn address(&self) -> &Address {
        match self {
            Listener::Tcp { address, .. } | Listener::Unix { address, .. } => address,
        }
    }

    async fn accept(&self) -> io::Result<(Client, Address)> {
        match self {
            Listener::Tcp { listener, .. } => {
                let (stream, peer) = listener.accept().await?;
                Ok((Client::Tcp(stream), peer.into()))
            }
            // The peer of such a connection has no address.
            Listener::Unix {
                listener, address, ..
            } => {
                let (stream, _) = listener.accept().await?;
                Ok((Client::Unix(stream), address.clone()))
            }
        }
    }
}

/// Listens on a socket in the file system. A socket that a killed server has left is replaced.
fn bind_unix(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    use std::os::unix::net::{UnixListener, UnixStream};
    match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let is_socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
            let refuses = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
            if !is_socket || !UnixStream::connect(path).is_err_and(refuses) {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        result => result,
    }
}

async fn accept(listener: Listener, core: Rc<Core>, compat: Compat) {
    loop {
        match listener.accept().await {
            Ok((client, peer)) => {
                let key = client.throttle_key();
                begin(client, (peer, key), &core, compat);
            }
            // The connection is gone already, or there is no file descriptor for it: continue with others.
            Err(error) => {
                warn!("cannot take a connection: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Ends the connection when the client's machine has not answered for this time, with data under way and without.
/// Otherwise the items of a machine that has vanished would stay open, and its waits would be handed further ones.
fn set_keepalive(stream: &TcpStream, time: Duration) -> io::Result<()> {
    if time.is_zero() {
        return Ok(());
    }
    let second = Duration::from_secs(1);
    let probes = 2;
    let pause = (time / 3).max(second);
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, pause)?;
    sockopt::set_tcp_keepintvl(stream, pause)?;
    sockopt::set_tcp_keepcnt(stream, probes)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(time.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

fn begin(client: Client, peer: (Address, ThrottleKey), core: &Rc<Core>, compat: Compat) {
    if let Err(why) = core.with(|state| state.admit(peer.1)) {
        log_rejected(&peer.0, why);
        // If the reply does not fit into the socket's buffer, the peer reads nothing.
        let _ = client.try_write(format!("SERVER_ERROR {why}\r\n").as_bytes());
        return;
    }
    let core = Rc::clone(core);
    let session = {
        let core = Rc::clone(&core);
        move || {
            core.with(|state| {
                let options = Arc::clone(state.live.session(compat));
                Session::new(&mut state.broker, options)
            })
        }
    };
    match client {
        // The peer is on this machine and may open the file: TLS is not needed.
        Client::Unix(stream) => {
            tokio::task::spawn_local(async move { serve(core, stream, session(), peer).await });
        }
        Client::Tcp(stream) => {
            let (tls, keepalive) =
                core.with(|state| (state.live.tls.clone(), state.live.limits.keepalive));
            let set = stream.set_nodelay(true);
            if let Err(error) = set.and_then(|()| set_keepalive(&stream, keepalive)) {
                debug!("{}: {error}", peer.0);
            }
            tokio::task::spawn_local(async move {
                match tls {
                    None => serve(core, stream, session(), peer).await,
                    Some(tls) => serve_tls(core, stream, &tls, session, peer).await,
                }
            });
        }
    }
}

async fn serve_tls(
    core: Rc<Core>,
    stream: TcpStream,
    tls: &TlsAcceptor,
    session: impl FnOnce() -> Session,
    peer: (Address, ThrottleKey),
) {
    let why = match tokio::time::timeout(HANDSHAKE_TIME, tls.accept(stream)).await {
        Ok(Ok(stream)) => return serve(core, stream, session(), peer).await,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no handshake in time".to_owned(),
    };
    log_rejected(&peer.0, &why);
    core.with(|state| state.connections.free(peer.1));
    core.connection_ended();
}

impl Client {
    /// The origin of the client, for password attempts.
    fn throttle_key(&self) -> ThrottleKey {
        match self {
            Client::Tcp(stream) => {
                let address = stream.peer_addr();
                address.map_or(ThrottleKey::User(None), |address| {
                    ThrottleKey::of(address.ip())
                })
            }
            Client::Unix(stream) => {
                ThrottleKey::User(stream.peer_cred().ok().map(|user| user.uid()))
            }
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Client::Tcp(stream) => stream.try_write(bytes),
            Client::Unix(stream) => stream.try_write(bytes),
        }
    }
}
