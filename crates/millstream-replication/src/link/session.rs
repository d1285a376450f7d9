//! One follower, as the leader sees it: its journals, what was sent of them, and its acknowledgements.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Cursor, Error, Share};
use tracing::debug;

use super::admit::refused;
use super::error::{Reason, ReplicationError};
use super::followers::PREFIX;
use super::frames::Kind;
use super::handshake::write_refused;
use super::incoming::Incoming;
use super::leader::Leader;
use super::message::{self, Follow, Welcome};
use super::secret::Credential;
use super::served::{Opened, Served};
use super::stream::Stream;
use super::watch::Watch;
use super::{DEAD_AFTER, FAREWELL};

/// The follower's cursor.
fn cursor(opened: &Opened, name: &str) -> Result<Cursor, ReplicationError> {
    let cursor = opened
        .journal
        .cursor(&format!("{PREFIX}{name}"), Share::Shared);
    match cursor {
        Err(Error::CursorName { .. }) => {
            let text = format!(
                "'{name}' is no name for a follower: 1 to 90 letters, digits, '-', '_' or '.'"
            );
            Err(refused(Reason::Name, text))
        }
        cursor => Ok(cursor?),
    }
}

/// Tell the follower as well. It may have gone, which changes nothing.
pub(super) fn refuse(
    stream: &Stream,
    credential: Option<&Credential>,
    error: ReplicationError,
) -> ReplicationError {
    let (reason, text) = match &error {
        ReplicationError::Refused { reason, text } => (*reason, text.clone()),
        ReplicationError::Journal(Error::Pruned { .. }) => (Reason::Pruned, error.to_string()),
        _ => (Reason::Trouble, error.to_string()),
    };
    let mut out = Vec::new();
    write_refused(credential, reason, &text, &mut out);
    if let Err(error) = stream.write(&out) {
        debug!("a refusal was not heard: {error}");
    }
    error
}

/// A follower that follows.
pub(super) struct Session<'a> {
    pub leader: &'a Leader<'a>,
    pub follower: &'a str,
    pub number: usize,
    pub stream: &'a Arc<Stream>,
    pub credential: Option<&'a Credential>,
    /// The journals, those upstream first.
    pub links: Vec<Link<'a>>,
    pub ended: AtomicBool,
    pub watch: Watch,
}

/// A journal that is followed.
pub(super) struct Link<'a> {
    pub served: &'a Served,
    /// `None` while the journal is not there.
    pub there: Option<There<'a>>,
}

/// A journal that is there.
pub(super) struct There<'a> {
    pub name: &'a str,
    pub opened: &'a Opened,
    pub cursor: Cursor,
    /// All before this record is on its way.
    pub sent: AtomicU64,
}

impl<'a> Session<'a> {
    /// Take the follower's name in each of its journals, and its own word for what it has: after a restart, or when it was thrown away
    /// and begun anew.
    pub fn enter(
        &mut self,
        found: Vec<&'a Served>,
        follow: &Follow,
        welcome: &Welcome,
    ) -> Result<(), ReplicationError> {
        let members = follow.members.iter().zip(&welcome.members);
        for (served, (member, offer)) in found.into_iter().zip(members) {
            let mut there = None;
            if let (Some(opened), Some(offer)) = (served.opened()?, offer) {
                let cursor = cursor(opened, self.follower)?;
                if !served.enter(self.follower, member.own, self.number, self.stream) {
                    let text = format!(
                        "another follower of '{}' is connected as '{}'; --as gives this one another name",
                        served.name, self.follower
                    );
                    return Err(refused(Reason::Taken, text));
                }
                there = Some(There {
                    name: &served.name,
                    opened,
                    cursor,
                    sent: AtomicU64::new(offer.next),
                });
            }
            self.links.push(Link { served, there });
        }
        for (link, offer) in self.links.iter().zip(&welcome.members) {
            if let Some(offer) = offer {
                self.acknowledged(link, offer.next)?;
            }
        }
        Ok(())
    }

    /// What is followed, and from where on.
    pub fn starts(&self) -> Vec<(&Served, u64)> {
        let there = self.links.iter().filter_map(|link| {
            let there = link.there.as_ref()?;
            Some((link.served, there.sent.load(Ordering::Relaxed)))
        });
        there.collect()
    }

    pub fn leave(&self) {
        for link in &self.links {
            link.served.leave(self.follower, self.number);
        }
    }

    fn acknowledged(&self, link: &Link<'_>, next: u64) -> Result<(), ReplicationError> {
        if let Some(there) = &link.there {
            let moved = || there.cursor.set(next);
            let moved = link.served.as_current(self.follower, self.number, moved);
            moved.transpose()?;
        }
        Ok(())
    }

    pub fn receive(&self, mut incoming: Incoming) -> Result<(), ReplicationError> {
        let mut farewell_ns = None;
        loop {
            incoming.read()?;
            while incoming.frames.is_ready() {
                let Some(frame) = incoming.frames.next()? else {
                    break;
                };
                match frame.kind {
                    Kind::End => return Ok(()),
                    Kind::Ack => self.take(message::read_ack(frame.payload)?)?,
                    other => {
                        let what = format!("{other:?} came from a follower");
                        return Err(ReplicationError::protocol(what));
                    }
                }
            }
            if self.ended.load(Ordering::Relaxed) {
                let end = *farewell_ns.get_or_insert(monotonic_ns() + FAREWELL.as_nanos() as u64);
                if monotonic_ns() > end {
                    return Ok(());
                }
            }
            incoming.check_heard(self.leader.heartbeat * DEAD_AFTER)?;
        }
    }

    /// An acknowledgement.
    fn take(&self, (member, next): (usize, u64)) -> Result<(), ReplicationError> {
        let link = self.links.get(member);
        let sent = link
            .and_then(|link| link.there.as_ref())
            .map_or(0, |there| there.sent.load(Ordering::Relaxed));
        match link {
            Some(link) if next <= sent => self.acknowledged(link, next),
            _ => {
                let what = format!("record {next} is acknowledged before it was sent");
                Err(ReplicationError::protocol(what))
            }
        }
    }
}

pub(super) fn no_thread(source: std::io::Error) -> ReplicationError {
    ReplicationError::Connection {
        verb: "cannot start a thread".to_owned(),
        source,
    }
}
