//! Appending: one record, several in a row, or straight into the mapped memory.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use crate::append::appender::{Appender, Reservation};
use crate::append::grow;
use crate::append::stamp::Stamp;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::format::frame;
use crate::journal::Journal;
use crate::options::Sync;
use crate::storage::{Mapped, Storage};
use crate::sync::bound::Bound;

/// Appending this many records takes so long that the clock is read again.
const LONG: u64 = 256;

/// Appends to a journal, from any thread.
///
/// An appended record survives the death of this process. [`Options::sync`](crate::Options::sync) says when it also
/// survives a loss of power: with [`Sync::Always`], [`append`](Self::append) waits for that, with [`Sync::Every`] only
/// when a sync is late. [`write`](Self::write) never waits; [`sync`](Self::sync) and
/// [`wait_durable`](Self::wait_durable) do.
pub struct Writer<S: Storage = Mapped> {
    appender: Arc<Appender<S>>,
    journal: Journal<S>,
    /// When an append may return without waiting for a sync.
    bound: Arc<Bound>,
}

impl<S: Storage> Clone for Writer<S> {
    fn clone(&self) -> Self {
        Writer {
            appender: Arc::clone(&self.appender),
            journal: self.journal.clone(),
            bound: Arc::clone(&self.bound),
        }
    }
}

impl<S: Storage> Writer<S> {
    pub(crate) fn new(journal: Journal<S>, appender: Arc<Appender<S>>) -> Self {
        Writer {
            bound: Arc::clone(appender.durable.bound()),
            appender,
            journal,
        }
    }

    /// The journal.
    #[must_use]
    pub fn journal(&self) -> &Journal<S> {
        &self.journal
    }

    /// Append a record with the current time, and wait for durability as `sync` says. Returns its sequence number.
    ///
    /// The time is never earlier than that of a record before, unless the clock shows more than a second less: then the
    /// clock was set back, and counts.
    ///
    /// # Errors
    /// [`Error::RecordTooLarge`], [`Error::DiskFull`] (nothing was appended; it works again when there is room),
    /// [`Error::Busy`], [`Error::Poisoned`], [`Error::Forked`], [`Error::Fault`] (the record may be there or not;
    /// nothing more is appended through this opening), [`Error::Gone`].
    #[inline]
    pub fn append(&self, body: &[u8]) -> Result<u64> {
        let now_ns = self.now_ns();
        let sequence = self.appender.append(Stamp::Clock(now_ns), body)?;
        self.wait_until_acknowledged(now_ns, sequence, sequence + 1)?;
        Ok(sequence)
    }

    /// [`append`](Self::append) without waiting. Returns `None`, and appends nothing, while another writer holds the
    /// append lock, when the segment is full, always with [`Sync::Always`], and while a sync is late with
    /// [`Sync::Every`]. For callers that hold a lock of their own and release it before they wait.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    #[inline]
    pub fn try_append(&self, body: &[u8]) -> Result<Option<u64>> {
        let now_ns = self.now_ns();
        if !self.bound.allows(now_ns) {
            return Ok(None);
        }
        self.appender.try_append(Stamp::Clock(now_ns), body)
    }

    /// Append a record with the given time, in ns since 1970, which is stored as it is. For copies of records.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    #[inline]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn append_at(&self, time_ns: u64, body: &[u8]) -> Result<u64> {
        let sequence = self.appender.append(Stamp::Given(time_ns), body)?;
        self.wait_until_acknowledged_now(sequence, sequence + 1)?;
        Ok(sequence)
    }

    /// Append records in a row: one lock, one time, one sync for all of them. Readers see those that fall into one
    /// segment at once, or none of them. Returns their sequence numbers.
    ///
    /// # Errors
    /// As [`append`](Self::append). After a record that is too large, or without room for the next segment, nothing of
    /// the batch is appended. A batch that is longer than a segment is the exception: when the disk is full for its
    /// third segment or a later one, the records of the segments before stay, and [`Journal::next`] returns how many
    /// they are. After a failed sync all of them are there, and none is acknowledged.
    pub fn append_many<B: AsRef<[u8]>>(
        &self,
        bodies: impl IntoIterator<Item = B>,
    ) -> Result<Range<u64>> {
        let now_ns = self.now_ns();
        let range = self.appender.append_many(Stamp::Clock(now_ns), bodies)?;
        match range.end - range.start {
            0 => {}
            1..LONG => self.wait_until_acknowledged(now_ns, range.start, range.end)?,
            _ => self.wait_until_acknowledged_now(range.start, range.end)?,
        }
        Ok(range)
    }

    /// The longest record that this writer appends, in bytes: the smaller of
    /// [`Options::record_bytes_max`](crate::Options) and what a segment of this journal can hold.
    ///
    /// ```
    /// # use millstream_journal::{Journal, Options};
    /// # let folder = tempfile::tempdir()?;
    /// let options = Options { record_bytes_max: 100, ..Options::default() };
    /// let writer = Journal::open(folder.path(), options)?.writer()?;
    /// assert_eq!(writer.record_bytes_max(), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn record_bytes_max(&self) -> u64 {
        self.appender.record_bytes_max()
    }

    /// Append a record and do not wait for durability.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    #[inline]
    pub fn write(&self, body: &[u8]) -> Result<u64> {
        self.appender.append(Stamp::Clock(self.now_ns()), body)
    }

    /// [`write`](Self::write) a record that frees room sooner or later, with what is in [reserve](Self::reserve) when
    /// the disk is full.
    ///
    /// # Errors
    /// As [`append`](Self::append); [`Error::DiskFull`] when the reserve is used up too.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn write_reserved(&self, body: &[u8]) -> Result<u64> {
        self.appender
            .append_reserved(Stamp::Clock(self.now_ns()), body)
    }

    /// Have a small segment in reserve, on the disk, for [`write_reserved`](Self::write_reserved) and
    /// [`begin_segment`](Self::begin_segment). Does nothing when there is one. Only an exclusive opening with
    /// [`segment_bytes_first`](crate::Options::segment_bytes_first) has one.
    ///
    /// # Errors
    /// [`Error::DiskFull`]; [`Error::NotExclusive`]; an error of the system.
    ///
    /// ```
    /// # use millstream_journal::{Journal, Options};
    /// # let folder = tempfile::tempdir()?;
    /// let growing = Options { exclusive: true, segment_bytes_first: Some(16 << 10), ..Options::default() };
    /// let writer = Journal::open(folder.path(), growing)?.writer()?;
    /// writer.reserve()?;
    /// assert_eq!(writer.write_reserved(b"one item less")?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn reserve(&self) -> Result<()> {
        grow::reserve(self.growing()?)
    }

    /// Whether there is a small segment in [reserve](Self::reserve).
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn reserved(&self) -> Result<bool> {
        grow::has_spare(self.growing()?)
    }

    /// End the segment that is appended to, and continue in one of the smallest size, so that
    /// [`prune`](crate::Journal::prune) can remove records that are no longer needed although they are the last. Takes
    /// the one in [reserve](Self::reserve) when the disk is full.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn begin_segment(&self) -> Result<()> {
        self.growing()?;
        self.appender.begin_segment()
    }

    /// The size in bytes of the segment that is appended to.
    ///
    /// # Errors
    /// The segment cannot be opened.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn segment_bytes(&self) -> Result<u64> {
        self.appender.segment_bytes()
    }

    fn growing(&self) -> Result<&Core<S>> {
        let core = &self.appender.core;
        match core.options.segment_bytes_first {
            Some(_) => Ok(core),
            None => Err(Error::NotExclusive { path: core.path() }),
        }
    }

    /// Room for a record of up to `length_max` bytes, to be filled in place. All other writers wait until it is
    /// committed or dropped.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn claim(&self, length_max: usize) -> Result<Claim<'_, S>> {
        Ok(Claim {
            room: self.appender.claim(length_max)?,
            writer: self,
        })
    }

    /// Make all that is appended survive a loss of power. Returns the sequence number before which all does.
    ///
    /// # Errors
    /// An error of the system, and [`Error::Poisoned`] from then on.
    pub fn sync(&self) -> Result<u64> {
        self.appender.core.check_fork()?;
        self.appender.durable.sync()
    }

    /// Wait until the record `sequence` survives a loss of power; syncs if no other thread does.
    ///
    /// # Errors
    /// As [`sync`](Self::sync); [`Error::NotYet`] when there is no such record.
    pub fn wait_durable(&self, sequence: u64) -> Result<()> {
        let core = &self.appender.core;
        let next = core.checked(core.next())?;
        if sequence >= next {
            return Err(Error::NotYet {
                path: self.journal.path(),
                sequence,
                next,
            });
        }
        self.appender.core.check_fork()?;
        self.appender.durable.wait(sequence + 1)
    }

    /// Do what a thread in the background would do now; a simulated host has none.
    #[cfg(feature = "simulation")]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn background(&self) {
        self.appender.background();
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.appender.core.options.host.time_ns()
    }

    /// Waits for the records from `first` to `next`, which were appended at this time or a little later, as `sync`
    /// says.
    #[inline]
    fn wait_until_acknowledged(&self, now_ns: u64, first: u64, next: u64) -> Result<()> {
        if self.bound.allows(now_ns) {
            Ok(())
        } else {
            self.wait_for_sync(first, next)
        }
    }

    /// [`wait_until_acknowledged`](Self::wait_until_acknowledged) when the time of the records is not that of now.
    fn wait_until_acknowledged_now(&self, first: u64, next: u64) -> Result<()> {
        match self.appender.core.options.sync {
            Sync::Never => Ok(()),
            Sync::Always => self.wait_for_sync(first, next),
            Sync::Every(_) => self.wait_until_acknowledged(self.now_ns(), first, next),
        }
    }

    fn wait_for_sync(&self, first: u64, next: u64) -> Result<()> {
        match self.appender.core.options.sync {
            Sync::Never => Ok(()),
            Sync::Always => self.appender.durable.wait(next),
            Sync::Every(_) => self.appender.durable.wait_in_bound(first, next),
        }
    }
}

impl<S: Storage> Journal<S> {
    /// A handle to append with. All writers of an opening share its lock slot and its work in the background.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::TooManyWriters`]; an error of the system.
    pub fn writer(&self) -> Result<Writer<S>> {
        let appender = self.core().checked(self.appender())?;
        Ok(Writer::new(self.clone(), appender))
    }
}

/// A record that is being filled. Dropping it leaves the journal as it was.
pub struct Claim<'a, S: Storage = Mapped> {
    writer: &'a Writer<S>,
    room: Reservation<'a, S>,
}

impl<S: Storage> Claim<'_, S> {
    /// The sequence number that the record gets.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.room.sequence()
    }

    /// The sequence number of the first record of this record's segment. A writer that repeats in each segment what its
    /// records need to be decoded uses it, so that retention cannot remove that.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn segment_start(&self) -> u64 {
        self.room.sequence() - self.room.records_before()
    }

    /// Append the first `length` bytes with the time of now. Returns the record's sequence number.
    ///
    /// # Errors
    /// [`Error::RecordTooLarge`] when more was filled than claimed; a failed sync.
    pub fn commit(self, length: usize) -> Result<u64> {
        let Claim { writer, room } = self;
        let Some(body) = room.body().get(..length) else {
            return Err(Error::RecordTooLarge {
                bytes: length as u64,
                limit: room.length_max().into(),
            });
        };
        let body_crc = frame::body_crc(body);
        let now_ns = writer.now_ns();
        let sequence = room.sequence();
        room.commit(length as u32, body_crc, Stamp::Clock(now_ns))?;
        writer.wait_until_acknowledged(now_ns, sequence, sequence + 1)?;
        Ok(sequence)
    }
}

impl<S: Storage> Deref for Claim<'_, S> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.room.body()
    }
}

impl<S: Storage> DerefMut for Claim<'_, S> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.room.body_mut()
    }
}
