//! One record on disk: a header of two words, the body, zeros up to the next multiple of 8.
//!
//! ```text
//!   0        4        8                16                  16+length
//!   +--------+--------+-----------------+-------------------+-----+
//!   | length | CRC32C | time, ns        | body              | 0.. |
//!   | + kind |        |                 |                   |     |
//!   +--------+--------+-----------------+-------------------+-----+
//!    `----- word 0 ---' `--- word 1 ---'
//! ```
//!
//! Word 0 is stored last, by one store. Until then it is zero, so that a reader sees a complete frame or none. The
//! checksum covers the body, then the segment's epoch, the sequence number, the time, and the length with its kind: a
//! frame from an earlier use of the file, or at the wrong offset, does not match.

use crate::format::checksum;

/// Bytes of a frame's header.
pub(crate) const HEADER: u64 = 16;
/// The longest body that a frame can hold.
pub(crate) const BODY_BYTES_MAX: u32 = 1 << 28;

const COMMITTED: u32 = 1 << 31;
const KIND: u32 = 0b11 << 29;
const END: u32 = 1 << 29;
const LENGTH: u32 = (1 << 29) - 1;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A record.
    Record,
    /// The segment ends here, and the next one begins.
    End,
}

/// Word 0, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub kind: Kind,
    pub length: u32,
    pub crc: u32,
}

impl Head {
    /// `None` when no frame has this word.
    #[inline]
    pub fn parse(word: u64) -> Option<Self> {
        let low = word as u32;
        let kind = match low & KIND {
            0 => Kind::Record,
            END => Kind::End,
            _ => return None,
        };
        let length = low & LENGTH;
        let sound = low & COMMITTED != 0 && length <= BODY_BYTES_MAX;
        sound.then_some(Head {
            kind,
            length,
            crc: (word >> 32) as u32,
        })
    }

    #[inline]
    pub fn word(self) -> u64 {
        u64::from(self.crc) << 32 | u64::from(low(self.kind, self.length))
    }

    /// Bytes from this frame to the next.
    #[inline]
    pub fn bytes(self) -> u64 {
        frame_bytes(self.length)
    }
}

/// Bytes that a frame with a body of `length` takes.
#[inline]
pub(crate) fn frame_bytes(length: u32) -> u64 {
    HEADER + u64::from(length).next_multiple_of(8)
}

/// The values that a frame's checksum covers beside its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameContext {
    pub epoch: u64,
    pub sequence: u64,
    pub time_ns: u64,
}

impl FrameContext {
    /// The head of a frame with these values, given the checksum of its body. The body's checksum is separate so that
    /// it can be computed before the values are known.
    #[inline]
    pub fn head(&self, kind: Kind, length: u32, body_crc: u32) -> Head {
        let words = [self.epoch, self.sequence, self.time_ns];
        let crc = checksum::append_words(body_crc, words, low(kind, length));
        Head { kind, length, crc }
    }
}

/// The checksum of a body alone.
#[inline]
pub(crate) fn body_crc(body: &[u8]) -> u32 {
    checksum::append(0, body)
}

#[inline]
fn low(kind: Kind, length: u32) -> u32 {
    COMMITTED | length | if kind == Kind::End { END } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_survives_its_word() {
        for kind in [Kind::Record, Kind::End] {
            for length in [0, 1, 7, 8, 4096, BODY_BYTES_MAX] {
                let head = Head {
                    kind,
                    length,
                    crc: 0xDEAD_BEEF,
                };
                assert_eq!(Head::parse(head.word()), Some(head));
                assert_eq!(head.bytes() % 8, 0);
            }
        }
    }

    #[test]
    fn no_head_is_made_of_other_words() {
        assert_eq!(Head::parse(0), None);
        assert_eq!(Head::parse(u64::MAX), None, "a length over the limit");
        assert_eq!(Head::parse(64), None, "not committed");
    }

    #[test]
    fn every_part_of_the_place_changes_the_checksum() {
        let place = FrameContext {
            epoch: 1,
            sequence: 2,
            time_ns: 3,
        };
        let crc = |place: FrameContext, kind, body: &[u8]| {
            place.head(kind, body.len() as u32, body_crc(body)).crc
        };
        let right = crc(place, Kind::Record, b"body");
        let wrong = [
            crc(FrameContext { epoch: 9, ..place }, Kind::Record, b"body"),
            crc(
                FrameContext {
                    sequence: 9,
                    ..place
                },
                Kind::Record,
                b"body",
            ),
            crc(
                FrameContext {
                    time_ns: 9,
                    ..place
                },
                Kind::Record,
                b"body",
            ),
            crc(place, Kind::End, b"body"),
            crc(place, Kind::Record, b"bodx"),
            crc(place, Kind::Record, b"body\0"),
        ];
        assert!(wrong.iter().all(|crc| *crc != right));
    }
}
