//! Framing: divides a stream of bytes into messages.
//!
//! A [`Framing`] is the rule, a [`Cutter`] applies it to bytes as they arrive, and [`encode`] is its inverse.
//! Nothing here reads a socket. The caller reads into one `Vec<u8>`, the cutter records the span of each
//! complete payload, and the caller passes the buffer with its spans on as [`Frames`]: a message is not copied
//! between the socket and the first step of a flow. Bytes that were not consumed (at most one frame) are copied
//! to the start of the next buffer.
//!
//! Invariant: the division of the stream into reads changes neither the frames nor the offset in an error.
//!
//! ```
//! use millstream_flow::framing::{Cutter, Framing, encode};
//!
//! let framing: Framing = "u32".parse()?;
//! let mut stream = Vec::new();
//! encode(&framing, b"one", &mut stream)?;
//! encode(&framing, b"three", &mut stream)?;
//!
//! let mut cutter = Cutter::new(framing, 1024);
//! let mut spans = Vec::new();
//! let consumed = cutter.cut(&stream[..9], 0, &mut spans)?; // the second frame is incomplete
//! assert_eq!((consumed, spans), (7, vec![(4, 7)]));
//! # Ok::<(), millstream_flow::framing::FramingError>(())
//! ```

mod cutter;
mod error;
mod origin;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

pub use cutter::Cutter;
pub use error::FramingError;
pub use origin::Origin;

/// The width of a length prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum PrefixWidth {
    /// One byte.
    U8 = 1,
    /// Two bytes.
    U16 = 2,
    /// Four bytes.
    U32 = 4,
}

impl PrefixWidth {
    /// The number of bytes of the prefix.
    #[doc(hidden)] // For the other crates of Millstream.
    pub const fn bytes(self) -> usize {
        self as usize
    }

    /// The longest payload that the prefix can express.
    #[doc(hidden)] // For the other crates of Millstream.
    pub const fn longest(self) -> usize {
        match self {
            Self::U8 => u8::MAX as usize,
            Self::U16 => u16::MAX as usize,
            Self::U32 => u32::MAX as usize,
        }
    }
}

/// The rule that divides a stream of bytes into frames.
///
/// As text: `u8`, `u16`, `u16le`, `u32`, `u32le`, `lines`, `fixed:N`. Without `le` a prefix is big-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Each payload is preceded by its length. The length does not count the prefix.
    Prefix {
        /// The width of the length.
        width: PrefixWidth,
        /// Whether the most significant byte comes first.
        big_endian: bool,
    },
    /// Every payload has this many bytes (at least 1) and nothing around it.
    Fixed(usize),
    /// Each payload ends with LF or CR LF, which are not part of it.
    Lines,
}

impl Framing {
    /// A length prefix of one byte.
    pub const U8: Self = Self::prefix(PrefixWidth::U8, true);
    /// A length prefix of two bytes, big-endian.
    pub const U16: Self = Self::prefix(PrefixWidth::U16, true);
    /// A length prefix of four bytes, big-endian.
    pub const U32: Self = Self::prefix(PrefixWidth::U32, true);

    /// Returns where the frame whose payload has this span ends in `buffer`, including its line end: the next
    /// frame starts there.
    #[inline]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn end_of(&self, buffer: &[u8], (_, end): (u32, u32)) -> usize {
        let end = end as usize;
        match (self, buffer.get(end)) {
            (Self::Lines, Some(b'\r')) => end + 2,
            (Self::Lines, Some(_)) => end + 1,
            _ => end,
        }
    }

    const fn prefix(width: PrefixWidth, big_endian: bool) -> Self {
        Self::Prefix { width, big_endian }
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix { width, big_endian } => {
                let order = if *big_endian || *width == PrefixWidth::U8 {
                    ""
                } else {
                    "le"
                };
                write!(f, "u{}{order}", width.bytes() * 8)
            }
            Self::Fixed(length) => write!(f, "fixed:{length}"),
            Self::Lines => f.write_str("lines"),
        }
    }
}

impl FromStr for Framing {
    type Err = FramingError;

    fn from_str(text: &str) -> Result<Self, FramingError> {
        let unknown = || FramingError::Unknown {
            text: text.to_owned(),
        };
        Ok(match text {
            "u8" => Self::U8,
            "u16" => Self::U16,
            "u16le" => Self::prefix(PrefixWidth::U16, false),
            "u32" => Self::U32,
            "u32le" => Self::prefix(PrefixWidth::U32, false),
            "lines" => Self::Lines,
            _ => {
                let length = text.strip_prefix("fixed:").ok_or_else(unknown)?;
                match length.parse().map_err(|_| unknown())? {
                    0 => return Err(unknown()),
                    length => Self::Fixed(length),
                }
            }
        })
    }
}

/// A batch of frames: one buffer of bytes, and the spans of the payloads in it.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    /// The bytes as they were read, including prefixes and line ends.
    pub data: Vec<u8>,
    /// Start and end of each payload in `data`, without prefix or line end.
    pub spans: Vec<(u32, u32)>,
    /// The offset of `data[0]` in the stream: `offset + start` is the offset of a payload.
    pub offset: u64,
    /// The file of the stream, or the log of the records.
    #[doc(hidden)] // For the other crates of Millstream.
    pub origin: Option<Arc<Origin>>,
    /// The number of the record that each frame is of, in the log that `origin` names; empty for frames of a stream.
    #[doc(hidden)] // For the other crates of Millstream.
    pub numbers: Vec<u64>,
}

impl Frames {
    /// Returns the number of frames.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is no frame.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Appends one frame, whose payload `write` appends to the buffer.
    ///
    /// ```
    /// use millstream_flow::framing::Frames;
    ///
    /// let mut frames = Frames::default();
    /// frames.append(|out| out.extend_from_slice(b"one"))?;
    /// frames.append(|out| out.extend_from_slice(b"two"))?;
    /// assert_eq!(frames.get(1), b"two");
    /// # Ok::<(), millstream_flow::framing::FramingError>(())
    /// ```
    ///
    /// # Errors
    /// The buffer is larger than 4 GiB.
    #[inline]
    pub fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), FramingError> {
        let start = self.data.len();
        write(&mut self.data);
        let end = u32::try_from(self.data.len()).map_err(|_| FramingError::BatchTooLarge)?;
        self.spans.push((start as u32, end));
        Ok(())
    }

    /// Returns the payload of frame `index`.
    ///
    /// # Panics
    /// If there is no such frame, as indexing a slice does.
    #[inline]
    pub fn get(&self, index: usize) -> &[u8] {
        let (start, end) = self.spans[index];
        &self.data[start as usize..end as usize]
    }

    /// Describes frame `index` for an error: the log and the number of its record, or its length, its offset, and its
    /// file and line if it has them.
    ///
    /// # Panics
    /// If there is no such frame, as indexing a slice does.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn describe(&self, index: usize) -> String {
        if let (Some(origin), Some(number)) = (&self.origin, self.numbers.get(index)) {
            return origin.describe(*number);
        }
        let offset = self.offset + u64::from(self.spans[index].0);
        let described = format!(
            "frame of {} bytes at offset {offset}",
            self.get(index).len()
        );
        match &self.origin {
            Some(origin) => format!("{described} of {}", origin.describe(offset)),
            None => described,
        }
    }

    /// Iterates over the payloads in the order of the stream.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + DoubleEndedIterator + Clone {
        self.spans
            .iter()
            .map(|&(start, end)| &self.data[start as usize..end as usize])
    }

    /// Removes and returns the first `count` frames, or all if there are fewer; the others stay. The bytes
    /// before the first remaining frame are dropped with the next batch.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn take_first(&mut self, count: usize) -> Self {
        let count = count.min(self.spans.len());
        let base = self.spans.first().map_or(0, |(start, _)| *start);
        let end = self.spans[..count].last().map_or(base, |(_, end)| *end);
        let spans = self.spans.drain(..count);
        Frames {
            spans: spans.map(|(from, to)| (from - base, to - base)).collect(),
            data: self.data[base as usize..end as usize].to_vec(),
            offset: self.offset + u64::from(base),
            origin: self.origin.clone(),
            numbers: self
                .numbers
                .drain(..count.min(self.numbers.len()))
                .collect(),
        }
    }

    /// Removes all bytes and spans, and keeps their memory for the next batch.
    pub fn clear(&mut self) {
        self.data.clear();
        self.spans.clear();
        self.numbers.clear();
    }
}

/// Appends `frame` to `out` in the given framing: after its length, or followed by a line feed.
///
/// # Errors
/// The frame cannot be written in this framing so that it is read back unchanged. Then `out` is unchanged.
#[doc(hidden)] // For the other crates of Millstream.
pub fn encode(framing: &Framing, frame: &[u8], out: &mut Vec<u8>) -> Result<(), FramingError> {
    let length = frame.len();
    match *framing {
        Framing::Prefix { width, big_endian } => {
            if length > width.longest() {
                return Err(FramingError::PrefixTooNarrow {
                    length,
                    limit: width.longest(),
                    framing: framing.clone(),
                });
            }
            let width = width.bytes();
            if big_endian {
                out.extend_from_slice(&(length as u32).to_be_bytes()[4 - width..]);
            } else {
                out.extend_from_slice(&(length as u32).to_le_bytes()[..width]);
            }
            out.extend_from_slice(frame);
        }
        Framing::Fixed(0) => return Err(FramingError::ZeroLength),
        Framing::Fixed(need) if need != length => {
            return Err(FramingError::WrongLength { length, need });
        }
        Framing::Fixed(_) => out.extend_from_slice(frame),
        Framing::Lines => {
            let end = frame.ends_with(b"\r").then(|| length - 1);
            if let Some(at) = memchr::memchr(b'\n', frame).or(end) {
                return Err(FramingError::LineEndInside { at });
            }
            out.extend_from_slice(frame);
            out.push(b'\n');
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
