//! A sink that is a feed of a stream for browsers: over a WebSocket, or as server-sent events.
//!
//! One thread serves all clients. A writer puts each item into the queue of each client and never waits: a client whose
//! queue is full is disconnected.
//!
//! Invariant: a client receives all items from its first one on, in order and without a gap, until it is disconnected.

mod check;
pub(crate) mod clients;
pub(crate) mod connection;
mod events;
pub(crate) mod history;
pub(crate) mod item;
mod one;
mod queue;
mod socket;

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use hyper::body::Bytes;
use millstream_flow::control::Control;
use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use millstream_flow::sink::{Sink, Token, Writer};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::address::{self, Bound};
use crate::lock;
use crate::rules::{CLIENT_BYTES_MAX, ServerRules};
use crate::server::Server;
use crate::url::UrlPath;

use clients::Clients;
use connection::{Handler, connection};
use item::Item;
use one::OneFeed;

/// Is called with the address that a sink is bound to.
type OnBound = Arc<dyn Fn(&str) + Send + Sync>;

/// A sink that is a feed for browsers. See [`feed`].
#[derive(Clone)]
pub struct Feed {
    address: String,
    path: UrlPath,
    rules: ServerRules,
    client_bytes_max: usize,
    on_bound: Option<OnBound>,
    /// The server of the current run, which the writers of all workers share.
    running: Arc<Mutex<Weak<Running>>>,
}

/// Listens on `address`, `host:port` or `unix:PATH`, and sends each item, a text in UTF-8, to all clients of the path
/// `/`.
///
/// A client receives the items from its connection on: as text messages if it asks for a WebSocket, as server-sent
/// events otherwise. A client that does not keep up is disconnected, see [`Feed::max_client`]. When the flow ends,
/// clients receive what is queued, and are disconnected.
///
/// Browsers send the origin of a page; by default each origin is refused, see [`Feed::origin`].
///
/// ```
/// use std::io::{BufRead, BufReader, Write};
/// use std::net::TcpStream;
///
/// use millstream_flow::{Flow, Options, codec, testing};
///
/// // A client that connects before the first item.
/// let (connected, client) = std::sync::mpsc::channel();
/// let feed = millstream_http::feed("127.0.0.1:0").on_bound(move |address| {
///     let mut client = TcpStream::connect(address).unwrap();
///     write!(client, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
///     let mut lines = BufReader::new(client).lines().map(Result::unwrap);
///     assert!(lines.any(|line| line.starts_with(": "))); // the feed has begun
///     connected.send(lines).unwrap();
/// });
/// let flow = Flow::new("words");
/// flow.source("words", testing::items(["to", "be"])).sink("feed", codec::encode(feed, codec::display));
/// flow.run(Options::default())?;
/// let items: Vec<String> = client.recv().unwrap().filter(|line| line.starts_with("data: ")).collect();
/// assert_eq!(items, ["data: to", "data: be"]);
/// # Ok::<(), millstream_flow::FlowError>(())
/// ```
#[must_use]
pub fn feed(address: &str) -> Feed {
    Feed {
        address: address.to_owned(),
        path: UrlPath::new("/"),
        rules: ServerRules::default(),
        client_bytes_max: CLIENT_BYTES_MAX,
        on_bound: None,
        running: Arc::default(),
    }
}

impl Feed {
    /// Sets the path of the feed, as in a URL. The default is `/`.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        self.path = UrlPath::new(path);
        self
    }
    /// Requires the header `Authorization: Bearer TOKEN`, or `?token=TOKEN` in the URL, for browsers, which cannot set
    /// headers of a feed.
    #[must_use]
    pub fn token(mut self, token: &str) -> Self {
        self.rules.token = Some(token.to_owned());
        self
    }
    /// Accepts pages of the origin `origin`, such as `https://example.org`; `*` accepts every page. May be repeated.
    /// Requests without an origin, of programs that are not browsers, need none. A feed on a loopback address without a
    /// token accepts such requests for an address, for `localhost`, and for the hosts of accepted origins.
    #[must_use]
    pub fn origin(mut self, origin: &str) -> Self {
        self.rules.origins.push(origin.to_owned());
        self
    }
    /// Sets how many bytes may wait for one client; with more it is disconnected. Each item counts 64 bytes more than
    /// its text. A single item may be larger. Clients share the bytes of an item. The default is 8 MiB.
    #[must_use]
    pub fn max_client(mut self, bytes: usize) -> Self {
        self.client_bytes_max = bytes;
        self
    }
    /// Sets the number of simultaneous connections; further ones wait in the system's queue. The default is 1,024.
    #[must_use]
    pub fn max_connections(mut self, count: usize) -> Self {
        self.rules.set_connections_max(count);
        self
    }
    /// Sets the time in which a client sends its request, reads what was sent, or answers one of two pings; a slower
    /// one is disconnected. The default is 30 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.rules.timeout = timeout;
        self
    }
    /// Calls `call` with the address that the sink is bound to: with port 0 the system chooses the port.
    #[must_use]
    pub fn on_bound(mut self, call: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_bound = Some(Arc::new(call));
        self
    }

    /// Refuses an address that is none, and what no request can match; a run does it too.
    ///
    /// # Errors
    /// One line that names the option.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn check(&self) -> Result<(), Cause> {
        address::check(&self.address)?;
        self.path.check()?;
        self.rules.check()
    }

    /// The server, which the first writer starts.
    fn running(&self) -> Result<Arc<Running>, Cause> {
        let mut running = lock(&self.running);
        if let Some(running) = running.upgrade() {
            return Ok(running);
        }
        self.check()?;
        let bound = Bound::bind(&self.address)?;
        let address = bound.address()?;
        let clients = Arc::new(Clients::new(&address, self.client_bytes_max));
        let mut rules = self.rules.clone();
        rules.set_bound(&bound);
        let handler = Arc::new(OneFeed {
            path: self.path.clone(),
            rules,
            clients: Arc::clone(&clients),
        });
        let server = Server::start(
            OneFeed::NAME,
            bound,
            self.rules.limits(),
            std::future::ready(()),
            move |socket, place, stopped| connection(socket, place, Arc::clone(&handler), stopped),
        )?;
        let started = Arc::new(Running { clients, server });
        *running = Arc::downgrade(&started);
        drop(running);
        if let Some(call) = &self.on_bound {
            call(&address);
        }
        Ok(started)
    }
}

/// The server of a run. The last writer that is closed ends it.
struct Running {
    clients: Arc<Clients>,
    server: Server,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.clients.end();
        self.server.stop();
    }
}

impl Sink<Frames> for Feed {
    fn describe(&self) -> String {
        format!("http feed {}{}", self.address, self.path)
    }
    fn open(&self, _: usize, _: &Arc<Control>) -> Result<Box<dyn Writer<Frames>>, Cause> {
        Ok(Box::new(FeedWriter {
            running: Some(self.running()?),
        }))
    }
    fn in_one_process(&self) -> bool {
        true
    }
}

struct FeedWriter {
    /// `None` after it is closed.
    running: Option<Arc<Running>>,
}

impl Writer<Frames> for FeedWriter {
    fn write_batch(&mut self, batch: &mut Frames) -> Result<(), Cause> {
        if let Some(running) = &self.running {
            let items = texts(batch)?;
            running.clients.send(&items, 0);
        }
        batch.data.clear();
        batch.spans.clear();
        Ok(())
    }
    fn flush(&mut self) -> Result<(), Cause> {
        Ok(())
    }
    fn close(&mut self) -> Result<Option<Token>, Cause> {
        self.running = None;
        Ok(None)
    }
}

/// The items of a batch, which share one buffer.
fn texts(batch: &Frames) -> Result<Vec<Item>, Cause> {
    let total = batch.iter().map(<[u8]>::len).sum();
    let mut buffer = Vec::with_capacity(total);
    batch.iter().for_each(|item| buffer.extend_from_slice(item));
    let mut buffer = Bytes::from(buffer);
    let text = |item: &[u8]| {
        let text = Utf8Bytes::try_from(buffer.split_to(item.len()));
        text.map(Item::from).map_err(|error| {
            let item = String::from_utf8_lossy(&item[..item.len().min(80)]).into_owned();
            format!("a feed is of text in UTF-8, unlike the item \"{item}\": {error}").into()
        })
    };
    batch.iter().map(text).collect()
}
