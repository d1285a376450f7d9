//! A published frame: a proof, by its type, that the body may be read.
//!
//! Invariant: the head was loaded from the segment at the offset. A writer no longer changes a published frame, and a
//! [cut](crate::Journal::cut) waits until no reader of its opening holds the segment. A safe function that reads a body therefore takes this
//! type, and not a head and an offset that a caller could mismatch.

use std::ops::Deref;

use crate::format::frame::{self, FrameContext, Head};
use crate::format::segment::Segment;
use crate::storage::Region;

/// A frame that was published when it was found.
pub(crate) struct Published<'a, R> {
    segment: &'a Segment<R>,
    offset: u64,
    head: Head,
}

impl<R> Clone for Published<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Published<'_, R> {}

impl<R> Deref for Published<'_, R> {
    type Target = Head;
    #[inline]
    fn deref(&self) -> &Head {
        &self.head
    }
}

impl<'a, R: Region> Published<'a, R> {
    /// The frame at `offset`; `None` while nothing was published there.
    ///
    /// # Errors
    /// As [`Segment::head`].
    #[inline]
    pub fn at(segment: &'a Segment<R>, offset: u64) -> Result<Option<Self>, &'static str> {
        let head = segment.head(offset)?;
        Ok(head.map(|head| Published {
            segment,
            offset,
            head,
        }))
    }

    #[inline]
    pub fn time_ns(&self) -> u64 {
        self.segment.time_ns(self.offset)
    }

    /// The checksum of the body.
    #[inline]
    #[expect(unsafe_code, reason = "the body of a published frame does not change")]
    pub fn body_crc(&self) -> u32 {
        // SAFETY: `at`, the only constructor, has loaded the head from there; the slice lives for this call.
        frame::body_crc(unsafe { self.segment.body(self.offset, self.head) })
    }

    /// Whether the frame's checksum fits its contents and its place.
    #[inline]
    pub fn is_sound(&self, sequence: u64) -> bool {
        self.sound_body_crc(sequence).is_some()
    }

    /// The checksum of the body of a frame that [is sound](Self::is_sound).
    #[inline]
    pub fn sound_body_crc(&self, sequence: u64) -> Option<u32> {
        let body_crc = self.body_crc();
        self.has_checksum(body_crc, sequence).then_some(body_crc)
    }

    /// [`is_sound`](Self::is_sound), when the checksum of the body alone is known.
    #[inline]
    pub fn has_checksum(&self, body_crc: u32, sequence: u64) -> bool {
        self.head_in(self.segment.epoch(), body_crc, sequence) == self.head
    }

    /// The head that the frame would have in a segment of this epoch.
    #[inline]
    fn head_in(&self, epoch: u64, body_crc: u32, sequence: u64) -> Head {
        let place = FrameContext {
            epoch,
            sequence,
            time_ns: self.time_ns(),
        };
        place.head(self.head.kind, self.head.length, body_crc)
    }

    /// Whether the frame is sound in a segment of this epoch.
    #[cold]
    pub fn is_sound_in(&self, epoch: u64, sequence: u64) -> bool {
        self.head_in(epoch, self.body_crc(), sequence) == self.head
    }

    /// The epoch below 2^32 with which the checksum of the frame fits. There is one for each frame, so that another
    /// frame must confirm it.
    ///
    /// A checksum is linear in each bit of the epoch: those of the bits that differ from 0 are added, which Gauss's
    /// elimination undoes.
    #[cold]
    pub fn epoch_for(&self, sequence: u64) -> Option<u64> {
        let body_crc = self.body_crc();
        let crc = |epoch| self.head_in(epoch, body_crc, sequence).crc;
        let mut rows: Vec<(u32, u64)> = Vec::new();
        let reduce = |rows: &[(u32, u64)], mut crc: u32, mut epoch: u64| {
            for (row, bits) in rows {
                if crc ^ row < crc {
                    crc ^= row;
                    epoch ^= bits;
                }
            }
            (crc, epoch)
        };
        for bit in (0..u32::BITS).map(|bit| 1 << bit) {
            let row = reduce(&rows, crc(0) ^ crc(bit), bit);
            if row.0 != 0 {
                rows.push(row);
                rows.sort_unstable_by(|one, other| other.cmp(one));
            }
        }
        let (rest, epoch) = reduce(&rows, crc(0) ^ self.head.crc, 0);
        (rest == 0).then_some(epoch)
    }
}
