//! What all handles on one opening share: the storage, the options, the control page and the segments that are mapped.
//!
//! A segment is mapped once and stays mapped while it is in use.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::control::Control;
use crate::format::files;
use crate::format::frame::Kind;
use crate::format::index::{self, TimeSearch};
use crate::format::published::Published;
use crate::format::segment::{self, Mark, Segment};
use crate::mutex::lock;
use crate::options::Options;
use crate::recover::{self, Confirmed, Plan};
use crate::retain::start;
use crate::storage::memory::ForkMark;
use crate::storage::{Access, Fault, Presence, Region, Storage, fault};

/// One opening of a journal.
pub(crate) struct Core<S: Storage> {
    pub storage: S,
    pub options: Options,
    /// Empty while a journal is read that no process has opened since the machine started.
    control: OnceLock<Control<S::Region>>,
    /// The control page mapped for writing, where that is permitted, so that a reader can say that it sleeps.
    waking: OnceLock<Option<Control<S::Region>>>,
    /// The plan of a recovery, for a reader that may not recover and opens the journal before all writers.
    plan: Option<Plan>,
    /// What the segments confirmed when a reader accepted the control page.
    confirmed: OnceLock<Confirmed>,
    pub segment_bytes: u64,
    pub fork_mark: ForkMark,
    segments: Mutex<BTreeMap<u64, Weak<Segment<S::Region>>>>,
    /// The directory at the path when the journal was opened.
    presence: Presence,
    /// When the path was examined last, in ns of the host's clock.
    presence_checked_ns: AtomicU64,
    /// The error of every further read and append.
    failure: OnceLock<Failure>,
    /// The count of faults of this process when this opening last searched its own and found none.
    faults_elsewhere: AtomicU64,
}

/// The interval between checks that the directory is still there.
pub(crate) const PRESENCE_CHECK: Duration = Duration::from_secs(1);

/// How long a segment may be held by calls of other threads that read no record.
const IN_USE_MAX: Duration = Duration::from_secs(1);

/// Why an opening can no longer be used.
enum Failure {
    Fault {
        path: PathBuf,
        offset: u64,
        kind: io::ErrorKind,
        errno: Option<i32>,
        what: String,
    },
    Gone,
    Panicked(String),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Failure::Fault {
            path: fault.path,
            offset: fault.offset,
            kind: fault.source.kind(),
            errno: fault.source.raw_os_error(),
            what: fault.source.to_string(),
        }
    }
}

/// An open segment.
pub(crate) type SegmentOf<S> = Arc<Segment<<S as Storage>::Region>>;

impl<S: Storage> Core<S> {
    pub fn new(
        storage: S,
        options: Options,
        control: Option<Control<S::Region>>,
        plan: Option<Plan>,
        segment_bytes: u64,
    ) -> Result<Self> {
        let fork_mark = ForkMark::new().map_err(|source| Error::Io {
            verb: "map memory for",
            path: storage.path(""),
            source,
        })?;
        let presence = storage
            .presence(files::CONTROL)
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => Error::Gone {
                    path: storage.path(""),
                },
                _ => Error::Io {
                    verb: "look at",
                    path: storage.path(""),
                    source,
                },
            })?;
        let presence_checked_ns = if options.host.has_threads() {
            options.host.monotonic().as_nanos() as u64
        } else {
            0
        };
        Ok(Core {
            presence,
            presence_checked_ns: AtomicU64::new(presence_checked_ns),
            failure: OnceLock::new(),
            faults_elsewhere: AtomicU64::new(0),
            storage,
            options,
            control: control.map_or_else(OnceLock::new, OnceLock::from),
            waking: OnceLock::new(),
            plan,
            confirmed: OnceLock::new(),
            segment_bytes,
            fork_mark,
            segments: Mutex::default(),
        })
    }

    /// A reader that has compared the control page with the segments.
    pub fn with_confirmed(self, known: Confirmed) -> Self {
        // It is set once, here or in `is_recovered`.
        let _set = self.confirmed.set(known);
        self
    }

    pub fn path(&self) -> PathBuf {
        self.storage.path("")
    }

    /// The number of the device on which the directory is.
    pub fn device(&self) -> u64 {
        self.presence.directory[0]
    }

    /// The control page of an opening that may write.
    #[inline]
    pub fn control(&self) -> Result<&Control<S::Region>> {
        self.control
            .get()
            .ok_or_else(|| Error::ReadOnly { path: self.path() })
    }

    /// The control page, if there is one by now.
    pub fn live_control(&self) -> Option<&Control<S::Region>> {
        self.control.get()
    }

    /// The control page through which writers wake this opening. `None` where it may not be stored to, or is not there
    /// yet.
    pub fn waking_control(&self) -> Option<&Control<S::Region>> {
        let live = self.live_control()?;
        if !self.options.read_only {
            return Some(live);
        }
        let open = || Control::open(&self.storage, Access::Write).ok().flatten();
        self.waking.get_or_init(open).as_ref()
    }

    /// The plan of a recovery, until a process has recovered.
    pub fn plan(&self) -> Option<&Plan> {
        if self.control.get().is_none() {
            self.plan.as_ref()
        } else {
            None
        }
    }

    /// Whether a journal that was read as a plan has been recovered by another process since.
    pub fn is_recovered(&self) -> bool {
        if self.control.get().is_none()
            && let Ok(Some(control)) = Control::open(&self.storage, Access::Read)
            && control.is_live(&self.storage, self.options.host.boot())
            && let Ok(Some(known)) = recover::agree(&self.storage, &control)
        {
            // Another reader of this opening may have been faster.
            let _same = (self.confirmed.set(known), self.control.set(control));
        }
        self.control.get().is_some()
    }

    /// An error if the file system has failed this opening, in anything that was loaded or stored before the call.
    #[inline(always)]
    pub fn check(&self) -> Result<()> {
        if fault::any() {
            self.check_regions()
        } else {
            Ok(())
        }
    }

    /// [`check`](Self::check), also for a segment that this opening may not have listed.
    #[inline(always)]
    pub fn check_with(&self, segment: &Segment<S::Region>) -> Result<()> {
        if fault::any() {
            match segment.region().fault() {
                Some(fault) => Err(self.fail(fault.into())),
                None => self.check_regions(),
            }
        } else {
            Ok(())
        }
    }

    /// The result of an operation, or an error if the file system has failed meanwhile, which makes the result invalid.
    pub fn checked<T>(&self, result: Result<T>) -> Result<T> {
        self.check()?;
        result
    }

    #[cold]
    fn check_regions(&self) -> Result<()> {
        if let Some(failure) = self.failure.get() {
            return Err(self.error(failure));
        }
        let faults = fault::count();
        if self.faults_elsewhere.load(Ordering::Relaxed) == faults {
            return Ok(());
        }
        let control = self.control.get().and_then(Control::fault);
        let open: Vec<_> = lock(&self.segments)
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        let segment = || open.iter().find_map(|segment| segment.region().fault());
        match control.or_else(segment).or_else(|| self.storage.fault()) {
            Some(fault) => Err(self.fail(fault.into())),
            None => {
                self.faults_elsewhere.store(faults, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Nothing is read or appended through this opening from now on.
    fn fail(&self, failure: Failure) -> Error {
        fault::note();
        self.error(self.failure.get_or_init(|| failure))
    }

    /// Whether this opening acknowledges no further append, whatever comes.
    pub fn is_ended(&self) -> bool {
        let poisoned = self.live_control().is_some_and(Control::is_poisoned);
        poisoned || self.check().is_err()
    }

    /// The work in the background has panicked: nothing makes later appends durable in time.
    #[cold]
    pub fn fail_in_background(&self, what: &str) {
        let _reported_by_next_call = self.fail(Failure::Panicked(what.to_owned()));
    }

    fn error(&self, failure: &Failure) -> Error {
        match failure {
            Failure::Gone => Error::Gone { path: self.path() },
            Failure::Panicked(what) => Error::Panicked {
                path: self.path(),
                what: what.clone(),
            },
            Failure::Fault {
                path,
                offset,
                kind,
                errno,
                what,
            } => Error::Fault {
                path: path.clone(),
                offset: *offset,
                source: match errno {
                    Some(errno) => io::Error::from_raw_os_error(*errno),
                    None => io::Error::new(*kind, what.clone()),
                },
            },
        }
    }

    /// The time until [`check_presence`](Self::check_presence) checks again. No process removes a simulated directory,
    /// and a simulated clock counts its readings.
    pub fn until_presence_check(&self) -> Duration {
        if !self.options.host.has_threads() {
            return PRESENCE_CHECK;
        }
        let last = Duration::from_nanos(self.presence_checked_ns.load(Ordering::Relaxed));
        PRESENCE_CHECK.saturating_sub(self.options.host.monotonic().saturating_sub(last))
    }

    /// Check that the directory is still at its path, unless it was checked recently.
    pub fn check_presence(&self) -> Result<()> {
        if self.until_presence_check().is_zero() {
            self.check_presence_now()
        } else {
            self.check()
        }
    }

    /// Check that the directory is still at its path.
    pub fn check_presence_now(&self) -> Result<()> {
        if self.options.host.has_threads() {
            let now = self.options.host.monotonic().as_nanos() as u64;
            self.presence_checked_ns.store(now, Ordering::Relaxed);
        }
        let gone = match self.storage.presence(files::CONTROL) {
            Ok(presence) => !presence.is_same(&self.presence),
            // Another error, such as a withdrawn permission, says nothing about the directory.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if gone {
            Err(self.fail(Failure::Gone))
        } else {
            self.check()
        }
    }

    fn access(&self) -> Access {
        if self.options.read_only {
            Access::Read
        } else {
            Access::Write
        }
    }

    /// The segment of that number.
    pub fn segment(&self, number: u64) -> Result<SegmentOf<S>> {
        if let Some(segment) = lock(&self.segments).get(&number).and_then(Weak::upgrade) {
            return Ok(segment);
        }
        let segment = Segment::open(&self.storage, number, self.access());
        if matches!(&segment, Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound)
        {
            // A process may have recovered what is read as a plan, and pruned it: its control page says so.
            let _now = self.is_recovered();
        }
        let segment = segment?;
        if segment.bytes_max() != self.segment_bytes {
            return Err(Error::Damage {
                path: self.storage.path(&segment::name(number)),
                offset: 32,
                what: format!(
                    "the segment has {} bytes, the others have {}",
                    segment.bytes_max(),
                    self.segment_bytes
                ),
            });
        }
        Ok(self.share_segment(segment))
    }

    /// Adds an open segment to the table, or returns the one that another thread has opened meanwhile.
    pub fn share_segment(&self, segment: Segment<S::Region>) -> SegmentOf<S> {
        let mut segments = lock(&self.segments);
        segments.retain(|_, segment| segment.strong_count() > 0);
        if let Some(other) = segments.get(&segment.number()).and_then(Weak::upgrade) {
            return other;
        }
        let segment = Arc::new(segment);
        segments.insert(segment.number(), Arc::downgrade(&segment));
        segment
    }

    /// Calls `change` while none but its `owners` holds the segment `number`, and no reader can come to it. The calls
    /// of other threads, such as a sync, hold a segment for a moment.
    ///
    /// # Errors
    /// [`Error::InUse`] when others hold it for longer; those of `change`.
    pub fn exclusively<T>(
        &self,
        number: u64,
        owners: usize,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let host = &self.options.host;
        let begun = host.monotonic();
        loop {
            let segments = lock(&self.segments);
            let holders = segments.get(&number).map_or(0, Weak::strong_count);
            if holders <= owners {
                // What the last holder has read, it has read before it dropped the segment.
                fence(Ordering::Acquire);
                return change();
            }
            drop(segments);
            if !host.has_threads() || host.monotonic().saturating_sub(begun) > IN_USE_MAX {
                let path = self.storage.path(&segment::name(number));
                return Err(Error::InUse { path });
            }
            pause();
        }
    }

    /// Forget the segments from `number` on: their files are gone.
    pub fn forget_from(&self, number: u64) {
        let _gone = lock(&self.segments).split_off(&number);
    }

    /// The number of the segment that is appended to.
    #[inline]
    pub fn tail_segment(&self) -> u64 {
        match (self.plan(), self.live_control()) {
            (Some(plan), _) => plan.facts.tail_segment,
            (None, Some(control)) => control.tail_segment(),
            (None, None) => 0,
        }
    }

    pub fn first_segment(&self) -> u64 {
        match (self.plan(), self.live_control()) {
            (Some(plan), _) => plan.facts.first_segment,
            (None, Some(control)) => match self.confirmed.get() {
                Some(known) => control.first_segment().max(known.first_segment),
                None => control.first_segment(),
            },
            (None, None) => 0,
        }
    }

    /// The sequence number of a segment's first record.
    pub fn base(&self, segment: &Segment<S::Region>) -> Result<u64> {
        let planned = self.plan().and_then(|plan| plan.base(segment.number()));
        let base = planned
            .or_else(|| segment.base())
            .ok_or_else(|| Error::Damage {
                path: self.storage.path(&segment::name(segment.number())),
                offset: 64,
                what: "the segment has no first sequence number, and others follow it".to_owned(),
            })?;
        let scanned = self.plan().and_then(|plan| plan.tail(segment.number()));
        if planned.is_none() && scanned.is_none() && !segment.is_base_checked() {
            self.check_base(segment, base)?;
            segment.set_base_checked();
        }
        Ok(base)
    }

    /// Checks the base of a segment, which no checksum covers. Its frames match no other base, nor does the end frame
    /// of the segment before; the base of the first segment is known from the start of the journal.
    #[cold]
    fn check_base(&self, segment: &Segment<S::Region>, base: u64) -> Result<()> {
        let number = segment.number();
        let follows = || {
            let before = number.checked_sub(1).map(|before| self.segment(before));
            matches!(before, Some(Ok(before)) if index::end_time(&before, base).is_some())
        };
        if index::begins_with(segment, base) || follows() || index::shows_base(segment, base) {
            return Ok(());
        }
        match start::read(&self.storage)? {
            Some(start) if start.segment == number && start.base == base => Ok(()),
            // Nothing contradicts.
            None if number == self.first_segment()
                && segment.head(segment.data_start()) == Ok(None) =>
            {
                Ok(())
            }
            _ => Err(self.damage(
                segment,
                64,
                format!("nothing confirms that the segment begins with record {base}"),
            )),
        }
    }

    /// The latest time of the records before a segment, or a later time. `None` when none is known.
    pub fn latest_before(&self, segment: &Segment<S::Region>, base: u64) -> Result<Option<u64>> {
        let before = segment.number().checked_sub(1);
        if let Some(Ok(before)) = before.map(|before| self.segment(before))
            && let Some(time_ns) = index::end_time(&before, base)
        {
            return Ok(Some(time_ns));
        }
        if !segment.is_ordered() {
            return Ok(None);
        }
        let start = segment.data_start();
        match Published::at(segment, start) {
            Ok(None) => Ok(None),
            Ok(Some(frame)) if frame.is_sound(base) => Ok(Some(frame.time_ns())),
            Ok(Some(_)) => Err(self.damage(segment, start, "a frame does not match its checksum")),
            Err(what) => Err(self.damage(segment, start, what)),
        }
    }

    /// The end of a segment that is not the last one, and the latest time of the records up to there.
    pub fn ended(&self, segment: &Segment<S::Region>) -> Result<(Mark, u64)> {
        index::ended(segment, self.base(segment)?).ok_or_else(|| {
            self.damage(
                segment,
                128,
                "neither the tail nor the frames show the end of the segment",
            )
        })
    }

    /// A segment to be searched by time.
    pub fn times<'a>(&self, segment: &'a Segment<S::Region>) -> Result<TimeSearch<'a, S::Region>> {
        let number = segment.number();
        Ok(TimeSearch {
            segment,
            base: self.base(segment)?,
            tail: (number >= self.tail_segment()).then(|| self.tail(segment)),
            is_ordered: segment.is_ordered()
                && !self.plan().is_some_and(|plan| plan.is_disordered(number)),
        })
    }

    /// The end of a segment, as far as known.
    pub fn tail(&self, segment: &Segment<S::Region>) -> Mark {
        let planned = self.plan().and_then(|plan| plan.tail(segment.number()));
        planned.unwrap_or_else(|| segment.tail())
    }

    /// The oldest segment.
    pub fn first_open(&self) -> Result<SegmentOf<S>> {
        loop {
            let number = self.first_segment();
            match self.segment(number) {
                // Pruned between the two.
                Err(Error::Io { .. }) if self.first_segment() > number => {}
                result => return result,
            }
        }
    }

    /// The segment that is appended to.
    pub fn tail_open(&self) -> Result<SegmentOf<S>> {
        loop {
            let number = self.tail_segment();
            match self.segment(number) {
                // Filled and pruned between the two.
                Err(Error::Io { .. }) if self.tail_segment() > number => {}
                result => return result,
            }
        }
    }

    /// The sequence number of the oldest record.
    pub fn first(&self) -> Result<u64> {
        self.base(&*self.first_open()?)
    }

    /// The segment that holds the record `sequence`, or would.
    pub fn locate(&self, sequence: u64) -> Result<SegmentOf<S>> {
        self.last_segment(|_, base| Ok(base <= sequence))
    }

    /// The last segment for which `holds` is true; it is true for all before. The first one, if for none.
    pub fn last_segment(
        &self,
        holds: impl Fn(&Segment<S::Region>, u64) -> Result<bool>,
    ) -> Result<SegmentOf<S>> {
        loop {
            let first = self.first_segment();
            match self.last_segment_from(first, &holds) {
                // Retention has removed the segment meanwhile.
                Err(Error::Io { .. }) if self.first_segment() > first => {}
                found => return found,
            }
        }
    }

    fn last_segment_from(
        &self,
        first: u64,
        holds: impl Fn(&Segment<S::Region>, u64) -> Result<bool>,
    ) -> Result<SegmentOf<S>> {
        let mut low = first;
        let mut high = self.tail_segment();
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            let segment = self.segment(middle)?;
            if holds(&segment, self.base(&segment)?)? {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        self.segment(low)
    }

    /// The sequence number after the tail.
    pub fn next(&self) -> Result<u64> {
        let segment = self.tail_open()?;
        Ok(self.base(&segment)? + self.tail(&segment).records)
    }

    /// The sequence number after all that readers may have seen.
    pub fn published(&self) -> Result<u64> {
        let segment = self.tail_open()?;
        Ok(self.base(&segment)? + self.end(&segment).records)
    }

    /// The end of a segment's published frames: a writer that died may have published one more than the tail counts.
    pub fn end(&self, segment: &Segment<S::Region>) -> Mark {
        let mut end = self.tail(segment);
        while self.plan().is_none()
            && let Ok(Some(head)) = segment.head(end.offset)
            && head.kind == Kind::Record
        {
            end = Mark {
                offset: end.offset + head.bytes(),
                records: end.records + 1,
            };
        }
        end
    }

    /// Whether there is a record `sequence`, or could be next.
    pub fn check_sequence(&self, sequence: u64) -> Result<()> {
        let first = self.first()?;
        let next = self.published()?;
        if sequence < first {
            return Err(Error::Pruned {
                path: self.path(),
                sequence,
                first,
            });
        }
        if sequence > next {
            return Err(Error::NotYet {
                path: self.path(),
                sequence,
                next,
            });
        }
        Ok(())
    }

    /// Where the record `sequence` begins, which is there or would be next in this segment.
    pub fn find(&self, segment: &Segment<S::Region>, sequence: u64) -> Result<Mark> {
        let base = self.base(segment)?;
        let end = if segment.number() < self.tail_segment() {
            index::unknown_end(segment)
        } else {
            self.end(segment)
        };
        // Retention may have taken its segment since a process found the record to be there.
        let records = sequence.checked_sub(base).ok_or_else(|| Error::Pruned {
            path: self.path(),
            sequence,
            first: base,
        })?;
        index::find(segment, base, end, records).ok_or_else(|| {
            let what = format!("the frames before record {sequence} cannot be followed");
            self.damage(segment, segment.data_start(), what)
        })
    }

    /// The latest time of the pruned records, as far as known, or 0.
    pub fn start_time_ns(&self) -> Result<u64> {
        Ok(start::read(&self.storage)?.map_or(0, |start| start.time_ns))
    }

    /// When a record was appended that is there.
    pub fn time_of(&self, sequence: u64) -> Result<u64> {
        let segment = self.locate(sequence)?;
        let base = self.base(&segment)?;
        let mark = self.find(&segment, sequence)?;
        match Published::at(&segment, mark.offset) {
            Ok(Some(frame)) if frame.is_sound(sequence) && base <= sequence => Ok(frame.time_ns()),
            _ => Err(self.damage(&segment, mark.offset, "a frame does not match its checksum")),
        }
    }

    /// All records before this sequence number survive a loss of power.
    pub fn durable(&self) -> u64 {
        match (self.plan(), self.live_control()) {
            (Some(plan), _) => plan.facts.durable,
            (None, Some(control)) => match self.confirmed.get() {
                Some(known) if known.cuts == control.cuts() => control.durable().max(known.durable),
                _ => control.durable(),
            },
            (None, None) => 0,
        }
    }

    /// Make the names of the files durable.
    pub fn sync_names(&self) -> Result<()> {
        self.storage.sync_names().map_err(|source| Error::Io {
            verb: "sync",
            path: self.path(),
            source,
        })
    }

    /// Sync a part of a segment. If that fails the journal is poisoned: the state of these bytes is unknown.
    pub fn sync(&self, segment: &Segment<S::Region>, from: u64, to: u64) -> Result<()> {
        self.attempt_sync(segment, || segment.region().sync(from, to))
    }

    /// [`sync`](Self::sync) with the function that does it.
    pub fn attempt_sync(
        &self,
        segment: &Segment<S::Region>,
        sync: impl FnOnce() -> io::Result<()>,
    ) -> Result<()> {
        let control = self.control()?;
        control.begin_sync();
        let synced = sync();
        if let Err(error) = self.check_with(segment) {
            // Only this opening has lost anything, and it acknowledges no more. Others may sync what they have.
            control.end_sync();
            return Err(error);
        }
        if synced.is_err() {
            control.poison();
        }
        control.end_sync();
        synced.map_err(|source| Error::Io {
            verb: "sync",
            path: self.storage.path(&segment::name(segment.number())),
            source,
        })
    }

    pub fn damage(
        &self,
        segment: &Segment<S::Region>,
        offset: u64,
        what: impl Into<String>,
    ) -> Error {
        Error::Damage {
            path: self.storage.path(&segment::name(segment.number())),
            offset,
            what: what.into(),
        }
    }

    /// A frame at which a search by time ended.
    pub fn unsound(&self, segment: &Segment<S::Region>, offset: u64) -> Error {
        self.damage(segment, offset, "a frame does not match its checksum")
    }

    pub fn check_fork(&self) -> Result<()> {
        if self.fork_mark.is_child() {
            Err(Error::Forked { path: self.path() })
        } else {
            Ok(())
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "no call says when another thread drops a segment"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}
