//! Whether a copy has all that was answered.
//!
//! The arbiter's record names such copies, and the records that all of them had when the lease was renewed. A directory that was restored from a backup has the
//! name of a copy that is named. So each machine notes in its directory, in the file `.beat`, how often the lease had been renewed when it had all.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use millstream_journal::{Journal, Options};
use millstream_replication::arbiter::LeaseRecord;

use crate::error::Cause;
use crate::replica::changes_of;

const BEAT: &str = ".beat";
/// A machine may die between a renewal and its note of it.
const BEATS_MAX: u64 = 1;

/// The number of this copy of the changes, and the number of its next one.
pub(super) fn own(dir: &Path) -> Result<(u64, u64), Cause> {
    let journal = Journal::open(changes_of(dir)?, Options::read_only())?;
    Ok((journal.identity()?.own, journal.next()?))
}

/// Why the copy in this directory, of the machine of this name, may lack what was answered.
pub(super) fn lacks(dir: &Path, name: &str, record: &LeaseRecord) -> Result<Option<String>, Cause> {
    let others = others_of(record, name);
    if !dir.join(crate::storage::CHANGES).exists() {
        return Ok(Some(format!(
            "this machine has nothing yet, and {others} had all that was answered"
        )));
    }
    let (own, next) = own(dir)?;
    if !record.is_in_sync(name, own) {
        return Ok(Some(format!(
            "{others} had all that was answered, and this copy may lack some of it"
        )));
    }
    let is_old = next < record.at || beat(dir)? + BEATS_MAX < record.beat;
    Ok((is_old && !others.is_empty()).then(|| {
        format!(
            "this copy was restored, or has lost its last changes with its power: it ends before record {next} of the changes, and {others} had all \
             that was answered"
        )
    }))
}

/// The other machines that have all that was answered.
pub(super) fn others_of(record: &LeaseRecord, name: &str) -> String {
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
