//! Keys of external calls: a call that its publisher makes again is recorded once.
//!
//! A key is a part of the record of its call ([`KeyedCall`]), so that both are there, or neither. The keys in memory
//! are those of the journal's newest records, whichever process has written them: they are read when the first one is
//! needed, and the following ones before each use.
//!
//! Invariant: after [`catch_up`](Keys::catch_up) has returned `true`, each key of the records before
//! [`position`](Keys::position) is known that is younger than the time for which keys are kept, up to the number of
//! keys that are kept.

use std::collections::hash_map::{Entry, RandomState};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::time::Duration;

use millstream_journal::{Cursor, CursorMode, Error as JournalError, Host, Journal, Reader};
use millstream_wire::KeyedCall;

use crate::error::ServiceError;

/// The cursor at the oldest record with a key that is kept.
const CURSOR: &str = "keys";
/// How many keys of a journal are in memory, up to 160 bytes each.
const KEYS_MAX: usize = 1 << 20;

/// The key of a call that is recorded once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Key(String);

/// What became of a call with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Once {
    /// It is recorded, under this number.
    Recorded(u64),
    /// A call with this key was recorded before, under this number.
    Repeated(u64),
}

/// The keys of the calls in a journal. See [`Outlet::publish_once`](crate::Outlet::publish_once).
///
/// ```
/// use std::time::Duration;
/// use millstream_journal::{Journal, Options};
/// use millstream_service::{Key, Keys, Once, Outlet};
/// use millstream_wire::{Interface, Transport, Call};
///
/// #[millstream_wire::interface]
/// trait Orders {
///     fn close(&mut self);
/// }
///
/// # fn main() -> Result<(), millstream_wire::Cause> {
/// # let folder = tempfile::tempdir()?;
/// let orders = Journal::open(folder.path(), Options::default())?;
/// let schema = std::sync::Arc::new(<dyn Orders>::schema()?);
/// let mut outlet = Outlet::outside(&orders)?;
/// outlet.announce(&schema)?;
/// let mut keys = Keys::of(&orders, Duration::from_secs(3600))?;
/// let close = Call { at: None, method: "close".into(), arguments: vec![] }.contents(&schema)?;
/// let key = Key::new("7f3a")?;
/// assert_eq!(outlet.publish_once(&key, &close, &mut keys)?, Once::Recorded(1)); // record 0 holds the schema
/// assert_eq!(outlet.publish_once(&key, &close, &mut keys)?, Once::Repeated(1));
/// # Ok(())
/// # }
/// ```
#[doc(hidden)] // For the other crates of Millstream.
pub struct Keys {
    host: Host,
    keep: Duration,
    journal: Journal,
    reader: Reader,
    /// Whether the first record of the time for which keys are kept was looked for.
    is_placed: bool,
    hashers: [RandomState; 2],
    /// The newest record of each key.
    known: HashMap<u128, u64>,
    /// In the order of the records: when a key may be forgotten, on the monotonic clock.
    order: VecDeque<(Duration, u128, u64)>,
    keys_max: usize,
    is_warned: bool,
    /// Since the journal has a call with a key, and where it is.
    cursor: Option<(Cursor, Option<u64>)>,
}

impl Key {
    /// The length of the longest key.
    pub const BYTES_MAX: usize = 1024;

    /// A key: 1 to 1,024 visible characters of ASCII.
    ///
    /// # Errors
    /// [`ServiceError::NoKey`].
    pub fn new(text: &str) -> Result<Self, ServiceError> {
        let is_key = (1..=Self::BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_key {
            Ok(Self(text.to_owned()))
        } else {
            Err(ServiceError::NoKey {
                bytes_max: Self::BYTES_MAX,
            })
        }
    }

    /// The text of the key.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl Keys {
    /// The keys in this journal, each of which is kept for at least the time `keep` in which the journal is written to,
    /// and 1,048,576 of them. A key is not known longer than its record is there. A cursor of the journal, `keys`,
    /// keeps these records from retention for cursors.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn of(journal: &Journal, keep: Duration) -> Result<Self, ServiceError> {
        let is_known = journal.cursors()?.iter().any(|it| it.name == CURSOR);
        let mut keys = Self {
            host: Host::real(),
            keep,
            journal: journal.clone(),
            reader: journal.reader()?,
            is_placed: false,
            hashers: Default::default(),
            known: HashMap::new(),
            order: VecDeque::new(),
            keys_max: KEYS_MAX,
            is_warned: false,
            cursor: None,
        };
        if is_known {
            keys.open_cursor()?;
        }
        Ok(keys)
    }

    /// The number of the next record that is read.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.reader.position()
    }

    /// Reads the keys of at most so many new records. Returns whether there are no more. The first time it begins with
    /// the oldest record of the time for which keys are kept.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn catch_up(&mut self, records_max: usize) -> Result<bool, ServiceError> {
        let first = self.journal.first()?;
        let next = self.journal.next()?;
        if next == first || self.position() == next && self.is_placed {
            return Ok(true);
        }
        // The age of a key is the time to the newest record: an outage makes it no older, a clock that has jumped
        // forward does.
        let mut newest = self.journal.reader()?;
        newest.seek(next - 1)?;
        let newest_ns = newest.peek_time()?.unwrap_or_default();
        if !self.is_placed {
            let keep_ns = u64::try_from(self.keep.as_nanos()).unwrap_or(u64::MAX);
            self.reader.seek_time(newest_ns.saturating_sub(keep_ns))?;
            self.is_placed = true;
        } else if self.position() < first {
            self.reader.seek(first)?;
        }
        self.read(records_max, newest_ns)
    }

    fn read(&mut self, records_max: usize, newest_ns: u64) -> Result<bool, ServiceError> {
        let now = self.host.monotonic();
        for _ in 0..records_max {
            let record = match self.reader.next() {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(true),
                // The rest is read in the next turn.
                Err(JournalError::Pruned { .. }) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            // A record that is none of a call has no key.
            let Ok(Some(call)) = KeyedCall::read(record.body) else {
                continue;
            };
            let age = Duration::from_nanos(newest_ns.saturating_sub(record.time_ns));
            let hash = hash(&self.hashers, call.key);
            let sequence = record.sequence;
            if let Some(left) = self.keep.checked_sub(age) {
                self.order
                    .push_back((now.saturating_add(left), hash, sequence));
                self.known.insert(hash, sequence);
            }
            self.forget(now);
        }
        Ok(false)
    }

    /// Forgets keys that are old enough, and the oldest of too many.
    fn forget(&mut self, now: Duration) {
        while let Some(&(until, hash, sequence)) = self.order.front() {
            if until > now {
                if self.order.len() <= self.keys_max {
                    return;
                }
                self.warn(until - now);
            }
            self.order.pop_front();
            // It may have been used again.
            if let Entry::Occupied(known) = self.known.entry(hash)
                && *known.get() == sequence
            {
                known.remove();
            }
        }
    }

    fn warn(&mut self, left: Duration) {
        if !std::mem::replace(&mut self.is_warned, true) {
            let journal = self.journal.path();
            tracing::warn!(
                "{}: more than {} keys of calls in {:?}: the oldest is forgotten {left:?} early, and its call would be recorded again",
                journal.display(),
                self.keys_max,
                self.keep,
            );
        }
    }

    fn open_cursor(&mut self) -> Result<(), ServiceError> {
        if self.cursor.is_none() {
            let cursor = self.journal.cursor(CURSOR, CursorMode::Shared)?;
            self.cursor = Some((cursor, None));
        }
        Ok(())
    }

    /// Keeps the records with keys from retention for cursors, those included that are appended from now on.
    pub(crate) fn protect(&mut self) -> Result<(), ServiceError> {
        self.open_cursor()?;
        let oldest = self.order.front().map(|(_, _, sequence)| *sequence);
        let position = oldest.unwrap_or(self.position());
        if let Some((cursor, at)) = &mut self.cursor
            && *at != Some(position)
        {
            cursor.set(position)?;
            *at = Some(position);
        }
        Ok(())
    }

    /// Moves the cursor `keys` of the journal, before which retention for cursors may remove records, past calls whose
    /// keys are not kept any more. A journal that never had a key has no such cursor. Reads the keys of at most so many
    /// new records, and returns whether there are no more.
    ///
    /// # Errors
    /// The journal cannot be read, or its cursor not be moved.
    pub fn release(&mut self, records_max: usize) -> Result<bool, ServiceError> {
        if self.cursor.is_none() {
            return Ok(true);
        }
        if !self.catch_up(records_max)? {
            return Ok(false);
        }
        self.forget(self.host.monotonic());
        self.protect()?;
        Ok(true)
    }

    /// The record of the call with this key, among those that were read.
    pub fn find(&mut self, key: &Key) -> Option<u64> {
        self.forget(self.host.monotonic());
        self.known.get(&hash(&self.hashers, key.text())).copied()
    }
}

/// 128 bits of secret seeds: two keys of a journal do not have the same by chance, nor by intent.
fn hash(hashers: &[RandomState; 2], key: &str) -> u128 {
    let [high, low] = hashers.each_ref().map(|hasher| hasher.hash_one(key));
    u128::from(high) << 64 | u128::from(low)
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({})", self.journal.path().display())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millstream_journal::{Options, Retention};
    use millstream_wire::{Schema, Transport, pack};

    use super::*;
    use crate::outputs::outlet::Outlet;

    fn keyed(key: &str) -> Vec<u8> {
        let contents = &[0x90];
        let call = KeyedCall { key, contents };
        pack(call.size_max(), |out| call.pack(out)).unwrap()
    }

    fn found(keys: &mut Keys, texts: &[&str]) -> Vec<Option<u64>> {
        while !keys.catch_up(2).unwrap() {}
        let keyed = texts.iter().map(|text| Key::new(text).unwrap());
        keyed.map(|key| keys.find(&key)).collect()
    }

    #[test]
    fn keys_are_those_of_the_records_of_a_time_and_are_read_by_a_later_start() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path(), Options::default()).unwrap();
        let writer = journal.writer().unwrap();
        let hour = 3_600_000_000_000;
        // The clock of the records; that of the host does not count.
        for (time, body) in [
            (5 * hour, keyed("a")),
            (6 * hour + hour / 60, keyed("b")),
            (6 * hour + hour / 60, b"no call".to_vec()),
            (7 * hour, keyed("a")),
            (7 * hour, keyed("c")),
        ] {
            writer.append_at(time, &body).unwrap();
        }
        let now = 3_000_000 * hour;
        let mut all = Keys::of(&journal, Duration::from_secs(3600)).unwrap();
        assert_eq!(
            found(&mut all, &["a", "b", "c", "d"]),
            [Some(3), Some(1), Some(4), None]
        );
        let mut few = Keys::of(&journal, Duration::from_secs(58 * 60)).unwrap();
        assert_eq!(found(&mut few, &["a", "b", "c"]), [Some(3), None, Some(4)]);
        // Written after a long time without records, by another process.
        writer.append_at(now, &keyed("e")).unwrap();
        assert_eq!(found(&mut few, &["c", "e"]), [Some(4), Some(5)]);
        let mut later = Keys::of(&journal, Duration::from_secs(58 * 60)).unwrap();
        assert_eq!(found(&mut later, &["c", "e"]), [None, Some(5)]);
    }

    #[test]
    fn the_oldest_of_too_many_keys_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path(), Options::default()).unwrap();
        let writer = journal.writer().unwrap();
        for key in ["a", "b", "a", "c"] {
            writer.append(&keyed(key)).unwrap();
        }
        let mut keys = Keys::of(&journal, Duration::from_secs(3600)).unwrap();
        keys.keys_max = 2;
        assert_eq!(found(&mut keys, &["a", "b", "c"]), [Some(2), None, Some(3)]);
        assert!(keys.is_warned);
    }

    #[test]
    fn retention_for_cursors_leaves_the_records_of_keys_that_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::default().with_segment_bytes(64 << 10);
        let journal = Journal::open(folder.path(), options).unwrap();
        let writer = journal.writer().unwrap();
        let consumer = journal.cursor("consumer", CursorMode::Shared).unwrap();
        let prune = || {
            consumer.set(journal.next().unwrap()).unwrap();
            let retention = Retention {
                keep_for_cursors: true,
                ..Retention::default()
            };
            journal.prune(&retention).unwrap().first
        };
        let append = || (0..100).for_each(|_| assert!(writer.append(&[0xc0; 4096]).is_ok()));
        append();
        let mut outlet = Outlet::outside(&journal).unwrap();
        let schema = Schema::new("Orders", 1, vec![], vec![]).unwrap();
        outlet.announce(&Arc::new(schema)).unwrap();
        let key = Key::new("a").unwrap();
        let mut keys = Keys::of(&journal, Duration::from_secs(3600)).unwrap();
        // Without a key nothing is retained.
        assert!(keys.release(usize::MAX).unwrap());
        assert!(prune() > 0);
        outlet.publish_once(&key, &[0x90], &mut keys).unwrap();
        append();
        assert!(prune() <= 100);
        let mut later = Keys::of(&journal, Duration::from_secs(3600)).unwrap();
        assert_eq!(found(&mut later, &["a"]), [Some(101)]);
        // A key that is not kept any more, of an earlier run.
        let mut none = Keys::of(&journal, Duration::ZERO).unwrap();
        while !none.release(7).unwrap() {}
        assert!(prune() > 100);
    }

    #[test]
    fn a_key_is_visible_ascii() {
        let longest = "k".repeat(Key::BYTES_MAX);
        for text in ["k", "8e03978e-40d5", "\"quoted\"", "a/b:c", &longest] {
            assert_eq!(Key::new(text).unwrap().text(), text);
        }
        for text in ["", "a b", "a\tb", "\u{e9}", "a\n", &format!("{longest}k")] {
            let error = Key::new(text).unwrap_err().to_string();
            assert_eq!(error, "a key is 1 to 1024 visible characters of ASCII");
        }
    }
}
