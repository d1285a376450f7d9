//! Reading and tailing: complete records, in order, across segments, without a copy.

use std::sync::Arc;
use std::time::Duration;

use crate::core::{Core, SegmentOf};
use crate::error::{Error, Result};
use crate::format::checksum;
use crate::format::control::Control;
use crate::format::frame::{Head, Kind};
use crate::format::published::Published;
use crate::format::segment::Mark;
use crate::journal::Journal;
use crate::read::bookmark::{self, Bookmark};
use crate::read::pinned::{FoundRecord, PinnedRecord};
use crate::read::visited::Visited;
use crate::storage::{Mapped, Region, Storage, fault};

/// How much is brought into memory at once, ahead of a reader.
const STEP: u64 = 2 << 20;
/// How far a reader that moves here and there goes on before pages are asked for.
const NEAR: u64 = 64 << 10;
/// How many polls pass between checks that a missing record should not be there.
const LOOKS: u32 = 256;
/// A record that comes within this many polls came soon after the one before.
const SOON: u32 = 32;
/// How long to back off from a record that is expected soon, in pauses of a spinning processor, some 20 ns each.
const BACKOFF_MIN: u32 = 4;
const BACKOFF_MAX: u32 = 64;
/// How long the first and the longest pause of a back-off are.
const PAUSE_MIN: Duration = Duration::from_micros(1);
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// The longest sleep. A wake-up that got lost costs no more than this.
const SLEEP: Duration = Duration::from_millis(100);
/// How long a reader sleeps that no writer can wake: the shorter time up to this many polls after the last record, then
/// the longer one.
const POLL_MIN: Duration = Duration::from_millis(1);
const POLL_MAX: Duration = Duration::from_millis(10);
const POLLS: u32 = 8 * LOOKS;

/// A record in the mapped segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number: dense, from 0, never used twice.
    pub sequence: u64,
    /// When it was appended, in ns since 1970. Earlier than a record before only where a clock was set back.
    pub time_ns: u64,
    /// The body.
    pub body: &'a [u8],
    /// The checksum of the body alone.
    pub(crate) body_crc: u32,
}

impl<'a> Record<'a> {
    /// The checksum by which the record is recognised: [`checksum_of`](crate::checksum_of) its number, time and body.
    #[inline]
    #[must_use]
    pub fn checksum(&self) -> u32 {
        bookmark::checksum_from(self.body_crc, self.sequence, self.time_ns)
    }

    /// A record with this number, time and body.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn new(sequence: u64, time_ns: u64, body: &'a [u8]) -> Self {
        Record {
            sequence,
            time_ns,
            body,
            body_crc: checksum::append(0, body),
        }
    }

    /// The position after the record.
    #[inline]
    #[must_use]
    pub fn bookmark(&self) -> Bookmark {
        Bookmark::after(self.sequence, self.checksum())
    }
}

/// How to wait for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Poll continuously: the lowest latency, at the cost of a core.
    Spin,
    /// Poll at increasing intervals, up to a millisecond.
    BackOff,
    /// Poll for a few microseconds, then sleep until a writer wakes this reader. A reader that may not store to the
    /// file `control` of the journal is not woken: it polls every millisecond, and every 10 ms after a second or two
    /// without a record.
    Block,
}

/// Reads a journal from any position on.
///
/// ```
/// use millstream_journal::{Journal, Options};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("numbers");
/// let journal = Journal::open(&path, Options::default())?;
/// journal.writer()?.append_many((0..100).map(|n| n.to_string()))?;
///
/// let mut reader = Journal::open(&path, Options::read_only())?.reader()?;
/// assert_eq!(reader.read(42)?.body, b"42");
/// let mut bytes = 0;
/// reader.seek(0)?;
/// while let Some(record) = reader.next()? {
///     bytes += record.body.len();
/// }
/// assert_eq!(bytes, 190);
/// let time_ns = reader.read(50)?.time_ns; // nanoseconds since 1970
/// reader.seek_time(time_ns)?;
/// assert_eq!(reader.peek_time()?, Some(time_ns));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reader<S: Storage = Mapped> {
    journal: Journal<S>,
    segment: SegmentOf<S>,
    /// The next frame: where it begins, and the record's number.
    at: u64,
    sequence: u64,
    /// Frames from here on do not count, though they may look valid: a recovery would clear them.
    limit: u64,
    /// Pages up to here were asked for.
    populated: u64,
    looks: u32,
    /// How long to back off at the end, while records come in quick succession; 0 when they do not.
    backoff: u32,
    /// The journal's number of cuts when this reader came to its segment.
    cuts: u64,
    visited: Visited<S>,
}

impl<S: Storage> Reader<S> {
    pub(crate) fn new(journal: Journal<S>) -> Result<Self> {
        let core = journal.core();
        let segment = core.first_open()?;
        let sequence = core.base(&segment)?;
        let mut reader = Reader {
            at: 0,
            sequence,
            limit: 0,
            populated: 0,
            looks: 0,
            backoff: 0,
            cuts: 0,
            visited: Visited::default(),
            segment,
            journal,
        };
        let start = Mark {
            offset: reader.segment.data_start(),
            records: 0,
        };
        reader.move_to(Arc::clone(&reader.segment), sequence, start);
        Ok(reader)
    }

    /// The sequence number of the next record.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.sequence
    }

    /// This position with the checksum of the record before it.
    ///
    /// # Errors
    /// [`Error::Damage`] of that record; a segment that cannot be opened.
    pub fn bookmark(&self) -> Result<Bookmark> {
        let core = self.journal.core();
        core.checked(core.bookmark(&self.segment, self.sequence))
    }

    /// Go to the record `sequence`; [`Journal::next`] is the end.
    ///
    /// # Errors
    /// [`Error::Pruned`], [`Error::NotYet`], [`Error::Damage`] before it in its segment.
    pub fn seek(&mut self, sequence: u64) -> Result<()> {
        let core = Arc::clone(self.journal.core());
        let find = || {
            core.check_sequence(sequence)?;
            let segment = self.visited.locate(&core, sequence, self.cuts_now())?;
            let base = core.base(&segment)?;
            let mark = core.find(&segment, sequence)?;
            Ok((segment, base, mark))
        };
        let (segment, base, mark) = core.checked(find())?;
        self.move_to(segment, base, mark);
        if self.visited.moved_to(&core, &self.segment, base, self.cuts) {
            // It may read one record and move on: what is near is not asked for, but comes as it is read.
            self.populated = self.at + NEAR;
        }
        Ok(())
    }

    /// Go to the first record with a time of `time_ns` (ns since 1970) or later, or to the end. Records after it may be
    /// earlier where a clock was set back.
    ///
    /// # Errors
    /// [`Error::Damage`] before it in its segment.
    pub fn seek_time(&mut self, time_ns: u64) -> Result<()> {
        let core = Arc::clone(self.journal.core());
        let found = self.seek_time_in(&core, time_ns);
        core.checked(found)
    }

    fn seek_time_in(&mut self, core: &Core<S>, time_ns: u64) -> Result<()> {
        let segment = core.last_segment(|segment, base| {
            let before = core.latest_before(segment, base)?;
            Ok(before.is_some_and(|before_ns| before_ns < time_ns))
        })?;
        self.move_to_time(core, segment, time_ns)
    }

    /// Move to the first record from this segment on with a time of `time_ns` or later, or to the end.
    fn move_to_time(
        &mut self,
        core: &Core<S>,
        mut segment: SegmentOf<S>,
        time_ns: u64,
    ) -> Result<()> {
        loop {
            let search = core.times(&segment)?;
            let found = search.first_from(time_ns);
            let mark = found.map_err(|offset| core.unsound(&segment, offset))?;
            if !search.is_end(mark) {
                let base = search.base;
                self.move_to(segment, base, mark);
                return Ok(());
            }
            // What was later than all records here is pruned.
            let next = segment.number() + 1;
            segment = match core.segment(next) {
                Err(_) if core.first_segment() > next => core.first_open()?,
                segment => segment?,
            };
        }
    }

    /// Go after the last record with a time before `time_ns` (ns since 1970), or to the first record. That is where
    /// [`seek_time`](Self::seek_time) goes, unless a clock was set back: each record with a time before `time_ns` is
    /// before this position, and each other one is at that position or after it.
    ///
    /// # Errors
    /// [`Error::Damage`] in the segments that are searched, from the last one on.
    pub fn seek_time_end(&mut self, time_ns: u64) -> Result<()> {
        let core = Arc::clone(self.journal.core());
        let found = self.seek_time_end_in(&core, time_ns);
        core.checked(found)
    }

    fn seek_time_end_in(&mut self, core: &Core<S>, time_ns: u64) -> Result<()> {
        let mut number = core.tail_segment();
        loop {
            let segment = match core.segment(number) {
                // Retention has removed it meanwhile, and all before it.
                Err(_) if number < core.first_segment() => core.first_open()?,
                segment => segment?,
            };
            let found = core.times(&segment)?.last_before(time_ns);
            let found = found.map_err(|offset| core.unsound(&segment, offset))?;
            let is_first = segment.number() <= core.first_segment();
            let start = is_first.then_some(Mark {
                offset: segment.data_start(),
                records: 0,
            });
            if let Some(mark) = found.or(start) {
                self.move_to(Arc::clone(&segment), core.base(&segment)?, mark);
                return Ok(());
            }
            number = segment.number() - 1;
        }
    }

    fn move_to(&mut self, segment: SegmentOf<S>, base: u64, mark: Mark) {
        let core = self.journal.core();
        let planned = core.plan().is_some() && core.tail_segment() == segment.number();
        self.limit = if planned {
            core.tail(&segment).offset
        } else {
            u64::MAX
        };
        self.at = mark.offset;
        self.sequence = base + mark.records;
        self.populated = mark.offset;
        self.segment = segment;
        self.looks = 0;
        self.cuts = self.cuts_now();
    }

    /// The next record, or `None` while there is none.
    ///
    /// # Errors
    /// [`Error::Damage`] when the record is missing or differs from what was appended; [`Error::Pruned`] when it was
    /// removed.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "a record borrows from its reader, which an iterator cannot say"
    )]
    #[expect(unsafe_code, reason = "the body of a published frame does not change")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        let Some(found) = self.advance()? else {
            return Ok(None);
        };
        Ok(Some(Record {
            sequence: found.sequence,
            time_ns: self.segment.time_ns(found.at),
            // SAFETY: `advance` has loaded the head from there, and no process stores to a published frame while others
            // have the journal open.
            body: unsafe { self.segment.body(found.at, found.head) },
            body_crc: found.body_crc,
        }))
    }

    /// The next record, in a form that may be kept.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    #[inline]
    pub fn next_pinned(&mut self) -> Result<Option<PinnedRecord<S>>> {
        let found = self.advance()?;
        Ok(found.map(|found| PinnedRecord::new(Arc::clone(&self.segment), found)))
    }

    /// Find the next record, check it, and skip it.
    #[inline(always)]
    fn advance(&mut self) -> Result<Option<FoundRecord>> {
        match self.next_in_memory() {
            Some((head, body_crc)) if !fault::any() => Ok(Some(self.pass(head, body_crc))),
            _ => self.advance_slowly(),
        }
    }

    /// The head of a sound record that is here, within what is in memory, and the checksum of its body. All that this
    /// takes stays in registers.
    #[inline(always)]
    fn next_in_memory(&self) -> Option<(Head, u32)> {
        let frame = Published::at(&self.segment, self.at).ok()??;
        let here = frame.kind == Kind::Record
            && self.at < self.limit
            && self.at + frame.bytes() <= self.populated;
        if !here {
            return None;
        }
        let body_crc = frame.sound_body_crc(self.sequence)?;
        Some((*frame, body_crc))
    }

    #[inline(always)]
    fn pass(&mut self, head: Head, body_crc: u32) -> FoundRecord {
        let at = self.at;
        let sequence = self.sequence;
        self.at = at + head.bytes();
        self.sequence = sequence + 1;
        if self.looks > 0 {
            self.backoff = if self.looks < SOON { BACKOFF_MIN } else { 0 };
            self.looks = 0;
        }
        FoundRecord {
            sequence,
            at,
            head,
            body_crc,
        }
    }

    #[cold]
    fn advance_slowly(&mut self) -> Result<Option<FoundRecord>> {
        let found = self.advance_unchecked();
        self.check()?;
        found
    }

    fn advance_unchecked(&mut self) -> Result<Option<FoundRecord>> {
        while let Some(head) = self.next_head()? {
            if self.at + head.bytes() > self.populated {
                self.populate(self.at + head.bytes());
            }
            if let Some(body_crc) = self.sound_body_crc(head) {
                return Ok(Some(self.pass(head, body_crc)));
            }
            self.report_damage("a frame does not match its checksum")?;
        }
        Ok(None)
    }

    /// The checksum of the body, if the frame at this position still has this head, and is sound.
    #[inline]
    fn sound_body_crc(&self, head: Head) -> Option<u32> {
        match Published::at(&self.segment, self.at) {
            Ok(Some(frame)) if *frame == head => frame.sound_body_crc(self.sequence),
            _ => None,
        }
    }

    /// Advance to the next record, past the ends of segments. Returns its head, whose checksum is not examined yet.
    #[inline]
    fn next_head(&mut self) -> Result<Option<Head>> {
        loop {
            if self.at >= self.limit {
                if !self.is_limit_lifted() {
                    return Ok(None);
                }
                self.limit = u64::MAX;
            }
            match self.segment.head(self.at) {
                Ok(Some(head)) if head.kind == Kind::Record => return Ok(Some(head)),
                Ok(Some(head)) if self.sound_body_crc(head).is_some() => self.follow()?,
                Ok(Some(_)) => self.report_damage("an end frame does not match its checksum")?,
                Ok(None) if self.backoff > 0 && self.looks == 0 => self.back_off(),
                Ok(None) if self.is_end()? => return Ok(None),
                Ok(None) => {}
                Err(what) => self.report_damage(what)?,
            }
        }
    }

    /// This reader has caught up with a writer that appends without pauses. Each poll of the next word takes its cache
    /// line away from the writer, which waits for the line: a reader that polls less often gets more records. So back
    /// off until there are some records, for longer each time, up to about a microsecond.
    #[cold]
    fn back_off(&mut self) {
        for _ in 0..self.backoff {
            std::hint::spin_loop();
        }
        self.backoff = match self.segment.region().load(self.at) {
            0 => 0,
            _ => (self.backoff * 2).min(BACKOFF_MAX),
        };
    }

    /// The next record, or `None` while there is none. The position does not change.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    #[expect(unsafe_code, reason = "the body of a published frame does not change")]
    pub fn peek(&mut self) -> Result<Option<Record<'_>>> {
        let Some(found) = self.advance()? else {
            return Ok(None);
        };
        self.at = found.at;
        self.sequence = found.sequence;
        Ok(Some(Record {
            sequence: found.sequence,
            time_ns: self.segment.time_ns(found.at),
            // SAFETY: as in `next`.
            body: unsafe { self.segment.body(found.at, found.head) },
            body_crc: found.body_crc,
        }))
    }

    /// When the next record was appended (ns since 1970), or `None` while there is none. The position does not change.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn peek_time(&mut self) -> Result<Option<u64>> {
        Ok(self.peek()?.map(|record| record.time_ns))
    }

    /// The sequence number of the first record of this reader's segment. Retention removes no part of a segment.
    ///
    /// # Errors
    /// A segment that has no header.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn segment_start(&self) -> Result<u64> {
        self.journal.core().base(&self.segment)
    }

    /// Read one record, at any position. The reader continues after that record.
    ///
    /// # Errors
    /// As [`seek`](Self::seek) and [`next`](Self::next).
    pub fn read(&mut self, sequence: u64) -> Result<Record<'_>> {
        if sequence != self.sequence {
            self.seek(sequence)?;
        }
        let core = Arc::clone(self.journal.core());
        self.next()?.ok_or_else(|| Error::NotYet {
            path: core.path(),
            sequence,
            next: sequence,
        })
    }

    /// Wait until there is a record, for `limit` at most. Returns whether there is one.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn wait(&mut self, wait: Wait, limit: Option<Duration>) -> Result<bool> {
        let came = self.wait_for_one(wait, limit);
        self.check()?;
        came
    }

    fn wait_for_one(&mut self, wait: Wait, limit: Option<Duration>) -> Result<bool> {
        let core = Arc::clone(self.journal.core());
        let mut start = None;
        let mut pause = PAUSE_MIN;
        let mut looks = 0_u64;
        while self.next_head()?.is_none() {
            looks += 1;
            let round = looks.is_multiple_of(u64::from(LOOKS));
            if !round && (wait == Wait::Spin || looks < u64::from(LOOKS)) {
                std::hint::spin_loop();
                continue;
            }
            core.check_presence()?;
            let now = core.options.host.monotonic();
            let waited = now.saturating_sub(*start.get_or_insert(now));
            let left = limit.map_or(SLEEP, |limit| limit.saturating_sub(waited));
            if left.is_zero() {
                return Ok(false);
            }
            match wait {
                Wait::Spin => {}
                Wait::BackOff => {
                    self.pause(pause.min(left));
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Wait::Block => self.sleep(SLEEP.min(left)),
            }
        }
        Ok(true)
    }

    /// Whether a recovery has cleared the torn end at this position, so that records may follow.
    #[cold]
    fn is_limit_lifted(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        self.looks % LOOKS == 1 && self.journal.core().is_recovered()
    }

    /// Whether the missing record is the end, so far. A closer check takes cache lines away from writers, so it happens
    /// at the first poll and rarely afterwards.
    #[inline]
    fn is_end(&mut self) -> Result<bool> {
        self.looks = self.looks.wrapping_add(1);
        let end = match self.looks % LOOKS {
            1 => self.is_end_confirmed()?,
            _ => true,
        };
        self.check()?;
        Ok(end)
    }

    /// An error if the file system has failed under what was loaded so far, or under a record that was returned before.
    #[inline(always)]
    fn check(&self) -> Result<()> {
        if fault::any() {
            self.journal.core().check_with(&self.segment)
        } else {
            Ok(())
        }
    }

    #[cold]
    fn is_end_confirmed(&mut self) -> Result<bool> {
        let core = self.journal.core();
        if self.looks > LOOKS {
            core.check_presence()?;
        }
        let behind = core.tail(&self.segment).offset > self.at
            || core.tail_segment() > self.segment.number();
        if !behind && self.cuts == self.cuts_now() {
            return Ok(true);
        }
        // The tail moved after the frame was published: it is there now, or it is lost.
        if self.segment.region().load(self.at) == 0 {
            self.report_damage("a frame that was written is missing")?;
        }
        Ok(false)
    }

    /// The frame here cannot be read, because it is damaged, or because it was cut and replaced.
    #[cold]
    fn report_damage(&mut self, what: &str) -> Result<()> {
        self.check()?;
        if self.cuts == self.cuts_now() {
            return Err(self.journal.core().damage(&self.segment, self.at, what));
        }
        self.seek(self.sequence)
    }

    fn cuts_now(&self) -> u64 {
        let control = self.journal.core().live_control();
        control.map_or(0, Control::cuts)
    }

    fn pause(&self, pause: Duration) {
        match self.journal.core().live_control() {
            Some(control) => control.rest(pause),
            None => self.segment.region().wait(self.at, 0, pause),
        }
    }

    fn sleep(&mut self, limit: Duration) {
        let core = self.journal.core();
        if let Some(control) = core.waking_control() {
            control.sleep_until(limit, || self.segment.region().load(self.at) != 0);
        } else if core.live_control().is_some() {
            // Without permission to announce that it sleeps, a reader is not woken.
            let poll = if self.looks < POLLS {
                POLL_MIN
            } else {
                POLL_MAX
            };
            self.pause(limit.min(poll));
        } else {
            // No record comes before another process recovers the journal: check for that next.
            self.pause(limit.min(POLL_MAX));
            self.looks = 0;
        }
    }

    /// Continue in the next segment.
    #[cold]
    fn follow(&mut self) -> Result<()> {
        let core = Arc::clone(self.journal.core());
        let number = self.segment.number() + 1;
        let next = match core.segment(number) {
            Ok(next) => next,
            Err(error) if core.first_segment() > number => {
                drop(error);
                return Err(Error::Pruned {
                    path: core.path(),
                    sequence: self.sequence,
                    first: core.first()?,
                });
            }
            Err(error) => return Err(error),
        };
        let base = core.base(&next)?;
        if base != self.sequence {
            let what = format!(
                "the segment begins with record {base}, the one before it ends before record {}",
                self.sequence
            );
            return Err(core.damage(&next, 64, what));
        }
        let start = Mark {
            offset: next.data_start(),
            records: 0,
        };
        self.move_to(next, base, start);
        Ok(())
    }

    /// Load the pages that follow into memory. The work in the background does this for a writer's own mapping.
    #[cold]
    fn populate(&mut self, to: u64) {
        let known = self.journal.core().tail(&self.segment).offset;
        let to = to.max((self.at + STEP).min(known));
        if !self.segment.region().is_writable() {
            self.segment.region().populate(self.at, to);
        }
        self.populated = to.max(self.at + STEP / 16);
    }
}

impl<S: Storage> Journal<S> {
    /// A reader at the first record.
    ///
    /// # Errors
    /// A segment that cannot be opened.
    pub fn reader(&self) -> Result<Reader<S>> {
        self.core().checked(Reader::new(self.clone()))
    }
}
