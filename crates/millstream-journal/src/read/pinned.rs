//! Records that may be kept: each keeps its segment mapped.
//!
//! The body is not copied. A segment stays mapped while any record of it is kept, also after it has been pruned.

use std::fmt;
use std::sync::Arc;

use crate::core::SegmentOf;
use crate::error::Result;
use crate::format::frame::{self, Head};
use crate::format::segment;
use crate::storage::{Mapped, Region, Storage, fault};

/// A record that was found sound, in a segment that the caller knows.
#[derive(Clone, Copy)]
pub(crate) struct FoundRecord {
    pub sequence: u64,
    pub at: u64,
    pub head: Head,
    /// The checksum of the body alone.
    pub body_crc: u32,
}

/// A record that keeps its memory mapped. A clone keeps the same memory.
///
/// ```
/// use millstream_journal::{Journal, Options};
///
/// # let folder = tempfile::tempdir()?;
/// let journal = Journal::open(folder.path().join("orders"), Options::default())?;
/// journal.writer()?.append(b"first")?;
/// let record = journal.reader()?.next_pinned()?.expect("it was appended");
/// drop(journal);
/// assert_eq!((record.sequence(), record.body()), (0, &b"first"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PinnedRecord<S: Storage = Mapped> {
    segment: SegmentOf<S>,
    found: FoundRecord,
}

impl<S: Storage> PinnedRecord<S> {
    #[inline]
    pub(crate) fn new(segment: SegmentOf<S>, found: FoundRecord) -> Self {
        PinnedRecord { segment, found }
    }

    /// Its number.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.found.sequence
    }

    /// When it was appended, in ns since 1970.
    #[inline]
    #[must_use]
    pub fn time_ns(&self) -> u64 {
        self.segment.time_ns(self.found.at)
    }

    /// The body. [`check`](Self::check) returns an error if it may have changed since.
    #[inline]
    #[must_use]
    #[expect(unsafe_code, reason = "the body of a published frame does not change")]
    pub fn body(&self) -> &[u8] {
        // SAFETY: a reader has loaded the head from there, and no process stores to a published frame while others have
        // the journal open.
        unsafe { self.segment.body(self.found.at, self.found.head) }
    }

    /// Checks that the bytes read so far are those of the record. They were when the record was found; but the memory
    /// is a file, which may be truncated, or on a device that fails. Then the bytes read as zeros, and this returns an
    /// error.
    ///
    /// # Errors
    /// [`Error::Fault`](crate::Error::Fault).
    #[inline]
    pub fn check(&self) -> Result<()> {
        match fault::any()
            .then(|| self.segment.region().fault())
            .flatten()
        {
            None => Ok(()),
            Some(fault) => Err(fault.into()),
        }
    }

    /// How many bytes are mapped, from [`offset`](Self::offset) bytes before the body on.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn mapped_len(&self) -> u64 {
        self.segment.region().bytes_len()
    }

    /// The name of its file within the journal's directory.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn file(&self) -> String {
        segment::name(self.segment.number())
    }

    /// Where its body begins in that file, in bytes.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn offset(&self) -> u64 {
        self.found.at + frame::HEADER
    }
}

impl<S: Storage> fmt::Debug for PinnedRecord<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "PinnedRecord({} at {}, {:?})",
            self.sequence(),
            self.time_ns(),
            self.body()
        )
    }
}

impl<S: Storage> Clone for PinnedRecord<S> {
    fn clone(&self) -> Self {
        PinnedRecord {
            segment: Arc::clone(&self.segment),
            found: self.found,
        }
    }
}
