//! The background thread: one for each opening that writes. It keeps the costs of the file system out of appends.
//!
//! It touches pages before writers reach them, creates the next segment when the current one is half full, unmaps and syncs segments that
//! have ended (for any value of `sync`, so that recovery has little to scan), and syncs at intervals if the options ask for it. Without
//! threads (in a simulation), appends do this work themselves where they need it.
//!
//! With `sync=always` it also writes the touched pages to the disk as zeros. A file system marks each block of a preallocated file as
//! unwritten. The first write changes that mark, and the sync of a record then has to make the change durable, which takes longer than the
//! record itself. A record whose block was written before avoids this. Nothing depends on it: no watermark is raised, and a page in which a
//! record has begun meanwhile is written as it is, as the system may do at any time.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::append::grow;
use crate::core::{Core, SegmentOf};
use crate::error::{Error, Result};
use crate::format::segment::Segment;
use crate::mutex::lock;
use crate::options::{Retention, Sync};
use crate::retain::prune;
use crate::storage::{Region, Storage};
use crate::sync::durable::Durable;

/// How far pages are touched ahead of the tail. A writer reaches the middle of the window in at least `WINDOW_TIME_MIN`, which is the time
/// that the thread may need to get a core, and in at most `WINDOW_TIME_MAX`, so that each turn takes little of the core that it shares.
const WINDOW_MIN: u64 = 256 << 10;
const WINDOW_MAX: u64 = 16 << 20;
const WINDOW_TIME_MIN: Duration = Duration::from_millis(25);
const WINDOW_TIME_MAX: Duration = Duration::from_millis(200);
/// The largest window where pages are also written to the disk: syncs delay records, and writing pages that are never appended to is
/// wasted.
const ZEROS_MAX: u64 = 2 << 20;
/// How much is touched at once. A page takes up to some us, and many kernels do not interrupt such a call.
const TOUCH_STEP: u64 = 256 << 10;
/// How much is synced at once, so that other work does not wait for long.
const SYNC_STEP: u64 = 2 << 20;
/// The step while a record may wait for its sync, which the disk serves after this one.
const ZEROS_STEP: u64 = 512 << 10;
/// How much of an ended segment is unmapped at once.
const RELEASE_STEP: u64 = 2 << 20;
/// The pause between two steps, so that other threads on the same core wait for one step only: a kernel would otherwise let the thread run
/// for some ms.
const PAUSE: Duration = Duration::from_millis(1);
/// Up to this window there is time for that: half of it is touched so in less than `WINDOW_TIME_MIN`.
const PAUSED_WINDOW_MAX: u64 = 8 << 20;
/// Smaller segments are not prepared ahead: a prepared segment would be most of the space that a small journal takes.
const PREPARED_MIN: u64 = 64 << 10;
/// The number of ended segments that may stay mapped while there is more urgent work.
const RETIRED_MAX: usize = 4;

/// The background of one opening.
pub(crate) struct Background<S: Storage> {
    shared: Arc<Shared<S>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared<S: Storage> {
    core: Arc<Core<S>>,
    durable: Arc<Durable<S>>,
    work: Mutex<Work<S>>,
    changed: Condvar,
}

struct Work<S: Storage> {
    touch: Option<(SegmentOf<S>, u64, u64)>,
    /// The segment whose pages were asked for last, and up to where.
    asked: (u64, u64),
    window: u64,
    /// When the writer reached the middle of the window.
    noticed: Duration,
    wanted: Option<u64>,
    preparing: bool,
    ready: Option<(u64, Result<SegmentOf<S>>)>,
    retired: Vec<SegmentOf<S>>,
    /// How much of the first of these is unmapped already.
    released: u64,
    /// The oldest ended segment that is not completely synced, and the offset up to which it is.
    ended: Option<(u64, u64)>,
    syncs: Syncs,
    stop: bool,
}

impl<S: Storage> Work<S> {
    fn has_some(&self) -> bool {
        let Work {
            touch,
            wanted,
            retired,
            ended,
            ..
        } = self;
        touch.is_some() || wanted.is_some() || !retired.is_empty() || ended.is_some()
    }

    /// Whether there is time to pause: the writer is too slow to reach pages that are not touched yet, and no sync is due.
    fn has_time(&self) -> bool {
        self.window <= PAUSED_WINDOW_MAX
            && self.retired.len() <= RETIRED_MAX
            && self.syncs.every.is_none()
            && !self.stop
    }
}

impl<S: Storage> Background<S> {
    pub fn start(core: Arc<Core<S>>, durable: Arc<Durable<S>>) -> Result<Self> {
        let work = Work {
            touch: None,
            asked: (0, 0),
            window: WINDOW_MIN,
            noticed: Duration::ZERO,
            wanted: None,
            preparing: false,
            ready: None,
            retired: Vec::new(),
            released: 0,
            ended: None,
            syncs: Syncs::new(&core),
            stop: false,
        };
        let threads = core.options.host.has_threads();
        let path = core.path();
        let shared = Arc::new(Shared {
            core,
            durable,
            work: Mutex::new(work),
            changed: Condvar::new(),
        });
        let mut thread = None;
        if threads {
            let shared = Arc::clone(&shared);
            let spawned = std::thread::Builder::new()
                .name("journal".to_owned())
                .spawn(move || shared.run());
            thread = Some(spawned.map_err(|source| Error::Io {
                verb: "start a thread for",
                path,
                source,
            })?);
        }
        Ok(Background {
            shared,
            thread: Mutex::new(thread),
        })
    }

    /// The tail has reached `offset`. Returns the offset at which to call this again.
    pub fn notice(&self, segment: SegmentOf<S>, offset: u64) -> u64 {
        if !self.has_thread() {
            return u64::MAX;
        }
        let (number, bytes) = (segment.number(), segment.bytes());
        let half = segment.data_start().midpoint(bytes);
        let mut work = lock(&self.shared.work);
        if offset >= half && bytes >= PREPARED_MIN && work.ready.is_none() {
            work.wanted = Some(number + 1);
        }
        let now = self.shared.core.options.host.monotonic();
        work.window = self.window(work.window, now.saturating_sub(work.noticed));
        work.noticed = now;
        let ahead = work.window / 2;
        let to = (offset + work.window).min(bytes);
        // A request that was made before resumes from its position.
        let from = match (&work.touch, work.asked) {
            (Some((touched, from, _)), _) if touched.number() == number => *from,
            (_, (asked, end)) if asked == number => end.max(offset),
            _ => offset,
        };
        work.asked = (number, to);
        work.touch = (from < to).then_some((segment, from, to));
        self.shared.changed.notify_all();
        if offset < half {
            (offset + ahead).min(half)
        } else if to < bytes {
            offset + ahead
        } else {
            u64::MAX
        }
    }

    /// How far to touch from now on, when a writer took `since` from the middle of the last window to that of this one.
    fn window(&self, window: u64, since: Duration) -> u64 {
        // Zeros are worth it however seldom there is a record: each waits for its sync.
        if self.shared.core.options.sync == Sync::Always {
            (window * 2).min(ZEROS_MAX)
        } else if since < WINDOW_TIME_MIN {
            (window * 2).min(WINDOW_MAX)
        } else if since > WINDOW_TIME_MAX {
            (window / 2).max(WINDOW_MIN)
        } else {
            window
        }
    }

    /// The segment of this number, not begun yet; it is created if necessary.
    /// Its first record may take up to `frame_bytes`.
    pub fn take(&self, number: u64, frame_bytes: u64) -> Result<SegmentOf<S>> {
        if !self.has_thread() {
            return self.shared.prepare(number, frame_bytes);
        }
        let mut work = lock(&self.shared.work);
        while work.preparing {
            work = wait(&self.shared.changed, work);
        }
        // A segment that could not be created ahead of time may be created now: there may be space again.
        if matches!(work.ready, Some((_, Err(_)))) {
            work.ready = None;
        }
        loop {
            match work.ready.take() {
                Some((ready, Ok(segment))) if ready == number && segment.holds(frame_bytes) => {
                    return Ok(segment);
                }
                Some((ready, Err(error))) if ready == number => return Err(error),
                _ => {}
            }
            if work.stop || self.shared.core.options.segment_bytes_first.is_some() {
                // Only this call knows how large the segment must be.
                work.wanted = None;
                drop(work);
                return self.shared.prepare(number, frame_bytes);
            }
            work.wanted = Some(number);
            self.shared.changed.notify_all();
            work = wait(&self.shared.changed, work);
        }
    }

    /// Unmap a segment in the background: this takes long.
    pub fn retire(&self, segment: SegmentOf<S>) {
        if self.has_thread() {
            let mut work = lock(&self.shared.work);
            work.retired.push(segment);
            work.ended = work.ended.or(Some((0, 0)));
            self.shared.changed.notify_all();
        } else {
            self.shared.prune();
        }
    }

    /// Forget all segments, also the one that was made ahead, and make none until one is asked for again: files are about to be removed.
    pub fn discard(&self) {
        let mut work = lock(&self.shared.work);
        while work.preparing {
            work = wait(&self.shared.changed, work);
        }
        work.wanted = None;
        work.ready = None;
        work.touch = None;
        work.released = 0;
        let retired = std::mem::take(&mut work.retired);
        drop(work);
        drop(retired);
    }

    /// End the thread; it finishes what it does.
    pub fn stop(&self) {
        lock(&self.shared.work).stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = lock(&self.thread).take()
            && self.shared.core.check_fork().is_ok()
        {
            let _finished = thread.join();
        }
    }

    /// Does what the thread would do now, where there is none.
    #[cfg(feature = "simulation")]
    pub fn turn(&self) {
        let mut from = Some((0, 0));
        while let Some(done) = from {
            from = self
                .shared
                .durable
                .sync_ended(done, SYNC_STEP)
                .unwrap_or(None);
        }
        let _work = self.shared.sync_if_due(lock(&self.shared.work));
    }

    fn has_thread(&self) -> bool {
        self.shared.core.options.host.has_threads()
    }
}

impl<S: Storage> Shared<S> {
    fn run(&self) {
        let mut work = lock(&self.work);
        while !work.stop {
            if work.has_some() {
                work = self.run_one(work);
            } else {
                // A removed directory is noticed soon, also without syncs.
                let look = self.core.until_presence_check();
                let left = work.syncs.time_left(&self.core).unwrap_or(look).min(look);
                work = self.idle(work, left);
            }
            work = self.sync_if_due(work);
            if self.core.until_presence_check().is_zero() {
                drop(work);
                // The next append reports it.
                let _failed = self.core.check_presence();
                work = lock(&self.work);
            }
        }
    }

    /// Do the most urgent piece of work.
    fn run_one<'a>(&'a self, mut work: MutexGuard<'a, Work<S>>) -> MutexGuard<'a, Work<S>> {
        // A writer without pauses keeps no more memory than others.
        if work.retired.len() > RETIRED_MAX {
            return self.unmap(work);
        }
        // A journal that is appended to rarely is not worth it: the first window is enough for it.
        let zeros = self.core.options.sync == Sync::Always && work.window > 2 * WINDOW_MIN;
        let step = if zeros { ZEROS_STEP } else { TOUCH_STEP };
        if let Some((segment, from, to)) = work.touch.take() {
            let end = (from + step).min(to);
            if end < to {
                work.touch = Some((Arc::clone(&segment), end, to));
            }
            drop(work);
            self.touch(&segment, from, end, zeros);
            work = lock(&self.work);
            return if end < to { self.pause(work) } else { work };
        } else if let Some(number) = work.wanted.take() {
            work.preparing = true;
            let window = work.window;
            drop(work);
            let result = self.prepare(number, 0);
            if let Ok(segment) = &result {
                let end = window.min(segment.bytes());
                for from in (0..end).step_by(step as usize) {
                    if from > 0 {
                        drop(self.pause(lock(&self.work)));
                    }
                    self.touch(segment, from, (from + step).min(end), zeros);
                }
            }
            work = lock(&self.work);
            work.preparing = false;
            work.ready = Some((number, result));
            self.changed.notify_all();
            return work;
        } else if !work.retired.is_empty() {
            return self.unmap(work);
        } else if let Some(from) = work.ended {
            drop(work);
            // A failure poisons the journal, which the next append reports.
            let next = self.durable.sync_ended(from, SYNC_STEP).unwrap_or(None);
            work = lock(&self.work);
            work.ended = next;
            return work;
        }
        lock(&self.work)
    }

    /// Load these pages into memory, and write them to the disk if `write` says so.
    fn touch(&self, segment: &Segment<S::Region>, from: u64, to: u64, zeros: bool) {
        segment.region().populate(from, to);
        if zeros {
            // A failure poisons the journal, which the next append reports: it may have been of a page with a record.
            let _poisoned = self.core.sync(segment, from, to);
        }
    }

    /// Unmap the segments that were ended; if there is time, only a piece of one.
    fn unmap<'a>(&'a self, mut work: MutexGuard<'a, Work<S>>) -> MutexGuard<'a, Work<S>> {
        let gone = if work.has_time() {
            let (segment, from) = (Arc::clone(&work.retired[0]), work.released);
            if from < segment.bytes() {
                let to = (from + RELEASE_STEP).min(segment.bytes());
                work.released = to;
                drop(work);
                // A reader may still hold the segment, and then unmaps it at once itself: little must be left to do.
                segment.region().release(from, to);
                drop(segment);
                return self.pause(lock(&self.work));
            }
            vec![work.retired.remove(0)]
        } else {
            std::mem::take(&mut work.retired)
        };
        work.released = 0;
        drop(work);
        drop(gone);
        self.prune();
        lock(&self.work)
    }

    /// Yield the core to other threads, if there is time.
    fn pause<'a>(&'a self, work: MutexGuard<'a, Work<S>>) -> MutexGuard<'a, Work<S>> {
        match work.has_time() {
            true => self.wait_for(PAUSE, work),
            false => work,
        }
    }

    fn sync_if_due<'a>(&'a self, work: MutexGuard<'a, Work<S>>) -> MutexGuard<'a, Work<S>> {
        if work
            .syncs
            .time_left(&self.core)
            .is_none_or(|left| !left.is_zero())
        {
            return work;
        }
        drop(work);
        let begun = self.core.options.host.monotonic();
        // A failure poisons the journal, which the next append reports.
        let _poisoned = self.durable.sync();
        let ended = self.core.options.host.monotonic();
        let mut work = lock(&self.work);
        work.syncs.ended(begun, ended);
        work
    }

    /// Wait for work, or until the next sync or presence check is due.
    fn idle<'a>(
        &'a self,
        work: MutexGuard<'a, Work<S>>,
        left: Duration,
    ) -> MutexGuard<'a, Work<S>> {
        self.wait_for(left, work)
    }

    fn wait_for<'a>(
        &'a self,
        time: Duration,
        work: MutexGuard<'a, Work<S>>,
    ) -> MutexGuard<'a, Work<S>> {
        let waited = self.changed.wait_timeout(work, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Remove what retention allows. A failure is retried at the next roll, and reported by a manual prune.
    fn prune(&self) {
        let options = &self.core.options;
        if options.retention != Retention::default() {
            let _later = prune::prune(&self.core, &options.retention);
        }
    }

    fn prepare(&self, number: u64, frame_bytes: u64) -> Result<SegmentOf<S>> {
        let core = &self.core;
        match self.adopt(number) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Ok(segment) if !segment.holds(frame_bytes) => {
                // It was created ahead, before the size of the record was known; only an exclusive opening has segments that small.
                drop(segment);
                grow::remove(core, number)?;
            }
            result => return result,
        }
        match grow::create(core, number, frame_bytes) {
            // Another process was faster.
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
                self.adopt(number)
            }
            made => made,
        }
    }

    /// A segment that another process has prepared. That one may have died before it made the name durable.
    fn adopt(&self, number: u64) -> Result<SegmentOf<S>> {
        let segment = self.core.segment(number)?;
        self.core.sync_names()?;
        Ok(segment)
    }
}

fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// When to sync, if `sync` is a time.
///
/// All that was appended when one sync began must be durable a time T later, before appends have to wait. So the next sync begins
/// earlier than that: by what syncs have taken lately, from the moment at which they were due.
struct Syncs {
    every: Option<Duration>,
    due: Duration,
    /// How long before the end of T a sync is due.
    lead: Duration,
}

/// The smallest lead: an 8th of T, and at most this.
const LEAD_MIN: Duration = Duration::from_millis(2);

impl Syncs {
    /// The first sync is due at once: the process that appended the existing records may have died, and they must not wait for another T.
    fn new<S: Storage>(core: &Core<S>) -> Self {
        let every = match core.options.sync {
            Sync::Every(time) => Some(time),
            Sync::Never | Sync::Always => None,
        };
        Syncs {
            every,
            due: Duration::ZERO,
            lead: Duration::ZERO,
        }
    }

    /// The time until the next sync.
    fn time_left<S: Storage>(&self, core: &Core<S>) -> Option<Duration> {
        self.every
            .map(|_| self.due.saturating_sub(core.options.host.monotonic()))
    }

    /// A sync has ended. One that was late or slow counts for the next ones, less with each.
    fn ended(&mut self, begun: Duration, ended: Duration) {
        let Some(every) = self.every else {
            return;
        };
        let due = if self.due.is_zero() { begun } else { self.due };
        let least = LEAD_MIN.min(every / 8);
        self.lead = (self.lead - self.lead / 8)
            .max(ended.saturating_sub(due))
            .max(least);
        self.due = begun.saturating_add(every.saturating_sub(self.lead));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_begins_so_early_that_it_ends_in_time() {
        let ms = Duration::from_millis;
        let mut syncs = Syncs {
            every: Some(ms(100)),
            due: Duration::ZERO,
            lead: Duration::ZERO,
        };
        syncs.ended(ms(1_000), ms(1_000));
        assert_eq!(syncs.due, ms(1_098));
        // After a slow sync the next one is due earlier by as much.
        syncs.ended(ms(1_098), ms(1_128));
        assert_eq!(syncs.due, ms(1_098 + 70));
        // One that begins late is no better.
        syncs.ended(ms(1_168 + 20), ms(1_168 + 40));
        assert_eq!(syncs.due, ms(1_188 + 60));
        for _ in 0..100 {
            syncs.ended(syncs.due, syncs.due);
        }
        assert_eq!(syncs.lead, LEAD_MIN);
        // A disk that is slower than the time: one sync after the other.
        syncs.ended(syncs.due, syncs.due + ms(300));
        assert_eq!(syncs.lead, ms(300));
        assert!(syncs.due < syncs.due + ms(300));
    }
}
