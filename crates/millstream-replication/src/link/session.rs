//! One follower on the leader's side: its journals, the records sent, and its acknowledgements.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_journal::chain;
use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Cursor, CursorMode, Error, FOLLOWER};
use millstream_link::{Credential, FAREWELL, LinkError, Stream, decode};
use tracing::{debug, info, warn};

use super::DEAD_AFTER;
use super::admit::refused;
use super::error::{Reason, ReplicationError};
use super::frames::Kind;
use super::handshake::write_refused;
use super::incoming::Incoming;
use super::leader::Leader;
use super::membership::Presence;
use super::message::{At, Follow, Welcome};
use super::served::{OpenJournal, Served};
use super::watch::Watch;

/// The follower's cursor.
fn cursor(opened: &OpenJournal, name: &str) -> Result<Cursor, ReplicationError> {
    let cursor = format!("{FOLLOWER}{name}");
    match opened.journal.cursor(&cursor, CursorMode::Shared) {
        Err(Error::CursorName { .. }) => {
            let text = format!(
                "'{name}' is no name for a follower: 1 to 90 letters, digits, '-', '_' or '.'"
            );
            Err(refused(Reason::Name, text))
        }
        cursor => Ok(cursor?),
    }
}

/// Send the refusal to the follower. It may have disconnected, which changes nothing.
pub(super) fn refuse(
    stream: &Stream,
    credential: Option<&Credential>,
    error: ReplicationError,
) -> ReplicationError {
    let (reason, text) = match &error {
        ReplicationError::Refused { reason, text } => (*reason, text.clone()),
        ReplicationError::Journal(Error::Pruned { .. }) => {
            (Reason::Pruned, chain(&error).to_string())
        }
        _ => (Reason::Trouble, chain(&error).to_string()),
    };
    let mut out = Vec::new();
    write_refused(credential, reason, &text, &mut out);
    if let Err(error) = stream.write(&out) {
        debug!("a refusal was not sent: {}", chain(&error));
    }
    error
}

/// A connected follower.
pub(super) struct Session<'a> {
    pub leader: &'a Leader<'a>,
    pub follower: &'a str,
    pub number: usize,
    pub stream: &'a Arc<Stream>,
    pub credential: Option<&'a Credential>,
    /// Whether the follower prunes its copies as the journals are pruned.
    pub is_mirror: bool,
    /// The journals, those upstream first.
    pub members: Vec<SessionMember<'a>>,
    pub ended: AtomicBool,
    pub watch: Watch,
    /// When the follower sent its last message.
    pub answered_ns: Arc<AtomicU64>,
}

/// A journal of the set that is followed.
pub(super) struct SessionMember<'a> {
    pub served: &'a Served,
    /// `None` while the journal does not exist.
    pub progress: Option<Progress<'a>>,
}

/// The progress of a follower in a journal that exists.
pub(super) struct Progress<'a> {
    pub name: &'a str,
    pub opened: &'a OpenJournal,
    /// The copy's own number.
    pub copy: u64,
    pub cursor: Cursor,
    /// Whether it was logged that the follower does not count.
    is_reported: AtomicBool,
    /// All records before this one were sent.
    pub sent: AtomicU64,
}

impl<'a> Session<'a> {
    /// Register the follower's name in each of its journals, and set its cursor to the position that it states: after a
    /// restart, or when its copy was deleted and begun anew.
    pub fn enter(
        &mut self,
        found: Vec<&'a Served>,
        follow: &Follow,
        welcome: &Welcome,
    ) -> Result<(), ReplicationError> {
        let members = follow.members.iter().zip(&welcome.members);
        for (served, (member, offer)) in found.into_iter().zip(members) {
            let mut progress = None;
            if let (Some(opened), Some(offer)) = (served.opened()?, offer) {
                let cursor = cursor(opened, self.follower)?;
                let presence = Presence::new(member.own, &self.answered_ns);
                if !served.enter(self.follower, presence, self.number, self.stream) {
                    let text = format!(
                        "another follower of '{}' is connected as '{}'; give this one another name",
                        served.name, self.follower
                    );
                    return Err(refused(Reason::InUse, text));
                }
                progress = Some(Progress {
                    name: &served.name,
                    opened,
                    copy: member.own,
                    cursor,
                    is_reported: AtomicBool::new(false),
                    sent: AtomicU64::new(offer.next),
                });
            }
            self.members.push(SessionMember { served, progress });
        }
        for (member, offer) in self.members.iter().zip(&welcome.members) {
            if let Some(offer) = offer {
                self.acknowledged(member, offer.next)?;
            }
        }
        Ok(())
    }

    /// Lets the follower count in each of its journals where it may. It has sent a message since WELCOME: the copy is
    /// on its disk, and keeps its own number. One that counts already costs a look at its cursor.
    fn seek_admission(&self, reports: bool) -> Result<(), ReplicationError> {
        if !self.leader.admits {
            return Ok(());
        }
        for member in &self.members {
            let Some(progress) = &member.progress else {
                continue;
            };
            if progress.cursor.admission().counts(progress.copy) {
                continue;
            }
            let served = member.served;
            let name = self.follower;
            let why = match served.unanswered(progress.opened, name) {
                Ok(missing) if missing.is_empty() => {
                    let admit = || progress.cursor.admit(progress.copy);
                    if let Some(admitted) = served.as_current(name, self.number, admit) {
                        admitted?;
                        info!("'{name}' counts as a follower of '{}'", served.name);
                    }
                    continue;
                }
                Ok(missing) => format!("'{}' has not answered", missing.join("', '")),
                Err(error) => chain(&error).to_string(),
            };
            if reports && !progress.is_reported.swap(true, Ordering::Relaxed) {
                let path = progress.opened.journal.path();
                warn!(
                    "'{name}' does not count as a follower of '{}': {why}; `millstream journal followers {} --admit {name}` lets it count",
                    served.name,
                    path.display()
                );
            }
        }
        Ok(())
    }

    /// The journals and the first record of each.
    pub fn starts(&self) -> Vec<(&Served, u64)> {
        let progress = self.members.iter().filter_map(|member| {
            let progress = member.progress.as_ref()?;
            Some((member.served, progress.sent.load(Ordering::Relaxed)))
        });
        progress.collect()
    }

    pub fn leave(&self) {
        for member in &self.members {
            member.served.leave(self.follower, self.number);
        }
    }

    fn acknowledged(&self, member: &SessionMember<'_>, next: u64) -> Result<(), ReplicationError> {
        self.answered_ns.store(monotonic_ns(), Ordering::Relaxed);
        if let Some(progress) = &member.progress {
            let moved = || progress.cursor.set_for(progress.copy, next);
            let moved = member.served.as_current(self.follower, self.number, moved);
            moved.transpose()?;
        }
        Ok(())
    }

    pub fn receive(&self, mut incoming: Incoming) -> Result<(), ReplicationError> {
        let mut farewell_ns = None;
        let mut sought_ns = None;
        let mut looks = 0_u32;
        loop {
            incoming.read()?;
            while incoming.frames.is_ready() {
                let Some(frame) = incoming.frames.next_frame()? else {
                    break;
                };
                match frame.kind {
                    Kind::End if looks == 0 => return self.seek_admission(false),
                    Kind::End => return Ok(()),
                    Kind::Ack => self.take(decode(frame.payload)?)?,
                    other => {
                        let what = format!("{other:?} came from a follower");
                        return Err(ReplicationError::protocol(what));
                    }
                }
                sought_ns.get_or_insert(0);
            }
            if self.ended.load(Ordering::Relaxed) {
                let end = *farewell_ns.get_or_insert(monotonic_ns() + FAREWELL.as_nanos() as u64);
                if monotonic_ns() > end {
                    return Ok(());
                }
            }
            incoming.check_alive(self.leader.heartbeat * DEAD_AFTER)?;
            let now_ns = monotonic_ns();
            let heartbeat_ns = self.leader.heartbeat.as_nanos() as u64;
            if sought_ns.is_some_and(|sought_ns| now_ns - sought_ns > heartbeat_ns) {
                (sought_ns, looks) = (Some(now_ns), looks.saturating_add(1));
                // All others answer within a heartbeat.
                self.seek_admission(looks > 2)?;
            }
        }
    }

    /// An acknowledgement.
    fn take(&self, At { member, next }: At) -> Result<(), ReplicationError> {
        let member = self.members.get(member);
        let sent = member
            .and_then(|member| member.progress.as_ref())
            .map_or(0, |progress| progress.sent.load(Ordering::Relaxed));
        match member {
            Some(member) if next <= sent => self.acknowledged(member, next),
            _ => {
                let what = format!("record {next} is acknowledged before it was sent");
                Err(ReplicationError::protocol(what))
            }
        }
    }
}

pub(super) fn no_thread(source: std::io::Error) -> ReplicationError {
    LinkError::connection("cannot start a thread", source).into()
}
