//! A source of the bodies of POST requests.
//!
//! One thread serves all connections. A request that passes all checks becomes one record of the [`Intake`], and the
//! partition of the flow reads the records in order.
//!
//! Invariant: with a state directory a request is answered with 200 only after its record survives what the options of
//! the run say: the death of the process, or a loss of power. The position of the source is the number of the next
//! record.

mod body;
mod check;
mod desk;
mod intake;
mod partition;
mod received;
mod recorded;
mod replies;
mod reply;
mod rules;
mod server;
mod signature;
mod waiting;

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use millstream_flow::poller::Io;
use millstream_flow::source::{Beginning, Partition, Position, Recording, Resumable, Source};

use crate::address::{self, Bound};
use crate::lock;
use crate::rules::{BODY_BYTES_LIMIT, BODY_BYTES_MAX, ServerRules};
use crate::url::UrlPath;

pub use body::{Body, Item};
pub use received::Received;
pub use replies::Replies;
pub use reply::Reply;
pub use signature::{Digest, Hash, Signature};

use desk::Desk;
use intake::{Intake, Store};
use partition::RequestsPartition;
use recorded::RecordedRequests;
use rules::Rules;
use waiting::WaitingRequests;

/// The default for the bytes that the flow has not read.
const PENDING_BYTES_MAX: u64 = 64 << 20;

/// Is called with the address that a source is bound to.
type OnBound = Arc<dyn Fn(&str) + Send + Sync>;

/// A source of the bodies of POST requests. See [`listen`].
#[derive(Clone)]
pub struct Listen {
    address: String,
    rules: Rules,
    pending_bytes_max: u64,
    requests: Option<u64>,
    on_bound: Option<OnBound>,
    /// The recorded requests of the current run, if it has a state directory.
    recorded: Arc<Mutex<Weak<RecordedRequests>>>,
    desk: Arc<Desk>,
}

/// Listens on `address`, `host:port` or `unix:PATH`, and accepts POST requests for the path `/`, whose bodies are JSON.
/// It is endless unless [`Listen::requests`] sets an end.
///
/// Answers: 200 after the request is recorded (without a state directory: after the flow has taken it), 400 for a body
/// that is not of the kind, 401 and 403 for a token that is missing or wrong and for pages of other origins, 404, 405,
/// 408 for a body that does not arrive in time, 413 for one over the limit, 415 for another content type, 429 while the
/// flow does not keep up, 500 if the request cannot be recorded, 503 when the source ends.
#[must_use]
pub fn listen(address: &str) -> Listen {
    Listen {
        address: address.to_owned(),
        rules: Rules {
            paths: vec![UrlPath::new("/")],
            health: None,
            methods: vec!["POST".to_owned()],
            item: Item::Body,
            signature: None,
            reply: None,
            body: Body::Json,
            check_item: None,
            body_bytes_max: BODY_BYTES_MAX,
            server: ServerRules::default(),
        },
        pending_bytes_max: PENDING_BYTES_MAX,
        requests: None,
        on_bound: None,
        recorded: Arc::default(),
        desk: Arc::default(),
    }
}

impl Listen {
    /// Sets the path of the requests, as in a URL. The default is `/`.
    #[must_use]
    pub fn path(self, path: &str) -> Self {
        self.paths([path])
    }
    /// Sets the paths of the requests, as in URLs. With [`Item::Request`] an item has its own.
    #[must_use]
    pub fn paths<'a>(mut self, paths: impl IntoIterator<Item = &'a str>) -> Self {
        self.rules.paths = paths.into_iter().map(UrlPath::new).collect();
        self
    }
    /// Sets a path of health checks: a GET or HEAD is answered with 200 while the source accepts requests, without a
    /// token.
    #[must_use]
    pub fn health(mut self, path: &str) -> Self {
        self.rules.health = Some(UrlPath::new(path));
        self
    }
    /// Sets the methods of the requests: `GET`, `POST`, `PUT`, `PATCH` and `DELETE`; those with [`Item::Request`] alone
    /// that may have no body. The default is `POST`.
    #[must_use]
    pub fn methods<'a>(mut self, methods: impl IntoIterator<Item = &'a str>) -> Self {
        self.rules.methods = methods.into_iter().map(str::to_owned).collect();
        self
    }
    /// Sets what an item is. The default is [`Item::Body`].
    #[must_use]
    pub fn item(mut self, item: Item) -> Self {
        self.rules.item = item;
        self
    }
    /// Requires the signature of a sender. A request without it is answered with 401 before anything of it is recorded,
    /// and counted as a fault of the source.
    #[must_use]
    pub fn signature(mut self, signature: Signature) -> Self {
        self.rules.signature = Some(signature);
        self
    }
    /// Answers a request with the reply of the flow, of the sink [`replies`](Self::replies), and waits for it up to
    /// `limit` after the request is accepted: then the answer is 202. It needs [`Item::Request`].
    #[must_use]
    pub fn reply(mut self, limit: Duration) -> Self {
        self.rules.reply = Some(limit);
        self
    }
    /// The sink of the replies to the requests of this source, for [`Reply::encode`]. In a run with a state directory
    /// they are sent after the commit of their epoch. The first reply to a request counts.
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use std::net::TcpStream;
    /// use std::time::Duration;
    ///
    /// use millstream_flow::{Flow, Options, codec};
    /// use millstream_http::{Body, Item, Received, Reply, listen};
    ///
    /// let (answered, answer) = std::sync::mpsc::channel();
    /// let requests = listen("127.0.0.1:0")
    ///     .item(Item::Request)
    ///     .body(Body::Bytes)
    ///     .reply(Duration::from_secs(60))
    ///     .requests(1)
    ///     .on_bound(move |address| {
    ///         let (address, answered) = (address.to_owned(), answered.clone());
    ///         std::thread::spawn(move || {
    ///             let mut client = TcpStream::connect(address).unwrap();
    ///             write!(client, "POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nto ").unwrap();
    ///             let mut text = String::new();
    ///             client.read_to_string(&mut text).unwrap();
    ///             answered.send(text).unwrap();
    ///         });
    ///     });
    /// let replies = codec::encode(requests.replies()?, Reply::encode);
    /// let flow = Flow::new("echo");
    /// let echo = |item: &[u8]| {
    ///     let request = Received::read(item)?;
    ///     let body = request.body.repeat(2);
    ///     Ok::<_, String>(Reply { request: request.id.to_owned(), status: 200, headers: vec![], body })
    /// };
    /// flow.source("requests", codec::decode(requests, echo)).sink("replies", replies);
    /// flow.run(Options::default())?;
    /// assert!(answer.recv()?.ends_with("to to "));
    /// # Ok::<(), millstream_flow::error::Cause>(())
    /// ```
    ///
    /// # Errors
    /// The source waits for no replies.
    pub fn replies(&self) -> Result<Replies, Cause> {
        if self.rules.reply.is_none() {
            let why =
                "the source answers requests itself: give it a time to wait for replies (reply)";
            return Err(why.into());
        }
        Ok(Replies {
            address: self.address.clone(),
            desk: Arc::clone(&self.desk),
            committing: Arc::default(),
        })
    }
    /// Sets how items are read from a body. The default is [`Body::Json`].
    #[must_use]
    pub fn body(mut self, body: Body) -> Self {
        self.rules.body = body;
        self
    }
    /// Calls `check` with each item before it is accepted; the request is answered with 400 and the line that it
    /// returns. With the parser that reads the items no request is acknowledged that the flow cannot read.
    #[must_use]
    pub fn check_item(
        mut self,
        check: impl Fn(&[u8]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.rules.check_item = Some(Arc::new(check));
        self
    }
    /// Requires the header `Authorization: Bearer TOKEN`.
    #[must_use]
    pub fn token(mut self, token: &str) -> Self {
        self.rules.server.token = Some(token.to_owned());
        self
    }
    /// Accepts pages of the origin `origin`, such as `https://example.org`; `*` accepts every page. May be repeated. By
    /// default pages are refused, and programs, which send no origin, are accepted.
    #[must_use]
    pub fn origin(mut self, origin: &str) -> Self {
        self.rules.server.origins.push(origin.to_owned());
        self
    }
    /// Sets the largest body in bytes, at most 16 MiB; a larger one is answered with 413. The default is 1 MiB.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.rules.body_bytes_max = bytes.min(BODY_BYTES_LIMIT);
        self
    }
    /// Sets how many bytes of requests may wait for the flow; while there are more, requests are answered with 429. The
    /// default is 64 MiB.
    #[must_use]
    pub fn max_pending(mut self, bytes: u64) -> Self {
        self.pending_bytes_max = bytes;
        self
    }
    /// Sets the number of simultaneous connections; further ones wait in the system's queue. The default is 1,024.
    #[must_use]
    pub fn max_connections(mut self, count: usize) -> Self {
        self.rules.server.set_connections_max(count);
        self
    }
    /// Sets the time in which a client sends the next header, sends a body, or reads an answer; a slower one is
    /// disconnected. The default is 30 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.rules.server.timeout = timeout;
        self
    }
    /// Ends the source after this many requests. With a state directory those of earlier runs count.
    #[must_use]
    pub fn requests(mut self, count: u64) -> Self {
        self.requests = Some(count);
        self
    }
    /// Calls `call` with the address that the source is bound to: with port 0 the system chooses the port.
    #[must_use]
    pub fn on_bound(mut self, call: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_bound = Some(Arc::new(call));
        self
    }

    /// Refuses an address that is none, what no request can match, and items that requests do not have; a run does it
    /// too.
    ///
    /// # Errors
    /// One line that names the option.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn check(&self) -> Result<(), Cause> {
        address::check(&self.address)?;
        self.rules.check()
    }

    /// Where the requests of a run are kept, and the number of the first that is not processed.
    fn store(&self, resume: Option<&Position>) -> Result<(Store, u64), Cause> {
        let Some(recorded) = lock(&self.recorded).upgrade() else {
            return Ok((Store::Waiting(WaitingRequests::default()), 0));
        };
        let resume = resume.map(Position::require_number).transpose()?;
        let first = recorded.resume(resume)?;
        Ok((Store::Recorded(recorded), first))
    }
}

impl Source<Frames> for Listen {
    fn describe(&self) -> String {
        let paths: Vec<_> = self.rules.paths.iter().map(UrlPath::as_str).collect();
        format!("http listen {}{}", self.address, paths.join(","))
    }
    fn open(
        &self,
        _: usize,
        resume: Option<&Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<Frames>>, Cause> {
        self.check()?;
        let (store, first) = self.store(resume)?;
        let intake = Intake::new(
            store,
            first,
            self.pending_bytes_max,
            self.requests,
            io.wake(),
        )?;
        let bound = Bound::bind(&self.address)?;
        let address = bound.address()?;
        let desk = Arc::clone(&self.desk);
        let held = self.desk.hold();
        let server = server::start(bound, self.rules.clone(), Arc::clone(&intake), desk)?;
        self.desk.serve(server);
        if let Some(call) = &self.on_bound {
            call(&address);
        }
        Ok(Box::new(RequestsPartition::new(
            intake,
            held,
            first,
            self.rules.item,
        )?))
    }
    fn resumable(&self) -> Option<&dyn Resumable> {
        Some(self)
    }
}

impl Resumable for Listen {
    fn begin(&self, run: &Beginning<'_>) -> Result<Option<Arc<dyn Recording>>, Cause> {
        let Some(state_dir) = run.state_dir else {
            *lock(&self.recorded) = Weak::new();
            tracing::info!(
                source = run.source,
                "source \"{}\": without a state directory a request is acknowledged when the flow has taken it; a crash loses what the \
                 flow has not processed",
                run.source
            );
            return Ok(None);
        };
        let recorded = RecordedRequests::open(state_dir, run.source, run.sync, run.forget)?;
        let recorded = Arc::new(recorded);
        *lock(&self.recorded) = Arc::downgrade(&recorded);
        Ok(Some(recorded))
    }
}
