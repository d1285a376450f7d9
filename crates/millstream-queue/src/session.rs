//! One connection of the protocol: bytes in, bytes out, and its wait. There is no socket and no clock.
//!
//! The owner of the socket does the following:
//!
//! 1. It passes what was read to [`receive`](Session::receive).
//! 2. It calls [`commit`](Broker::commit) if [`Broker::take_commit_wanted`], and then sends
//!    [`output`](Session::output).
//! 3. It calls [`resume`](Session::resume) when the broker woke the connection, or there is room for output again.
//!
//! The invariant: requests are answered in FIFO order, each once, and none begins before the previous one has ended.
//! So the memory of a client is bounded by the largest item and the limit on output.
//!
//! ```
//! use millstream_queue::config::Config;
//! use millstream_queue::broker::Broker;
//! use millstream_queue::session::{Session, SessionOptions};
//! use millstream_queue::storage::MemoryStorage;
//! use millstream_queue::Moment;
//!
//! let now = Moment { wall_ms: 1_700_000_000_000, steady_us: 0 };
//! let mut broker = Broker::open(MemoryStorage::new(1024), Config::default(), now)?;
//! let mut session = Session::new(&mut broker, SessionOptions::default());
//! session.receive(&mut broker, b"set jobs 0 0 5\r\nhello\r\nget jobs\r\n", now);
//! assert_eq!(session.output(), b"STORED\r\nVALUE jobs 0 5\r\nhello\r\nEND\r\n");
//! # Ok::<(), millstream_queue::QueueError>(())
//! ```

mod answer;
mod authorize;
mod batch;
mod converse;
mod credentials;
mod expiry;
mod get;
mod rights;
mod touch;
mod work;

use std::sync::Arc;

use self::batch::Batch;
pub use self::converse::converse;
pub use self::credentials::{Credential, Credentials};
pub use self::rights::{Grants, Right, Rights};
use self::work::Work;

use crate::broker::{Broker, EndedBy};
use crate::connection::ConnectionId;
use crate::moment::Moment;
use crate::protocol::{Limits, Parsed, Parser, Request, reply};
use crate::storage::Storage;

/// The number of characters of a name that are reported with a wrong password.
const NAME_CHARS_MAX: usize = 64;

/// A round of work adds nothing to output of this length. So `stats` of any number of queues leaves the connection a
/// small one, which is not closed when memory is short.
const WORK_OUTPUT_BYTES: usize = 32 << 10;

/// The style of replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compat {
    /// As memcached: `VALUE` repeats the key with its options.
    #[default]
    Memcached,
    /// As Kestrel: `VALUE` has the bare name, and `delete` is always answered with `DELETED`.
    Kestrel,
}

impl std::str::FromStr for Compat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "memcached" => Ok(Compat::Memcached),
            "kestrel" => Ok(Compat::Kestrel),
            _ => Err(format!("\"{text}\" is neither memcached nor kestrel")),
        }
    }
}

/// The options of a connection.
#[derive(Clone, Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct SessionOptions {
    /// The style of replies.
    pub compat: Compat,
    /// What a peer may send.
    pub limits: Limits,
    /// No request begins while this many bytes of replies are pending.
    pub output_bytes: usize,
    /// Names and passwords. A client must send one pair before anything else, as with memcached.
    pub credentials: Option<Credentials>,
    /// The rights of each name.
    pub rights: Rights,
    /// Whether clients may use `shutdown`.
    pub shutdown: bool,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions {
            compat: Compat::default(),
            limits: Limits::default(),
            output_bytes: 1 << 20,
            credentials: None,
            rights: Rights::default(),
            shutdown: false,
        }
    }
}

/// A command of a client to the server itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum ServerCommand {
    /// Read the configuration again.
    Reload,
    /// Stop.
    Shutdown,
}

/// One connection.
#[derive(Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Session {
    id: ConnectionId,
    options: Arc<SessionOptions>,
    parser: Parser,
    /// Bytes that were read and not yet used.
    input: Vec<u8>,
    /// Nothing can be done before the input has this many bytes.
    need: usize,
    output: Vec<u8>,
    state: State,
    /// The request that is done in rounds.
    work: Option<Box<Work>>,
    /// What is left of the key of a `get` that takes several items: the next round takes it.
    batch: Option<Batch>,
    /// The request at the front of the input searches for an item, and the next round resumes that.
    is_searching: bool,
    foreign: bool,
    answered: u64,
    ended: EndedBy,
    command: Option<ServerCommand>,
    /// The name and password of the client.
    user: Option<Credential>,
    /// The rights of the client; `None` allows everything.
    grants: Option<Arc<Grants>>,
    /// The first request that was denied for lack of rights, and the number of denials since the last report.
    denied: Option<String>,
    denials: u64,
    has_reported_denial: bool,
    /// The name that came with a wrong password.
    refused: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The first request must authenticate the client.
    Unauthenticated,
    Ready,
    /// The request at the front of the input waits for an item, or for room for output; the first `served` keys are
    /// answered.
    Waiting {
        served: usize,
        queued: bool,
    },
    /// A `monitor` at the front of the input, until this time, for `left` more items.
    Monitoring {
        until_us: u64,
        left: u64,
        waiting: bool,
    },
    /// The `set` at the front of the input waits for a queue that is being created.
    Creating,
    /// A request is done in rounds: its answer comes before anything else.
    Working,
    /// A `reload` is running: its answer comes before anything else.
    Reloading,
    /// A password was wrong: the next request waits until the owner of the socket releases the session.
    Throttled,
    /// Nothing more is read.
    Closed,
}

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Done,
    /// It waits, and its bytes are needed again.
    Blocked,
}

impl Session {
    /// Creates a session for a new connection.
    pub fn new<S: Storage>(
        broker: &mut Broker<S>,
        options: impl Into<Arc<SessionOptions>>,
    ) -> Self {
        let options = options.into();
        Session {
            id: broker.connect(),
            parser: Parser::new(options.limits),
            state: if options.credentials.is_some() {
                State::Unauthenticated
            } else {
                State::Ready
            },
            options,
            input: Vec::new(),
            need: 1,
            output: Vec::new(),
            work: None,
            batch: None,
            is_searching: false,
            foreign: false,
            answered: 0,
            ended: EndedBy::Client,
            command: None,
            user: None,
            grants: None,
            denied: None,
            denials: 0,
            has_reported_denial: false,
            refused: None,
        }
    }

    /// The connection's number at the broker.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Does the requests in these bytes, which were read from the socket.
    pub fn receive<S: Storage>(&mut self, broker: &mut Broker<S>, bytes: &[u8], now: Moment) {
        if self.state == State::Closed {
            return;
        }
        if self.input.is_empty() && self.may_begin() {
            // The usual case: complete requests, used where they were read.
            let used = self.run(broker, bytes, now);
            if used < bytes.len() && self.state != State::Closed {
                self.input.extend_from_slice(&bytes[used..]);
            }
        } else {
            self.input.extend_from_slice(bytes);
            self.proceed(broker, now);
        }
    }

    /// Resumes after the end of a wait, or after output was sent.
    pub fn resume<S: Storage>(&mut self, broker: &mut Broker<S>, now: Moment) {
        self.proceed(broker, now);
    }

    /// The bytes to send.
    #[inline]
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// Removes the first bytes of the output, which were sent.
    pub fn sent(&mut self, bytes: usize) {
        if bytes >= self.output.len() {
            self.output.clear();
            // One large answer must not keep its memory for the life of the connection.
            self.output.shrink_to(64 << 10);
        } else {
            self.output.drain(..bytes);
        }
    }

    /// The memory of this connection, in bytes: unanswered requests and unsent answers.
    #[inline]
    pub fn buffer_bytes(&self) -> usize {
        self.input.capacity() + self.output.capacity()
    }

    /// Whether more may be read. If not, output must be sent or a wait must end first.
    pub fn wants_input(&self) -> bool {
        match self.state {
            State::Closed => false,
            State::Waiting { .. }
            | State::Monitoring { .. }
            | State::Creating
            | State::Working
            | State::Reloading
            | State::Throttled => self.input.len() < self.pipelined_max(),
            State::Unauthenticated | State::Ready => {
                self.may_begin() || self.input.len() < self.pipelined_max()
            }
        }
    }

    /// Whether the connection must be closed once the output is sent.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// The number of requests that have ended, with or without success.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Whether it was closed because the peer speaks another protocol.
    pub fn is_foreign(&self) -> bool {
        self.foreign
    }

    /// Whether a request is incomplete: the peer must send the rest soon.
    pub fn is_half_sent(&self) -> bool {
        matches!(self.state, State::Ready | State::Unauthenticated)
            && (!self.input.is_empty() || self.parser.is_dropping())
    }

    /// Whether [`resume`](Self::resume) has work as soon as there is room for output.
    pub fn has_work(&self) -> bool {
        match self.state {
            State::Closed | State::Creating | State::Reloading | State::Throttled => false,
            State::Ready | State::Unauthenticated => {
                !self.input.is_empty() && self.input.len() >= self.need
            }
            State::Working => self.output.len() < self.work_output_max(),
            State::Waiting { queued, .. } => !queued || self.is_searching,
            State::Monitoring { waiting, .. } => !waiting || self.is_searching,
        }
    }

    /// Whether a request has done a round of its work, and others come first before [`resume`](Self::resume) does the
    /// next one.
    pub fn is_between_rounds(&self) -> bool {
        self.state == State::Working || self.is_searching
    }

    /// Whether the connection waits for an item.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting { .. } | State::Monitoring { .. })
    }

    /// Returns the client's command to the server.
    pub fn take_command(&mut self) -> Option<ServerCommand> {
        self.command.take()
    }

    /// Answers the client's `reload` with its outcome: the settings that need a restart, or the error.
    ///
    /// # Panics
    /// Never. If no `reload` is running, nothing happens.
    pub fn reloaded(&mut self, outcome: &Result<Vec<String>, String>) {
        if self.state != State::Reloading {
            return;
        }
        self.state = State::Ready;
        match outcome {
            Err(why) => reply::server_error(&mut self.output, why),
            Ok(fixed) if !fixed.is_empty() => {
                reply::server_error(
                    &mut self.output,
                    &format!("reloaded, but {}", fixed.join("; ")),
                );
            }
            Ok(_) if self.options.compat == Compat::Kestrel => self.write(reply::RELOADED),
            Ok(_) => self.write(reply::OK),
        }
    }

    /// Returns the name that came with a wrong password, once. The answer is in the output; nothing more is done
    /// until [`release`](Self::release), so that passwords cannot be tried quickly.
    pub fn take_refused(&mut self) -> Option<String> {
        self.refused.take()
    }

    /// Returns the number of denied requests since the last call, and the reason of the connection's first denial,
    /// once.
    #[inline]
    pub fn take_denials(&mut self) -> (u64, Option<&str>) {
        let is_first = self.denials > 0 && !self.has_reported_denial;
        self.has_reported_denial |= is_first;
        let why = self.denied.as_deref().filter(|_| is_first);
        (std::mem::take(&mut self.denials), why)
    }

    /// Whether the client must authenticate before anything else.
    #[inline]
    pub fn is_unauthenticated(&self) -> bool {
        matches!(self.state, State::Unauthenticated | State::Throttled)
    }

    /// Holds the session: the next password waits until [`release`](Self::release).
    pub fn hold(&mut self) {
        if self.state == State::Unauthenticated {
            self.state = State::Throttled;
        }
    }

    /// Releases the session: another password may be tried.
    pub fn release(&mut self) {
        if self.state == State::Throttled {
            self.state = State::Unauthenticated;
        }
    }

    /// The options of this connection.
    #[inline]
    pub fn options(&self) -> &Arc<SessionOptions> {
        &self.options
    }

    /// Sets the options; if the connection waits for an item, they hold after the wait. The connection is closed when
    /// its name and password are no longer valid, or when it waits and its rights have changed.
    #[cold]
    pub fn set_options(&mut self, options: &Arc<SessionOptions>) {
        if let (Some(credentials), Some(user)) = (&options.credentials, &self.user) {
            match credentials.find_same(user) {
                Some(user) => self.user = Some(user.clone()),
                None => return self.dismiss(),
            }
        }
        let user = self.user.as_ref();
        let grants = user.and_then(|user| options.rights.of(user.name()));
        if grants != self.grants {
            if self.is_waiting() {
                return self.dismiss();
            }
            self.grants = grants;
        }
        // A request that waits is parsed again, with the same limits.
        if !self.is_waiting() {
            self.parser.set_limits(options.limits);
            self.options = Arc::clone(options);
        }
    }

    /// Closes the connection for a reason of the server's.
    fn dismiss(&mut self) {
        self.ended = EndedBy::Server;
        self.state = State::Closed;
    }

    /// The side that has closed a connection that [is closed](Self::is_closed).
    pub fn ended(&self) -> EndedBy {
        self.ended
    }

    /// Ends the connection: its open items are requeued.
    pub fn end<S: Storage>(&mut self, broker: &mut Broker<S>, ended: EndedBy, now: Moment) {
        broker.disconnect(self.id, ended, now);
        self.state = State::Closed;
    }

    fn pipelined_max(&self) -> usize {
        64 << 10
    }

    fn work_output_max(&self) -> usize {
        self.options.output_bytes.min(WORK_OUTPUT_BYTES)
    }

    #[inline]
    fn may_begin(&self) -> bool {
        matches!(self.state, State::Ready | State::Unauthenticated)
            && self.output.len() < self.options.output_bytes
    }

    fn proceed<S: Storage>(&mut self, broker: &mut Broker<S>, now: Moment) {
        match self.state {
            State::Working => self.work(broker, now),
            // Its bytes are complete.
            State::Creating => (self.state, self.need) = (State::Ready, 1),
            _ => {}
        }
        let blocked = self.is_waiting();
        if !blocked && self.input.len() < self.need {
            return;
        }
        let input = std::mem::take(&mut self.input);
        let used = self.run(broker, &input, now);
        self.input = input;
        if used == self.input.len() || self.state == State::Closed {
            self.input = Vec::new();
        } else {
            self.input.drain(..used);
        }
    }

    /// Does the requests in `input`. Returns the number of bytes that are no longer needed.
    fn run<S: Storage>(&mut self, broker: &mut Broker<S>, input: &[u8], now: Moment) -> usize {
        let mut at = 0;
        self.need = 1;
        while at < input.len()
            && !matches!(
                self.state,
                State::Closed | State::Working | State::Reloading | State::Throttled
            )
            && self.output.len() < self.options.output_bytes
        {
            match self.parser.parse(&input[at..]) {
                Parsed::Request { request, used } => match self.answer(broker, &request, now) {
                    Progress::Done => {
                        at += used;
                        self.answered += 1;
                    }
                    Progress::Blocked => break,
                },
                Parsed::Answer { reply, used } => {
                    let known = self.state != State::Unauthenticated;
                    self.output.extend_from_slice(if known {
                        reply
                    } else {
                        reply::UNAUTHENTICATED
                    });
                    at += used;
                    self.answered += 1;
                }
                Parsed::Dropped { used } => at += used,
                Parsed::More { need } => {
                    self.need = need;
                    break;
                }
                Parsed::Foreign => {
                    self.state = State::Closed;
                    self.foreign = true;
                }
            }
        }
        at
    }

    /// The first request of a connection that must authenticate: a `set` of name and password.
    #[cold]
    fn authenticate(&mut self, request: &Request<'_>) {
        let (Request::Set(set), Some(credentials)) = (request, &self.options.credentials) else {
            return self.write(reply::UNAUTHENTICATED);
        };
        match credentials.find(set.data).cloned() {
            Some(user) => {
                self.grants = self.options.rights.of(user.name());
                self.user = Some(user);
                self.state = State::Ready;
                self.write(reply::STORED);
            }
            None => {
                let name = set.data.split(|&byte| byte == b' ').next();
                let name = String::from_utf8_lossy(name.unwrap_or_default());
                self.refused = Some(name.chars().take(NAME_CHARS_MAX).collect());
                self.state = State::Throttled;
                self.write(reply::AUTH_FAILED);
            }
        }
    }

    #[inline]
    fn write(&mut self, reply: &[u8]) {
        self.output.extend_from_slice(reply);
    }
}
