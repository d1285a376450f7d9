//! Appending, under the append lock: place a frame after the tail, publish it, move the tail, roll to the next segment.
//!
//! The invariant: the word at the tail is zero, and a frame is complete before its first word is published. A writer
//! may therefore die or fail between any two stores: a frame that is not published does not exist, and the next append
//! overwrites it.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;

use crate::append::background::Background;
use crate::append::grow;
use crate::append::lock::{self, Acquired, Slot};
use crate::append::stamp::Stamp;
use crate::copies::term;
use crate::core::{Core, SegmentOf};
use crate::error::{Error, Result};
use crate::format::control::Control;
use crate::format::frame::{self, Head, Kind, frame_bytes};
use crate::format::index;
use crate::format::published::Published;
use crate::format::segment::{self, Mark, Times};
use crate::retain::cut;
use crate::storage::{Storage, fault};
use crate::sync::durable::Durable;

/// The state that all writers of one opening share.
pub(crate) struct Appender<S: Storage> {
    pub core: Arc<Core<S>>,
    pub durable: Arc<Durable<S>>,
    slot: Slot<S>,
    /// Of a sole writer.
    _permit: Option<S::Lock>,
    background: Background<S>,
    tail: LockProtected<Tail<S>>,
}

/// A value that only the holder of the append lock touches.
struct LockProtected<T>(UnsafeCell<T>);

#[expect(
    unsafe_code,
    reason = "the append lock lives in shared memory, where the compiler cannot see it"
)]
// SAFETY: the cell is the only field. `AppendLock::tail` and `AppendLock::tail_mut` are the only functions that look
// into it. They borrow an `AppendLock`, of which an `Appender` has one at a time, and a reference from `tail_mut` is
// exclusive because it borrows the lock so. The lock may pass from thread to thread, so `T` is `Send`, and be shared by
// threads, so `T` is `Sync`.
unsafe impl<T: Send + Sync> Sync for LockProtected<T> {}

/// The segment that is appended to, as this process knows it.
struct Tail<S: Storage> {
    segment: SegmentOf<S>,
    base: u64,
    /// Whether a batch is in progress.
    has_unpublished: bool,
}

impl<S: Storage> Tail<S> {
    fn new(core: &Core<S>, segment: SegmentOf<S>) -> Result<Self> {
        Ok(Tail {
            base: core.base(&segment)?,
            has_unpublished: false,
            segment,
        })
    }
}

impl<S: Storage> Appender<S> {
    pub fn new(core: Arc<Core<S>>, durable: Arc<Durable<S>>) -> Result<Self> {
        let control = core.control()?;
        let permit = lock::permit(&core)?;
        term::check(&core)?;
        let slot = Slot::take(Arc::clone(&core))?;
        // A sole writer looks for slots that are locked; it need not see that of others which look for one.
        let permit = core.options.is_alone().then_some(permit);
        let tail = Tail::new(&core, core.segment(control.tail_segment())?)?;
        let background = Background::start(Arc::clone(&core), Arc::clone(&durable))?;
        let appender = Appender {
            slot,
            _permit: permit,
            background,
            tail: LockProtected(UnsafeCell::new(tail)),
            durable,
            core,
        };
        let control = appender.core.control()?;
        if let Some(dead) = appender.slot.was_left_locked(control) {
            #[expect(unsafe_code, reason = "the append lock was found taken")]
            // SAFETY: the lock names the slot of this appender, which no other appender has and which has not locked
            // yet.
            drop(unsafe { appender.repaired(control, dead)? });
        }
        Ok(appender)
    }

    /// Append one record; returns its sequence number.
    #[inline]
    #[expect(unsafe_code, reason = "stores a body at the tail")]
    pub fn append(&self, stamp: Stamp, body: &[u8]) -> Result<u64> {
        let length = self.check_length(body.len())?;
        let body_crc = frame::body_crc(body);
        let mut lock = self.lock()?;
        let (mark, sequence) = lock.room(frame_bytes(length))?;
        // SAFETY: there is room at `mark`, the tail.
        unsafe { lock.store_body(mark, body) };
        lock.commit(mark, sequence, length, body_crc, stamp)?;
        Ok(sequence)
    }

    /// [`append`](Self::append) if that needs no waiting: `None` while another has the lock, or when the next segment
    /// must be begun.
    #[inline]
    #[expect(unsafe_code, reason = "stores a body at the tail")]
    pub fn try_append(&self, stamp: Stamp, body: &[u8]) -> Result<Option<u64>> {
        let length = self.check_length(body.len())?;
        let body_crc = frame::body_crc(body);
        let control = self.ready()?;
        let Some(mut lock) = self.try_lock(control) else {
            return Ok(None);
        };
        let room = lock.room_in_segment(frame_bytes(length));
        lock.check()?;
        let Some((mark, sequence)) = room else {
            return Ok(None);
        };
        // SAFETY: there is room at `mark`, the tail.
        unsafe { lock.store_body(mark, body) };
        lock.commit(mark, sequence, length, body_crc, stamp)?;
        Ok(Some(sequence))
    }

    /// Append records in a row. Readers see those that fall into one segment at once, or none of them.
    pub fn append_many<B: AsRef<[u8]>>(
        &self,
        stamp: Stamp,
        bodies: impl IntoIterator<Item = B>,
    ) -> Result<Range<u64>> {
        let mut lock = self.lock()?;
        let (mark, first) = lock.room(0)?;
        let mut batch = lock.begin(mark)?;
        let mut sequence = first;
        let mut bodies = bodies.into_iter();
        while let Some(body) = bodies.next() {
            let body = body.as_ref();
            let length = self.check_length(body.len())?;
            if !lock.fits(&batch, length) {
                let end = self.append_rest(lock, batch, stamp, sequence, body, bodies)?;
                return Ok(first..end);
            }
            lock.put(&mut batch, sequence, length, body, stamp);
            sequence += 1;
        }
        lock.finish(&batch)?;
        Ok(first..sequence)
    }

    /// Append the rest of a batch that the segment has no room for. Before any part of the batch is published, all of
    /// the rest is checked and the next segment exists: a batch that needs at most one more segment is appended
    /// completely or not at all.
    #[cold]
    fn append_rest<B: AsRef<[u8]>>(
        &self,
        mut lock: AppendLock<'_, S>,
        mut batch: Batch,
        stamp: Stamp,
        mut sequence: u64,
        body: &[u8],
        bodies: impl Iterator<Item = B>,
    ) -> Result<u64> {
        let rest: Vec<B> = bodies.collect();
        for body in &rest {
            self.check_length(body.as_ref().len())?;
        }
        for body in std::iter::once(body).chain(rest.iter().map(AsRef::as_ref)) {
            let length = self.check_length(body.len())?;
            if !lock.fits(&batch, length) {
                let next = lock.next_segment(frame_bytes(length))?;
                lock.finish(&batch)?;
                let mark = lock.roll(next, lock.tail().segment.tail())?;
                batch = lock.begin(mark)?;
            }
            lock.put(&mut batch, sequence, length, body, stamp);
            sequence += 1;
        }
        lock.finish(&batch)?;
        Ok(sequence)
    }

    /// [`append`](Self::append) with what is in reserve, when the disk has no room for another segment.
    #[cold]
    pub fn append_reserved(&self, stamp: Stamp, body: &[u8]) -> Result<u64> {
        match self.append(stamp, body) {
            Err(Error::DiskFull { .. }) => {
                let mut lock = self.lock()?;
                let next = grow::take_spare(&self.core, lock.tail().segment.number() + 1)?;
                lock.roll(next, lock.tail().segment.tail())?;
                drop(lock);
                self.append(stamp, body)
            }
            appended => appended,
        }
    }

    /// Continue in a new segment of the smallest size; uses the reserve if the disk is full.
    #[cold]
    pub fn begin_segment(&self) -> Result<()> {
        let mut lock = self.lock()?;
        lock.follow()?;
        let number = lock.tail().segment.number() + 1;
        self.background.discard();
        grow::remove(&self.core, number)?;
        let next = match grow::create_small(&self.core, number) {
            Err(Error::DiskFull { .. }) => grow::take_spare(&self.core, number)?,
            made => made?,
        };
        lock.roll(next, lock.tail().segment.tail())?;
        Ok(())
    }

    /// The size of the segment that is appended to.
    pub fn segment_bytes(&self) -> Result<u64> {
        let number = self.core.control()?.tail_segment();
        Ok(self.core.segment(number)?.bytes())
    }

    /// Take the append lock and room for a record of up to `length_max` bytes.
    pub fn claim(&self, length_max: usize) -> Result<Reservation<'_, S>> {
        let length_max = self.check_length(length_max)?;
        let mut lock = self.lock()?;
        let (mark, sequence) = lock.room(frame_bytes(length_max))?;
        Ok(Reservation {
            lock,
            mark,
            sequence,
            length_max,
        })
    }

    /// Drop the records from `sequence` on.
    pub fn cut(&self, sequence: u64) -> Result<()> {
        self.durable.sync()?;
        let mut lock = self.lock()?;
        self.background.discard();
        if cut::cut(&self.core, sequence, &lock.tail().segment)? {
            lock.follow()
        } else {
            Ok(())
        }
    }

    /// Do what a thread in the background would do now.
    #[cfg(feature = "simulation")]
    pub fn background(&self) {
        self.background.turn();
    }

    #[inline]
    fn check_length(&self, bytes: usize) -> Result<u32> {
        let limit = self.record_bytes_max();
        if bytes as u64 > limit {
            return Err(Error::RecordTooLarge {
                bytes: bytes as u64,
                limit,
            });
        }
        Ok(bytes as u32)
    }

    /// The longest body that is appended.
    #[inline]
    pub fn record_bytes_max(&self) -> u64 {
        u64::from(self.core.options.record_bytes_max).min(self.capacity())
    }

    /// The longest body that fits a segment of its own.
    #[inline]
    fn capacity(&self) -> u64 {
        self.core.segment_bytes - segment::data_start(self.core.segment_bytes) - 2 * frame::HEADER
    }

    /// The control page, if this process may append.
    #[inline]
    fn ready(&self) -> Result<&Control<S::Region>> {
        let control = self.core.control()?;
        self.core.check_fork()?;
        if control.is_stopped() {
            term::stopped(&self.core)?;
        }
        Ok(control)
    }

    #[inline(always)]
    fn lock(&self) -> Result<AppendLock<'_, S>> {
        let control = self.ready()?;
        match self.try_lock(control) {
            Some(lock) => Ok(lock),
            None => self.wait_for_lock(control),
        }
    }

    /// The append lock, if it is free.
    #[inline(always)]
    #[expect(unsafe_code, reason = "the append lock was taken")]
    fn try_lock<'a>(&'a self, control: &'a Control<S::Region>) -> Option<AppendLock<'a, S>> {
        let is_locked = self.slot.try_lock(control);
        // SAFETY: the slot of this appender has just taken the lock.
        is_locked.then(|| unsafe { AppendLock::new(self, control) })
    }

    #[cold]
    #[expect(unsafe_code, reason = "the append lock was taken")]
    fn wait_for_lock<'a>(&'a self, control: &'a Control<S::Region>) -> Result<AppendLock<'a, S>> {
        match self.slot.lock(control)? {
            // SAFETY: the slot of this appender has just taken the lock.
            Acquired::Free => Ok(unsafe { AppendLock::new(self, control) }),
            // SAFETY: the slot of this appender has just inherited the lock.
            Acquired::From(dead) => unsafe { self.repaired(control, dead) },
        }
    }

    /// The append lock after the writer in the slot `dead`, with the tail repaired. If the repair fails, the lock stays
    /// with `dead`, so that the next writer repairs first too.
    ///
    /// # Safety
    /// The slot of this appender holds the append lock, and no [`AppendLock`] stands for it.
    #[cold]
    #[expect(unsafe_code, reason = "the append lock was taken")]
    unsafe fn repaired<'a>(
        &'a self,
        control: &'a Control<S::Region>,
        dead: u64,
    ) -> Result<AppendLock<'a, S>> {
        // SAFETY: the same contract.
        let mut lock = unsafe { AppendLock::new(self, control) };
        match lock.repair() {
            Ok(()) => Ok(lock),
            Err(error) => {
                std::mem::forget(lock);
                self.slot.give_back(control, dead);
                Err(error)
            }
        }
    }
}

/// The held append lock: methods that only its holder may call take this type. Dropping it unlocks. It is two words
/// that stay in registers: a load of another width right after a store costs as much as a locked instruction.
pub(crate) struct AppendLock<'a, S: Storage> {
    appender: &'a Appender<S>,
    control: &'a Control<S::Region>,
}

/// Room for one record at the tail, and the append lock that keeps it. Dropping it leaves the journal as it was.
pub(crate) struct Reservation<'a, S: Storage> {
    lock: AppendLock<'a, S>,
    /// The tail, since the lock was taken.
    mark: Mark,
    sequence: u64,
    length_max: u32,
}

impl<S: Storage> Reservation<'_, S> {
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// How many records the segment holds before this one.
    pub fn records_before(&self) -> u64 {
        self.mark.records
    }

    pub fn length_max(&self) -> u32 {
        self.length_max
    }

    #[inline]
    #[expect(
        unsafe_code,
        reason = "memory after the tail belongs to the holder of the append lock"
    )]
    pub fn body(&self) -> &[u8] {
        // SAFETY: as in `body_mut`; the slice is for reading, and the only one for storing borrows `self` mutably.
        unsafe {
            self.lock
                .tail()
                .segment
                .claim(self.mark.offset, self.length_max)
        }
    }

    /// The body, to be filled.
    #[inline]
    #[expect(
        unsafe_code,
        reason = "memory after the tail belongs to the holder of the append lock"
    )]
    pub fn body_mut(&mut self) -> &mut [u8] {
        // SAFETY: the lock is held, and nothing was committed since `mark` was the tail, so that no reader looks there
        // and no other writer stores; other slices borrow `self`.
        unsafe {
            self.lock
                .tail()
                .segment
                .claim(self.mark.offset, self.length_max)
        }
    }

    /// Publishes the record with the first `length` bytes of the body, which have this checksum.
    #[expect(
        unsafe_code,
        reason = "memory after the tail belongs to the holder of the append lock"
    )]
    pub fn commit(mut self, length: u32, body_crc: u32, stamp: Stamp) -> Result<()> {
        let Reservation { mark, sequence, .. } = self;
        // SAFETY: as in `body_mut`; no slice is left.
        unsafe { self.lock.tail().segment.claimed(mark.offset, length) };
        self.lock.commit(mark, sequence, length, body_crc, stamp)
    }
}

/// Frames that are complete but for the first word of the first one.
struct Batch {
    start: Mark,
    end: Mark,
    first: Option<Head>,
    times: Times,
}

impl<'a, S: Storage> AppendLock<'a, S> {
    /// # Safety
    /// The slot of `appender` holds the append lock, and no other `AppendLock` stands for it.
    #[inline]
    #[expect(unsafe_code, reason = "what follows from the lock is safe")]
    unsafe fn new(appender: &'a Appender<S>, control: &'a Control<S::Region>) -> Self {
        AppendLock { appender, control }
    }

    #[inline]
    #[expect(unsafe_code, reason = "the append lock is lock")]
    fn tail(&self) -> &Tail<S> {
        // SAFETY: `self` is the only lock of its appender, and a mutable borrow of the tail borrows it mutably.
        unsafe { &*self.appender.tail.0.get() }
    }

    #[inline]
    #[expect(unsafe_code, reason = "the append lock is lock")]
    fn tail_mut(&mut self) -> &mut Tail<S> {
        // SAFETY: `self` is the only lock of its appender, and is borrowed mutably for as long as the tail is.
        unsafe { &mut *self.appender.tail.0.get() }
    }

    /// The mark for a frame of `bytes`, and its sequence number. Rolls when the segment is full.
    #[inline(always)]
    fn room(&mut self, bytes: u64) -> Result<(Mark, u64)> {
        match self.room_in_segment(bytes) {
            Some(room) if !fault::any() => Ok(room),
            _ => self.room_slowly(bytes),
        }
    }

    #[cold]
    fn room_slowly(&mut self, bytes: u64) -> Result<(Mark, u64)> {
        self.check()?;
        let room = self.find_room(bytes);
        self.check()?;
        room
    }

    fn find_room(&mut self, bytes: u64) -> Result<(Mark, u64)> {
        if self.control.tail_segment() != self.tail().segment.number() {
            self.follow()?;
        }
        let room = self.room_in_segment(bytes);
        self.check()?;
        if let Some(room) = room {
            return Ok(room);
        }
        let next = self.next_segment(bytes)?;
        let mark = self.roll(next, self.tail().segment.tail())?;
        Ok((mark, self.tail().base + mark.records))
    }

    /// An error if the file system has failed any load or store so far. Called before each store that others may see.
    #[inline(always)]
    fn check(&self) -> Result<()> {
        self.appender.core.check()
    }

    /// [`room`](Self::room) in the segment that this process appends to, if that is still the last one.
    #[inline(always)]
    fn room_in_segment(&self, bytes: u64) -> Option<(Mark, u64)> {
        let tail = self.tail();
        let mark = tail.segment.tail();
        let here = self.control.tail_segment() == tail.segment.number()
            && tail.segment.fits(mark.offset, bytes);
        here.then(|| (mark, tail.base + mark.records))
    }

    /// Publish the frame at `mark`, whose body is in place.
    #[inline(always)]
    fn commit(
        &mut self,
        mark: Mark,
        sequence: u64,
        length: u32,
        body_crc: u32,
        stamp: Stamp,
    ) -> Result<()> {
        let (head, next, times) = self.complete(mark, sequence, length, body_crc, stamp);
        self.check()?;
        let segment = &self.tail().segment;
        segment.publish(mark.offset, head);
        // The tail counts no frame that is not there.
        self.check()?;
        segment.set_tail(next, times);
        segment.expect(next.offset, head.bytes());
        if next.offset >= self.appender.background.notice_at() {
            self.notice(next.offset);
        }
        self.check()
    }

    /// Begins a batch at `mark`. Until the batch is published, its later frames look valid. If the batch is abandoned
    /// and other records are appended in its place, a loss of power could restore these frames; they are therefore
    /// cleared first.
    fn begin(&mut self, mark: Mark) -> Result<Batch> {
        self.tail_mut().has_unpublished = true;
        self.control.set_unpublished(true);
        self.check()?;
        Ok(Batch {
            start: mark,
            end: mark,
            first: None,
            times: Times::default(),
        })
    }

    /// Whether the segment has room for another record of the batch.
    #[inline]
    fn fits(&self, batch: &Batch, length: u32) -> bool {
        let segment = &self.tail().segment;
        segment.fits(batch.end.offset, frame_bytes(length))
    }

    /// Adds a record to the batch, not yet visible. Callers often know its length, and that goes into the copy and the
    /// checksum.
    #[inline(always)]
    #[expect(unsafe_code, reason = "stores a body after the tail")]
    fn put(&mut self, batch: &mut Batch, sequence: u64, length: u32, body: &[u8], stamp: Stamp) {
        // SAFETY: `batch` ends at or after the tail, and readers see nothing of it before its first word is published.
        unsafe { self.store_body(batch.end, body) };
        self.add(batch, sequence, length, frame::body_crc(body), stamp);
    }

    /// Stores a body into the frame at `mark`.
    ///
    /// # Safety
    /// `mark` is the tail of the segment that this lock appends to, or the end of a batch that begins there: no reader
    /// looks at the bytes.
    #[inline(always)]
    #[expect(unsafe_code, reason = "stores a body after the tail")]
    unsafe fn store_body(&mut self, mark: Mark, body: &[u8]) {
        // SAFETY: no reader looks there, as the caller vouches, and no writer does without the append lock, which is
        // borrowed mutably.
        unsafe { self.tail().segment.store_body(mark.offset, body) };
    }

    /// Adds a frame to the batch, not yet visible.
    #[inline]
    fn add(&mut self, batch: &mut Batch, sequence: u64, length: u32, body_crc: u32, stamp: Stamp) {
        let at = batch.end;
        let (head, next, times) = self.complete(at, sequence, length, body_crc, stamp);
        match batch.first {
            None => batch.first = Some(head),
            Some(_) => self.tail().segment.publish(at.offset, head),
        }
        batch.end = next;
        batch.times = times;
    }

    /// All of a frame but its first word. Returns that, the mark after the frame, and the times up to there.
    #[inline(always)]
    fn complete(
        &self,
        at: Mark,
        sequence: u64,
        length: u32,
        body_crc: u32,
        stamp: Stamp,
    ) -> (Head, Mark, Times) {
        let segment = &self.tail().segment;
        let before = segment.times();
        let time_ns = stamp.after(before.last_ns);
        if time_ns < before.last_ns && at.records > 0 {
            segment.set_disordered();
        }
        let head = segment.complete(at.offset, Kind::Record, length, body_crc, sequence, time_ns);
        let next = Mark {
            offset: at.offset + head.bytes(),
            records: at.records + 1,
        };
        index::note(segment, at.offset, next);
        let times = Times {
            last_ns: time_ns,
            latest_ns: time_ns.max(before.latest_ns),
        };
        (head, next, times)
    }

    /// Publish a batch.
    fn finish(&mut self, batch: &Batch) -> Result<()> {
        self.check()?;
        if let Some(head) = batch.first {
            let segment = &self.tail().segment;
            segment.publish(batch.start.offset, head);
            self.check()?;
            segment.set_tail(batch.end, batch.times);
        }
        self.control.set_unpublished(false);
        self.tail_mut().has_unpublished = false;
        if batch.end.offset >= self.appender.background.notice_at() {
            self.notice(batch.end.offset);
        }
        self.check()
    }

    /// Clear what a batch has left that was not published.
    #[cold]
    fn clear_unpublished(&self) -> Result<()> {
        let segment = &self.tail().segment;
        let from = segment.tail().offset;
        self.appender
            .core
            .attempt_sync(segment, || segment.clear(from))?;
        self.control.set_unpublished(false);
        Ok(())
    }

    #[cold]
    fn notice(&self, offset: u64) {
        let segment = Arc::clone(&self.tail().segment);
        self.appender.background.notice(segment, offset);
    }

    /// Go to the segment that is appended to now: another process has rolled, or records were cut.
    #[cold]
    fn follow(&mut self) -> Result<()> {
        self.move_to_segment(self.control.tail_segment())
    }

    fn move_to_segment(&mut self, number: u64) -> Result<()> {
        let core = &self.appender.core;
        let next = Tail::new(core, core.segment(number)?)?;
        self.enter(next);
        Ok(())
    }

    fn enter(&mut self, next: Tail<S>) {
        let last = std::mem::replace(self.tail_mut(), next);
        self.appender.background.retire(last.segment);
    }

    /// The segment after this one, made and not begun.
    #[cold]
    fn next_segment(&self, frame_bytes: u64) -> Result<SegmentOf<S>> {
        let number = self.tail().segment.number() + 1;
        let taken = self.appender.background.take(number, frame_bytes);
        if taken.is_err() {
            // A directory that is gone explains it better.
            self.appender.core.check_presence_now()?;
        }
        taken
    }

    /// End the segment at `mark` and begin the `next` one.
    #[cold]
    fn roll(&mut self, next: SegmentOf<S>, mark: Mark) -> Result<Mark> {
        let core = &self.appender.core;
        core.check_presence()?;
        let number = next.number();
        let segment = &self.tail().segment;
        let sequence = self.tail().base + mark.records;
        let times = segment.times();
        next.begin(sequence, times);
        let head = segment.complete(mark.offset, Kind::End, 0, 0, sequence, times.latest_ns);
        core.check_with(&next)?;
        // The roll happens here: a reader of this frame continues in the next segment.
        segment.publish(mark.offset, head);
        core.check()?;
        self.control.set_tail_segment(number);
        let next = Tail::new(core, next)?;
        self.enter(next);
        Ok(self.tail().segment.tail())
    }

    /// Complete the work of a writer that died: count the frames that it published, and skip the rest.
    #[cold]
    fn repair(&mut self) -> Result<()> {
        self.follow()?;
        loop {
            let core = &self.appender.core;
            let Tail { segment, base, .. } = self.tail();
            let mut mark = segment.tail();
            let mut times = segment.times();
            let ended = loop {
                let frame = match Published::at(segment, mark.offset)
                    .map_err(|what| core.damage(segment, mark.offset, what))?
                {
                    None => break false,
                    Some(frame) => frame,
                };
                if !frame.is_sound(base + mark.records) {
                    return Err(core.damage(
                        segment,
                        mark.offset,
                        "a frame does not match its checksum",
                    ));
                }
                if frame.kind == Kind::End {
                    break true;
                }
                times.last_ns = frame.time_ns();
                times.latest_ns = times.latest_ns.max(frame.time_ns());
                mark.offset += frame.bytes();
                mark.records += 1;
            };
            core.check()?;
            segment.set_tail(mark, times);
            if !ended {
                return if self.control.has_unpublished() {
                    self.clear_unpublished()
                } else {
                    Ok(())
                };
            }
            let number = segment.number() + 1;
            self.control.set_tail_segment(number);
            // The number is not read back: a killed process of a simulation has stored nothing, and would loop forever.
            self.move_to_segment(number)?;
        }
    }
}

impl<S: Storage> Drop for AppendLock<'_, S> {
    #[inline]
    fn drop(&mut self) {
        if self.tail().has_unpublished && self.check().is_ok() {
            // A failure poisons the journal, which the next append reports.
            let _poisoned = self.clear_unpublished();
        }
        // The tail that this writer knows may be zeros. Other writers repair it, as after a death.
        if self.check().is_err() {
            return self.appender.slot.abandon();
        }
        self.appender.slot.unlock(self.control);
        if self.check().is_err() {
            self.appender.slot.abandon();
        }
    }
}

impl<S: Storage> Drop for Appender<S> {
    fn drop(&mut self) {
        self.background.stop();
    }
}
