//! Making appended records survive a loss of power, with one sync for all who wait at the same time.
//!
//! Whoever needs a sync and finds none running becomes the leader: it syncs everything that is appended by then, in this process or
//! another, and wakes the others. A sync that fails poisons the journal: the kernel may have dropped what it could not write, so
//! that a second try would succeed and mean nothing.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::core::{Core, lock};
use crate::error::{Error, Result};
use crate::segment;
use crate::storage::Storage;

/// The syncs of one opening.
pub(crate) struct Durable<S: Storage> {
    core: Arc<Core<S>>,
    leading: Mutex<bool>,
    done: Condvar,
}

impl<S: Storage> Durable<S> {
    pub fn new(core: Arc<Core<S>>) -> Self {
        Durable {
            core,
            leading: Mutex::new(false),
            done: Condvar::new(),
        }
    }

    /// Sync all that is appended; gives the sequence number before which all is durable.
    pub fn sync(&self) -> Result<u64> {
        let next = self.core.next()?;
        self.wait(next)?;
        Ok(self.core.control()?.durable())
    }

    /// Wait until all records before `next` are durable, and sync if nobody else does.
    pub fn wait(&self, next: u64) -> Result<()> {
        let control = self.core.control()?;
        let mut leading = lock(&self.leading);
        loop {
            if control.is_poisoned() {
                return Err(Error::Poisoned {
                    path: self.core.path(),
                });
            }
            if control.durable() >= next {
                return Ok(());
            }
            if *leading {
                leading = self
                    .done
                    .wait(leading)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            *leading = true;
            drop(leading);
            let result = self.lead();
            leading = lock(&self.leading);
            *leading = false;
            self.done.notify_all();
            if let Err(error) = result {
                control.poison();
                return Err(error);
            }
        }
    }

    fn lead(&self) -> Result<()> {
        let core = &self.core;
        let control = core.control()?;
        let last = control.tail_segment();
        for number in control.durable_segment()..=last {
            let segment = core.segment(number)?;
            let mark = segment.tail();
            let failed = |source| Error::Io {
                verb: "sync",
                path: core.storage.path(&segment::name(number)),
                source,
            };
            segment.sync(mark.offset).map_err(failed)?;
            segment.set_durable(mark);
            if number < last {
                control.raise_durable_segment(number + 1);
            }
            control.raise_durable(core.base(&segment)? + mark.records);
        }
        Ok(())
    }
}
