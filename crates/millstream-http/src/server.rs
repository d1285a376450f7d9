//! A server: one thread, a task for each connection.

use std::future::{Future, poll_fn};
use std::io::Result;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_flow::error::Cause;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use crate::address::{Bound, SocketFile};
use crate::places::{Limits, Peer, Place, Places};
use crate::stream::Socket;

/// The time in which requests that have begun are answered after a stop.
const GRACE: Duration = Duration::from_secs(3);
/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server at work.
pub(crate) struct Server {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Whether a server is stopped.
pub(crate) type Stopped = watch::Receiver<bool>;

/// A listening socket of the runtime.
enum Listener {
    Tcp(TcpListener),
    Unix(
        UnixListener,
        #[expect(dead_code, reason = "removes the file")] SocketFile,
    ),
}

impl Listener {
    fn new(bound: Bound) -> Result<Self> {
        Ok(match bound {
            Bound::Tcp(listener) => Listener::Tcp(TcpListener::from_std(listener)?),
            Bound::Unix(listener, file) => Listener::Unix(UnixListener::from_std(listener)?, file),
        })
    }

    async fn accept(&self) -> Result<(Socket, Peer)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Only latency depends on it.
                let _ = stream.set_nodelay(true);
                Ok((Socket::Tcp(stream), Peer::of(Some(peer.ip()))))
            }
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok((Socket::Unix(stream), Peer::of(None)))
            }
        }
    }
}

impl Server {
    /// Starts the thread, whose name is `name`. It runs `background`, and `connection` for each connection that has a
    /// place.
    pub(crate) fn start<C>(
        name: &'static str,
        bound: Bound,
        limits: Limits,
        background: impl Future<Output = ()> + Send + 'static,
        connection: impl Fn(Socket, Arc<Place>, Stopped) -> C + Send + 'static,
    ) -> core::result::Result<Self, Cause>
    where
        C: Future<Output = ()> + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let listener = {
            let _entered = runtime.enter();
            Listener::new(bound)?
        };
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let background = tokio::spawn(background);
                    serve(name, listener, limits, connection, stopped).await;
                    background.abort();
                });
                // A sync that hangs is not waited for.
                runtime.shutdown_background();
            })?;
        Ok(Server {
            stop,
            thread: Some(thread),
        })
    }

    /// Accepts no more connections, answers the requests that have begun, and ends the thread.
    pub(crate) fn stop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns the output of `work`, or `None` if `stop` is ready first.
pub(crate) async fn until<T>(work: impl Future<Output = T>, stop: impl Future) -> Option<T> {
    let mut work = pin!(work);
    let mut stop = pin!(stop);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => stop.as_mut().poll(cx).map(|_| None),
    })
    .await
}

/// Returns when the server is stopped.
pub(crate) async fn wait_stopped(mut stopped: Stopped) {
    // An error says that the sender is gone.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

async fn serve<C>(
    name: &str,
    listener: Listener,
    limits: Limits,
    connection: impl Fn(Socket, Arc<Place>, Stopped) -> C,
    stopped: Stopped,
) where
    C: Future<Output = ()> + Send + 'static,
{
    let places = Places::new(limits);
    let mut connections = JoinSet::new();
    let accept = async || {
        let (socket, peer) = listener.accept().await?;
        let place = places.enter(peer).await;
        Result::Ok(place.map(|place| (socket, place)))
    };
    while let Some(accepted) = until(accept(), wait_stopped(stopped.clone())).await {
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok(Some((socket, place))) => {
                let place = Arc::new(place);
                let connection = connection(socket, Arc::clone(&place), stopped.clone());
                connections.spawn(async move {
                    until(connection, place.ended()).await;
                });
                // A request that is there already is read before further connections need its place.
                yield_now().await;
            }
            Ok(None) => tracing::debug!("{name}: too many open connections from an address"),
            Err(error) => {
                // For instance too many open files: existing connections are not affected.
                tracing::warn!("{name}: cannot accept a connection: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    // What has not sent its request by then is disconnected.
    let _ = timeout(GRACE, drained).await;
    connections.abort_all();
}
