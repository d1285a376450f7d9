//! Frames: bytes of a connection into messages and back, with a limit and a checksum.
//!
//! ```text
//!  0         4      5          8         12
//!  +---------+------+----------+---------+-----------------+
//!  | length  | kind | 0  0  0  | CRC32C  | payload         |   length of the payload; the checksum is over
//!  +---------+------+----------+---------+-----------------+   bytes 0..8 and the payload
//! ```
//!
//! The invariant: a payload is returned complete, with a valid checksum, or not at all; at most the limit and one read
//! are buffered. A length over the limit is refused when it is parsed, before memory is allocated for it.

use std::marker::PhantomData;

use crate::error::LinkError;

/// Bytes before the payload.
pub const HEADER: usize = 12;
/// The minimum size of the buffer for a read.
const READ_BYTES: usize = 1 << 20;

/// Cuts the bytes of a connection into frames.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Frames<K> {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    payload_max: usize,
    read_bytes: usize,
    kinds: PhantomData<K>,
}

/// The kinds of messages of a protocol, each with a byte of its own.
#[doc(hidden)] // For the other crates of Millstream.
pub trait FrameKind: Copy {
    /// The kind with this byte; `None` if no kind has it.
    fn of(byte: u8) -> Option<Self>;

    /// The byte of this kind.
    fn byte(self) -> u8;
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Frame<'a, K> {
    /// What the payload is.
    pub kind: K,
    /// The bytes after the header.
    pub payload: &'a [u8],
}

impl<K: FrameKind> Frames<K> {
    /// Returns a buffer for frames with at most `payload_max` bytes of payload.
    #[must_use]
    pub fn new(payload_max: usize) -> Self {
        Frames {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            payload_max,
            read_bytes: READ_BYTES.min(payload_max.max(1 << 10)),
            kinds: PhantomData,
        }
    }

    /// Allow longer payloads from now on: the other side is authenticated.
    pub fn allow(&mut self, payload_max: usize) {
        self.payload_max = payload_max;
        self.read_bytes = READ_BYTES;
    }

    /// The buffer for the next read. A call of [`filled`](Self::filled) must follow.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= std::mem::take(&mut self.start);
        }
        let enough = self.end + self.read_bytes;
        if self.buffer.len() < enough {
            // Only received bytes make it grow, never an announced length.
            self.buffer.resize(enough.max(self.end * 2), 0);
        } else if self.end == 0 && self.buffer.len() > 16 * READ_BYTES {
            self.buffer = vec![0; enough];
        }
        &mut self.buffer[self.end..]
    }

    /// The bytes that were read after the last returned frame.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// This many bytes were read.
    pub fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// Whether [`next_frame`](Self::next_frame) returns a frame or an error.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let bytes = &self.buffer[self.start..self.end];
        let Some(&[a, b, c, d]) = bytes.first_chunk() else {
            return false;
        };
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        bytes.len() >= HEADER && (length > self.payload_max || bytes.len() - HEADER >= length)
    }

    /// Returns the next frame, if it is complete.
    ///
    /// # Errors
    /// Bytes that are no frame, a length over the limit, or a checksum that does not match.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_, K>>, LinkError> {
        let bytes = &self.buffer[self.start..self.end];
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let length = word(0) as usize;
        let crc = word(8);
        let kind = K::of(header[4]).filter(|_| header[5..8] == [0; 3]);
        let Some(kind) = kind.filter(|_| length <= self.payload_max) else {
            return Err(LinkError::protocol(format!(
                "bytes that are no frame: {:02x?}",
                &header[..8]
            )));
        };
        if rest.len() < length {
            return Ok(None);
        }
        let payload = self.start + HEADER..self.start + HEADER + length;
        if checksum(&header[..8], &self.buffer[payload.clone()]) != crc {
            return Err(LinkError::protocol("a frame does not match its checksum"));
        }
        self.start = payload.end;
        Ok(Some(Frame {
            kind,
            payload: &self.buffer[payload],
        }))
    }
}

/// Begin a frame at the end of `out`; [`end`] completes it. Returns where it begins.
pub fn begin(out: &mut Vec<u8>, kind: impl FrameKind) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0; HEADER]);
    out[at + 4] = kind.byte();
    at
}

/// Complete the frame that begins at `at` and ends where `out` ends.
pub fn end(out: &mut [u8], at: usize) {
    let length = (out.len() - at - HEADER) as u32;
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    let crc = checksum(&out[at..at + 8], &out[at + HEADER..]);
    out[at + 8..at + HEADER].copy_from_slice(&crc.to_le_bytes());
}

/// Returns the frame whose payload is these parts, one after the other.
pub fn frame(kind: impl FrameKind, payload: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    let at = begin(&mut out, kind);
    payload.iter().for_each(|part| out.extend_from_slice(part));
    end(&mut out, at);
    out
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(header), payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Kind {
        Alive = 1,
        End = 2,
        Records = 3,
    }

    impl FrameKind for Kind {
        fn of(byte: u8) -> Option<Self> {
            let mut all = [Kind::Alive, Kind::End, Kind::Records].into_iter();
            all.find(|kind| *kind as u8 == byte)
        }

        fn byte(self) -> u8 {
            self as u8
        }
    }

    fn feed(frames: &mut Frames<Kind>, bytes: &[u8]) {
        frames.space()[..bytes.len()].copy_from_slice(bytes);
        frames.filled(bytes.len());
    }

    #[test]
    fn cut_at_every_byte_the_frames_are_the_same() {
        let sent = [
            (Kind::Alive, b"12345678".to_vec()),
            (Kind::End, Vec::new()),
            (Kind::Records, vec![7; 300]),
        ];
        let bytes: Vec<u8> = sent
            .iter()
            .flat_map(|(kind, payload)| frame(*kind, &[payload]))
            .collect();
        for cut in 0..=bytes.len() {
            let mut frames = Frames::<Kind>::new(1 << 10);
            let mut got = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                feed(&mut frames, part);
                while let Some(frame) = frames.next_frame().unwrap() {
                    got.push((frame.kind, frame.payload.to_vec()));
                }
            }
            assert_eq!(got, sent, "cut at {cut}");
        }
    }

    #[test]
    fn any_flipped_bit_is_found() {
        let bytes = frame(Kind::Records, &[b"some ", b"payload"]);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let mut frames = Frames::<Kind>::new(1 << 10);
            feed(&mut frames, &damaged);
            // A length that grew within the limit waits for what never comes; all else is an error at once.
            assert!(!matches!(frames.next_frame(), Ok(Some(_))), "bit {bit}");
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_it_comes() {
        let bytes = frame(Kind::Records, &[&[0; 2_000]]);
        let mut frames = Frames::<Kind>::new(1_999);
        feed(&mut frames, &bytes[..HEADER]);
        assert!(frames.next_frame().is_err());
        let mut frames = Frames::<Kind>::new(1_999);
        frames.allow(2_000);
        feed(&mut frames, &bytes[..HEADER]);
        assert!(matches!(frames.next_frame(), Ok(None)));
    }
}
