//! Framing: where one message ends and the next begins in a stream of bytes.
//!
//! A [`Framing`] names the rule, a [`Cutter`] applies it to bytes as they come, and [`encode`] is its inverse. Nothing
//! here reads a socket. The caller reads straight into one `Vec<u8>`, lets the cutter note the span of each complete
//! payload, and hands the buffer on with its spans as [`Frames`]: a message is never copied between the socket and the
//! first step of a flow. What was not consumed (at most one frame) is copied to the front of the next buffer.
//!
//! The invariant: how the stream was divided into reads never changes the frames, nor the offset that an error names.
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
//! let consumed = cutter.cut(&stream[..9], 0, &mut spans)?; // the second frame has not arrived in full
//! assert_eq!((consumed, spans), (7, vec![(4, 7)]));
//! # Ok::<(), millstream_flow::framing::FramingError>(())
//! ```

mod cutter;
mod error;

use std::fmt;
use std::str::FromStr;

pub use cutter::Cutter;
pub use error::FramingError;

/// The width of a length prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PrefixWidth {
    /// One byte.
    U8 = 1,
    /// Two bytes.
    U16 = 2,
    /// Four bytes.
    U32 = 4,
}

impl PrefixWidth {
    /// How many bytes the prefix takes.
    pub const fn bytes(self) -> usize {
        self as usize
    }

    /// The longest payload that the prefix can announce.
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
    /// Each payload has its length in front. The length does not count the prefix.
    Prefix {
        /// How wide the length is.
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

    /// Where the frame whose payload has this span ends in `buffer`, its line end included: the next frame starts there.
    #[inline]
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

/// A batch of frames: one buffer of bytes and where the payloads lie in it.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    /// The bytes as they were read, prefixes and line ends included.
    pub data: Vec<u8>,
    /// Start and end of each payload in `data`, without prefix or line end.
    pub spans: Vec<(u32, u32)>,
    /// The offset of `data[0]` in the stream: `offset + start` tells where a payload came from.
    pub offset: u64,
}

impl Frames {
    /// How many frames there are.
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

    /// The payload of frame `index`.
    ///
    /// # Panics
    /// If there is no such frame, as indexing a slice does.
    #[inline]
    pub fn get(&self, index: usize) -> &[u8] {
        let (start, end) = self.spans[index];
        &self.data[start as usize..end as usize]
    }

    /// The payloads, in the order of the stream.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + DoubleEndedIterator + Clone {
        self.spans
            .iter()
            .map(|&(start, end)| &self.data[start as usize..end as usize])
    }

    /// Takes the first `count` frames out, or all if there are fewer; the others stay. The bytes before the first frame that
    /// stays are dropped with the next batch.
    #[must_use]
    pub fn take_first(&mut self, count: usize) -> Self {
        let count = count.min(self.spans.len());
        let base = self.spans.first().map_or(0, |(start, _)| *start);
        let end = self.spans[..count].last().map_or(base, |(_, end)| *end);
        let spans = self.spans.drain(..count);
        Frames {
            spans: spans.map(|(from, to)| (from - base, to - base)).collect(),
            data: self.data[base as usize..end as usize].to_vec(),
            offset: self.offset + u64::from(base),
        }
    }

    /// Forget bytes and spans, and keep their memory for the next batch.
    pub fn clear(&mut self) {
        self.data.clear();
        self.spans.clear();
    }
}

/// Append `frame` to `out` in the given framing: with its length in front, or a line feed behind.
///
/// # Errors
/// The frame cannot be written in this framing so that it is read back as it is. Then `out` is unchanged.
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
