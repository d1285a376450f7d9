//! The cutter finds the spans of complete payloads in bytes as they arrive.
//!
//! Its only state of the stream is an offset, so that frames depend on the bytes alone, not on the reads that
//! delivered them. Each prefix width has its own compiled loop: the length is one load and one compare per
//! frame.

use super::{Framing, FramingError, PrefixWidth};

/// Divides a stream into frames as its bytes arrive.
#[derive(Clone, Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Cutter {
    framing: Framing,
    max_frame_bytes: usize,
    offset: u64,
    // The number of bytes of the unfinished line without LF, so that a long line in small reads is searched
    // once.
    searched: usize,
}

impl Cutter {
    /// Creates a cutter at the start of a stream. A payload over `max_frame_bytes` is an error.
    pub fn new(framing: Framing, max_frame_bytes: usize) -> Self {
        Self {
            framing,
            max_frame_bytes,
            offset: 0,
            searched: 0,
        }
    }

    /// Returns the framing.
    pub fn framing(&self) -> &Framing {
        &self.framing
    }

    /// Returns the offset in the stream of the next frame's first byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Divides `buffer[from..]` into frames, appends the spans of their payloads, and returns the number of
    /// bytes of the complete frames. The next call must start with the first byte that this one did not
    /// consume.
    ///
    /// Spans are 32 bits wide, so that only the first 4 GiB of `buffer` are divided.
    ///
    /// # Errors
    /// A frame is over the limit. The spans of the frames before it are valid.
    #[inline]
    pub fn cut(
        &mut self,
        buffer: &[u8],
        from: usize,
        spans: &mut Vec<(u32, u32)>,
    ) -> Result<usize, FramingError> {
        let buffer = &buffer[..buffer.len().min(u32::MAX as usize)];
        match self.framing {
            Framing::Prefix {
                width: PrefixWidth::U32,
                big_endian: true,
            } => self.cut_prefix(buffer, from, spans, |p| u32::from_be_bytes(p) as usize),
            Framing::Prefix {
                width: PrefixWidth::U32,
                big_endian: false,
            } => self.cut_prefix(buffer, from, spans, |p| u32::from_le_bytes(p) as usize),
            Framing::Prefix {
                width: PrefixWidth::U16,
                big_endian: true,
            } => self.cut_prefix(buffer, from, spans, |p| u16::from_be_bytes(p).into()),
            Framing::Prefix {
                width: PrefixWidth::U16,
                big_endian: false,
            } => self.cut_prefix(buffer, from, spans, |p| u16::from_le_bytes(p).into()),
            Framing::Prefix {
                width: PrefixWidth::U8,
                ..
            } => self.cut_prefix(buffer, from, spans, |[p]| p.into()),
            Framing::Fixed(length) => self.cut_fixed(buffer, from, spans, length),
            Framing::Lines => self.cut_lines(buffer, from, spans),
        }
    }

    /// Ends the stream: `rest` are the bytes that [`cut`](Self::cut) did not consume, `base` is their position
    /// in the buffer. A last line without a line end is a frame.
    ///
    /// # Errors
    /// The last frame is not complete, or a last line is over the limit.
    pub fn finish(
        &mut self,
        rest: &[u8],
        base: usize,
        spans: &mut Vec<(u32, u32)>,
    ) -> Result<(), FramingError> {
        if rest.is_empty() {
            return Ok(());
        }
        let need = match self.framing {
            Framing::Lines => {
                self.check(rest.len(), self.offset)?;
                spans.push((base as u32, (base + rest.len()) as u32));
                self.offset += rest.len() as u64;
                self.searched = 0;
                return Ok(());
            }
            Framing::Fixed(length) => length,
            Framing::Prefix { width, big_endian } => {
                let width = width.bytes();
                rest.get(..width)
                    .map_or(width, |prefix| width + length_of(prefix, big_endian))
            }
        };
        Err(FramingError::Truncated {
            offset: self.offset,
            have: rest.len(),
            need,
        })
    }

    #[inline(always)]
    fn cut_prefix<const WIDTH: usize>(
        &mut self,
        buffer: &[u8],
        from: usize,
        spans: &mut Vec<(u32, u32)>,
        length_of: impl Fn([u8; WIDTH]) -> usize,
    ) -> Result<usize, FramingError> {
        let mut at = from;
        let mut outcome = Ok(());
        while let Some(prefix) = buffer.get(at..).and_then(<[u8]>::first_chunk::<WIDTH>) {
            let length = length_of(*prefix);
            let start = at + WIDTH;
            if length > self.max_frame_bytes {
                outcome = self.check(length, self.offset + (at - from) as u64);
                break;
            }
            if length > buffer.len() - start {
                break;
            }
            at = start + length;
            spans.push((start as u32, at as u32));
        }
        self.offset += (at - from) as u64;
        outcome.map(|()| at - from)
    }

    fn cut_fixed(
        &mut self,
        buffer: &[u8],
        from: usize,
        spans: &mut Vec<(u32, u32)>,
        length: usize,
    ) -> Result<usize, FramingError> {
        if length == 0 {
            return Err(FramingError::ZeroLength);
        }
        self.check(length, self.offset)?;
        let count = buffer.len().saturating_sub(from) / length;
        spans.extend(
            (0..count).map(|i| ((from + i * length) as u32, (from + (i + 1) * length) as u32)),
        );
        self.offset += (count * length) as u64;
        Ok(count * length)
    }

    fn cut_lines(
        &mut self,
        buffer: &[u8],
        from: usize,
        spans: &mut Vec<(u32, u32)>,
    ) -> Result<usize, FramingError> {
        let mut start = from;
        for line_feed in memchr::memchr_iter(
            b'\n',
            buffer.get(from + self.searched..).unwrap_or_default(),
        ) {
            let line_feed = from + self.searched + line_feed;
            let carriage_return = line_feed > start && buffer[line_feed - 1] == b'\r';
            let end = line_feed - usize::from(carriage_return);
            if end - start > self.max_frame_bytes {
                self.offset += (start - from) as u64;
                self.searched = 0;
                return Err(self.too_long(end - start, self.offset));
            }
            spans.push((start as u32, end as u32));
            start = line_feed + 1;
        }
        self.offset += (start - from) as u64;
        self.searched = buffer.len().saturating_sub(start);
        // One byte over the limit may still be the CR of a line end.
        if self.searched > self.max_frame_bytes.saturating_add(1) {
            return Err(self.too_long(self.searched, self.offset));
        }
        Ok(start - from)
    }

    fn check(&self, length: usize, offset: u64) -> Result<(), FramingError> {
        if length > self.max_frame_bytes {
            Err(self.too_long(length, offset))
        } else {
            Ok(())
        }
    }

    #[cold]
    fn too_long(&self, length: usize, offset: u64) -> FramingError {
        FramingError::FrameTooLong {
            offset,
            length,
            limit: self.max_frame_bytes,
        }
    }
}

fn length_of(prefix: &[u8], big_endian: bool) -> usize {
    let join = |length: usize, byte: &u8| length << 8 | usize::from(*byte);
    if big_endian {
        prefix.iter().fold(0, join)
    } else {
        prefix.iter().rev().fold(0, join)
    }
}
