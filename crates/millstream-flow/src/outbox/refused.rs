//! The records that a destination has refused, until they are dead letters: a journal beside the outbox,
//! `STATE/outputs/NAME%refused`.
//!
//! A record of it is the number in the outbox (8 bytes), the length of the reason (4 bytes), the reason, and the record
//! that was refused; numbers are little-endian. A record is there, durably, before the destination skips it. If the
//! destination takes it after all, since its write failed and was repeated, a record with the number alone follows. The
//! journal is there from the start on, so that a follower of the state has it.
//!
//! Invariant: what is below [`RefusedLog::passed_on`] was taken for an epoch, whose commit has that number in the token
//! of the outbox. So each record becomes one dead letter, whenever the flow is killed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use millstream_journal::storage::create_dir_durably;
use millstream_journal::{Cursor, CursorMode, Journal, Options, Retention, Sync, Writer};

use crate::error::{Cause, context};
use crate::mutex::lock;
use crate::named::drop_state;
use crate::outbox::settings::DELIVERED;
use crate::sink::{Refused, Token};

/// What follows the name of the outbox in that of the directory. A name has no `%` that is not followed by two digits.
pub(crate) const SUFFIX: &str = "%refused";
/// The size of a segment: it has room for the largest record of an outbox with its reason.
const SEGMENT_BYTES: u64 = 64 << 20;
/// The bytes of a reason that are kept.
const REASON_BYTES: usize = 10_000;
/// How much is taken at once.
const TAKEN_BYTES: usize = 16 << 20;
/// The bytes before the reason.
const HEAD: usize = 12;

/// The records of one outbox that were refused.
pub(super) struct RefusedLog {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    /// Records below this number were taken.
    passed_on: u64,
    appender: Writer,
    /// At the first record that is no committed dead letter: a journal of refused records is looked at as an outbox is.
    cursor: Cursor,
    /// Where the journal has the refusal of each record of the outbox that is not settled: its delivery may be
    /// repeated.
    unsettled: BTreeMap<u64, u64>,
    /// Records of the outbox below this number are delivered or skipped.
    settled: u64,
}

/// What the token of an outbox says: how many records are committed, and how many refused ones were passed on with
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) length: u64,
    pub(super) passed_on: u64,
}

impl Marks {
    /// Returns the latest of the tokens of the writers.
    pub(super) fn of(tokens: &[Token]) -> Result<Self, Cause> {
        let mut latest = Marks::default();
        for token in tokens {
            let marks = <[u8; 16]>::try_from(token.as_slice());
            let marks = marks.map_err(|_| "the saved length of the outbox has another format")?;
            let (length, passed_on) = marks.split_at(8);
            latest.length = latest.length.max(number(length));
            latest.passed_on = latest.passed_on.max(number(passed_on));
        }
        Ok(latest)
    }

    pub(super) fn token(self) -> Token {
        [self.length.to_le_bytes(), self.passed_on.to_le_bytes()].concat()
    }
}

/// Reads the little-endian number of eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Returns the directory for the outbox in `outbox`.
pub(super) fn refused_dir(outbox: &Path) -> PathBuf {
    let mut path = outbox.as_os_str().to_owned();
    path.push(SUFFIX);
    path.into()
}

impl RefusedLog {
    /// Resumes after the records that the last commit has passed on.
    pub(super) fn resume(outbox: &Path, sink: &str, passed_on: u64) -> Result<Self, Cause> {
        let path = refused_dir(outbox);
        create_dir_durably(&path).map_err(|error| context(path.display(), error))?;
        let options = Options {
            record_bytes_max: SEGMENT_BYTES as u32,
            ..Options::default()
                .with_segment_bytes(SEGMENT_BYTES)
                .with_sync(Sync::Always)
        };
        let journal = Journal::open(&path, options)?;
        let end = journal.next()?;
        if end < passed_on {
            return Err(format!(
                "the refused records in {} end before {end}, and {passed_on} were passed on: the journal was removed, or a loss of power \
                 has taken its end; start the sink again with {}",
                path.display(),
                drop_state(sink)
            )
            .into());
        }
        let mut unsettled = BTreeMap::new();
        let mut reader = journal.reader()?;
        reader.seek(passed_on.max(journal.first()?))?;
        while let Some(record) = reader.next()? {
            match taken_after_all(record.body) {
                Some(number) => drop(unsettled.remove(&number)),
                None => {
                    let of = parse(record.body).ok_or_else(|| damaged(&path))?.0;
                    unsettled.insert(of, record.sequence);
                }
            }
        }
        let state = Mutex::new(State {
            passed_on,
            appender: journal.writer()?,
            cursor: journal.cursor(DELIVERED, CursorMode::Shared)?,
            unsettled,
            settled: 0,
        });
        Ok(RefusedLog { path, state })
    }

    /// Keeps a record, durably. One that is there is not added again.
    pub(super) fn add(&self, number: u64, reason: &str, record: &[u8]) -> Result<(), Cause> {
        let mut state = lock(&self.state);
        if number >= state.settled && !state.unsettled.contains_key(&number) {
            let at = state.appender.append(&body(number, reason, record))?;
            state.unsettled.insert(number, at);
        }
        Ok(())
    }

    /// The records below `next` are delivered, but for those that were refused last.
    pub(super) fn settle(&self, next: u64, is_refused: impl Fn(u64) -> bool) -> Result<(), Cause> {
        let mut state = lock(&self.state);
        let later = state.unsettled.split_off(&next);
        for number in std::mem::replace(&mut state.unsettled, later).into_keys() {
            if !is_refused(number) {
                state.appender.append(&number.to_le_bytes())?;
            }
        }
        state.settled = state.settled.max(next);
        Ok(())
    }

    /// Takes the refused records that are settled and were not taken before, as many as are passed on at once.
    pub(super) fn take(&self) -> Result<Vec<Refused>, Cause> {
        let mut state = lock(&self.state);
        let journal = state.appender.journal();
        // What is not settled may be taken by the destination after all.
        let unsettled = state.unsettled.values().min().copied();
        let end = unsettled.unwrap_or(u64::MAX).min(journal.next()?);
        let mut taken = Vec::new();
        if end <= state.passed_on {
            return Ok(taken);
        }
        let first = state.passed_on.max(journal.first()?);
        let mut reader = journal.reader()?;
        reader.seek(first)?;
        // Where the destination has taken a record after all, which may follow the end.
        let mut accepted = BTreeMap::new();
        while let Some(record) = reader.next()? {
            if let Some(number) = taken_after_all(record.body) {
                accepted.insert(number, record.sequence);
            }
        }
        reader.seek(first)?;
        let mut bytes = 0;
        while reader.position() < end
            && bytes < TAKEN_BYTES
            && let Some(record) = reader.next()?
        {
            bytes += record.body.len();
            if taken_after_all(record.body).is_some() {
                continue;
            }
            let parts = parse(record.body).ok_or_else(|| damaged(&self.path))?;
            let (number, reason, refused) = parts;
            let later = accepted.get(&number);
            if later.is_none_or(|later| *later < record.sequence) {
                taken.push(Refused {
                    number: Some(number),
                    reason: String::from_utf8_lossy(reason).into_owned(),
                    record: refused.to_vec(),
                });
            }
        }
        state.passed_on = reader.position();
        Ok(taken)
    }

    /// The records from `first` on are delivered again: the destination has lost them.
    pub(super) fn rewind(&self, first: u64) {
        lock(&self.state).settled = first;
    }

    /// How many records of the journal were taken.
    pub(super) fn passed_on(&self) -> u64 {
        lock(&self.state).passed_on
    }

    /// The records below `passed_on` are dead letters that are committed: they are not needed any more.
    pub(super) fn commit(&self, passed_on: u64) -> Result<(), Cause> {
        let state = lock(&self.state);
        if state.cursor.position()? >= passed_on {
            return Ok(());
        }
        state.cursor.set(passed_on)?;
        state.appender.journal().prune(&Retention {
            keep_for_cursors: true,
            ..Retention::default()
        })?;
        Ok(())
    }
}

/// Returns the number of the record that the destination has taken after all, if that is what a record of the journal
/// says.
fn taken_after_all(body: &[u8]) -> Option<u64> {
    (body.len() == 8).then(|| number(body))
}

/// Returns the record of the journal for a refused one.
fn body(number: u64, reason: &str, record: &[u8]) -> Vec<u8> {
    let mut end = reason.len().min(REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let reason = &reason.as_bytes()[..end];
    let mut body = Vec::with_capacity(HEAD + reason.len() + record.len());
    body.extend_from_slice(&number.to_le_bytes());
    body.extend_from_slice(&(reason.len() as u32).to_le_bytes());
    body.extend_from_slice(reason);
    body.extend_from_slice(record);
    body
}

fn damaged(path: &Path) -> Cause {
    format!("{}: a record is damaged", path.display()).into()
}

/// Returns the number, the reason and the refused record that a record of the journal has.
fn parse(body: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (head, rest) = body.split_at_checked(HEAD)?;
    let length = u32::from_le_bytes(head[8..].try_into().ok()?);
    let (reason, record) = rest.split_at_checked(length as usize)?;
    Some((number(&head[..8]), reason, record))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(taken: Vec<Refused>) -> Vec<u64> {
        taken.into_iter().filter_map(|it| it.number).collect()
    }

    #[test]
    fn each_record_is_taken_once_and_those_of_an_epoch_that_was_not_committed_again() {
        let dir = tempfile::tempdir().unwrap();
        let outbox = dir.path().join("out");
        let log = RefusedLog::resume(&outbox, "out", 0).unwrap();
        log.add(7, "too long", b"seven").unwrap();
        log.add(7, "too long", b"seven").unwrap();
        log.settle(8, |_| true).unwrap();
        log.add(9, &"\u{e9}".repeat(REASON_BYTES), b"").unwrap();
        let taken = log.take().unwrap();
        assert_eq!(taken.len(), 1);
        assert_eq!(
            (taken[0].number, &*taken[0].record),
            (Some(7), &b"seven"[..])
        );
        log.settle(10, |_| true).unwrap();
        let taken = log.take().unwrap();
        assert_eq!(
            (taken[0].number, taken[0].reason.len()),
            (Some(9), REASON_BYTES)
        );
        assert!(log.take().unwrap().is_empty());
        assert_eq!(log.passed_on(), 2);
        log.commit(1).unwrap();
        drop(log);
        // The commit has the first one only.
        let log = RefusedLog::resume(&outbox, "out", 1).unwrap();
        log.add(9, "again", b"").unwrap();
        log.settle(10, |_| true).unwrap();
        assert_eq!(numbers(log.take().unwrap()), [9]);
        assert!(RefusedLog::resume(&outbox, "out", 3).is_err());
    }

    #[test]
    fn what_the_destination_takes_after_all_is_not_refused() {
        let dir = tempfile::tempdir().unwrap();
        let outbox = dir.path().join("out");
        let log = RefusedLog::resume(&outbox, "out", 0).unwrap();
        for number in [3, 4, 5] {
            log.add(number, "no", b"x").unwrap();
        }
        assert!(log.take().unwrap().is_empty());
        drop(log);
        // The process was killed in the write, and the next one is asked again.
        let log = RefusedLog::resume(&outbox, "out", 0).unwrap();
        log.settle(5, |number| number == 4).unwrap();
        assert_eq!(numbers(log.take().unwrap()), [4]);
        log.settle(6, |_| true).unwrap();
        assert_eq!(numbers(log.take().unwrap()), [5]);
    }

    #[test]
    fn the_latest_token_counts() {
        let marks = |length, passed_on| Marks { length, passed_on };
        let tokens = [marks(3, 9).token(), marks(5, 2).token()];
        assert_eq!(Marks::of(&tokens).unwrap(), marks(5, 9));
        assert_eq!(Marks::of(&[]).unwrap(), Marks::default());
        assert!(Marks::of(&[vec![0; 8]]).is_err());
    }
}
