//! The follower: keeps copies of a leader's journals, and connects again after each failure.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Sync, chain};
use millstream_link::{FAREWELL, LinkError, Secret, Stream, decode};
use tracing::{info, warn};

use super::FollowerTls;
use super::connector::Connector;
use super::copy::Copy;
use super::error::{Reason, ReplicationError};
use super::frames::{self, Frame, Kind};
use super::handshake::expect;
use super::incoming::Incoming;
use super::message::{At, Follow, MEMBERS_MAX, Offer, Purpose, RECORDS_MAX, Records, Welcome};
use super::mirror::{self, Mirror};
use super::rejoin::RejoinOptions;
use super::{DEAD_AFTER, STOP_CHECK};

/// How many bytes of a set are buffered before they are appended.
const HELD_BYTES_MAX: usize = 8 << 20;
/// The first pause before another attempt.
const RETRY_MIN: Duration = Duration::from_millis(100);

/// How to follow.
#[derive(Clone, Debug)]
pub struct FollowOptions {
    /// The leader's host, resolved at each attempt, and port.
    pub leader: (String, u16),
    /// The journals, each by its name there and the directory of its copy. The name may be empty for the only one.
    /// Several are a set: those upstream come first, and no copy ever has an effect of a record that the copies before
    /// it do not have.
    pub journals: Vec<(String, PathBuf)>,
    /// Follow all journals of the leader instead, as they are at each connection.
    #[doc(hidden)] // For the other crates of Millstream.
    pub mirror: Option<Mirror>,
    /// The follower's name, which no other follower of those journals has: letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// What an acknowledgement means: that a record survives a loss of power here (`Always`; `Every`, and later by that
    /// time), or the death of this process (`Never`).
    pub sync: Sync,
    /// The secret shared with the leader.
    pub secret: Option<Secret>,
    /// Speak TLS.
    pub tls: Option<FollowerTls>,
    /// End when the copy has all records that the leader had at the connection, and at the first failure.
    pub once: bool,
    /// Adopt a journal that was copied by other means as the copy, if its last record is the leader's.
    pub adopt: bool,
    /// The longest pause between two attempts.
    pub retry_max: Duration,
}

impl FollowOptions {
    /// Follow the only journal of `leader` in `dir`, acknowledging what survives a loss of power.
    pub fn new(host: &str, port: u16, dir: impl Into<PathBuf>) -> Self {
        FollowOptions {
            leader: (host.to_owned(), port),
            journals: vec![(String::new(), dir.into())],
            mirror: None,
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

/// The progress of one copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Followed {
    /// How many records were received.
    pub records: u64,
    /// The number of the next record.
    pub next: u64,
    /// All before this one was acknowledged.
    pub acknowledged: u64,
}

/// How a connection ended without a failure.
enum ConnectionEnd {
    /// The copies are complete.
    Done,
    /// The leader has stopped, and may come back.
    LeaderStopped,
    /// The copies had records that the leader has truncated; they are truncated too.
    Truncated,
}

/// Follow until `stop` is raised, or with `once` until the copies have caught up. Returns the progress of each journal,
/// in their order.
///
/// # Errors
/// What trying again would not mend: the journal of another leader, a wrong secret, records that have been pruned, a
/// copy that cannot be opened, a leader that is superseded. With `once` also a connection that fails.
pub fn follow(
    options: &FollowOptions,
    stop: &AtomicBool,
) -> Result<Vec<Followed>, ReplicationError> {
    let journals = match options.mirror {
        Some(_) => Vec::new(),
        None => options.journals.clone(),
    };
    if options.mirror.is_none() {
        check_count(journals.len())?;
    }
    let tls = options.tls.as_ref();
    let mut follower = Follower {
        options,
        stop,
        connector: Connector::new(&options.leader, options.secret.clone(), tls)?,
        members: Vec::new(),
    };
    for (name, dir) in journals {
        follower.members.push(Member::open(name, dir, options)?);
    }
    let mut pause = RETRY_MIN;
    let mut last_warning = String::new();
    while !stop.load(Ordering::Relaxed) {
        let before = follower.records();
        let ended = follower.connection();
        if follower.records() > before {
            (pause, last_warning) = (RETRY_MIN, String::new());
        }
        match ended {
            Ok(ConnectionEnd::Done) => break,
            Ok(ConnectionEnd::Truncated) => continue,
            Ok(ConnectionEnd::LeaderStopped) if options.once => {
                let hint = ": the leader has stopped";
                return Err(LinkError::Closed { hint }.into());
            }
            Ok(ConnectionEnd::LeaderStopped) => info!("the leader has stopped; waiting for it"),
            Err(error) if options.once || !error.may_pass() => return Err(error),
            Err(error) => {
                // The same failure is logged once, however often it is repeated.
                let text = chain(&error).to_string();
                if text != last_warning {
                    warn!("{text}; trying again");
                    last_warning = text;
                }
            }
        }
        back_off(pause, stop);
        pause = (pause * 2).min(options.retry_max);
    }
    let followed = follower.members.iter().map(|member| Followed {
        records: member.records,
        next: member.copy.next(),
        acknowledged: member.copy.acknowledged(),
    });
    Ok(followed.collect())
}

/// Checks the number of journals of a set.
fn has_pruned(error: &ReplicationError) -> bool {
    matches!(
        error,
        ReplicationError::Refused {
            reason: Reason::Pruned,
            ..
        }
    )
}

fn check_count(count: usize) -> Result<(), ReplicationError> {
    match count {
        1..=MEMBERS_MAX => Ok(()),
        _ => {
            let what = format!("a set has 1 to {MEMBERS_MAX} journals, this one {count}");
            Err(ReplicationError::Usage(what))
        }
    }
}

struct Follower<'a> {
    options: &'a FollowOptions,
    stop: &'a AtomicBool,
    connector: Connector,
    members: Vec<Member>,
}

/// One journal of the set.
struct Member {
    name: String,
    dir: PathBuf,
    copy: Copy,
    records: u64,
    /// Messages whose records wait for those of the journals upstream.
    held: Vec<Vec<u8>>,
    /// The end of the leader's journal at the connection.
    goal: u64,
    /// The leader's first record, if it was pruned since.
    pruned: Option<u64>,
    /// With what a copy begins that is not there yet.
    offered: Option<Offer>,
}

impl Member {
    fn open(name: String, dir: PathBuf, options: &FollowOptions) -> Result<Self, ReplicationError> {
        Ok(Member {
            copy: Copy::open(&dir, options.sync, options.adopt)?,
            name,
            dir,
            records: 0,
            held: Vec::new(),
            goal: 0,
            pruned: None,
            offered: None,
        })
    }

    fn append(&mut self, mut records: Records<'_>) -> Result<(), ReplicationError> {
        let mut sequence = records.sequence;
        while let Some((time_ns, body)) = records.next()? {
            self.copy.append(sequence, time_ns, body)?;
            self.records += 1;
            sequence = records.sequence;
        }
        Ok(())
    }
}

/// A connection to the leader that streams.
struct Streaming {
    incoming: Incoming,
    heartbeat: Duration,
    sent_ns: u64,
    out: Vec<u8>,
}

impl Follower<'_> {
    fn records(&self) -> u64 {
        self.members.iter().map(|member| member.records).sum()
    }

    fn connection(&mut self) -> Result<ConnectionEnd, ReplicationError> {
        if let Some(mirror) = &self.options.mirror {
            let connector = &self.connector;
            let name = &self.options.name;
            match mirror::journals(mirror, name, connector, self.stop)? {
                Some(journals) => self.follow_all(journals)?,
                None => return Ok(ConnectionEnd::Done),
            }
        }
        let stream = Arc::new(self.connector.connect()?);
        let ended = self.converse(&stream);
        stream.close();
        // What was held comes again.
        let mut was_new = false;
        for member in &mut self.members {
            member.held.clear();
            member.pruned = None;
            was_new |= member.offered.take().is_some();
        }
        if was_new && ended.as_ref().is_err_and(has_pruned) {
            // The record with which a new copy was to begin: it begins with another one.
            return Ok(ConnectionEnd::Truncated);
        }
        match (&self.options.mirror, ended) {
            (Some(mirror), Err(error)) if mirror::differs(&error) => {
                // Only a copy that is closed here can be truncated.
                let members = std::mem::take(&mut self.members).into_iter();
                let rejoin = RejoinOptions {
                    leader: self.options.leader.clone(),
                    journals: members.map(|member| (member.name, member.dir)).collect(),
                    secret: self.options.secret.clone(),
                    tls: self.options.tls.clone(),
                };
                if mirror::truncate(mirror, &rejoin, self.stop)? {
                    Ok(ConnectionEnd::Truncated)
                } else {
                    Err(error)
                }
            }
            (_, ended) => ended,
        }
    }

    /// Makes these journals the members, in this order.
    fn follow_all(&mut self, journals: Vec<(String, PathBuf)>) -> Result<(), ReplicationError> {
        check_count(journals.len())?;
        let mut open = std::mem::take(&mut self.members);
        for (name, dir) in journals {
            let known = open.iter().position(|member| member.name == name);
            self.members.push(match known {
                Some(known) => open.swap_remove(known),
                None => Member::open(name, dir, self.options)?,
            });
        }
        Ok(())
    }

    fn converse(&mut self, stream: &Arc<Stream>) -> Result<ConnectionEnd, ReplicationError> {
        let mut incoming = Incoming::new(Arc::clone(stream));
        let positions = self.members.iter();
        let positions = positions.map(|member| member.copy.position(&member.name));
        let follow = Follow {
            follower: self.options.name.clone(),
            purpose: match self.options.mirror {
                Some(_) => Purpose::Mirror,
                None => Purpose::Records,
            },
            members: positions.collect::<Result<_, _>>()?,
        };
        let Some(welcome) = self
            .connector
            .authenticate(&mut incoming, &follow, self.stop)?
        else {
            return Ok(ConnectionEnd::Done);
        };
        self.begin(&welcome)?;
        incoming.frames.allow(RECORDS_MAX);
        let heartbeat = Duration::from_millis(welcome.heartbeat_ms.max(1).into());
        let often = match self.options.sync {
            Sync::Every(time) => time.min(heartbeat / 2),
            Sync::Never | Sync::Always => heartbeat / 2,
        };
        stream.limit_read_wait(often)?;
        let mut streaming = Streaming {
            incoming,
            heartbeat,
            sent_ns: monotonic_ns(),
            out: Vec::new(),
        };
        let outcome = self.stream(&mut streaming);
        if outcome.is_ok() {
            stream.write(&frames::frame(Kind::End, &[]))?;
            await_close(streaming.incoming)?;
        }
        outcome
    }

    fn begin(&mut self, welcome: &Welcome) -> Result<(), ReplicationError> {
        let connector = &self.connector;
        for (member, offer) in self.members.iter_mut().zip(&welcome.members) {
            let Some(offer) = offer else {
                info!("{connector} has no '{}' yet", member.name);
                continue;
            };
            member.goal = offer.end;
            if member.copy.is_new() && offer.end > offer.next {
                member.offered = Some(offer.clone());
            } else {
                member.copy.begin(offer)?;
            }
            let name = match member.name.as_str() {
                "" => String::new(),
                name => format!("/{name}"),
            };
            info!(
                "following {connector}{name} from record {} on; the leader's next is {}",
                offer.next, offer.end
            );
        }
        Ok(())
    }

    fn stream(&mut self, with: &mut Streaming) -> Result<ConnectionEnd, ReplicationError> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                self.acknowledge(with, true)?;
                return Ok(ConnectionEnd::Done);
            }
            with.incoming.read()?;
            let mut held_bytes = 0;
            while with.incoming.frames.is_ready() {
                let Some(frame) = with.incoming.frames.next_frame()? else {
                    break;
                };
                if frame.kind != Kind::Refused {
                    self.make_copies()?;
                }
                if frame.kind == Kind::End {
                    self.release()?;
                    self.acknowledge(with, true)?;
                    return Ok(ConnectionEnd::LeaderStopped);
                }
                held_bytes += self.take(frame)?;
                if held_bytes > HELD_BYTES_MAX {
                    self.release()?;
                    held_bytes = 0;
                }
            }
            self.release()?;
            let mut all = self.members.iter();
            let caught_up =
                self.options.once && all.all(|member| member.copy.next() >= member.goal);
            self.acknowledge(with, caught_up)?;
            self.prune()?;
            if caught_up {
                return Ok(ConnectionEnd::Done);
            }
            with.incoming.check_alive(with.heartbeat * DEAD_AFTER)?;
        }
    }

    /// Makes the new copies, once the leader sends: it has then not pruned the records with which they begin, and no
    /// reader ever sees a copy that begins with another one.
    fn make_copies(&mut self) -> Result<(), ReplicationError> {
        for member in &mut self.members {
            if let Some(offer) = member.offered.take() {
                member.copy.begin(&offer)?;
            }
        }
        Ok(())
    }

    /// Append records of the first journal, and hold those of the others for [`release`](Self::release). Returns the
    /// number of bytes held.
    fn take(&mut self, frame: Frame<'_>) -> Result<usize, ReplicationError> {
        match frame.kind {
            Kind::Alive => return Ok(0),
            Kind::Pruned => {
                let first: At = decode(frame.payload)?;
                self.member(first.member)?.pruned = Some(first.next);
                return Ok(0);
            }
            _ => {}
        }
        let payload = expect(frame, Kind::Records)?;
        let records = Records::read(payload)?;
        let index = records.member;
        let member = self.member(index)?;
        if index == 0 {
            member.append(records)?;
            return Ok(0);
        }
        member.held.push(payload.to_vec());
        Ok(payload.len())
    }

    fn member(&mut self, index: usize) -> Result<&mut Member, ReplicationError> {
        self.members.get_mut(index).ok_or_else(|| {
            let what = format!("records of journal {index}, which was not asked for");
            ReplicationError::protocol(what)
        })
    }

    /// Prune the copies as the leader has pruned its journals. All that the leader had by then is durable here first,
    /// since it is the reason why older records are not needed.
    fn prune(&mut self) -> Result<(), ReplicationError> {
        if self.members.iter().all(|member| member.pruned.is_none()) {
            return Ok(());
        }
        for member in &mut self.members {
            member.copy.sync()?;
        }
        for member in &mut self.members {
            if let Some(first) = member.pruned.take() {
                member.copy.prune(first)?;
            }
        }
        Ok(())
    }

    /// Append the held records, journal by journal. Records upstream are synced first: not even a loss of power leaves
    /// an effect without its cause.
    fn release(&mut self) -> Result<(), ReplicationError> {
        for index in 1..self.members.len() {
            let (before, rest) = self.members.split_at_mut(index);
            let Some(member) = rest.first_mut().filter(|member| !member.held.is_empty()) else {
                continue;
            };
            for upstream in before {
                upstream.copy.sync()?;
            }
            for payload in std::mem::take(&mut member.held) {
                member.append(Records::read(&payload)?)?;
            }
        }
        Ok(())
    }

    /// Acknowledge the positions of the copies, when they have moved or nothing was sent for a while.
    fn acknowledge(&mut self, with: &mut Streaming, now: bool) -> Result<(), ReplicationError> {
        let silent = Duration::from_nanos(monotonic_ns().saturating_sub(with.sent_ns));
        let again = silent >= with.heartbeat;
        with.out.clear();
        for (index, member) in self.members.iter_mut().enumerate() {
            if member.offered.is_some() {
                continue;
            }
            let news = member.copy.acknowledge(now)?;
            if news.is_some() || (again && member.goal > 0) || (again && index == 0) {
                let acknowledged = At {
                    member: index,
                    next: member.copy.acknowledged(),
                };
                with.out.extend(acknowledged.frame(Kind::Ack));
            }
        }
        if !with.out.is_empty() {
            with.incoming.stream.write(&with.out)?;
            with.out.clear();
            with.sent_ns = monotonic_ns();
        }
        Ok(())
    }
}

/// Let the leader close the connection. Closing it while records are on their way would be a reset, which may overtake
/// the last acknowledgements.
fn await_close(mut incoming: Incoming) -> Result<(), ReplicationError> {
    let end = monotonic_ns() + FAREWELL.as_nanos() as u64;
    while monotonic_ns() < end && incoming.read().is_ok() {
        while incoming.frames.is_ready() {
            incoming.frames.next_frame()?;
        }
    }
    Ok(())
}

/// Wait before another attempt: about `pause`, so that many followers do not connect at once.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing notifies a follower when a leader is back"
)]
pub(super) fn back_off(pause: Duration, stop: &AtomicBool) {
    let part = monotonic_ns() % 512;
    let end = monotonic_ns() + (pause.as_nanos() as u64 * (512 + part)) / 1_024;
    while monotonic_ns() < end && !stop.load(Ordering::Relaxed) {
        let left = Duration::from_nanos(end.saturating_sub(monotonic_ns()));
        std::thread::sleep(left.min(STOP_CHECK));
    }
}
