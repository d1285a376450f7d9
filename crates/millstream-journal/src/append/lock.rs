//! The append lock: one word of the control page, for all threads of all processes.
//!
//! Its value names the holder's *slot*. A slot belongs to one opening of the journal and is held with a lock on a small
//! file, which the system releases when the process dies. A waiter can therefore distinguish a dead holder from a slow
//! one: it inherits the lock of a dead one, and repairs the tail before it continues. A lock on a file outlives its
//! process in forked children; then the waiter examines the
//! [process](crate::process) itself.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::format::control::{self, Control};
use crate::format::files;
use crate::mutex;
use crate::process::{self, StartTime};
use crate::storage::{Hold, Storage, fault};

/// The file whose lock is the permission to take a slot.
const PERMIT: &str = "writers/all";

/// How long a lock may be held by openings that only look whether it is held.
const LOOKING: Duration = Duration::from_millis(100);

/// The slot of an opening that writes.
pub(crate) struct Slot<S: Storage> {
    pub core: Arc<Core<S>>,
    number: u64,
    /// Gone when the file system has failed this opening: for all others its writer is dead then.
    lock: Mutex<Option<S::Lock>>,
}

/// How the lock was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// It was free.
    Free,
    /// It was held by this slot, whose writer died: the tail needs repair.
    From(u64),
}

impl<S: Storage> Slot<S> {
    /// Take the first slot that no living process has.
    pub fn take(core: Arc<Core<S>>) -> Result<Self> {
        let control = core.control()?;
        for number in 0..control::WRITERS_MAX {
            let name = file(number);
            let failed = |source| Error::Io {
                verb: "lock",
                path: core.storage.path(&name),
                source,
            };
            if let Some(lock) = core.storage.lock(&name, Hold::Exclusive).map_err(failed)? {
                let namespace = core.options.host.namespace();
                // A simulated host has no processes to examine.
                let started = match namespace {
                    0 => StartTime::UNKNOWN,
                    _ => StartTime::own(),
                };
                control.set_process(number, std::process::id(), namespace, started);
                return Ok(Slot {
                    number,
                    lock: Mutex::new(Some(lock)),
                    core,
                });
            }
        }
        Err(Error::TooManyWriters {
            path: core.path(),
            limit: control::WRITERS_MAX,
        })
    }

    /// The lock, if a dead process that had this slot before still holds it.
    pub fn was_left_locked(&self, control: &Control<S::Region>) -> Option<u64> {
        control.holder().filter(|holder| *holder == self.number)
    }

    /// Leave the append lock to others without letting it go, as a writer that dies: they repair the tail before they
    /// continue.
    #[cold]
    pub fn abandon(&self) {
        drop(mutex::lock(&self.lock).take());
    }

    /// Leave the lock as it was when it was taken from `dead`.
    pub fn give_back(&self, control: &Control<S::Region>, dead: u64) {
        let held = control.inherit(self.number, dead);
        debug_assert!(
            held || fault::any(),
            "the append lock was taken away from a living writer"
        );
    }

    /// Take the append lock.
    #[inline]
    pub fn lock(&self, control: &Control<S::Region>) -> Result<Acquired> {
        if control.lock(self.number) {
            Ok(Acquired::Free)
        } else {
            self.lock_slowly(control)
        }
    }

    /// Take the append lock if it is free.
    #[inline]
    pub fn try_lock(&self, control: &Control<S::Region>) -> bool {
        control.lock(self.number)
    }

    #[inline]
    pub fn unlock(&self, control: &Control<S::Region>) {
        control.unlock(self.number);
    }

    #[cold]
    fn lock_slowly(&self, control: &Control<S::Region>) -> Result<Acquired> {
        // A holder needs about 50 ns. Growing pauses let it make several appends in a row, during which its cache lines
        // stay in its core; after these it has lost its processor, and needs this one.
        for round in 0..64 {
            for _ in 0..1 << (round / 4).min(7) {
                std::hint::spin_loop();
            }
            if control.lock(self.number) {
                return Ok(Acquired::Free);
            }
            if round > 32 {
                std::thread::yield_now();
            }
        }
        let host = &self.core.options.host;
        let start = host.monotonic();
        let mut pause = Duration::from_micros(20);
        loop {
            self.core.check()?;
            if control.lock(self.number) {
                return Ok(Acquired::Free);
            }
            if let Some(holder) = control.holder() {
                if pause > Duration::from_micros(500) && self.inherit(control, holder)? {
                    return Ok(Acquired::From(holder));
                }
                let waited = host.monotonic().saturating_sub(start);
                if waited >= self.core.options.busy_timeout {
                    return Err(Error::Busy {
                        path: self.core.path(),
                        pid: control.process(holder).pid,
                        waited,
                    });
                }
            }
            control.pause(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
    }

    /// Take the lock from `holder` if that is dead. While this opening has its slot, no other one can become `holder`.
    fn inherit(&self, control: &Control<S::Region>, holder: u64) -> Result<bool> {
        let name = file(holder);
        let failed = |source| Error::Io {
            verb: "lock",
            path: self.core.storage.path(&name),
            source,
        };
        let slot = self
            .core
            .storage
            .lock(&name, Hold::Exclusive)
            .map_err(failed)?;
        let dead = slot.is_some() || self.is_gone(control, holder);
        Ok(dead && control.inherit(holder, self.number))
    }

    /// Whether the process of a slot is gone although its lock is held: by a child that it forked, and that may not
    /// append.
    fn is_gone(&self, control: &Control<S::Region>, holder: u64) -> bool {
        let here = self.core.options.host.namespace();
        let process = control.process(holder);
        here != 0 && process.namespace == here && process::is_gone(process.pid, process.started)
    }
}

/// The permission to take a slot: shared by all writers while they take one, or held by the sole one.
pub(crate) fn permit<S: Storage>(core: &Core<S>) -> Result<S::Lock> {
    let failed = |source| Error::Io {
        verb: "lock",
        path: core.storage.path(PERMIT),
        source,
    };
    let locked = |why: &str| Error::Locked {
        path: core.path(),
        why: why.to_owned(),
    };
    if !core.options.is_alone() {
        let permit = core.storage.lock(PERMIT, Hold::Shared).map_err(failed)?;
        let why = "another process is the only one that appends to it: a flow with a state directory, or the follower of a copy";
        return permit.ok_or_else(|| locked(why));
    }
    let begun = core.options.host.monotonic();
    loop {
        let permit = core.storage.lock(PERMIT, Hold::Exclusive).map_err(failed)?;
        if let Some(permit) = permit
            && !files::has_writer(&core.storage).map_err(failed)?
        {
            return Ok(permit);
        }
        let host = &core.options.host;
        if !host.has_threads() || host.monotonic().saturating_sub(begun) > LOOKING {
            let why = "another process appends to it already, and there can be only one";
            return Err(locked(why));
        }
        pause();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when another process has looked at a lock"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}

pub(crate) fn file(slot: u64) -> String {
    format!("writers/{slot}")
}
