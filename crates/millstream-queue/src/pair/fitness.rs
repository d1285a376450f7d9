//! Whether a copy has all that was answered.
//!
//! The arbiter's record names such copies, and the records that all of them had when the lease was renewed. A directory
//! that was restored from a backup has the name of a copy that is named. So each machine notes in its directory, in the
//! file `.beat`, how often the lease had been renewed when it had all.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use millstream_journal::{Error as Fault, Journal, Options};
use millstream_replication::arbiter::LeaseRecord;

use crate::error::Cause;
use crate::storage::CHANGES;

const BEAT: &str = ".beat";
/// A machine may die between a renewal and its note of it.
const BEATS_MAX: u64 = 1;

/// A copy of the changes, as it is on the disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    /// Its own number.
    pub own: u64,
    /// The number of its next change.
    pub next: u64,
    /// Whether it is that of a machine that has led.
    pub has_led: bool,
    /// The newest term that it knows.
    pub term: u64,
}

impl Copy {
    /// The one of the queues in a directory; `None` where there are no changes yet.
    pub fn of(dir: &Path) -> Result<Option<Self>, Cause> {
        // Also while the connection to the leader is making it.
        let journal = match Journal::open(dir.join(CHANGES), Options::read_only()) {
            Err(Fault::NotFound { .. }) => return Ok(None),
            opened => opened?,
        };
        let leadership = journal.leadership()?;
        Ok(Some(Copy {
            own: journal.identity()?.own,
            next: journal.next()?,
            has_led: !leadership.is_copy,
            term: leadership.superseded_by.unwrap_or(leadership.term),
        }))
    }

    /// A term that is newer than all that this copy and a record know.
    pub fn next_term(&self, record: Option<&LeaseRecord>) -> u64 {
        self.term.max(record.map_or(0, |record| record.term)) + 1
    }
}

/// Why the copy of the machine of this name, in this directory, may lack what was answered.
pub(super) fn lacks(
    copy: Option<&Copy>,
    (dir, name): (&Path, &str),
    record: &LeaseRecord,
) -> Result<Option<String>, Cause> {
    let others = others_of(record, name);
    let Some(copy) = copy else {
        return Ok(Some(format!(
            "this machine has nothing yet, and {others} had all that was answered"
        )));
    };
    if !record.is_in_sync(name, copy.own) {
        return Ok(Some(format!(
            "{others} had all that was answered, and this copy may lack some of it"
        )));
    }
    let next = copy.next;
    let is_old = next < record.at || beat(dir)? + BEATS_MAX < record.beat;
    Ok((is_old && has_others(record, name)).then(|| {
        format!(
            "this copy was restored, or has lost its last changes with its power: it ends before record {next} of the changes, and {others} had all \
             that was answered"
        )
    }))
}

/// Whether other machines have all that was answered.
pub(super) fn has_others(record: &LeaseRecord, name: &str) -> bool {
    record.in_sync.keys().any(|other| other != name)
}

/// The other machines that have all that was answered; where there is none, the directory that this one had.
pub(super) fn others_of(record: &LeaseRecord, name: &str) -> String {
    if !has_others(record, name) {
        return format!("{name}, with another directory than this one,");
    }
    let others = record.in_sync.keys().filter(|other| *other != name);
    let others: Vec<_> = others.map(String::as_str).collect();
    others.join(" or ")
}

/// The last renewal at which the copy in this directory had all.
pub(super) fn beat(dir: &Path) -> Result<u64, Cause> {
    match std::fs::read_to_string(dir.join(BEAT)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        text => Ok(text?.trim().parse().unwrap_or(0)),
    }
}

/// Notes the renewal at which the copy in this directory had all.
pub(super) fn note_beat(dir: &Path, beat: u64) -> std::io::Result<File> {
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(dir.join(BEAT))?;
    file.write_all_at(format!("{beat:020}\n").as_bytes(), 0)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_is_being_made_is_none_yet() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Copy::of(folder.path()).unwrap().is_none());
        std::fs::create_dir(folder.path().join(CHANGES)).unwrap();
        assert!(Copy::of(folder.path()).unwrap().is_none());
        let journal = Journal::open(folder.path().join(CHANGES), Options::default()).unwrap();
        let own = Copy::of(folder.path()).unwrap().unwrap().own;
        assert_eq!(own, journal.identity().unwrap().own);
    }
}
