//! The cutter: bytes as they arrive in, spans of complete payloads out.
//!
//! It keeps an offset and nothing else of the stream, so that a frame is judged by its bytes alone, never by the reads
//! that brought them. Each prefix has its own compiled loop: the length is one load and one compare per frame.

use super::{Framing, FramingError, PrefixWidth};

/// Cuts a stream into frames as its bytes arrive.
#[derive(Clone, Debug)]
pub struct Cutter {
    framing: Framing,
    max_frame_bytes: usize,
    offset: u64,
    // Bytes of the unfinished line that hold no LF, so that a long line in small reads is not searched again and again.
    searched: usize,
}

impl Cutter {
    /// A cutter at the start of a stream. A payload over `max_frame_bytes` is an error.
    pub fn new(framing: Framing, max_frame_bytes: usize) -> Self {
        Self {
            framing,
            max_frame_bytes,
            offset: 0,
            searched: 0,
        }
    }

    /// The rule by which it cuts.
    pub fn framing(&self) -> &Framing {
        &self.framing
    }

    /// The offset in the stream of the next frame's first byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Cut all complete frames out of `buffer[from..]`, push the spans of their payloads, and return how many bytes they
    /// took. The next call must start with the first byte that this one did not consume.
    ///
    /// Spans are 32 bits wide, so that nothing beyond the first 4 GiB of `buffer` is looked at.
    ///
    /// # Errors
    /// A frame over the limit. The frames in front of it have been cut, and their spans are good.
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

    /// The stream has ended: `rest` is what [`cut`](Self::cut) did not consume, `base` its position in the buffer.
    /// A last line without a line end is a frame.
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
        // One byte more than the limit may still turn out to be the CR of a line end.
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
