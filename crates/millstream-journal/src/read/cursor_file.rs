//! The files of cursors: a position that survives the death of its process, and a loss of power after a sync.
//!
//! A cursor is a small file with two slots, each a generation, a [bookmark](Bookmark), the copy whose position it is,
//! and a checksum. A move fills the older slot, so that the newer one is complete at every moment. The
//! [admission](crate::format::admission) follows the slots.

use std::io;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::format::admission::{self, Admission, FOLLOWER};
use crate::format::files;
use crate::format::segment::Segment;
use crate::read::bookmark::Bookmark;
use crate::storage::{Access, Hold, Region, Storage};

pub(super) const BYTES: u64 = 4096;
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"MSCURSOR");
const TURN: u64 = 8;
const SLOTS: [u64; 2] = [64, 128];
/// Looks at the turn of another mover before it is taken for dead; moving takes a few ns.
const LOOKS: u32 = 1 << 16;

/// A cursor and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorInfo {
    /// Its name.
    pub name: String,
    /// The sequence number of the record that it reads next.
    pub position: u64,
    /// Of a follower's cursor, the [own number](crate::Identity::own) of the copy whose position it is; 0 of another
    /// cursor.
    #[doc(hidden)] // For the other crates of Millstream.
    pub copy: u64,
    /// Of a follower's cursor, the copy that was admitted.
    #[doc(hidden)] // For the other crates of Millstream.
    pub admission: Admission,
}

impl CursorInfo {
    /// The follower's name, if it is the cursor of a follower on another machine.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn follower(&self) -> Option<&str> {
        self.name.strip_prefix(FOLLOWER)
    }

    /// Whether the position is that of a follower that counts.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn counts(&self) -> bool {
        self.follower().is_some() && self.admission.counts(self.copy)
    }
}

/// Moves the cursor, for the copy of that number; without one the number stays.
pub(super) fn store<R: Region>(region: &R, bookmark: Bookmark, copy: Option<u64>) {
    let turn = take_turn(region);
    let newest = newest(region);
    let (generation, before) = newest.map_or((1, 0), |newest| (newest.generation + 1, newest.copy));
    let copy = copy.unwrap_or(before);
    let at = SLOTS[(generation % 2) as usize];
    region.publish(at, generation);
    let [sequence, word] = bookmark.words();
    region.publish(at + 8, sequence);
    region.publish(at + 16, word);
    region.publish(at + 24, copy);
    region.publish(at + 32, check([generation, sequence, word, copy]));
    // Ends only this turn: one that was taken over belongs to another mover.
    let _mine = region.exchange(TURN, turn, turn + 1);
}

/// Takes the turn to move. An odd number is a move in progress. A move that does not end belongs to a dead process, and
/// its slot is filled again.
fn take_turn<R: Region>(region: &R) -> u64 {
    let mut found = region.load(TURN);
    let mut looks = 0;
    loop {
        let free = found.is_multiple_of(2);
        let mine = if free { found + 1 } else { found + 2 };
        if free || looks > LOOKS {
            match region.exchange(TURN, found, mine) {
                Ok(()) => return mine,
                Err(other) => found = other,
            }
            looks = 0;
        } else {
            std::hint::spin_loop();
            looks += 1;
            let now = region.load(TURN);
            if now != found {
                (found, looks) = (now, 0);
            }
        }
    }
}

/// Moves cursors that are after the end to the end. Records were removed from the end, by a loss of power or a cut, and
/// such a cursor would skip the records that get their numbers next. No process has the journal open; `tail` is the
/// last segment.
pub(crate) fn roll_back<S: Storage>(storage: &S, tail: u64) -> Result<()> {
    let names = match storage.list(files::CURSORS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        names => names.map_err(|source| Error::Io {
            verb: "list",
            path: storage.path(files::CURSORS),
            source,
        })?,
    };
    if names.is_empty() {
        return Ok(());
    }
    let segment = Segment::open(storage, tail, Access::Read)?;
    let next = segment.base().unwrap_or(0) + segment.tail().records;
    for name in names.iter().filter(|name| files::is_name(name)) {
        let file = format!("cursors/{name}");
        let Some(region) = open_found(storage, &file, Access::Write)? else {
            continue;
        };
        // A damaged cursor is an error for the caller that opens it.
        if region.bytes_len() >= BYTES
            && newest(&region).is_some_and(|slot| slot.bookmark.next > next)
        {
            // The record before it is not compared until the next move.
            let checksum = None;
            store(&region, Bookmark { next, checksum }, None);
            region.sync(0, BYTES).map_err(|source| Error::Io {
                verb: "sync",
                path: storage.path(&file),
                source,
            })?;
        }
    }
    Ok(())
}

/// All cursors of a journal, by name.
pub(crate) fn list<S: Storage>(core: &Core<S>) -> Result<Vec<CursorInfo>> {
    let failed = |source| Error::Io {
        verb: "list",
        path: core.storage.path(files::CURSORS),
        source,
    };
    let mut names = match core.storage.list(files::CURSORS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => names.map_err(failed)?,
    };
    names.retain(|name| files::is_name(name));
    names.sort_unstable();
    let mut cursors = Vec::new();
    for name in names {
        let file = format!("cursors/{name}");
        let Some(region) = open_found(&core.storage, &file, Access::Read)? else {
            continue;
        };
        // One that is being made this moment has no position yet.
        let has_position = region.bytes_len() >= BYTES && region.load(0) != 0;
        let slot = has_position.then(|| read(core, &name, &region));
        let admission = admission::read(&region);
        if let Some(fault) = region.fault() {
            return Err(fault.into());
        }
        if let Some(slot) = slot.transpose()? {
            cursors.push(CursorInfo {
                name,
                position: slot.bookmark.next.min(core.published()?),
                copy: slot.copy,
                admission,
            });
        }
    }
    Ok(cursors)
}

/// The file of a cursor, as it is; `None` when there is none.
pub(crate) fn view<S: Storage>(
    storage: &S,
    name: &str,
    access: Access,
) -> Result<Option<S::Region>> {
    let region = open_found(storage, &file(name)?, access)?;
    // One that is being made this moment has no position yet.
    Ok(region.filter(|region| region.bytes_len() >= BYTES && region.load(0) != 0))
}

/// The file of a cursor that was listed; `None` when it has been removed meanwhile, or is still empty. Any other error
/// is returned: a prune that keeps records for cursors must know all of them.
fn open_found<S: Storage>(storage: &S, file: &str, access: Access) -> Result<Option<S::Region>> {
    match storage.open(file, access) {
        Ok(region) => Ok(Some(region)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof
            ) =>
        {
            Ok(None)
        }
        Err(source) => Err(Error::Io {
            verb: "open",
            path: storage.path(file),
            source,
        }),
    }
}

/// The damage of each cursor, if any.
pub(crate) fn check_all<S: Storage>(storage: &S) -> Result<Vec<Result<()>>> {
    let names = match storage.list(files::CURSORS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        names => names.map_err(|source| Error::Io {
            verb: "list",
            path: storage.path(files::CURSORS),
            source,
        })?,
    };
    let check = |name: &String| {
        let region = storage
            .open(&format!("cursors/{name}"), Access::Read)
            .ok()?;
        // One that is being made this moment has no position yet.
        if region.bytes_len() < BYTES || region.load(0) == 0 {
            return None;
        }
        let found = (0..LOOKS).find_map(|_| newest(&region));
        let found = found.ok_or_else(|| damaged(storage, name));
        Some(found.and_then(|_| admission::check(storage, name, &region)))
    };
    let mut names: Vec<_> = names
        .into_iter()
        .filter(|name| files::is_name(name))
        .collect();
    names.sort_unstable();
    Ok(names.iter().filter_map(check).collect())
}

/// Remove a cursor that is not open. An admission ends first: a view of the file that is removed counts nothing any
/// more.
pub(crate) fn remove<S: Storage>(core: &Core<S>, name: &str) -> Result<()> {
    let file = file(name)?;
    let failed = |source| Error::Io {
        verb: "remove",
        path: core.storage.path(&file),
        source,
    };
    let Some(_lock) = core.storage.lock(&file, Hold::Exclusive).map_err(failed)? else {
        return Err(Error::CursorInUse {
            path: core.path(),
            name: name.to_owned(),
        });
    };
    if let Some(region) = view(&core.storage, name, Access::Write)? {
        admission::end(&region).map_err(failed)?;
    }
    core.storage.remove(&file).map_err(failed)?;
    core.storage.sync_names().map_err(failed)
}

pub(crate) fn read<S: Storage>(core: &Core<S>, name: &str, region: &S::Region) -> Result<Slot> {
    // A mover may be filling one slot while the other is read: then the next attempt finds it complete.
    let slot = (0..LOOKS).find_map(|_| newest(region));
    slot.ok_or_else(|| damaged(&core.storage, name))
}

pub(crate) fn synced<S: Storage>(
    core: &Core<S>,
    name: &str,
    outcome: io::Result<()>,
) -> Result<()> {
    outcome.map_err(|source| Error::Io {
        verb: "sync",
        path: core.storage.path(&format!("cursors/{name}")),
        source,
    })
}

fn damaged<S: Storage>(storage: &S, name: &str) -> Error {
    Error::Damage {
        path: storage.path(&format!("cursors/{name}")),
        offset: SLOTS[0],
        what: "neither slot of the cursor matches its checksum".to_owned(),
    }
}

/// The position of a cursor, and whose it is.
pub(crate) struct Slot {
    generation: u64,
    pub bookmark: Bookmark,
    pub copy: u64,
}

fn newest<R: Region>(region: &R) -> Option<Slot> {
    let slots = SLOTS.iter().filter_map(|at| {
        let words = [0, 8, 16, 24].map(|word| region.load(at + word));
        let [generation, sequence, word, copy] = words;
        let sound = generation > 0 && region.load(at + 32) == check(words);
        Some(Slot {
            generation,
            copy,
            bookmark: Bookmark::from_words(sequence, word).filter(|_| sound)?,
        })
    });
    slots.max_by_key(|slot| slot.generation)
}

fn check(words: [u64; 4]) -> u64 {
    let append = |crc, word: u64| crc32c::crc32c_append(crc, &word.to_le_bytes());
    words.into_iter().fold(0, append).into()
}

pub(crate) fn file(name: &str) -> Result<String> {
    if files::is_name(name) {
        Ok(format!("cursors/{name}"))
    } else {
        Err(Error::CursorName {
            name: name.to_owned(),
        })
    }
}
