//! Making appended records survive a loss of power, with one sync for all threads that wait at the same time.
//!
//! A thread that needs a sync and finds none in progress becomes the leader: it syncs all records that are appended by
//! then, in this process or another, and wakes the others. A sync that fails poisons the journal: the kernel may have
//! dropped what it could not write, so that a second attempt would succeed and prove nothing.
//!
//! To put a thread to sleep and to wake it takes some microseconds, for many of them longer than the sync. So a crowd
//! does not sleep, as long as syncs are short: each lets the others go first until the sync is done, as RocksDB's
//! writers do (adaptive yield).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::core::{Core, SegmentOf};
use crate::error::{Error, Result};
use crate::format::control::Control;
use crate::format::frame;
use crate::format::segment::Mark;
use crate::options::Sync;
use crate::storage::Storage;
use crate::sync::bound::{Bound, Moment};
use crate::sync::gate::Gate;

/// From this many waiting threads on, they are a crowd.
const CROWD: u32 = 16;
/// The longest time of a short sync; a crowd spins for this time.
const PATIENCE: Duration = Duration::from_micros(500);

/// Leading a sync. Dropping it lets others lead, also in a panic.
struct Leading<'a, S: Storage>(&'a Durable<S>);

impl<S: Storage> Drop for Leading<'_, S> {
    fn drop(&mut self) {
        self.0.leading.store(false, Ordering::SeqCst);
        self.0.gate.open();
    }
}

/// The syncs of one opening.
pub(crate) struct Durable<S: Storage> {
    core: Arc<Core<S>>,
    leading: AtomicBool,
    gate: Gate,
    /// How many threads are in [`wait`](Self::wait).
    waiting: AtomicU32,
    /// The last sync was short, and many waited for it.
    crowded: AtomicBool,
    /// What may be acknowledged before it is durable.
    bound: Arc<Bound>,
}

impl<S: Storage> Durable<S> {
    pub fn new(core: Arc<Core<S>>) -> Self {
        Durable {
            bound: Arc::new(Bound::new(core.options.sync)),
            core,
            leading: AtomicBool::new(false),
            gate: Gate::default(),
            waiting: AtomicU32::new(0),
            crowded: AtomicBool::new(false),
        }
    }

    /// Sync all that is appended; returns the sequence number before which all is durable.
    pub fn sync(&self) -> Result<u64> {
        let begun = self.now_if_timed();
        let next = self.core.checked(self.core.next())?;
        self.wait(next)?;
        self.raise_bound(begun);
        self.core.checked(Ok(self.core.control()?.durable()))
    }

    pub fn bound(&self) -> &Arc<Bound> {
        &self.bound
    }

    /// The records from `first` to `next` were appended too late to be acknowledged at once: wait until the
    /// [bound](crate::sync::bound) allows it, or they are durable themselves; sync if no other thread does.
    #[cold]
    pub fn wait_in_bound(&self, first: u64, next: u64) -> Result<()> {
        let host = &self.core.options.host;
        let now = Moment::now(host);
        if self.bound.allows_at(now) {
            return Ok(());
        }
        let durable = self.core.control()?.durable();
        if durable >= first && self.core.next()? <= next {
            // Nothing was acknowledged and waits for a sync.
            self.bound.raise(now);
            return Ok(());
        }
        self.wait_until(|control| {
            control.durable() >= next || self.bound.allows_at(Moment::now(host))
        })
    }

    /// Wait until all records before `next` are durable, and sync if no other thread does. A cut may remove the last of
    /// them meanwhile: then until those that are left are durable.
    pub fn wait(&self, next: u64) -> Result<()> {
        self.wait_until(|control| {
            let durable = control.durable();
            durable >= next || self.core.published().is_ok_and(|end| durable >= end)
        })
    }

    fn wait_until(&self, done: impl Fn(&Control<S::Region>) -> bool) -> Result<()> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let result = self.wait_or_lead(done);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        result
    }

    fn wait_or_lead(&self, done: impl Fn(&Control<S::Region>) -> bool) -> Result<()> {
        let control = self.core.control()?;
        loop {
            let round = self.gate.round();
            self.core.check()?;
            if control.is_poisoned() {
                return Err(Error::Poisoned {
                    path: self.core.path(),
                });
            }
            if done(control) {
                return self.core.check();
            }
            if self.leading.swap(true, Ordering::SeqCst) {
                self.follow(round);
                continue;
            }
            let leading = Leading(self);
            // The leader before may have done it between the two checks.
            let result = if done(control) { Ok(()) } else { self.lead() };
            drop(leading);
            result?;
        }
    }

    /// Wait for the end of another's sync, or a part of that time.
    fn follow(&self, round: u32) {
        if self.crowded.load(Ordering::Relaxed) {
            let host = &self.core.options.host;
            let until = host.monotonic() + PATIENCE;
            while host.monotonic() < until {
                std::thread::yield_now();
                if self.gate.round() != round {
                    return;
                }
            }
        }
        self.gate.wait(round);
    }

    fn lead(&self) -> Result<()> {
        if self.waiting.load(Ordering::Relaxed) < 2 {
            self.crowded.store(false, Ordering::Relaxed);
            return self.sync_segments();
        }
        // The threads that have waited for the last sync are about to append again, and should join this one.
        std::thread::yield_now();
        let host = &self.core.options.host;
        let begun = host.monotonic();
        self.sync_segments()?;
        let is_short = host.monotonic().saturating_sub(begun) < PATIENCE;
        let are_many = self.waiting.load(Ordering::Relaxed) >= CROWD;
        self.crowded.store(is_short && are_many, Ordering::Relaxed);
        Ok(())
    }

    fn sync_segments(&self) -> Result<()> {
        let core = &self.core;
        core.check_presence()?;
        let control = core.control()?;
        let begun = self.now_if_timed();
        let last = control.tail_segment();
        for number in control.durable_segment()..=last {
            let Some(segment) = self.retained_segment(number)? else {
                continue;
            };
            let mark = if number < last {
                core.ended(&segment)?.0
            } else {
                segment.tail()
            };
            core.sync(&segment, 0, mark.offset + frame::HEADER)?;
            self.raise(&segment, mark, number < last)?;
        }
        self.raise_bound(begun);
        Ok(())
    }

    /// The moment at which a sync begins. Only a time between syncs is measured from there.
    fn now_if_timed(&self) -> Option<Moment> {
        let is_timed = matches!(self.core.options.sync, Sync::Every(_));
        is_timed.then(|| Moment::now(&self.core.options.host))
    }

    fn raise_bound(&self, begun: Option<Moment>) {
        if let Some(begun) = begun {
            self.bound.raise(begun);
        }
    }

    /// Sync the next bytes of the oldest segment that was ended and is not durable, `bytes` at most. `from` is the
    /// segment and the offset up to which that was done. Returns where to continue, or `None` when there is nothing to
    /// do.
    pub fn sync_ended(&self, from: (u64, u64), bytes: u64) -> Result<Option<(u64, u64)>> {
        let core = &self.core;
        let control = core.control()?;
        let number = control.durable_segment();
        if number >= control.tail_segment() || control.is_poisoned() {
            return Ok(None);
        }
        let Some(segment) = self.retained_segment(number)? else {
            control.raise_durable_segment(number + 1);
            return Ok(Some((number + 1, 0)));
        };
        let mark = core.ended(&segment)?.0;
        let end = mark.offset + frame::HEADER;
        // Another process may have synced that segment to its end meanwhile, and this is the one after it.
        let from = if from.0 == number { from.1 } else { 0 };
        let to = end.min(from + bytes);
        core.sync(&segment, from, to)?;
        if to < end {
            return Ok(Some((number, to)));
        }
        self.raise(&segment, mark, true)?;
        Ok(Some((number + 1, 0)))
    }

    /// The segment of that number; `None` when it was pruned meanwhile, and will not come back.
    fn retained_segment(&self, number: u64) -> Result<Option<SegmentOf<S>>> {
        let core = &self.core;
        match core.segment(number) {
            Err(Error::Io { .. }) if core.control()?.first_segment() > number => {
                // The process that removed it may have died before that was on disk.
                core.sync_names()?;
                Ok(None)
            }
            segment => segment.map(Some),
        }
    }

    /// Let the journal be closed: the watermark of the last sync goes to disk too.
    pub fn close(&self) -> Result<()> {
        let control = self.core.control()?;
        let segment = self.core.segment(control.tail_segment())?;
        let synced = self.core.options.sync != Sync::Never || segment.durable().offset > 0;
        if !synced || control.is_poisoned() || self.core.fork_mark.is_child() {
            return Ok(());
        }
        self.sync()?;
        self.core.sync(&segment, 0, segment.data_start())
    }

    /// All before `mark` is on disk, and all segments before.
    fn raise(&self, segment: &SegmentOf<S>, mark: Mark, ended: bool) -> Result<()> {
        let control = self.core.control()?;
        segment.raise_durable(mark);
        control.raise_durable(self.core.base(segment)? + mark.records);
        if ended {
            control.raise_durable_segment(segment.number() + 1);
        }
        Ok(())
    }
}
