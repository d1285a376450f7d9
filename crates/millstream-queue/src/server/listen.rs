//! Taking connections: from addresses of our own and from sockets that systemd hands over.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::ServerError;
use super::connection::{serve, turned_away};
use super::core::Core;
use crate::session::{Compat, Session, SessionOptions};

/// How long to wait when the system has no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a TLS handshake may take.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

pub(super) struct Listeners(Vec<(TcpListener, Compat)>);

impl Listeners {
    /// Listen on all addresses. When systemd hands sockets over, those are taken instead.
    pub(super) fn bind(addresses: &[(SocketAddr, Compat)]) -> Result<Self, ServerError> {
        let mut listeners = Vec::new();
        let mut handed = listenfd::ListenFd::from_env();
        for index in 0..handed.len() {
            let failed = |source| ServerError::Listen {
                address: format!("socket {index} of systemd"),
                source,
            };
            let Some(listener) = handed.take_tcp_listener(index).map_err(failed)? else {
                continue;
            };
            listener.set_nonblocking(true).map_err(failed)?;
            let compat = addresses
                .get(index)
                .map_or(Compat::default(), |(_, compat)| *compat);
            listeners.push((TcpListener::from_std(listener).map_err(failed)?, compat));
        }
        if listeners.is_empty() {
            for (address, compat) in addresses {
                let failed = |source| ServerError::Listen {
                    address: address.to_string(),
                    source,
                };
                // On Linux, std sets SO_REUSEADDR, so that a restart need not wait for old connections.
                let listener = std::net::TcpListener::bind(address).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                listeners.push((TcpListener::from_std(listener).map_err(failed)?, *compat));
            }
        }
        Ok(Listeners(listeners))
    }

    /// Take connections from now on.
    pub(super) fn spawn(
        self,
        core: &Rc<Core>,
        session: &SessionOptions,
        tls: Option<&TlsAcceptor>,
        ready: &mut impl FnMut(&str),
    ) -> Vec<JoinHandle<()>> {
        let mut tasks = Vec::new();
        for (listener, compat) in self.0 {
            let options = Arc::new(SessionOptions {
                compat,
                ..session.clone()
            });
            let address = listener
                .local_addr()
                .map_or_else(|error| error.to_string(), |address| address.to_string());
            tasks.push(tokio::task::spawn_local(accept(
                listener,
                Rc::clone(core),
                options,
                tls.cloned(),
            )));
            ready(&address);
        }
        tasks
    }
}

async fn accept(
    listener: TcpListener,
    core: Rc<Core>,
    options: Arc<SessionOptions>,
    tls: Option<TlsAcceptor>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => begin(stream, peer, &core, &options, tls.as_ref()),
            // A connection that is gone already, or no file descriptor for it: others will come.
            Err(error) => {
                warn!("cannot take a connection: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn begin(
    stream: TcpStream,
    peer: SocketAddr,
    core: &Rc<Core>,
    options: &Arc<SessionOptions>,
    tls: Option<&TlsAcceptor>,
) {
    let room = core.with(|state| {
        let room = state.connections < core.limits.connections;
        state.connections += usize::from(room);
        room
    });
    if !room {
        turned_away(peer, "too many connections");
        // If it does not fit into the socket's buffer, the peer has sent nothing and reads nothing: let it be.
        let _ = stream.try_write(b"SERVER_ERROR too many open connections\r\n");
        return;
    }
    if let Err(error) = stream.set_nodelay(true) {
        debug!("{peer}: {error}");
    }
    let core = Rc::clone(core);
    let options = Arc::clone(options);
    let tls = tls.cloned();
    tokio::task::spawn_local(async move {
        let session = |core: &Core| core.with(|state| Session::new(&mut state.queues, options));
        match tls {
            None => {
                let session = session(&core);
                serve(core, stream, session, peer).await;
            }
            Some(tls) => match tokio::time::timeout(HANDSHAKE_TIME, tls.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let session = session(&core);
                    serve(core, stream, session, peer).await;
                }
                failed => {
                    let why = match failed {
                        Ok(Err(error)) => error.to_string(),
                        _ => "no handshake in time".to_owned(),
                    };
                    turned_away(peer, &why);
                    core.with(|state| state.connections -= 1);
                    core.has_ended();
                }
            },
        }
    });
}
