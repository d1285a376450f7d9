//! The control page: what processes that have the journal open must agree on at every moment.
//!
//! The page need not survive: the first opener computes it again from the segments. The words that writers change for
//! each record, the words that readers poll, and the words that change at syncs have cache lines of their own.

use std::io::ErrorKind;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::files::{self, CONTROL};
use crate::process::StartTime;
use crate::storage::{Access, Fault, Region, Storage, fault};

/// How many processes may write at once.
pub(crate) const WRITERS_MAX: u64 = 256;

const BYTES: u64 = 8192;
const MAGIC: u64 = u64::from_le_bytes(*b"MSCTL\0\0\x01");
const SEGMENT_BYTES: u64 = 8;
const BOOT: [u64; 2] = [16, 24];
const READY: u64 = 32;
const POISON: u64 = 40;
const FAILED_SYNC: u64 = u64::MAX;
const NEWER_TERM: u64 = u64::from_le_bytes(*b"NEWTERM\0");
const OWNER: u64 = 48;
const CUTS: u64 = 56;

const LOCK: u64 = 64;
const WAITING: u64 = 72;
const WAKE: u64 = 80;
const UNPUBLISHED: u64 = 88;

const TAIL_SEGMENT: u64 = 128;
const FIRST_SEGMENT: u64 = 136;

const DURABLE: u64 = 192;
const DURABLE_SEGMENT: u64 = 200;
const SYNCING: u64 = 208;

const MOUNT: u64 = 512;

/// For each slot its process with the namespace in the upper half, and when that process started.
const PROCESSES: u64 = 4096;

/// The mapped page.
pub(crate) struct Control<R> {
    region: R,
}

impl<R: Region> Control<R> {
    /// Open the page that another opener uses, or has left. `None` when there is none, or it was never completed.
    ///
    /// # Errors
    /// An error of the system, and a fault of the page. A missing page, or one that this reader may not open, is no
    /// error.
    pub fn open<S: Storage<Region = R>>(storage: &S, access: Access) -> Result<Option<Self>> {
        let region = match storage.open(CONTROL, access) {
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof)
                    || access == Access::Read && error.kind() == ErrorKind::PermissionDenied =>
            {
                return Ok(None);
            }
            region => region.map_err(|source| Error::Io {
                verb: "open",
                path: storage.path(CONTROL),
                source,
            })?,
        };
        let control = Control { region };
        let is_one = control.region.bytes_len() >= BYTES && control.region.load(0) == MAGIC;
        match control.fault() {
            Some(fault) => Err(fault.into()),
            None => Ok(is_one.then_some(control)),
        }
    }

    /// The fault of the page, if the file system has failed to load or store any of it.
    pub fn fault(&self) -> Option<Fault> {
        self.region.fault()
    }

    /// Create the page, or open the existing one; the caller holds the lock on it.
    pub fn create<S: Storage<Region = R>>(storage: &S) -> Result<Self> {
        let region = storage
            .create(CONTROL, BYTES)
            .map_err(|source| match source.kind() {
                ErrorKind::StorageFull => Error::DiskFull {
                    path: storage.path(CONTROL),
                    source,
                },
                _ => Error::Io {
                    verb: "create",
                    path: storage.path(CONTROL),
                    source,
                },
            })?;
        if region.load(0) != MAGIC {
            // Nothing of it has to be kept.
            for at in (0..BYTES).step_by(8) {
                region.publish(at, 0);
            }
        }
        Ok(Control { region })
    }

    /// Whether the last recovery ended, in this boot: what segments hold is what processes wrote, no power was lost
    /// since.
    pub fn is_ready(&self, boot: u128) -> bool {
        let found =
            u128::from(self.region.load(BOOT[0])) | u128::from(self.region.load(BOOT[1])) << 64;
        self.region.load(READY) == 1 && found == boot
    }

    /// Whether the segments are still in the memory of the kernel that wrote them: the file system has not been mounted
    /// again since. A disk that was pulled, or lost its power without the machine, had to be mounted again.
    pub fn is_mounted(&self, mount: u64) -> bool {
        let then = self.region.load(MOUNT);
        then == mount || then == 0 || mount == 0
    }

    /// Whether a reader may trust this page: it was made in this boot, and either on this mount, or a process has the
    /// journal open now by another mount of the same file system.
    pub fn is_live<S: Storage>(&self, storage: &S, boot: u128) -> bool {
        self.is_ready(boot)
            && (self.is_mounted(storage.mount())
                || storage.is_locked(CONTROL).unwrap_or(true)
                || files::has_writer(storage).unwrap_or(true))
    }

    /// Whether the last recovery ended, in any boot: then there was a segment.
    pub fn has_recovered(&self) -> bool {
        self.region.load(READY) == 1
    }

    /// Recovery begins: until it has ended, no other process may use the journal.
    pub fn begin_recovery(&self) {
        // It syncs as well, and may be killed in the middle of that.
        self.begin_sync();
        self.region.publish(READY, 0);
    }

    /// Recovery has ended with these facts; no process writes yet.
    pub fn end_recovery(&self, facts: &Facts, mount: u64) {
        let words = [
            (SEGMENT_BYTES, facts.segment_bytes),
            (BOOT[0], facts.boot as u64),
            (BOOT[1], (facts.boot >> 64) as u64),
            (MOUNT, mount),
            (POISON, 0),
            (OWNER, 0),
            (LOCK, 0),
            (WAITING, 0),
            (UNPUBLISHED, 0),
            (SYNCING, 0),
            (TAIL_SEGMENT, facts.tail_segment),
            (FIRST_SEGMENT, facts.first_segment),
            (DURABLE, facts.durable),
            (DURABLE_SEGMENT, facts.durable_segment),
            (0, MAGIC),
            (READY, 1),
        ];
        for slot in 0..WRITERS_MAX {
            self.region.publish(process_at(slot), 0);
        }
        for (at, word) in words {
            self.region.publish(at, word);
        }
    }

    pub fn segment_bytes(&self) -> u64 {
        self.region.load(SEGMENT_BYTES)
    }

    /// Whether nothing may be appended: a sync has failed, or the journal is superseded.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.region.load(POISON) != 0
    }

    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.is_stopped() && !self.is_superseded()
    }

    pub fn poison(&self) {
        // No single bit takes that back.
        self.region.publish(POISON, FAILED_SYNC);
    }

    /// Whether a newer term is known.
    pub fn is_superseded(&self) -> bool {
        self.region.load(POISON) == NEWER_TERM
    }

    /// A newer term is known. A failed sync keeps precedence.
    pub fn supersede(&self) {
        let _stopped_already = self.region.exchange(POISON, 0, NEWER_TERM);
    }

    /// The journal is in the newest term that is known.
    pub fn end_supersession(&self) {
        let _stopped_otherwise = self.region.exchange(POISON, NEWER_TERM, 0);
    }

    /// A sync begins. A process that dies before [`end_sync`](Self::end_sync) may have learned that it failed without
    /// reporting it.
    pub fn begin_sync(&self) {
        self.add(SYNCING, 1);
    }

    /// A sync has succeeded, or the journal is poisoned.
    pub fn end_sync(&self) {
        self.add(SYNCING, u64::MAX);
    }

    /// Whether a sync has failed, or a process died during one. Only the owner of the journal calls this.
    pub fn may_have_failed(&self) -> bool {
        self.is_poisoned() || self.region.load(SYNCING) != 0
    }

    fn add(&self, at: u64, number: u64) {
        let mut found = self.region.load(at);
        while let Err(other) = self.region.exchange(at, found, found.wrapping_add(number)) {
            found = other;
        }
    }

    /// The process that has the journal open exclusively, or 0.
    pub fn owner(&self) -> u32 {
        self.region.load(OWNER) as u32
    }

    pub fn set_owner(&self, pid: u32) {
        self.region.publish(OWNER, pid.into());
    }

    /// How often records were removed from the end.
    pub fn cuts(&self) -> u64 {
        self.region.load(CUTS)
    }

    /// Records were removed from the end; no other process has the journal open.
    pub fn move_back(&self, facts: &Facts) {
        self.region.publish(TAIL_SEGMENT, facts.tail_segment);
        self.region.publish(DURABLE, facts.durable);
        self.region.publish(DURABLE_SEGMENT, facts.durable_segment);
        self.region.publish(CUTS, self.cuts() + 1);
    }

    /// Take the append lock if it is free.
    #[inline]
    pub fn lock(&self, slot: u64) -> bool {
        self.region.exchange(LOCK, 0, slot + 1).is_ok()
    }

    /// The slot of the writer that holds the append lock.
    pub fn holder(&self) -> Option<u64> {
        self.region.load(LOCK).checked_sub(1)
    }

    /// Take the append lock from a writer that is dead.
    pub fn inherit(&self, from: u64, to: u64) -> bool {
        self.region.exchange(LOCK, from + 1, to + 1).is_ok()
    }

    /// Release the append lock, and wake readers that sleep.
    #[inline]
    pub fn unlock(&self, slot: u64) {
        // Fully ordered: either a reader that is about to sleep sees the record, or this sees the reader.
        let held = self.region.exchange(LOCK, slot + 1, 0);
        debug_assert!(
            held.is_ok() || fault::any(),
            "the append lock was taken away from a living writer"
        );
        if self.region.load(WAITING) != 0 {
            self.wake_readers();
        }
    }

    /// Whether frames after the tail may look valid although they were not published.
    pub fn has_unpublished(&self) -> bool {
        self.region.load(UNPUBLISHED) != 0
    }

    pub fn set_unpublished(&self, unpublished: bool) {
        self.region.publish(UNPUBLISHED, unpublished.into());
    }

    #[cold]
    pub fn wake_readers(&self) {
        self.region.publish(WAITING, 0);
        self.add(WAKE, 1);
        self.region.wake(WAKE);
    }

    /// Sleep until a record may have been appended. `came` is called after writers can see that this reader sleeps.
    pub fn sleep_until(&self, limit: Duration, came: impl Fn() -> bool) {
        let seen = self.region.load(WAKE);
        let mut waiting = self.region.load(WAITING);
        while let Err(found) = self.region.exchange(WAITING, waiting, 1) {
            waiting = found;
        }
        if !came() {
            self.region.wait(WAKE, seen as u32, limit);
        }
    }

    /// Sleep for a moment while another holds the append lock.
    pub fn pause(&self, limit: Duration) {
        let seen = self.region.load(LOCK);
        if seen != 0 {
            self.region.wait(LOCK, seen as u32, limit);
        }
    }

    /// Sleep for a moment.
    pub fn rest(&self, limit: Duration) {
        self.region.wait(WAKE, self.region.load(WAKE) as u32, limit);
    }

    #[inline]
    pub fn tail_segment(&self) -> u64 {
        self.region.load(TAIL_SEGMENT)
    }

    pub fn raise_first_segment(&self, number: u64) {
        self.raise(FIRST_SEGMENT, number);
    }

    pub fn set_tail_segment(&self, number: u64) {
        self.region.publish(TAIL_SEGMENT, number);
    }

    pub fn first_segment(&self) -> u64 {
        self.region.load(FIRST_SEGMENT)
    }

    /// All records before this sequence number survive a loss of power.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.region.load(DURABLE)
    }

    pub fn raise_durable(&self, sequence: u64) {
        self.raise(DURABLE, sequence);
    }

    /// The first segment that may hold records which are not durable.
    pub fn durable_segment(&self) -> u64 {
        self.region.load(DURABLE_SEGMENT)
    }

    pub fn raise_durable_segment(&self, number: u64) {
        self.raise(DURABLE_SEGMENT, number);
    }

    fn raise(&self, at: u64, word: u64) {
        let mut found = self.region.load(at);
        while found < word {
            match self.region.exchange(at, found, word) {
                Ok(()) => break,
                Err(other) => found = other,
            }
        }
    }

    /// The process that has a slot, or had it last.
    pub fn process(&self, slot: u64) -> SlotProcess {
        let at = process_at(slot);
        let word = self.region.load(at);
        let started = StartTime(self.region.load(at + 8));
        SlotProcess {
            pid: word as u32,
            namespace: (word >> 32) as u32,
            // Another process may be taking the slot.
            started: if self.region.load(at) == word {
                started
            } else {
                StartTime::UNKNOWN
            },
        }
    }

    pub fn set_process(&self, slot: u64, pid: u32, namespace: u32, started: StartTime) {
        let at = process_at(slot);
        // There is no process until the last store, also if this one dies before it.
        self.region.publish(at, 0);
        self.region.publish(at + 8, started.0);
        self.region
            .publish(at, u64::from(pid) | u64::from(namespace) << 32);
    }
}

/// Where the process of a slot is.
fn process_at(slot: u64) -> u64 {
    PROCESSES + slot * 16
}

/// The process of a slot.
pub(crate) struct SlotProcess {
    pub pid: u32,
    /// The namespace in which the pid means something; 0 is unknown.
    pub namespace: u32,
    pub started: StartTime,
}

/// What recovery found out about the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub segment_bytes: u64,
    pub boot: u128,
    pub first_segment: u64,
    pub tail_segment: u64,
    pub durable: u64,
    pub durable_segment: u64,
}
