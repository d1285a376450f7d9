//! One segment file: a header, a sparse index, and frames.
//!
//! ```text
//!      0  "MILLSEG\n"  version  CRC32C  number  epoch  segment_bytes  created     fixed, synced before the file gets its name
//!     48  full_bytes                                                              the size that segments of this journal grow to
//!     64  base         durable                                                    base: sequence of the first record, at the roll
//!    128  tail         last time  latest time                                     changed by every append
//!    152  disorder                                                                whether times decrease in this segment
//!   4096  index: for each block of 64 KiB the first frame in or after it
//!      .  frames, the last one of a full segment is an end frame
//! ```
//!
//! `tail` and `durable` are *marks*: an offset and the number of records before it, in one word, so that they are never
//! torn. The tail is stored after the frame that it counts: all frames before it are complete, and there may be another
//! one after it. The tail of a segment that has ended is before the end frame.
//!
//! The last time is that of the last record before the tail, the latest one that of all records of the journal up to
//! there. They differ after a clock was set back.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::format::frame::{self, FrameContext, Head, Kind};
use crate::storage::{Access, Region, Storage};

/// The version of the format of a journal: of its segments, and of the files beside them.
pub(crate) const VERSION: u32 = 1;
/// The index has an entry for each block of this many bytes.
pub(crate) const BLOCK: u64 = 64 << 10;
/// The smallest full size that the segments of a journal can have.
pub(crate) const BYTES_MIN: u64 = BLOCK;
/// The smallest segment of a journal whose segments grow.
pub(crate) const SMALL_BYTES_MIN: u64 = 16 << 10;
/// Sizes of segments that grow are multiples of this many bytes.
pub(crate) const SMALL_STEP: u64 = 4096;
/// The largest segment: an offset, in words, has 31 bits in a mark.
pub(crate) const BYTES_MAX: u64 = 16 << 30;

/// A cache line.
const LINE: u64 = 64;
/// How many bytes are fetched ahead of a record at most.
const EXPECTED_MAX: u64 = 512;

const MAGIC: [u8; 8] = *b"MILLSEG\n";
const FIXED: usize = 64;
/// In the fixed header: the size that segments of this journal grow to.
const BYTES_FULL: u64 = 48;
/// Where the sequence number of the first record is.
pub(crate) const BASE: u64 = 64;
const DURABLE: u64 = 72;
const TAIL: u64 = 128;
const LAST_TIME: u64 = 136;
const LATEST_TIME: u64 = 144;
/// Stored before the first frame that is earlier than the one before it. All its bits are set then, so that a damaged
/// one is not 0.
const DISORDER: u64 = 152;
const INDEX: u64 = 4096;
/// `base` of a segment that was prepared and not begun.
const NOT_BEGUN: u64 = u64::MAX;

/// A place in a segment and the number of records before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub offset: u64,
    pub records: u64,
}

impl Mark {
    #[inline]
    fn parse(word: u64) -> Self {
        Mark {
            offset: (word >> 32) * 8,
            records: word & 0xFFFF_FFFF,
        }
    }

    #[inline]
    fn word(self) -> u64 {
        ((self.offset / 8) << 32) | self.records
    }
}

/// The times of the records before a mark, in ns since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// That of the last record, or a later one.
    pub last_ns: u64,
    /// The latest of all records of the journal, also of those that were pruned.
    pub latest_ns: u64,
}

impl Times {
    /// Those of records of which only the latest time is known.
    pub fn up_to(latest_ns: u64) -> Self {
        Times {
            last_ns: latest_ns,
            latest_ns,
        }
    }
}

/// An open segment.
pub(crate) struct Segment<R> {
    region: R,
    number: u64,
    epoch: u64,
    bytes: u64,
    /// The size that segments of this journal grow to.
    bytes_max: u64,
    /// The base was compared with what no single damage changes together with it.
    base_checked: AtomicBool,
}

/// How large a segment is made, and how large those of its journal can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub bytes: u64,
    pub bytes_max: u64,
}

impl Size {
    /// A segment of the journal's full size.
    pub fn full(bytes: u64) -> Self {
        Size {
            bytes,
            bytes_max: bytes,
        }
    }

    /// Whether a frame of this many bytes has room in an empty segment, with an end frame after it.
    pub fn holds(self, frame_bytes: u64) -> bool {
        data_start(self.bytes) + frame_bytes + frame::HEADER <= self.bytes
    }
}

/// The file name of a segment.
pub(crate) fn name(number: u64) -> String {
    format!("segment-{number:010}.log")
}

/// The number in a segment's file name.
pub(crate) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("segment-")?.strip_suffix(".log")?;
    let number = digits.parse().ok()?;
    (self::name(number) == name).then_some(number)
}

impl<R: Region> Segment<R> {
    /// Make a segment under a name of its own, synced and ready to be begun.
    pub fn create<S: Storage<Region = R>>(
        storage: &S,
        number: u64,
        size: Size,
        epoch: u64,
        now_ns: u64,
    ) -> Result<Self> {
        let target = name(number);
        let draft = format!("draft-{number:010}-{epoch:016x}");
        let made = storage
            .create(&draft, size.bytes)
            .and_then(|region| Self::headed(region, number, size, epoch, now_ns));
        Self::named(storage, made, &draft, &target)
    }

    /// Give a segment that is complete its name.
    pub fn named<S: Storage<Region = R>>(
        storage: &S,
        made: std::io::Result<Self>,
        draft: &str,
        target: &str,
    ) -> Result<Self> {
        let named = made.and_then(|segment| {
            storage.rename(draft, target)?;
            storage.sync_names()?;
            // By its new name, as all others map it: some file systems (FUSE) take the two names of a link for two
            // files.
            Ok(Segment {
                region: storage.open(target, Access::Write)?,
                ..segment
            })
        });
        named.map_err(|source| {
            // It may be there or not: all that can be done has been tried.
            let _removed = storage.remove(draft);
            let path = storage.path(target);
            match source.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                    Error::DiskFull { path, source }
                }
                _ => Error::Io {
                    verb: "create",
                    path,
                    source,
                },
            }
        })
    }

    /// Turns a region of zeros into a segment that is not begun.
    pub fn headed(
        region: R,
        number: u64,
        size: Size,
        epoch: u64,
        now_ns: u64,
    ) -> std::io::Result<Self> {
        let fixed = fixed_header(number, size, epoch, now_ns);
        for (at, word) in (0..).step_by(8).zip(fixed.as_chunks::<8>().0) {
            region.publish(at, u64::from_le_bytes(*word));
        }
        region.publish(BASE, NOT_BEGUN);
        region.sync(0, INDEX)?;
        Ok(Segment {
            region,
            number,
            epoch,
            bytes: size.bytes,
            bytes_max: size.bytes_max,
            base_checked: AtomicBool::new(false),
        })
    }

    /// Open a segment and check its fixed header.
    pub fn open<S: Storage<Region = R>>(storage: &S, number: u64, access: Access) -> Result<Self> {
        let path = || storage.path(&name(number));
        let damage = |offset, what: String| Error::Damage {
            path: path(),
            offset,
            what,
        };
        let region = storage.open(&name(number), access).map_err(|source| {
            if source.kind() == std::io::ErrorKind::UnexpectedEof {
                return damage(0, "the file is empty".to_owned());
            }
            Error::Io {
                verb: "open",
                path: path(),
                source,
            }
        })?;
        if region.bytes_len() < INDEX {
            let what = "the file ends in its header".to_owned();
            return Err(damage(region.bytes_len(), what));
        }
        let found = region.load(8) as u32;
        if region.load(0) == u64::from_le_bytes(MAGIC) && found != VERSION {
            return Err(Error::Version {
                path: path(),
                found,
                supported: VERSION,
            });
        }
        if let Some((offset, what)) = header_fault(&region, number) {
            return Err(damage(offset, what));
        }
        Ok(Segment {
            number,
            epoch: region.load(24),
            bytes: region.load(32),
            bytes_max: region.load(BYTES_FULL),
            base_checked: AtomicBool::new(false),
            region,
        })
    }

    /// A segment whose header may be damaged, as far as its file reaches; the offset of its first frame; and whether
    /// the header matches its checksum, after one bit of it was mended if need be. The file is longer than the header
    /// and the index's first page.
    pub fn salvaged(region: R, number: u64) -> (Self, u64, bool) {
        let fixed = mended(fixed_of(&region), number);
        let word = |at: usize| {
            fixed[at..]
                .first_chunk()
                .map_or(0, |word| u64::from_le_bytes(*word))
        };
        let there = region.bytes_len() & !7;
        let is_sound = header_crc(&fixed).to_le_bytes() == fixed[12..16];
        let made = if is_sound {
            word(32).min(BYTES_MAX)
        } else {
            there
        };
        let segment = Segment {
            number,
            epoch: word(24),
            bytes: made.min(there),
            bytes_max: made,
            base_checked: AtomicBool::new(false),
            region,
        };
        (segment, data_start(made), is_sound)
    }

    /// The same segment with frames of another epoch.
    pub fn with_epoch(self, epoch: u64) -> Self {
        Segment { epoch, ..self }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// The random number that it was made with.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The size that segments of its journal grow to; its own, where they do not grow.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub fn region(&self) -> &R {
        &self.region
    }

    /// The offset of the first frame.
    #[inline]
    pub fn data_start(&self) -> u64 {
        data_start(self.bytes)
    }

    /// Whether a frame of `bytes` fits at `offset`, with an end frame after it.
    #[inline]
    pub fn fits(&self, offset: u64, bytes: u64) -> bool {
        offset + bytes + frame::HEADER <= self.bytes
    }

    /// Whether a frame of this many bytes has room in it while it is empty.
    #[inline]
    pub fn holds(&self, frame_bytes: u64) -> bool {
        self.fits(self.data_start(), frame_bytes)
    }

    /// The sequence number of the first record, once the segment was begun.
    #[inline]
    pub fn base(&self) -> Option<u64> {
        Some(self.region.load(BASE)).filter(|base| *base != NOT_BEGUN)
    }

    /// Whether a process has found the base to be right.
    #[inline]
    pub fn is_base_checked(&self) -> bool {
        self.base_checked.load(Ordering::Relaxed)
    }

    pub fn set_base_checked(&self) {
        self.base_checked.store(true, Ordering::Relaxed);
    }

    /// Begin the segment: its first record will be `base`.
    pub fn begin(&self, base: u64, before: Times) {
        self.set_tail(
            Mark {
                offset: self.data_start(),
                records: 0,
            },
            before,
        );
        self.region.publish(BASE, base);
    }

    #[inline]
    pub fn tail(&self) -> Mark {
        Mark::parse(self.region.load(TAIL))
    }

    /// The times of the records before the tail.
    #[inline]
    pub fn times(&self) -> Times {
        Times {
            last_ns: self.region.load(LAST_TIME),
            latest_ns: self.region.load(LATEST_TIME),
        }
    }

    /// Whether no record of this segment is earlier than one before it in this segment.
    #[inline]
    pub fn is_ordered(&self) -> bool {
        self.region.load(DISORDER) == 0
    }

    /// A record of this segment is earlier than one before it in this segment, or is about to be.
    #[cold]
    pub fn set_disordered(&self) {
        self.region.publish(DISORDER, u64::MAX);
    }

    #[inline]
    pub fn set_tail(&self, tail: Mark, times: Times) {
        self.region.publish(LAST_TIME, times.last_ns);
        self.region.publish(LATEST_TIME, times.latest_ns);
        self.region.publish(TAIL, tail.word());
    }

    /// The durable watermark: all before it was synced before the mark was stored.
    pub fn durable(&self) -> Mark {
        Mark::parse(self.region.load(DURABLE))
    }

    pub fn set_durable(&self, mark: Mark) {
        self.region.publish(DURABLE, mark.word());
    }

    /// Move the watermark up; another process may have moved it further.
    pub fn raise_durable(&self, mark: Mark) {
        let mut found = self.region.load(DURABLE);
        while found < mark.word() {
            match self.region.exchange(DURABLE, found, mark.word()) {
                Ok(()) => break,
                Err(other) => found = other,
            }
        }
    }

    /// Sync the header, and all frames before `to` with the end frame that may follow them.
    pub fn sync(&self, to: u64) -> std::io::Result<()> {
        self.region.sync(0, (to + frame::HEADER).min(self.bytes))
    }

    /// The head of the frame at `offset`; `None` while nothing was published there.
    ///
    /// # Errors
    /// The fault of a word that begins no frame, or whose frame extends beyond the segment.
    #[inline]
    pub fn head(&self, offset: u64) -> std::result::Result<Option<Head>, &'static str> {
        if offset + frame::HEADER > self.bytes {
            return Err("a frame begins after the end of the segment");
        }
        match self.region.load(offset) {
            0 => Ok(None),
            word => match Head::parse(word) {
                Some(head) if offset + head.bytes() <= self.bytes => Ok(Some(head)),
                Some(_) => Err("a frame reaches beyond the end of the segment"),
                None => Err("no frame begins with this word"),
            },
        }
    }

    #[inline]
    pub fn time_ns(&self, offset: u64) -> u64 {
        self.region.load(offset + 8)
    }

    /// The body of a frame.
    ///
    /// # Safety
    /// [`head`](Self::head) returned `head` for `offset`: the frame is published, and no process stores to a published
    /// frame while the slice lives. Only a recovery or a cut does, and these exclude other openings.
    #[inline]
    #[expect(unsafe_code, reason = "passes the contract on")]
    pub unsafe fn body(&self, offset: u64, head: Head) -> &[u8] {
        // SAFETY: the same contract.
        unsafe {
            self.region
                .bytes(offset + frame::HEADER, head.length.into())
        }
    }

    /// Nothing but zeros from here to the end, on the disk too.
    pub fn clear(&self, from: u64) -> std::io::Result<()> {
        let mut is_zero = true;
        for at in (from..self.bytes).step_by(8) {
            if self.region.load(at) != 0 {
                self.region.publish(at, 0);
                is_zero = false;
            }
        }
        if is_zero {
            Ok(())
        } else {
            self.sync(self.bytes)
        }
    }

    /// A slice for the body of a frame at `offset`. [`claimed`](Self::claimed) follows.
    ///
    /// # Safety
    /// The caller holds the append lock and has no other slice of these bytes, and no reader looks at them: `offset` is
    /// at the tail or after it, and nothing is published there while the slice lives.
    #[expect(unsafe_code, reason = "passes the contract on")]
    #[expect(clippy::mut_from_ref, reason = "as `Region::claim`")]
    pub unsafe fn claim(&self, offset: u64, length: u32) -> &mut [u8] {
        // SAFETY: the same contract: other writers need the append lock, and readers stop before the tail.
        unsafe { self.region.claim(offset + frame::HEADER, length.into()) }
    }

    /// A claimed body has been filled up to `length`.
    ///
    /// # Safety
    /// As for [`claim`](Self::claim): the frame at `offset` is not published yet.
    #[expect(unsafe_code, reason = "passes the contract on")]
    pub unsafe fn claimed(&self, offset: u64, length: u32) {
        // SAFETY: the same contract.
        unsafe { self.region.claimed(offset + frame::HEADER, length.into()) };
    }

    /// Stores the body of a frame at `offset`.
    ///
    /// # Safety
    /// As for [`claim`](Self::claim).
    #[inline]
    #[expect(unsafe_code, reason = "passes the contract on")]
    pub unsafe fn store_body(&self, offset: u64, body: &[u8]) {
        // SAFETY: the same contract.
        unsafe { self.region.store(offset + frame::HEADER, body) }
    }

    /// Everything of a frame but its first word, and a zero where the next frame will begin. Returns the first word.
    #[inline]
    pub fn complete(
        &self,
        offset: u64,
        kind: Kind,
        length: u32,
        body_crc: u32,
        sequence: u64,
        time_ns: u64,
    ) -> Head {
        self.region.publish(offset + 8, time_ns);
        let end = offset + frame::frame_bytes(length);
        if !length.is_multiple_of(8) {
            self.pad(offset + frame::HEADER + u64::from(length));
        }
        // An append that was given up may have left any bytes there, and readers look there next.
        if kind == Kind::Record {
            self.region.publish(end, 0);
        }
        FrameContext {
            epoch: self.epoch,
            sequence,
            time_ns,
        }
        .head(kind, length, body_crc)
    }

    /// Zeros from the end of a body to the next word.
    #[inline]
    fn pad(&self, from: u64) {
        let word = from & !7;
        let kept = (1 << (from % 8 * 8)) - 1;
        self.region.publish(word, self.region.load(word) & kept);
    }

    /// Prefetches the cache lines of the next frame of about `bytes` at `offset`, before a record waits for them; not
    /// the first line, which readers poll.
    #[inline]
    pub fn expect(&self, offset: u64, bytes: u64) {
        let from = (offset & !(LINE - 1)) + LINE;
        self.region.prefetch(from, from + bytes.min(EXPECTED_MAX));
    }

    #[inline]
    pub fn publish(&self, offset: u64, head: Head) {
        self.region.publish(offset, head.word());
    }

    /// The index entry of a block, 0 when it is not known.
    pub fn slot(&self, block: u64) -> Option<Mark> {
        match self.region.load(INDEX + block * 8) {
            0 => None,
            word => Some(Mark::parse(word)),
        }
    }

    #[cold]
    pub fn set_slots(&self, blocks: impl Iterator<Item = u64>, mark: Mark) {
        for block in blocks {
            self.region.publish(INDEX + block * 8, mark.word());
        }
    }
}

/// Where frames begin in a segment of this size.
#[inline]
pub(crate) fn data_start(bytes: u64) -> u64 {
    let index = bytes.div_ceil(BLOCK) * 8;
    INDEX + index.next_multiple_of(4096)
}

fn fixed_header(number: u64, size: Size, epoch: u64, now_ns: u64) -> [u8; FIXED] {
    let mut fixed = [0; FIXED];
    fixed[..8].copy_from_slice(&MAGIC);
    fixed[8..12].copy_from_slice(&VERSION.to_le_bytes());
    for (at, word) in [
        (16, number),
        (24, epoch),
        (32, size.bytes),
        (40, now_ns),
        (BYTES_FULL as usize, size.bytes_max),
    ] {
        fixed[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    let crc = header_crc(&fixed);
    fixed[12..16].copy_from_slice(&crc.to_le_bytes());
    fixed
}

fn fixed_of<R: Region>(region: &R) -> [u8; FIXED] {
    let mut fixed = [0; FIXED];
    for (at, word) in (0..).step_by(8).zip(fixed.as_chunks_mut::<8>().0) {
        *word = region.load(at).to_le_bytes();
    }
    fixed
}

/// A fixed header with the bit put right with which it matches its checksum, where one bit does that.
fn mended(fixed: [u8; FIXED], number: u64) -> [u8; FIXED] {
    let flipped = |bit: usize| {
        let mut fixed = fixed;
        fixed[bit / 8] ^= 1 << (bit % 8);
        fixed
    };
    let is_sound = |fixed: &[u8; FIXED]| {
        fixed[..8] == MAGIC
            && fixed[16..24] == number.to_le_bytes()
            && header_crc(fixed).to_le_bytes() == fixed[12..16]
    };
    let mended = (0..FIXED * 8).map(flipped).find(is_sound);
    mended.filter(|_| !is_sound(&fixed)).unwrap_or(fixed)
}

/// The fault of a fixed header, and its offset.
fn header_fault<R: Region>(region: &R, number: u64) -> Option<(u64, String)> {
    let fixed = fixed_of(region);
    if fixed[..8] != MAGIC {
        let what = "the header does not begin as that of a segment";
        return Some((0, what.to_owned()));
    }
    if header_crc(&fixed) != (region.load(8) >> 32) as u32 {
        let what = "the header does not match its checksum";
        return Some((0, what.to_owned()));
    }
    let found = region.load(16);
    if found != number {
        let what = format!("this is segment {found}, under the name of segment {number}");
        return Some((16, what));
    }
    let bytes = region.load(32);
    let full = region.load(BYTES_FULL);
    if !bytes.is_multiple_of(SMALL_STEP)
        || !(SMALL_BYTES_MIN..=full.min(BYTES_MAX)).contains(&bytes)
    {
        return Some((32, format!("a segment cannot have {bytes} bytes")));
    }
    if region.bytes_len() < bytes {
        let what = format!("the file is truncated, it had {bytes} bytes");
        return Some((region.bytes_len(), what));
    }
    None
}

/// The checksum of the fixed header, without the word half that holds it.
fn header_crc(fixed: &[u8; FIXED]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&fixed[..12]), &fixed[16..])
}
