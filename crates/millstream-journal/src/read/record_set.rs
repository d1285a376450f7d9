//! A set of records of a journal, in a file that has room for each of them: adding one to the set needs no room on the
//! disk.
//!
//! Each record has a bit, at its number modulo the number of bits. A set stores a fact about a record where another
//! record that states it would need room that a full disk does not have.
//!
//! The invariant: only bits of records from the first to the last one of the journal are set. A number that is used
//! again, after a loss of power has removed the end, is not in the set, nor is a number that has the bit of a pruned
//! record. An added record is in the set after the death of any process, and after a loss of power once the system has
//! written it.

use std::fmt;
use std::io;

use crate::error::{Error, Result};
use crate::format::files::{RECORD_SET, is_name};
use crate::journal::Journal;
use crate::storage::{Access, Mapped, Region, Storage};

const MAGIC: u64 = u64::from_le_bytes(*b"MSRECST\x01");
const BITS_FROM: u64 = 64;
const BYTES_MIN: u64 = 4096;

/// A set of records.
#[doc(hidden)] // For the other crates of Millstream.
pub struct RecordSet<S: Storage = Mapped> {
    journal: Journal<S>,
    name: String,
    region: S::Region,
    generation: u64,
    bits: u64,
    /// The window: the records that can be in the set.
    first: u64,
    /// Whether any bit may be set.
    has_any: bool,
}

impl<S: Storage> fmt::Debug for RecordSet<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordSet({:?} from {})", self.name, self.first)
    }
}

impl<S: Storage> RecordSet<S> {
    pub(crate) fn open(journal: Journal<S>, name: &str) -> Result<Self> {
        if !is_name(name) {
            return Err(Error::CursorName {
                name: name.to_owned(),
            });
        }
        let first = journal.first()?;
        let next = journal.next()?;
        let storage = &journal.core().storage;
        let files = files(storage, name).map_err(|source| Error::Io {
            verb: "list",
            path: storage.path(""),
            source,
        })?;
        let (generation, region) = match files.last() {
            None => {
                let bytes = bytes_for(next - first);
                (0, make(storage, &file(name, 0), bytes, |_| {})?)
            }
            Some(&generation) => (
                generation,
                open(storage, &file(name, generation), Access::Write)?,
            ),
        };
        // Left over from a set that grew.
        for old in files.iter().filter(|old| **old != generation) {
            let _left_over = storage.remove(&file(name, *old));
        }
        let mut set = RecordSet {
            bits: bits_in(region.bytes_len()),
            name: name.to_owned(),
            generation,
            region,
            first,
            has_any: true,
            journal,
        };
        set.clear_outside(next)?;
        Ok(set)
    }

    /// Whether the record `sequence`, when it is appended, can be added without more room.
    #[inline]
    #[must_use]
    pub fn has_room(&self, sequence: u64) -> bool {
        sequence - self.first < self.bits
    }

    /// Have room for the record `sequence`, which is the next one.
    ///
    /// # Errors
    /// [`Error::DiskFull`]; an error of the system.
    pub fn make_room(&mut self, sequence: u64) -> Result<()> {
        if self.has_room(sequence) {
            return Ok(());
        }
        let members: Vec<u64> = (self.first..sequence)
            .filter(|&sequence| self.contains(sequence))
            .collect();
        let storage = &self.journal.core().storage;
        let bytes = bytes_for((sequence - self.first).saturating_mul(2));
        let bits = bits_in(bytes);
        let generation = self.generation + 1;
        let region = make(storage, &file(&self.name, generation), bytes, |region| {
            for sequence in &members {
                set_bit(region, sequence % bits);
            }
        })?;
        let _left_over = storage.remove(&file(&self.name, self.generation));
        (self.region, self.generation, self.bits) = (region, generation, bits);
        Ok(())
    }

    /// Add a record.
    ///
    /// # Errors
    /// [`Error::NotYet`] when there is no room for it; the file system failed.
    pub fn insert(&mut self, sequence: u64) -> Result<()> {
        if sequence < self.first || !self.has_room(sequence) {
            return Err(Error::NotYet {
                path: self.journal.path(),
                sequence,
                next: self.first + self.bits,
            });
        }
        set_bit(&self.region, sequence % self.bits);
        self.has_any = true;
        self.check()
    }

    /// Whether a record is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, sequence: u64) -> bool {
        if !self.has_any || sequence < self.first || !self.has_room(sequence) {
            return false;
        }
        let bit = sequence % self.bits;
        self.region.load(BITS_FROM + bit / 64 * 8) >> (bit % 64) & 1 == 1
    }

    /// The records before `first` were pruned.
    ///
    /// # Errors
    /// The file system failed; then the records stay in the set.
    pub fn forget_before(&mut self, first: u64) -> Result<()> {
        if first <= self.first {
            return Ok(());
        }
        if self.has_any {
            for sequence in self.first..first.min(self.first + self.bits) {
                self.clear(sequence % self.bits);
            }
            // On the disk before another record gets such a bit.
            self.sync()?;
        }
        self.first = first;
        self.has_any = self.has_any && self.words().any(|at| self.region.load(at) != 0);
        Ok(())
    }

    /// The size of the file on the disk, in bytes.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.region.bytes_len()
    }

    /// No bit of another record than those from `first` up to `next` is set, on the disk too.
    fn clear_outside(&mut self, next: u64) -> Result<()> {
        let words: Vec<u64> = self
            .words()
            .filter(|at| self.region.load(*at) != 0)
            .collect();
        let first = self.first % self.bits;
        let live = (next - self.first).min(self.bits);
        let mut cleared = false;
        self.has_any = false;
        for at in words {
            let from = (at - BITS_FROM) * 8;
            for bit in (from..from + 64).filter(|bit| *bit < self.bits) {
                if self.region.load(at) >> (bit % 64) & 1 == 0 {
                    continue;
                }
                if (bit + self.bits - first) % self.bits < live {
                    self.has_any = true;
                } else {
                    self.clear(bit);
                    cleared = true;
                }
            }
        }
        if cleared { self.sync() } else { self.check() }
    }

    fn words(&self) -> impl Iterator<Item = u64> + use<S> {
        (BITS_FROM..BITS_FROM + self.bits / 8).step_by(8)
    }

    fn clear(&self, bit: u64) {
        let at = BITS_FROM + bit / 64 * 8;
        let word = self.region.load(at);
        if word >> (bit % 64) & 1 == 1 {
            self.region.publish(at, word & !(1 << (bit % 64)));
        }
    }

    fn sync(&self) -> Result<()> {
        self.check()?;
        let storage = &self.journal.core().storage;
        self.region
            .sync(0, self.region.bytes_len())
            .map_err(|source| Error::Io {
                verb: "sync",
                path: storage.path(&file(&self.name, self.generation)),
                source,
            })
    }

    fn check(&self) -> Result<()> {
        match self.region.fault() {
            Some(fault) => Err(fault.into()),
            None => Ok(()),
        }
    }
}

impl<S: Storage> Journal<S> {
    /// The set of records of that name, empty when it is new. It has room on the disk for the records for which room
    /// was made; a new one has room for each record from the first to the next one.
    ///
    /// # Errors
    /// [`Error::NotExclusive`]; [`Error::CursorName`]; [`Error::DiskFull`]; [`Error::Damage`]; an error of the system.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn record_set(&self, name: &str) -> Result<RecordSet<S>> {
        if !self.core().options.exclusive {
            return Err(Error::NotExclusive { path: self.path() });
        }
        RecordSet::open(self.clone(), name)
    }

    /// The records of the set of that name, in order. Works for every opening, and changes nothing.
    ///
    /// # Errors
    /// [`Error::CursorName`]; [`Error::Damage`] in the set; an error of the system.
    ///
    /// ```
    /// # use millstream_journal::{Journal, Options};
    /// # let folder = tempfile::tempdir()?;
    /// # let options = Options { exclusive: true, ..Options::default() };
    /// let journal = Journal::open(folder.path().join("j"), options)?;
    /// journal.writer()?.append(b"a record")?;
    /// journal.record_set("struck")?.insert(0)?;
    /// let reading = Journal::open(folder.path().join("j"), Options::read_only())?;
    /// assert_eq!(reading.records_in_set("struck")?, [0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn records_in_set(&self, name: &str) -> Result<Vec<u64>> {
        self.core().checked(members(self, name))
    }
}

/// The records in a set, in order; none when there is no such set. Nothing is changed.
fn members<S: Storage>(journal: &Journal<S>, name: &str) -> Result<Vec<u64>> {
    if !is_name(name) {
        return Err(Error::CursorName {
            name: name.to_owned(),
        });
    }
    let storage = &journal.core().storage;
    let files = files(storage, name).map_err(|source| Error::Io {
        verb: "list",
        path: storage.path(""),
        source,
    })?;
    let Some(&generation) = files.last() else {
        return Ok(Vec::new());
    };
    let region = open(storage, &file(name, generation), Access::Read)?;
    let bits = bits_in(region.bytes_len());
    let first = journal.first()?;
    let live = (journal.next()? - first).min(bits);
    let mut members = Vec::new();
    for at in (BITS_FROM..BITS_FROM + bits / 8).step_by(8) {
        let word = region.load(at);
        let from = (at - BITS_FROM) * 8;
        let set = (from..from + 64).filter(|bit| word >> (bit % 64) & 1 == 1);
        let behind = set.map(|bit| (bit + bits - first % bits) % bits);
        members.extend(
            behind
                .filter(|behind| *behind < live)
                .map(|behind| first + behind),
        );
    }
    if let Some(fault) = region.fault() {
        return Err(fault.into());
    }
    members.sort_unstable();
    Ok(members)
}

fn set_bit<R: Region>(region: &R, bit: u64) {
    let at = BITS_FROM + bit / 64 * 8;
    region.publish(at, region.load(at) | 1 << (bit % 64));
}

/// How large a file must be for this many records.
fn bytes_for(records: u64) -> u64 {
    (BITS_FROM + records.div_ceil(64) * 8)
        .next_multiple_of(BYTES_MIN)
        .max(BYTES_MIN)
}

fn bits_in(bytes: u64) -> u64 {
    (bytes - BITS_FROM) * 8
}

fn file(name: &str, generation: u64) -> String {
    format!("{RECORD_SET}{name}-{generation:010}")
}

/// The generations of a set that there are, in order.
fn files<S: Storage>(storage: &S, name: &str) -> io::Result<Vec<u64>> {
    let mut generations: Vec<u64> = storage
        .list("")?
        .iter()
        .filter_map(|found| {
            let generation = found.strip_prefix(RECORD_SET)?.strip_prefix(name)?;
            generation.strip_prefix('-')?.parse().ok()
        })
        .collect();
    generations.sort_unstable();
    Ok(generations)
}

fn open<S: Storage>(storage: &S, file: &str, access: Access) -> Result<S::Region> {
    let damage = |what: &str| Error::Damage {
        path: storage.path(file),
        offset: 0,
        what: what.to_owned(),
    };
    let region = storage
        .open(file, access)
        .map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => damage("the file is empty"),
            _ => Error::Io {
                verb: "open",
                path: storage.path(file),
                source,
            },
        })?;
    let bytes = region.bytes_len();
    let is_one = bytes >= BYTES_MIN
        && bytes.is_multiple_of(BYTES_MIN)
        && region.load(0) == MAGIC
        && region.load(8) == bytes
        && region.load(16) == check(bytes);
    if is_one {
        Ok(region)
    } else {
        Err(damage(
            "this is no set of records. Without this file the set is empty",
        ))
    }
}

/// Make the file of a set, complete before it has its name.
fn make<S: Storage>(
    storage: &S,
    file: &str,
    bytes: u64,
    fill: impl FnOnce(&S::Region),
) -> Result<S::Region> {
    let draft = format!("draft-{file}");
    let made = storage.create(&draft, bytes).and_then(|region| {
        for at in (0..bytes).step_by(8).filter(|at| region.load(*at) != 0) {
            region.publish(at, 0);
        }
        fill(&region);
        region.publish(8, bytes);
        region.publish(16, check(bytes));
        region.publish(0, MAGIC);
        region.sync(0, bytes)?;
        storage.rename(&draft, file)?;
        storage.sync_names()?;
        storage.open(file, Access::Write)
    });
    made.map_err(|source| {
        // It may be there or not.
        let _removed = storage.remove(&draft);
        let path = storage.path(file);
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::DiskFull { path, source }
            }
            _ => Error::Io {
                verb: "create",
                path,
                source,
            },
        }
    })
}

fn check(bytes: u64) -> u64 {
    crc32c::crc32c(&bytes.to_le_bytes()).into()
}
