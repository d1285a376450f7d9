//! The gateway of services: requests become calls in journals, and calls in journals become feeds.
//!
//! - `POST /INTERFACE/METHOD` with the arguments as JSON is a call of an interface. It is checked against the schema,
//!   appended to the journal of the interface, and answered. With the header `Idempotency-Key` a request that is
//!   repeated is one call.
//! - `GET /feeds/NAME` is a feed of the calls in the journal `NAME`, over a WebSocket or as server-sent events.
//!
//! Invariant: a call is answered with 200 only after its record survives what [`Gateway::sync`] says, and is recorded
//! once for each request. A client of a feed receives all calls from its first one on, in order and without a gap,
//! until it is disconnected, and the following ones when it resumes.

mod answers;
mod calls;
mod follow;
mod handler;
mod id;
mod intake;
mod item;
mod once;
mod past;
mod queries;
mod search;
mod state;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_flow::error::Cause;
use millstream_journal::Sync;
use millstream_wire::Schema;

use crate::address::Bound;
use crate::budget::Budget;
use crate::feed::clients::Clients;
use crate::feed::connection::{Handler, connection};
use crate::rules::{BODY_BYTES_LIMIT, BODY_BYTES_MAX, CLIENT_BYTES_MAX, ServerRules};
use crate::server::Server;

use answers::Output;
use calls::Interfaces;
use follow::Follower;
use handler::GatewayHandler;
use state::State;

/// The bytes of requests that are being received.
const RECEIVED_BYTES_MAX: u64 = 64 << 20;
/// The default for how long the key of a call is kept, and the least.
const KEEP: Duration = Duration::from_secs(24 * 3600);
const KEEP_MIN: Duration = Duration::from_secs(1);

/// A gateway that is not started. See [`gateway`].
#[derive(Clone, Debug)]
pub struct Gateway {
    address: String,
    rules: ServerRules,
    sync: Sync,
    keep: Duration,
    body_bytes_max: usize,
    client_bytes_max: usize,
    calls: Vec<(PathBuf, Vec<Schema>)>,
    answers: Vec<(PathBuf, PathBuf)>,
    feeds: Vec<PathBuf>,
    states: Vec<PathBuf>,
}

/// A gateway that listens on `address`, `host:port` or `unix:PATH`, as soon as it is [started](Gateway::start).
///
/// Answers to calls: 200 with the journal and the number of the record, 400 for arguments that do not match the schema
/// (the line names the argument), 401 and 403 for a token that is missing or wrong and for pages of other origins, 404
/// for an interface or a method that does not exist, 405, 408 for a body that does not arrive in time, 413 for one over
/// the limit, 415 for another content type, 422 for a key of another call, 429 while 64 MiB of requests are being
/// received, 500 if the call cannot be recorded, 504 if it is recorded and has no [answer](Gateway::answers) in time.
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
///
/// use millstream_wire::{Field, Method, Schema, Type};
///
/// # let folder = tempfile::tempdir().unwrap();
/// let place = Method::new("place", vec![Field::new("symbol", Type::Str)]);
/// let schema = Schema::new("Orders", 1, vec![place], vec![])?;
/// let server = millstream_http::gateway("127.0.0.1:0").calls(folder.path().join("orders"), [schema]).start()?;
///
/// let body = r#"{"symbol": "VOD.L"}"#;
/// let mut client = TcpStream::connect(server.address())?;
/// write!(
///     client,
///     "POST /Orders/place HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
///     body.len()
/// )?;
/// let mut answer = String::new();
/// client.read_to_string(&mut answer)?;
/// assert!(answer.ends_with("{\"journal\":\"orders\",\"sequence\":1}\n"), "{answer}");
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[must_use]
pub fn gateway(address: &str) -> Gateway {
    Gateway {
        address: address.to_owned(),
        rules: ServerRules::default(),
        sync: Sync::Always,
        keep: KEEP,
        body_bytes_max: BODY_BYTES_MAX,
        client_bytes_max: CLIENT_BYTES_MAX,
        calls: Vec::new(),
        answers: Vec::new(),
        feeds: Vec::new(),
        states: Vec::new(),
    }
}

impl Gateway {
    /// Records calls of the interfaces `schemas` in `journal`, which is created if it does not exist. The name of an
    /// interface is that of its schema.
    #[must_use]
    pub fn calls(
        mut self,
        journal: impl AsRef<Path>,
        schemas: impl IntoIterator<Item = Schema>,
    ) -> Self {
        let journal = journal.as_ref().to_owned();
        self.calls.push((journal, schemas.into_iter().collect()));
        self
    }
    /// Answers a call in the journal `calls`, one of [`calls`](Self::calls), with the first output in the journal
    /// `output` that it causes, if the request is `POST /INTERFACE/METHOD?answer=1`. With several outputs the first one
    /// of all counts.
    ///
    /// A request waits for 10 s, or for `timeout=SECONDS`, at most 60: the answer is 504 then, and the call is recorded
    /// all the same.
    #[must_use]
    pub fn answers(mut self, calls: impl AsRef<Path>, output: impl AsRef<Path>) -> Self {
        let pair = (calls.as_ref().to_owned(), output.as_ref().to_owned());
        self.answers.push(pair);
        self
    }
    /// Serves the calls in `journal` as `/feeds/NAME`; `NAME` is the last part of the path. A journal that does not
    /// exist yet is waited for.
    ///
    /// A client receives the calls that are recorded from its connection on. Each event has an id, of the journal, the
    /// record and its checksum. A browser that connects again sends the last one, and receives what it missed; a
    /// WebSocket has it in the URL: `?after=ID`. The answer is 410 if the missed calls, or the last one that the client
    /// has, are not there any more.
    #[must_use]
    pub fn feed(mut self, journal: impl AsRef<Path>) -> Self {
        self.feeds.push(journal.as_ref().to_owned());
        self
    }
    /// Answers `GET /state/NAME/QUERY?ARGUMENT=VALUE` with the state of the service that writes to the journal
    /// `output`, whose last part is `NAME`: it asks the running component
    /// ([`Setup::query`](millstream_service::Setup::query)). Without `/QUERY` it asks the only query of the component.
    /// The token and the origins are those of feeds.
    #[must_use]
    pub fn state(mut self, output: impl AsRef<Path>) -> Self {
        self.states.push(output.as_ref().to_owned());
        self
    }
    /// Requires the header `Authorization: Bearer TOKEN`. For feeds it may also be `?token=TOKEN` in the URL, for
    /// browsers, which cannot set headers of a feed.
    #[must_use]
    pub fn token(mut self, token: &str) -> Self {
        self.rules.token = Some(token.to_owned());
        self
    }
    /// Accepts pages of the origin `origin`, such as `https://example.org`; `*` accepts every page. May be repeated. By
    /// default pages are refused, and programs, which send no origin, are accepted.
    #[must_use]
    pub fn origin(mut self, origin: &str) -> Self {
        self.rules.origins.push(origin.to_owned());
        self
    }
    /// Sets what a call survives that is answered with 200. The default is [`Sync::Always`], a loss of power: calls
    /// that arrive during a sync share the next one.
    #[must_use]
    pub fn sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }
    /// Sets how long the key of a call is kept, at least 1 s. The default is 24 h. Within this time a request that is
    /// repeated with the same header `Idempotency-Key` is one call, whatever process dies; its answer has the header
    /// `Idempotent-Replayed: true`.
    #[must_use]
    pub fn idempotency_keep(mut self, time: Duration) -> Self {
        self.keep = time;
        self
    }
    /// Sets the largest body in bytes, at most 16 MiB. The default is 1 MiB.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.body_bytes_max = bytes.min(BODY_BYTES_LIMIT);
        self
    }
    /// Sets how many bytes may wait for one client of a feed; with more it is disconnected. The default is 8 MiB.
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
    /// Sets the time in which a client sends its request, or reads the answer; a slower one is disconnected. The
    /// default is 30 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.rules.timeout = timeout;
        self
    }

    /// Binds the address and starts the threads of the gateway: one for all connections, and one for each feed.
    ///
    /// # Errors
    /// There is nothing to serve; two journals have one interface, or two feeds one name; a token or an origin is none;
    /// a journal cannot be opened; the address is in use, or none.
    pub fn start(self) -> Result<GatewayServer, Cause> {
        if self.calls.is_empty() && self.feeds.is_empty() && self.states.is_empty() {
            return Err("a gateway has calls, feeds, or states".into());
        }
        self.rules.check()?;
        if self.keep < KEEP_MIN {
            return Err("the keys of calls are kept for at least 1 s".into());
        }
        let outputs = self.outputs()?;
        let interfaces = Arc::new(Interfaces::open(
            &self.calls,
            &outputs,
            self.sync,
            self.keep,
        )?);
        let named = named_journals("feeds", &self.feeds)?;
        let states = named_journals("states", &self.states)?;
        let bound = Bound::bind(&self.address)?;
        let address = bound.address()?;
        let mut rules = self.rules.clone();
        rules.set_bound(&bound);
        let state = Arc::new(State::default());
        let mut feeds = HashMap::new();
        let mut followers = Vec::new();
        let mut clients = Vec::new();
        for (name, journal) in named {
            let shown = format!("{address}/feeds/{name}");
            let follower = Follower::new(journal, Clients::new(&shown, self.client_bytes_max))?;
            feeds.insert(name, Arc::clone(follower.clients()));
            clients.push(Arc::clone(follower.clients()));
            followers.push(follower);
        }
        let handler = Arc::new(GatewayHandler {
            interfaces: Arc::clone(&interfaces),
            feeds,
            states: states.into_iter().collect(),
            rules,
            body_bytes_max: self.body_bytes_max,
            budget: Budget::new(0, RECEIVED_BYTES_MAX, "too many requests; try again later"),
            state: Arc::clone(&state),
        });
        let background = async move {
            interfaces.keep_synced().await;
            interfaces.release_keys().await;
        };
        let server = Server::start(
            GatewayHandler::NAME,
            bound,
            self.rules.limits(),
            background,
            move |socket, place, stopped| connection(socket, place, Arc::clone(&handler), stopped),
        )?;
        let mut started = GatewayServer {
            address,
            server,
            state,
            clients,
            threads: Vec::new(),
        };
        for follower in followers {
            started.spawn(move |state| follower.run(state))?;
        }
        for (_, output) in distinct(outputs) {
            started.spawn(move |state| output.run(state))?;
        }
        Ok(started)
    }

    /// The outputs of answers, each with the journal of its calls. One output may answer the calls of several journals.
    fn outputs(&self) -> Result<Vec<(PathBuf, Arc<Output>)>, Cause> {
        let mut found: Vec<(PathBuf, Arc<Output>)> = Vec::new();
        for (calls, output) in &self.answers {
            if !self.calls.iter().any(|(known, _)| known == calls) {
                let calls = calls.display();
                let output = output.display();
                return Err(format!(
                    "{calls}, answered by {output}: is no journal of calls of this gateway"
                )
                .into());
            }
            let known = found.iter().find(|(_, known)| known.path() == output);
            let known = known.map(|(_, known)| Arc::clone(known));
            let output = known.unwrap_or_else(|| Arc::new(Output::new(output.clone())));
            found.push((calls.clone(), output));
        }
        Ok(found)
    }
}

/// The name of each journal of a kind, the last part of its path.
fn named_journals(kind: &str, journals: &[PathBuf]) -> Result<Vec<(String, PathBuf)>, Cause> {
    let mut named: Vec<(String, PathBuf)> = Vec::new();
    for journal in journals {
        let shown = journal.display();
        let name = journal.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| {
            format!("{shown}: {kind} are named by the last part of their path, in UTF-8")
        })?;
        if let Some((_, other)) = named.iter().find(|(known, _)| *known == name) {
            return Err(format!("{} and {shown} are {kind} of one name", other.display()).into());
        }
        named.push((name.to_owned(), journal.clone()));
    }
    Ok(named)
}

/// A gateway at work, until it is dropped: then it accepts no more connections, answers the requests that have begun,
/// and ends the feeds.
pub struct GatewayServer {
    address: String,
    server: Server,
    state: Arc<State>,
    clients: Vec<Arc<Clients>>,
    threads: Vec<JoinHandle<()>>,
}

impl GatewayServer {
    /// The address, with the port that the system has chosen if it was 0.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Waits for `limit` at most. Returns an error that keeps the gateway from its work: a journal cannot be written or
    /// read. Calls are answered with 500 then, or a feed has no further items. An error that the program does not ask
    /// for is logged.
    ///
    /// # Errors
    /// That error; once.
    pub fn wait(&self, limit: Duration) -> Result<(), Cause> {
        self.state.take_failure(limit).map_or(Ok(()), Err)
    }

    fn spawn(
        &mut self,
        run: impl FnOnce(&State) -> Result<(), Cause> + Send + 'static,
    ) -> Result<(), Cause> {
        let state = Arc::clone(&self.state);
        let thread = std::thread::Builder::new()
            .name("http gateway".to_owned())
            .spawn(move || {
                if let Err(cause) = run(&state) {
                    state.fail(cause);
                }
            })?;
        self.threads.push(thread);
        Ok(())
    }
}

/// Each output once.
fn distinct(outputs: Vec<(PathBuf, Arc<Output>)>) -> Vec<(PathBuf, Arc<Output>)> {
    let mut found: Vec<(PathBuf, Arc<Output>)> = Vec::new();
    for (calls, output) in outputs {
        if !found.iter().any(|(_, known)| Arc::ptr_eq(known, &output)) {
            found.push((calls, output));
        }
    }
    found
}

impl Drop for GatewayServer {
    fn drop(&mut self) {
        self.state.stop();
        for thread in self.threads.drain(..) {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
        self.clients.iter().for_each(|clients| clients.end());
        self.server.stop();
        self.state.log_untaken();
    }
}
