//! The follower's journal: created like the leader's, appended to by no other process, acknowledged as its `sync` says.
//!
//! The invariant: records have the numbers and times of the leader, without a gap; what was acknowledged is there after
//! a kill, and, unless `sync` is `never`, after a loss of power.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_journal::clock::monotonic_ns;
use millstream_journal::{
    CursorMode, Error, Host, Identity, Journal, Options, Retention, Sync, Writer,
};
use millstream_link::LinkError;

use super::error::ReplicationError;
use super::history::{newest, recent};
use super::message::{Member, Offer};

/// The cursor of a copy at the leader's first record.
pub(super) const PRUNED: &str = "leader.first";
/// The longest record: that of the leader.
const RECORD_BYTES_MAX: u32 = 1 << 28;

/// The copy, which is created at the first connection to a leader.
pub(super) struct Copy {
    dir: PathBuf,
    sync: Sync,
    /// Adopt a journal of another lineage as a copy, if its last record is the leader's.
    adopt: bool,
    own: u64,
    open: Option<Open>,
}

struct Open {
    journal: Journal,
    writer: Writer,
    /// Its lineage; `None` until the leader names it or has compared the last records.
    lineage: Option<u128>,
    next: u64,
    /// All before this one is on the disk.
    synced: u64,
    acknowledged: u64,
    synced_ns: u64,
}

impl Open {
    fn sync(&mut self) -> Result<(), ReplicationError> {
        if self.synced < self.next {
            self.journal.sync()?;
            self.synced = self.next;
            self.synced_ns = monotonic_ns();
        }
        Ok(())
    }
}

impl Copy {
    /// The copy in `dir`, if there is one.
    pub fn open(dir: &Path, sync: Sync, adopt: bool) -> Result<Self, ReplicationError> {
        let mut copy = Copy {
            dir: dir.to_owned(),
            sync,
            adopt,
            own: Identity::new(None, &Host::real()).own,
            open: None,
        };
        let options = Options {
            create: false,
            ..copy.options()
        };
        match Journal::open(dir, options) {
            Err(Error::NotFound { .. }) => Ok(copy),
            journal => {
                copy.take(journal?)?;
                Ok(copy)
            }
        }
    }

    fn options(&self) -> Options {
        Options {
            // This file syncs: once for all records that were received.
            sync: Sync::Never,
            sole_writer: true,
            record_bytes_max: RECORD_BYTES_MAX,
            ..Options::default()
        }
    }

    fn take(&mut self, journal: Journal) -> Result<(), ReplicationError> {
        let leadership = journal.leadership()?;
        let leads = leadership.term > 0 && !leadership.is_copy;
        if leads || leadership.superseded_by.is_some() {
            return Err(ReplicationError::WasLeader {
                path: self.dir.clone(),
                term: leadership.term,
            });
        }
        // A reader of the copy may have been here first, and then has made a journal that nothing was ever in.
        let undecided = self.adopt || journal.next()? == 0;
        let identity = journal.identity()?;
        self.own = identity.own;
        let writer = journal.writer()?;
        if self.sync != Sync::Never {
            journal.sync()?;
        }
        let next = journal.next()?;
        self.open = Some(Open {
            lineage: if undecided {
                None
            } else {
                Some(identity.lineage)
            },
            acknowledged: next,
            synced: next,
            synced_ns: monotonic_ns(),
            next,
            writer,
            journal,
        });
        Ok(())
    }

    /// The request for the leader, which calls the journal `name`.
    pub fn position(&self, name: &str) -> Result<Member, ReplicationError> {
        let mut member = Member {
            journal: name.to_owned(),
            lineage: None,
            own: self.own,
            next: 0,
            last: None,
            terms: Vec::new(),
        };
        if let Some(open) = &self.open {
            member.lineage = open.lineage;
            member.next = open.next;
            member.last = open.journal.bookmark(open.next)?.checksum;
            member.terms = recent(open.journal.terms()?);
        }
        Ok(member)
    }

    /// The leader has accepted: create the copy, or check that it is one.
    pub fn begin(&mut self, welcome: &Offer) -> Result<(), ReplicationError> {
        if self.open.is_none() {
            let identity = Identity {
                lineage: welcome.lineage,
                own: self.own,
            };
            let options = Options {
                identity: Some(identity),
                create_new: true,
                first_sequence: welcome.next,
                segment_bytes: welcome.segment_bytes,
                ..self.options()
            };
            match Journal::open(&self.dir, options) {
                // A reader of the copy has made it already, with a number of its own that the leader does not know.
                Err(Error::Exists { .. }) => {
                    self.take(Journal::open(&self.dir, self.options())?)?;
                    let verb = format!("{}: a reader has made the copy", self.dir.display());
                    return Err(LinkError::connection(verb, ErrorKind::Interrupted.into()).into());
                }
                journal => self.take(journal?)?,
            }
        }
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        if *open.lineage.get_or_insert(welcome.lineage) != welcome.lineage {
            return Err(ReplicationError::NotACopy {
                path: self.dir.clone(),
                hint: ", or adopt it, if it was copied from the leader's by other means",
            });
        }
        // The leader has compared the last record of one that is adopted.
        open.journal.become_copy(welcome.lineage)?;
        if welcome.next != open.next {
            let what = format!(
                "record {} was asked for, {} offered",
                open.next, welcome.next
            );
            return Err(ReplicationError::protocol(what));
        }
        let theirs = newest(&welcome.terms);
        let ours = open.journal.leadership()?.term;
        if theirs < ours {
            let path = self.dir.clone();
            return Err(ReplicationError::OlderTerm { path, theirs, ours });
        }
        open.journal.mark_as_copy()?;
        // Before the first record of a term that is new here.
        open.journal.adopt_terms(&welcome.terms)?;
        Ok(())
    }

    /// Append a record of the leader.
    pub fn append(
        &mut self,
        sequence: u64,
        time_ns: u64,
        body: &[u8],
    ) -> Result<(), ReplicationError> {
        let open = self.open.as_mut().filter(|open| open.next == sequence);
        let Some(open) = open else {
            let what = format!("record {sequence} came out of turn");
            return Err(ReplicationError::protocol(what));
        };
        let given = open.writer.append_at(time_ns, body)?;
        if given != sequence {
            let what = format!("record {sequence} got number {given} in the copy");
            return Err(ReplicationError::protocol(what));
        }
        open.next = sequence + 1;
        Ok(())
    }

    /// Whether there is nothing on the disk yet.
    pub fn is_new(&self) -> bool {
        self.open.is_none()
    }

    /// Prune the records before `first`, which the leader does not have any more.
    pub fn prune(&mut self, first: u64) -> Result<(), ReplicationError> {
        let Some(open) = &self.open else {
            return Ok(());
        };
        let leader = open.journal.cursor(PRUNED, CursorMode::Shared)?;
        leader.set(first.min(open.next))?;
        open.journal.prune(&Retention {
            keep_for_cursors: true,
            ..Retention::default()
        })?;
        Ok(())
    }

    /// The number of the next record.
    pub fn next(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.next)
    }

    /// All before this record is acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.acknowledged)
    }

    /// Make all received records durable, before records that they cause are appended to another copy.
    pub fn sync(&mut self) -> Result<(), ReplicationError> {
        match (&mut self.open, self.sync) {
            (None, _) | (_, Sync::Never) => Ok(()),
            (Some(open), _) => open.sync(),
        }
    }

    /// Make received records durable, as `sync` says, and return the position that may be acknowledged; `None` when
    /// that has not changed. With `now` all are synced at once.
    pub fn acknowledge(&mut self, now: bool) -> Result<Option<u64>, ReplicationError> {
        let sync = self.sync;
        let Some(open) = self
            .open
            .as_mut()
            .filter(|open| open.next > open.acknowledged)
        else {
            return Ok(None);
        };
        let since = Duration::from_nanos(monotonic_ns().saturating_sub(open.synced_ns));
        match sync {
            Sync::Never => {}
            Sync::Every(time) if !now && since < time => return Ok(None),
            Sync::Every(_) | Sync::Always => open.sync()?,
        }
        open.acknowledged = open.next;
        Ok(Some(open.acknowledged))
    }
}
