//! The follower: keeps a copy of a leader's journal, through every break of the connection.

use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_flow::clock::now_ns;
use millstream_journal::Sync;
use tracing::{info, warn};

use super::copy::Copy;
use super::error::ReplicationError;
use super::frames::Frame;
use super::handshake::{Calling, expect};
use super::incoming::Incoming;
use super::message::{self, Follow, Kind, RECORDS_MAX, Records, Welcome};
use super::secret::{Secret, nonce};
use super::stream::Stream;
use super::tls::{self, FollowerTls, GREETING, Verifier, deadline_ns};
use super::{DEAD_AFTER, FAREWELL, LOOK};

/// The first pause before another try.
const RETRY_MIN: Duration = Duration::from_millis(100);

/// How to follow.
#[derive(Clone, Debug)]
pub struct FollowOptions {
    /// The leader's host, asked for its addresses at each try, and port.
    pub leader: (String, u16),
    /// The name of the journal there; empty for the only one.
    pub journal: String,
    /// The directory of the copy.
    pub dir: PathBuf,
    /// The follower's name, which no other follower of that journal has: letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// What an acknowledgement means: that a record survives a loss of power here (`Always`; `Every`, and later by that time), or the
    /// death of this process (`Never`).
    pub sync: Sync,
    /// What the leader shares.
    pub secret: Option<Secret>,
    /// Speak TLS.
    pub tls: Option<FollowerTls>,
    /// End when the copy has all that the leader had when it was met, and at the first failure.
    pub once: bool,
    /// Take a journal that was copied by other means for the copy, if its last record is the leader's.
    pub adopt: bool,
    /// The longest pause between two tries.
    pub retry_max: Duration,
}

impl FollowOptions {
    /// Follow the only journal of `leader` in `dir`, acknowledging what survives a loss of power.
    pub fn new(host: &str, port: u16, dir: impl Into<PathBuf>) -> Self {
        FollowOptions {
            leader: (host.to_owned(), port),
            journal: String::new(),
            dir: dir.into(),
            name: "follower".to_owned(),
            sync: Sync::Always,
            secret: None,
            tls: None,
            once: false,
            adopt: false,
            retry_max: Duration::from_secs(5),
        }
    }
}

/// What was followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// How many records have come.
    pub records: u64,
    /// The number of the record that comes next.
    pub next: u64,
    /// All before this one was acknowledged.
    pub acknowledged: u64,
}

/// How a connection ended that did not fail.
enum Ended {
    /// Nothing is left to do.
    Done,
    /// The leader has stopped, and may come back.
    LeaderStopped,
}

/// Follow until `stop` is raised, or with `once` until the copy has caught up.
///
/// # Errors
/// What trying again would not mend: the journal of another leader, a wrong secret, records that have been pruned, a copy that cannot be
/// opened. With `once` also a connection that fails.
pub fn follow(options: &FollowOptions, stop: &AtomicBool) -> Result<Followed, ReplicationError> {
    let tls = options.tls.as_ref();
    let tls = tls.map(|tls| tls.read(&options.leader.0)).transpose()?;
    let mut follower = Follower {
        options,
        stop,
        tls,
        copy: Copy::open(&options.dir, options.sync, options.adopt)?,
        records: 0,
    };
    let mut pause = RETRY_MIN;
    let mut told = String::new();
    while !stop.load(Ordering::Relaxed) {
        let before = follower.records;
        let ended = follower.connection();
        if follower.records > before {
            (pause, told) = (RETRY_MIN, String::new());
        }
        match ended {
            Ok(Ended::Done) => break,
            Ok(Ended::LeaderStopped) if options.once => {
                let hint = ": the leader has stopped";
                return Err(ReplicationError::Closed { hint });
            }
            Ok(Ended::LeaderStopped) => info!("the leader has stopped; waiting for it"),
            Err(error) if options.once || !error.may_pass() => return Err(error),
            Err(error) => {
                // The same trouble again and again is said once.
                let text = error.to_string();
                if text != told {
                    warn!("{text}; trying again");
                    told = text;
                }
            }
        }
        rest(pause, stop);
        pause = (pause * 2).min(options.retry_max);
    }
    Ok(Followed {
        records: follower.records,
        next: follower.copy.next(),
        acknowledged: follower.copy.acknowledged(),
    })
}

struct Follower<'a> {
    options: &'a FollowOptions,
    stop: &'a AtomicBool,
    tls: Option<Verifier>,
    copy: Copy,
    records: u64,
}

/// A connection to the leader that streams.
struct Streaming {
    incoming: Incoming,
    heartbeat: Duration,
    said_ns: u64,
    out: Vec<u8>,
    /// With this the copy has all that the leader had.
    goal: u64,
}

impl Follower<'_> {
    fn connection(&mut self) -> Result<Ended, ReplicationError> {
        let stream = Arc::new(self.connect()?);
        let ended = self.converse(&stream);
        stream.close();
        ended
    }

    fn connect(&self) -> Result<Stream, ReplicationError> {
        let (host, port) = &self.options.leader;
        let failed = |source| ReplicationError::Connection {
            verb: format!("cannot connect to {host}:{port}"),
            source,
        };
        let addresses = (host.as_str(), *port).to_socket_addrs().map_err(failed)?;
        let mut outcome = Err(std::io::ErrorKind::NotFound.into());
        for address in addresses {
            outcome = TcpStream::connect_timeout(&address, GREETING);
            if outcome.is_ok() {
                break;
            }
        }
        tls::connect(outcome.map_err(failed)?, self.tls.as_ref(), GREETING)
    }

    fn converse(&mut self, stream: &Arc<Stream>) -> Result<Ended, ReplicationError> {
        let mut incoming = Incoming::new(Arc::clone(stream));
        let Some(welcome) = self.greet(&mut incoming)? else {
            return Ok(Ended::Done);
        };
        self.copy.begin(&welcome)?;
        let (host, port) = &self.options.leader;
        info!(
            "following {host}:{port} from record {} on; the leader's next is {}",
            welcome.next, welcome.end
        );
        incoming.frames.allow(RECORDS_MAX);
        let heartbeat = Duration::from_millis(welcome.heartbeat_ms.max(1).into());
        let often = match self.options.sync {
            Sync::Every(time) => time.min(heartbeat / 2),
            Sync::Never | Sync::Always => heartbeat / 2,
        };
        stream.look_every(often)?;
        let mut streaming = Streaming {
            incoming,
            heartbeat,
            said_ns: now_ns(),
            out: Vec::new(),
            goal: welcome.end,
        };
        let outcome = self.stream(&mut streaming);
        if outcome.is_ok() {
            message::write_end(&mut streaming.out);
            stream.write(&streaming.out)?;
            farewell(streaming.incoming)?;
        }
        outcome
    }

    /// Become known to each other; `None` when we are to stop first.
    fn greet(&self, incoming: &mut Incoming) -> Result<Option<Welcome>, ReplicationError> {
        let deadline_ns = deadline_ns();
        let mut out = Vec::new();
        let calling = Calling::new(self.options.secret.clone(), nonce()?, &mut out);
        incoming.stream.write(&out)?;
        out.clear();
        let position = self.copy.position()?;
        let follow = Follow {
            journal: self.options.journal.clone(),
            follower: self.options.name.clone(),
            lineage: position.lineage,
            own: position.own,
            next: position.next,
            last: position.last,
        };
        let Some(frame) = incoming.expect(deadline_ns, self.stop)? else {
            return Ok(None);
        };
        let asking = calling.challenge(frame, &follow, &mut out)?;
        incoming.stream.write(&out)?;
        match incoming.expect(deadline_ns, self.stop)? {
            Some(frame) => asking.welcome(frame).map(Some),
            None => Ok(None),
        }
    }

    fn stream(&mut self, with: &mut Streaming) -> Result<Ended, ReplicationError> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                self.acknowledge(with, true)?;
                return Ok(Ended::Done);
            }
            with.incoming.read()?;
            while with.incoming.frames.is_ready() {
                let Some(frame) = with.incoming.frames.next()? else {
                    break;
                };
                if frame.kind == Kind::End {
                    self.acknowledge(with, true)?;
                    return Ok(Ended::LeaderStopped);
                }
                self.take(frame)?;
            }
            let caught_up = self.options.once && self.copy.next() >= with.goal;
            self.acknowledge(with, caught_up)?;
            if caught_up {
                return Ok(Ended::Done);
            }
            with.incoming.check_heard(with.heartbeat * DEAD_AFTER)?;
        }
    }

    fn take(&mut self, frame: Frame<'_>) -> Result<(), ReplicationError> {
        match frame.kind {
            Kind::Alive => message::read_number(frame.payload).map(drop),
            _ => {
                expect(frame, Kind::Records)?;
                let mut records = Records::read(frame)?;
                let mut sequence = records.sequence;
                while let Some((time_ns, body)) = records.next()? {
                    self.copy.append(sequence, time_ns, body)?;
                    self.records += 1;
                    sequence = records.sequence;
                }
                Ok(())
            }
        }
    }

    /// Say how far the copy is, when that is news or nothing was said for a while.
    fn acknowledge(&mut self, with: &mut Streaming, now: bool) -> Result<(), ReplicationError> {
        let news = self.copy.acknowledge(now)?;
        let silent = Duration::from_nanos(now_ns().saturating_sub(with.said_ns));
        if news.is_none() && silent < with.heartbeat {
            return Ok(());
        }
        with.out.clear();
        message::write_number(Kind::Ack, self.copy.acknowledged(), &mut with.out);
        with.incoming.stream.write(&with.out)?;
        with.out.clear();
        with.said_ns = now_ns();
        Ok(())
    }
}

/// Let the leader close the connection. Closing it while records are on their way would be a reset, which may overtake what was
/// acknowledged last.
fn farewell(mut incoming: Incoming) -> Result<(), ReplicationError> {
    let end = now_ns() + FAREWELL.as_nanos() as u64;
    while now_ns() < end && incoming.read().is_ok() {
        while incoming.frames.is_ready() {
            incoming.frames.next()?;
        }
    }
    Ok(())
}

/// Wait before another try: about `pause`, so that many followers do not come at once.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when a leader is there again"
)]
fn rest(pause: Duration, stop: &AtomicBool) {
    let part = now_ns() % 512;
    let end = now_ns() + (pause.as_nanos() as u64 * (512 + part)) / 1_024;
    while now_ns() < end && !stop.load(Ordering::Relaxed) {
        let left = Duration::from_nanos(end.saturating_sub(now_ns()));
        std::thread::sleep(left.min(LOOK));
    }
}
