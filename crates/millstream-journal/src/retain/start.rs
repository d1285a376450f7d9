//! The start of a journal: the oldest segment that retention has left, stored in a file of its own.
//!
//! The file distinguishes a pruned segment from a lost one. It is created after the first segment, and moved, on the
//! disk too, before any segment is removed. So each segment from the one that it names on must exist. It has two slots,
//! as a cursor has: a move fills the older one, and the newer one counts until that is complete.
//!
//! A crash may leave a journal with its first segment and without this file, and an operator may remove the file to
//! accept the segments that are there. Such a journal starts with the first segment that is there, and gets its file
//! when it is opened to write.

use std::io;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::files::START;
use crate::options::Options;
use crate::storage::{Access, Hold, Region, Storage};

/// Its name until it is complete.
const DRAFT: &str = "draft-start";
/// Locked by the process that makes or moves the start.
const LOCK: &str = "writers/start";

const BYTES: u64 = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"MSSTART\x01");
const SLOTS: [u64; 2] = [64, 128];

/// The start of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// The number of the oldest segment.
    pub segment: u64,
    /// The sequence number of its first record.
    pub base: u64,
    /// The time of the last record before it, or 0.
    pub time_ns: u64,
}

impl Start {
    /// The words of a slot, with their checksum.
    fn slot(self, generation: u64) -> [u64; 5] {
        let words = [generation, self.segment, self.base, self.time_ns];
        let crc = words.iter().fold(0, |crc, word| {
            crc32c::crc32c_append(crc, &word.to_le_bytes())
        });
        let [generation, segment, base, time_ns] = words;
        [generation, segment, base, time_ns, crc.into()]
    }

    fn store<R: Region>(self, region: &R, generation: u64) {
        let slot = SLOTS[(generation % 2) as usize];
        for (at, word) in (slot..).step_by(8).zip(self.slot(generation)) {
            region.publish(at, word);
        }
    }
}

/// The start that is written down, if any is.
pub(crate) fn read<S: Storage>(storage: &S) -> Result<Option<Start>> {
    match storage.open(START, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(damaged(storage)),
        Err(error) => Err(failed("open", storage, error)),
        Ok(region) => newest(storage, &region).map(|(_, start)| Some(start)),
    }
}

/// Move the start up, on the disk too; another process may have moved it further.
pub(crate) fn raise<S: Storage>(storage: &S, options: &Options, start: Start) -> Result<()> {
    let _lock = lock(storage, options)?;
    let region = match storage.open(START, Access::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return make(storage, start);
        }
        region => region.map_err(|error| failed("open", storage, error))?,
    };
    let (generation, found) = newest(storage, &region)?;
    if found.segment < start.segment {
        start.store(&region, generation + 1)
    } else {
        // Stored once more: a sync of it may have failed, and the kernel may take the page for clean.
        found.store(&region, generation)
    }
    region
        .sync(0, BYTES)
        .map_err(|error| failed("sync", storage, error))
}

/// Write the start of a journal that has none yet.
fn make<S: Storage>(storage: &S, start: Start) -> Result<()> {
    let made = storage.create(DRAFT, BYTES).and_then(|region| {
        start.store(&region, 1);
        region.publish(0, MAGIC);
        region.sync(0, BYTES)?;
        storage.rename(DRAFT, START)?;
        storage.sync_names()
    });
    made.map_err(|error| {
        let _removed = storage.remove(DRAFT);
        failed("create", storage, error)
    })
}

/// The slot that counts: its generation and its contents.
fn newest<S: Storage>(storage: &S, region: &S::Region) -> Result<(u64, Start)> {
    if region.bytes_len() < BYTES || region.load(0) != MAGIC {
        return Err(damaged(storage));
    }
    let slots = SLOTS.iter().filter_map(|at| {
        let word = |index: u64| region.load(at + index * 8);
        let start = Start {
            segment: word(1),
            base: word(2),
            time_ns: word(3),
        };
        let sound = word(0) > 0 && start.slot(word(0))[4] == word(4);
        sound.then_some((word(0), start))
    });
    let newest = slots.max_by_key(|(generation, _)| *generation);
    newest.ok_or_else(|| damaged(storage))
}

/// Locks the start against other movers for the time of a sync. The lock of a process that dies is released.
fn lock<S: Storage>(storage: &S, options: &Options) -> Result<S::Lock> {
    let mut begun = None;
    loop {
        let locked = storage.lock(LOCK, Hold::Exclusive);
        if let Some(lock) = locked.map_err(|error| failed("lock", storage, error))? {
            return Ok(lock);
        }
        let now = options.host.monotonic();
        if now.saturating_sub(*begun.get_or_insert(now)) > options.busy_timeout {
            return Err(Error::Locked {
                path: storage.path(""),
                why: "another process has been pruning the journal for too long".to_owned(),
            });
        }
        wait();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when another process has ended its sync"
)]
fn wait() {
    std::thread::sleep(Duration::from_millis(1));
}

fn damaged<S: Storage>(storage: &S) -> Error {
    Error::Damage {
        path: storage.path(START),
        offset: SLOTS[0],
        what: "neither slot matches its checksum; where the journal starts is not known. Without this file it starts with the oldest \
               segment that is there"
            .to_owned(),
    }
}

fn failed<S: Storage>(verb: &'static str, storage: &S, source: io::Error) -> Error {
    let path = storage.path(START);
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::DiskFull { path, source }
        }
        _ => Error::Io { verb, path, source },
    }
}
