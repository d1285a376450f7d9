//! The followers of one that leads: which of them have all that is answered.
//!
//! The invariant: those that the arbiter's record names are waited for by each answer. So a follower counts here before
//! the record names it, and until the record does not name it any more.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use millstream_journal::Journal;
use millstream_replication::{Follower, Followers, ReplicationError, Standing};

/// What is known of a follower.
#[derive(Clone, Copy, Debug)]
struct Track {
    /// The position that it must reach, and since when it must.
    goal: u64,
    since: Duration,
}

/// The followers of the changes.
pub(super) struct Members {
    own: (String, u64),
    journal: Journal,
    followers: Followers,
    /// By name: the position that each must reach next.
    tracks: HashMap<String, Track>,
    /// How long an answer waits for a follower, and for one that is not connected.
    patience: Duration,
    patience_gone: Duration,
    /// Where the journal ended at the last look.
    end: u64,
}

/// What a look has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Those that have all that was answered, from now on.
    pub in_sync: BTreeMap<String, u64>,
    /// All of these have the records before this one.
    pub at: u64,
    /// Those that need not be waited for, once the arbiter's record does not name them.
    pub dismissed: Vec<String>,
}

impl Change {
    /// This one has all that is answered, too.
    fn name(&mut self, follower: &Follower) {
        self.in_sync.insert(follower.name.clone(), follower.copy);
        self.at = self.at.min(follower.position);
    }
}

impl Members {
    /// Those of the journal of changes of the machine `own`: its name, and the number of its journal.
    pub fn new(
        own: (String, u64),
        journal: Journal,
        lease: Duration,
    ) -> Result<Self, ReplicationError> {
        Ok(Members {
            own,
            followers: Followers::of(&journal),
            end: journal.next()?,
            journal,
            tracks: HashMap::new(),
            patience: lease / 2,
            patience_gone: lease / 10,
        })
    }

    /// At the beginning: of those that are named, the ones that count here stay, and all others do not count.
    pub fn first(&self, named: &BTreeMap<String, u64>) -> Result<Change, ReplicationError> {
        let mut change = self.only_own()?;
        for follower in self.followers.list()? {
            let is_named = named.get(&follower.name) == Some(&follower.copy);
            if follower.standing != Standing::Counted {
                continue;
            }
            if is_named {
                change.name(&follower);
            } else {
                change.dismissed.push(follower.name);
            }
        }
        Ok(change)
    }

    fn only_own(&self) -> Result<Change, ReplicationError> {
        Ok(Change {
            in_sync: BTreeMap::from([self.own.clone()]),
            at: self.journal.next()?,
            dismissed: Vec::new(),
        })
    }

    /// Looks at the followers, at this time. Lets those count that have almost all.
    pub fn look(
        &mut self,
        named: &BTreeMap<String, u64>,
        now: Duration,
    ) -> Result<Change, ReplicationError> {
        let mut change = self.only_own()?;
        let fresh = Track {
            goal: change.at,
            since: now,
        };
        for follower in self.followers.list()? {
            match follower.standing {
                Standing::Counted => self.look_at(&follower, named, fresh, &mut change),
                _ if follower.is_connected == Some(true) && follower.position >= self.end => {
                    self.followers.admit(&follower.name)?;
                }
                _ => {}
            }
        }
        self.end = fresh.goal;
        Ok(change)
    }

    /// One that counts: it is named when it has reached what was there after it began to count, and dismissed when it
    /// does not come on.
    fn look_at(
        &mut self,
        follower: &Follower,
        named: &BTreeMap<String, u64>,
        fresh: Track,
        change: &mut Change,
    ) {
        let is_named = named.get(&follower.name) == Some(&follower.copy);
        let is_new = !self.tracks.contains_key(&follower.name);
        let track = self.tracks.entry(follower.name.clone()).or_insert(fresh);
        let has_reached = follower.position >= track.goal;
        if has_reached {
            *track = fresh;
        }
        let patience = match follower.is_connected {
            Some(false) => self.patience_gone,
            _ => self.patience,
        };
        if fresh.since - track.since > patience {
            self.tracks.remove(&follower.name);
            change.dismissed.push(follower.name.clone());
        } else if is_named || (has_reached && !is_new) {
            change.name(follower);
        }
    }

    /// Whether any follower counts, so that answers wait for it.
    pub fn counts_any(&self) -> Result<bool, ReplicationError> {
        Ok(!self.followers.positions()?.is_empty())
    }

    /// Lets these not count any more. Returns whether none counts.
    pub fn dismiss(&self, names: &[String]) -> Result<bool, ReplicationError> {
        for name in names {
            self.followers.dismiss(name)?;
        }
        Ok(!self.counts_any()?)
    }
}

#[cfg(test)]
mod tests {
    use millstream_journal::{Cursor, CursorMode, Options};

    use super::*;

    const LEASE: Duration = Duration::from_secs(10);
    const COPY: u64 = 7;

    /// The changes of a machine `a`, with ten records, and where the follower `b` is.
    struct Rig {
        _folder: tempfile::TempDir,
        journal: Journal,
        follower: Cursor,
        members: Members,
        named: BTreeMap<String, u64>,
    }

    fn append(journal: &Journal, count: u64) {
        let writer = journal.writer().unwrap();
        for _ in 0..count {
            writer.append(b"x").unwrap();
        }
    }

    impl Rig {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let journal = Journal::open(folder.path().join("changes"), Options::default()).unwrap();
            append(&journal, 10);
            let own = ("a".to_owned(), 1);
            Rig {
                follower: journal.cursor("follower.b", CursorMode::Shared).unwrap(),
                members: Members::new(own.clone(), journal.clone(), LEASE).unwrap(),
                named: BTreeMap::from([own]),
                journal,
                _folder: folder,
            }
        }

        fn has(&self, position: u64) {
            self.follower.set_for(COPY, position).unwrap();
        }

        /// A look after so many seconds, and what the arbiter does of it. Returns whether `b` is named, and those
        /// dismissed.
        fn look(&mut self, seconds: u64) -> (bool, Vec<String>) {
            let change = self
                .members
                .look(&self.named, Duration::from_secs(seconds))
                .unwrap();
            self.named.clone_from(&change.in_sync);
            self.members.dismiss(&change.dismissed).unwrap();
            (self.named.get("b") == Some(&COPY), change.dismissed)
        }
    }

    #[test]
    fn one_is_named_when_it_has_what_was_there_after_it_began_to_count() {
        let mut rig = Rig::new();
        rig.has(3);
        assert_eq!(rig.look(1), (false, vec![]));
        assert!(!rig.members.counts_any().unwrap(), "it is far from the end");
        rig.has(10);
        rig.look(2);
        assert!(rig.members.counts_any().unwrap());
        // What is appended now waits for it; what was answered before it counted may not have.
        append(&rig.journal, 2);
        assert_eq!(rig.look(3), (false, vec![]));
        assert_eq!(rig.look(4), (false, vec![]));
        rig.has(11);
        assert_eq!(rig.look(5), (false, vec![]));
        rig.has(12);
        assert_eq!(rig.look(6), (true, vec![]));
    }

    #[test]
    fn one_that_does_not_come_on_is_dismissed_and_named_again() {
        let mut rig = Rig::new();
        rig.has(10);
        for second in 0..3 {
            rig.look(second);
        }
        assert_eq!(rig.named.len(), 2);
        // There is nothing to acknowledge: it may be silent.
        assert_eq!(rig.look(100), (true, vec![]));
        append(&rig.journal, 1);
        assert_eq!(rig.look(101), (true, vec![]));
        assert_eq!(rig.look(105), (true, vec![]));
        assert_eq!(rig.look(107), (false, vec!["b".to_owned()]));
        assert!(!rig.members.counts_any().unwrap());
        rig.has(11);
        for second in 108..111 {
            rig.look(second);
        }
        assert_eq!(rig.named.len(), 2);
    }

    #[test]
    fn at_the_beginning_those_stay_that_are_named_and_count() {
        let mut rig = Rig::new();
        rig.has(10);
        for second in 0..3 {
            rig.look(second);
        }
        let first = |named: &BTreeMap<String, u64>| rig.members.first(named).unwrap();
        let both = rig.named.clone();
        assert_eq!(first(&both).in_sync, both);
        // Another copy under its name; one that the record does not name.
        let other = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 8)]);
        let none = BTreeMap::new();
        for named in [&other, &none] {
            let change = first(named);
            assert_eq!(change.in_sync, BTreeMap::from([("a".to_owned(), 1)]));
            assert_eq!(change.dismissed, ["b"]);
        }
    }
}
