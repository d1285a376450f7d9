//! The work in the background of one opening that writes. It keeps the costs of the file system out of appends.
//!
//! It touches pages before writers reach them, creates the next segment when the current one is half full, unmaps and
//! syncs segments that have ended (for any value of `sync`, so that recovery has little to scan), and syncs at
//! intervals if the options ask for it. The
//! [threads](crate::threads) that all openings of the process share do it. Without threads (in a simulation), appends do this work themselves
//! where they need it.
//!
//! An opening that appends nothing *sleeps*: no thread is called for it. A *round* (a sync at an interval, or a look
//! whether the directory is still there) sets the offset from which on the writer calls [`Background::notice`] to 0, so
//! that the next append is noticed. Without such a call there are no further looks, and a sync is the last one.
//!
//! With `sync=always` it also writes the touched pages to the disk as zeros. A file system marks each block of a
//! preallocated file as unwritten. The first write changes that mark, and the sync of a record then has to make the
//! change durable, which takes longer than the record itself. A record whose block was written before avoids this.
//! Nothing depends on it: no watermark is raised, and a page in which a record has begun meanwhile is written as it is,
//! as the system may do at any time.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::append::grow;
use crate::core::{Core, PRESENCE_CHECK, SegmentOf};
use crate::error::{Error, Result};
use crate::mutex::lock;
use crate::options::{Retention, Sync};
use crate::retain::prune;
use crate::storage::{Region, Storage};
use crate::sync::bound::Moment;
use crate::sync::durable::Durable;
use crate::threads::{self, Job, Member};

/// How far pages are touched ahead of the tail. A writer reaches the middle of the window in at least
/// `WINDOW_TIME_MIN`, which is the time that the thread may need to get a core, and in at most `WINDOW_TIME_MAX`, so
/// that each turn takes little of the core that it shares.
const WINDOW_MIN: u64 = 256 << 10;
const WINDOW_MAX: u64 = 16 << 20;
const WINDOW_TIME_MIN: Duration = Duration::from_millis(25);
const WINDOW_TIME_MAX: Duration = Duration::from_millis(200);
/// The largest window where pages are also written to the disk: syncs delay records, and writing pages that are never
/// appended to is wasted.
const ZEROS_MAX: u64 = 2 << 20;
/// How much is touched at once. A page takes up to some us, and many kernels do not interrupt such a call.
const TOUCH_STEP: u64 = 256 << 10;
/// How much is synced at once, so that other work does not wait for long.
const SYNC_STEP: u64 = 2 << 20;
/// The step while a record may wait for its sync, which the disk serves after this one.
const ZEROS_STEP: u64 = 512 << 10;
/// How much of an ended segment is unmapped at once.
const RELEASE_STEP: u64 = 2 << 20;
/// The pause between two steps, so that other threads on the same core wait for one step only: a kernel would otherwise
/// let the thread run for some ms.
const PAUSE: Duration = Duration::from_millis(1);
/// The least time between two rounds of which the second one is the last. What an append on another core has stored
/// before the first is visible by then.
const ROUND_MIN: Duration = Duration::from_millis(1);
/// Up to this window there is time for that: half of it is touched so in less than `WINDOW_TIME_MIN`.
const PAUSED_WINDOW_MAX: u64 = 8 << 20;
/// Smaller segments are not prepared ahead: a prepared segment would be most of the space that a small journal takes.
const PREPARED_MIN: u64 = 64 << 10;
/// The number of ended segments that may stay mapped while there is more urgent work.
const RETIRED_MAX: usize = 4;

/// The background of one opening.
pub(crate) struct Background<S: Storage>(Arc<Shared<S>>);

struct Shared<S: Storage> {
    core: Arc<Core<S>>,
    durable: Arc<Durable<S>>,
    /// The offset of the tail from which on the writer calls [`Background::notice`].
    notice_at: AtomicU64,
    work: Mutex<Work<S>>,
    /// A segment was prepared.
    prepared: Condvar,
    /// Set once; without threads never.
    member: OnceLock<Member>,
}

/// Pages of a segment to touch, from one offset to another.
type Pages<S> = (SegmentOf<S>, u64, u64);

struct Work<S: Storage> {
    touch: Option<Pages<S>>,
    /// Those of the segment that was prepared last.
    touch_next: Option<Pages<S>>,
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
    rounds: Rounds,
    stop: bool,
}

/// When the next round is, and what is known of the writer.
struct Rounds {
    /// `None` while the opening sleeps.
    due: Option<Duration>,
    /// The first round after which the writer has appended nothing.
    quiet_since: Option<Duration>,
    /// Where the writer is to call `notice` for more room, whether or not a round waits for a sign of it.
    notice_at: u64,
}

impl<S: Storage> Work<S> {
    fn new(core: &Core<S>) -> Self {
        Work {
            touch: None,
            touch_next: None,
            asked: (0, 0),
            window: WINDOW_MIN,
            noticed: Duration::ZERO,
            wanted: None,
            preparing: false,
            ready: None,
            retired: Vec::new(),
            released: 0,
            ended: None,
            syncs: Syncs::new(core.options.sync),
            rounds: Rounds {
                due: None,
                quiet_since: Some(Duration::ZERO),
                notice_at: 0,
            },
            stop: false,
        }
    }

    fn has_some(&self) -> bool {
        let Work {
            touch,
            touch_next,
            wanted,
            retired,
            ended,
            ..
        } = self;
        touch.is_some()
            || wanted.is_some()
            || touch_next.is_some()
            || !retired.is_empty()
            || ended.is_some()
    }

    /// Whether there is time to pause: the writer is too slow to reach pages that are not touched yet, and no sync is
    /// due.
    fn has_time(&self) -> bool {
        self.window <= PAUSED_WINDOW_MAX
            && self.retired.len() <= RETIRED_MAX
            && self.syncs.every.is_none()
            && !self.stop
    }
}

impl<S: Storage> Background<S> {
    pub fn start(core: Arc<Core<S>>, durable: Arc<Durable<S>>) -> Result<Self> {
        let shared = Arc::new(Shared {
            work: Mutex::new(Work::new(&core)),
            core,
            durable,
            notice_at: AtomicU64::new(0),
            prepared: Condvar::new(),
            member: OnceLock::new(),
        });
        let core = &shared.core;
        if core.options.host.has_threads() {
            let is_timed = matches!(core.options.sync, Sync::Every(_));
            let job: Arc<dyn Job> = Arc::clone(&shared) as _;
            let joined = threads::join(core.device(), job, is_timed);
            let member = joined.map_err(|source| Error::Io {
                verb: "start a thread for",
                path: core.path(),
                source,
            })?;
            // Nothing else sets it.
            let _first = shared.member.set(member);
        }
        Ok(Background(shared))
    }

    /// The offset at which to call [`notice`](Self::notice).
    #[inline(always)]
    pub fn notice_at(&self) -> u64 {
        // Not before the tail is stored: a round that sets this offset looks at the tail afterwards.
        compiler_fence(Ordering::SeqCst);
        self.0.notice_at.load(Ordering::Relaxed)
    }

    /// The tail has reached `offset`.
    pub fn notice(&self, segment: SegmentOf<S>, offset: u64) {
        let shared = &self.0;
        let Some(member) = shared.member.get() else {
            shared.notice_at.store(u64::MAX, Ordering::Relaxed);
            return;
        };
        let mut work = lock(&shared.work);
        // Rounds may come while the lock is released: what they have set must not be overwritten, or the next append
        // would not be noticed.
        while work.rounds.quiet_since.take().is_some() {
            member.call_at(shared.resume(&mut work));
            drop(work);
            // The next check of the writer reports it.
            let _failed = shared.core.check_presence();
            work = lock(&shared.work);
        }
        if offset >= work.rounds.notice_at {
            work.rounds.notice_at = shared.ask(&mut work, segment, offset);
            member.call();
        }
        shared
            .notice_at
            .store(work.rounds.notice_at, Ordering::Relaxed);
    }

    /// The segment of this number, not begun yet; it is created if necessary.
    /// Its first record may take up to `frame_bytes`.
    pub fn take(&self, number: u64, frame_bytes: u64) -> Result<SegmentOf<S>> {
        let mut work = lock(&self.0.work);
        while work.preparing {
            work = wait(&self.0.prepared, work);
        }
        if let Some((ready, Ok(segment))) = work.ready.take()
            && ready == number
            && segment.holds(frame_bytes)
        {
            return Ok(segment);
        }
        // It was not asked for ahead of time, no thread has had time for it, it could not be created, for which there
        // may be space now, or only this call knows how large it must be.
        work.wanted = None;
        drop(work);
        self.0.prepare(number, frame_bytes)
    }

    /// The writer continues in another segment. Unmaps this one in the background: this takes long.
    pub fn retire(&self, segment: SegmentOf<S>) {
        let mut work = lock(&self.0.work);
        work.rounds.notice_at = 0;
        self.0.notice_at.store(0, Ordering::Relaxed);
        match self.0.member.get() {
            Some(member) => {
                work.retired.push(segment);
                work.ended = work.ended.or(Some((0, 0)));
                member.call();
            }
            None => {
                drop(work);
                drop(segment);
                self.0.prune();
            }
        }
    }

    /// Forget all segments, also the one that was made ahead, and make none until one is asked for again: files are
    /// about to be removed.
    pub fn discard(&self) {
        let mut work = lock(&self.0.work);
        while work.preparing {
            work = wait(&self.0.prepared, work);
        }
        work.wanted = None;
        work.ready = None;
        work.touch = None;
        work.touch_next = None;
        work.released = 0;
        let retired = std::mem::take(&mut work.retired);
        drop(work);
        drop(retired);
    }

    /// End the work; a piece that is in progress ends first.
    pub fn stop(&self) {
        // A forked child has no threads, and one of its parent may have locked this.
        if let Some(member) = self.0.member.get()
            && self.0.core.check_fork().is_ok()
        {
            lock(&self.0.work).stop = true;
            member.leave();
        }
    }

    /// Does what a thread would do now, where there is none.
    #[cfg(feature = "simulation")]
    pub fn turn(&self) {
        let shared = &self.0;
        let mut from = Some((0, 0));
        while let Some(done) = from {
            from = shared.durable.sync_ended(done, SYNC_STEP).unwrap_or(None);
        }
        let due = lock(&shared.work).syncs.due;
        if due.is_some_and(|due| due <= shared.core.options.host.monotonic()) {
            let _poisoned = shared.sync();
        }
    }
}

impl<S: Storage> Job for Shared<S> {
    fn turn(&self) -> Option<Duration> {
        let mut work = lock(&self.work);
        let mut pauses = false;
        if work.has_some() && !work.stop {
            (work, pauses) = self.run_one(work);
        }
        if work.stop {
            return None;
        }
        work = self.round_if_due(work);
        let now = self.core.options.host.monotonic();
        if !work.has_some() {
            work.rounds.due
        } else if pauses && work.has_time() {
            // Yield the core to other threads.
            Some(now + PAUSE)
        } else {
            Some(now)
        }
    }

    fn panicked(&self, what: &str) {
        let mut work = lock(&self.work);
        work.stop = true;
        work.preparing = false;
        drop(work);
        self.core.fail_in_background(what);
        self.prepared.notify_all();
    }
}

impl<S: Storage> Shared<S> {
    /// The first append after a round. Returns when the next round is due.
    fn resume(&self, work: &mut Work<S>) -> Duration {
        let host = &self.core.options.host;
        let now = host.monotonic();
        if work.rounds.due.is_none() && work.syncs.begin(now) {
            // The last round has synced all that this opening has acknowledged.
            self.durable.bound().raise(Moment::now(host));
        }
        let look = now + PRESENCE_CHECK;
        let due = work.syncs.due.map_or(look, |due| due.min(look));
        work.rounds.due = Some(due);
        due
    }

    /// Asks for pages after `offset`, and for the next segment when half of this one is used. Returns the offset at
    /// which to ask again.
    fn ask(&self, work: &mut Work<S>, segment: SegmentOf<S>, offset: u64) -> u64 {
        let number = segment.number();
        let bytes = segment.bytes();
        let half = segment.data_start().midpoint(bytes);
        if offset >= half && bytes >= PREPARED_MIN && work.ready.is_none() {
            work.wanted = Some(number + 1);
        }
        let now = self.core.options.host.monotonic();
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
        if self.core.options.sync == Sync::Always {
            (window * 2).min(ZEROS_MAX)
        } else if since < WINDOW_TIME_MIN {
            (window * 2).min(WINDOW_MAX)
        } else if since > WINDOW_TIME_MAX {
            (window / 2).max(WINDOW_MIN)
        } else {
            window
        }
    }

    /// Do the most urgent piece of work. Returns whether the next one may wait a little.
    fn run_one<'a>(&'a self, mut work: MutexGuard<'a, Work<S>>) -> (MutexGuard<'a, Work<S>>, bool) {
        // A writer without pauses keeps no more memory than others.
        if work.retired.len() > RETIRED_MAX {
            return self.unmap(work);
        }
        if work.touch.is_some() {
            return self.touch(work, |work| &mut work.touch);
        }
        if let Some(number) = work.wanted.take() {
            work.preparing = true;
            let window = work.window;
            drop(work);
            let made = self.prepare(number, 0);
            work = lock(&self.work);
            work.preparing = false;
            let pages = |made: &SegmentOf<S>| (Arc::clone(made), 0, window.min(made.bytes()));
            work.touch_next = made.as_ref().ok().map(pages);
            work.ready = Some((number, made));
            self.prepared.notify_all();
            return (work, false);
        }
        if work.touch_next.is_some() {
            return self.touch(work, |work| &mut work.touch_next);
        }
        if !work.retired.is_empty() {
            return self.unmap(work);
        }
        if let Some(from) = work.ended {
            drop(work);
            // A failure poisons the journal, which the next append reports.
            let next = self.durable.sync_ended(from, SYNC_STEP).unwrap_or(None);
            work = lock(&self.work);
            work.ended = next;
        }
        (work, false)
    }

    /// Load the first of these pages into memory, and write them to the disk if that is worth it. The others stay.
    fn touch<'a>(
        &'a self,
        mut work: MutexGuard<'a, Work<S>>,
        pages: impl Fn(&mut Work<S>) -> &mut Option<Pages<S>>,
    ) -> (MutexGuard<'a, Work<S>>, bool) {
        // A journal that is appended to rarely is not worth it: the first window is enough for it.
        let zeros = self.core.options.sync == Sync::Always && work.window > 2 * WINDOW_MIN;
        let Some((segment, from, to)) = pages(&mut work).take() else {
            return (work, false);
        };
        let end = (from + if zeros { ZEROS_STEP } else { TOUCH_STEP }).min(to);
        *pages(&mut work) = (end < to).then(|| (Arc::clone(&segment), end, to));
        drop(work);
        segment.region().populate(from, end);
        if zeros {
            // A failure poisons the journal, which the next append reports: it may have been of a page with a record.
            let _poisoned = self.core.sync(&segment, from, end);
        }
        drop(segment);
        (lock(&self.work), end < to)
    }

    /// Unmap the segments that were ended; if there is time, only a piece of one.
    fn unmap<'a>(&'a self, mut work: MutexGuard<'a, Work<S>>) -> (MutexGuard<'a, Work<S>>, bool) {
        let gone = if work.has_time() {
            let segment = Arc::clone(&work.retired[0]);
            let from = work.released;
            if from < segment.bytes() {
                let to = (from + RELEASE_STEP).min(segment.bytes());
                work.released = to;
                drop(work);
                // A reader may still hold the segment, and then unmaps it at once itself: little must be left to do.
                segment.region().release(from, to);
                drop(segment);
                return (lock(&self.work), true);
            }
            vec![work.retired.remove(0)]
        } else {
            std::mem::take(&mut work.retired)
        };
        work.released = 0;
        drop(work);
        drop(gone);
        self.prune();
        (lock(&self.work), false)
    }

    /// A round, if one is due: a sync, and a look whether the directory is still there. After a round without an append
    /// since the one before, only a sync is left to do, and after that nothing.
    fn round_if_due<'a>(&'a self, mut work: MutexGuard<'a, Work<S>>) -> MutexGuard<'a, Work<S>> {
        let host = &self.core.options.host;
        let now = host.monotonic();
        if work.rounds.due.is_none_or(|due| due > now) {
            return work;
        }
        let quiet_since = *work.rounds.quiet_since.get_or_insert(now);
        self.notice_at.store(0, Ordering::SeqCst);
        let syncs = work.syncs.due.is_some_and(|due| due <= now);
        drop(work);
        // The next append reports both.
        let is_synced = syncs && (self.sync().is_ok() || self.core.is_ended());
        let _failed = self.core.check_presence();
        work = lock(&self.work);
        let sync = work.syncs.due;
        work.rounds.due = if work.rounds.quiet_since != Some(quiet_since) {
            let look = host.monotonic() + self.core.until_presence_check();
            Some(sync.map_or(look, |due| due.min(look)))
        } else if is_synced && now.saturating_sub(quiet_since) >= ROUND_MIN {
            None
        } else {
            sync
        };
        work
    }

    /// Sync all that is appended, and note how long it took.
    fn sync(&self) -> Result<()> {
        let host = &self.core.options.host;
        let begun = host.monotonic();
        // A failure poisons the journal, which the next append reports.
        let synced = self.durable.sync();
        lock(&self.work).syncs.ended(begun, host.monotonic());
        synced.map(drop)
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
                // It was created ahead, before the size of the record was known; only an exclusive opening has segments
                // that small.
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
/// All that was appended when one sync began must be durable a time T later, before appends have to wait. So the next
/// sync begins earlier than that: by what syncs have taken lately, from the moment at which they were due.
struct Syncs {
    every: Option<Duration>,
    /// `None` if `sync` is no time.
    due: Option<Duration>,
    /// How long before the end of T a sync is due.
    lead: Duration,
}

/// The smallest lead: an 8th of T, and at most this.
const LEAD_MIN: Duration = Duration::from_millis(2);

impl Syncs {
    /// The first sync is due at once. Without threads an opening has no other beginning.
    fn new(sync: Sync) -> Self {
        let every = match sync {
            Sync::Every(time) => Some(time),
            Sync::Never | Sync::Always => None,
        };
        Syncs {
            every,
            due: every.map(|_| Duration::ZERO),
            lead: Duration::ZERO,
        }
    }

    /// The first record after others that are durable was appended `now`. Returns whether there are syncs at all.
    fn begin(&mut self, now: Duration) -> bool {
        let Some(every) = self.every else {
            return false;
        };
        self.lead = self.lead.max(LEAD_MIN.min(every / 8));
        self.due = Some(now.saturating_add(every.saturating_sub(self.lead)));
        true
    }

    /// A sync has ended. One that was late or slow counts for the next ones, less with each.
    fn ended(&mut self, begun: Duration, ended: Duration) {
        let (Some(every), Some(due)) = (self.every, self.due) else {
            return;
        };
        let due = if due.is_zero() { begun } else { due };
        let least = LEAD_MIN.min(every / 8);
        self.lead = (self.lead - self.lead / 8)
            .max(ended.saturating_sub(due))
            .max(least);
        self.due = Some(begun.saturating_add(every.saturating_sub(self.lead)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Journal, Options};

    #[test]
    fn a_journal_whose_work_has_panicked_acknowledges_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let journal = Journal::open(path, Options::default()).unwrap();
        let writer = journal.writer().unwrap();
        writer.append(b"a").unwrap();
        let durable = Arc::new(Durable::new(Arc::clone(journal.core())));
        let background = Background::start(Arc::clone(journal.core()), durable).unwrap();
        background.0.panicked("a divisor is 0");
        let error = writer.append(b"b").unwrap_err();
        assert!(matches!(error, Error::Panicked { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("a divisor is 0") && text.contains("open it again"),
            "{text}"
        );
        assert!(text.contains(&*path.to_string_lossy()), "{text}");
        background.stop();
        drop((writer, journal));
        let again = Journal::open(path, Options::default()).unwrap();
        assert_eq!(again.next().unwrap(), 1);
        again.writer().unwrap().append(b"b").unwrap();
    }

    #[test]
    fn a_sync_begins_so_early_that_it_ends_in_time() {
        let ms = Duration::from_millis;
        let mut syncs = Syncs {
            every: Some(ms(100)),
            due: Some(Duration::ZERO),
            lead: Duration::ZERO,
        };
        syncs.ended(ms(1_000), ms(1_000));
        assert_eq!(syncs.due, Some(ms(1_098)));
        // After a slow sync the next one is due earlier by as much.
        syncs.ended(ms(1_098), ms(1_128));
        assert_eq!(syncs.due, Some(ms(1_098 + 70)));
        // One that begins late is no better.
        syncs.ended(ms(1_168 + 20), ms(1_168 + 40));
        assert_eq!(syncs.due, Some(ms(1_188 + 60)));
        for _ in 0..100 {
            let due = syncs.due.unwrap();
            syncs.ended(due, due);
        }
        assert_eq!(syncs.lead, LEAD_MIN);
        // A disk that is slower than the time: one sync after the other.
        let due = syncs.due.unwrap();
        syncs.ended(due, due + ms(300));
        assert_eq!(syncs.lead, ms(300));
        assert!(syncs.due.unwrap() < due + ms(300));
        // After a time without records, the next sync is due that much before the time is over.
        syncs.lead = ms(40);
        assert!(syncs.begin(ms(5_000)));
        assert_eq!(syncs.due, Some(ms(5_060)));
    }
}
