//! Fields of messages as bytes: little-endian numbers, texts and lists with their length before them.
//!
//! Reading allocates no more than a small multiple of the bytes that were received.

use millstream_link::LinkError;

/// Fields that are written.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u8(&mut self, number: u8) -> &mut Self {
        self.0.push(number);
        self
    }

    pub(super) fn u64(&mut self, number: u64) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u64(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn optional(&mut self, number: Option<u64>) -> &mut Self {
        self.u8(u8::from(number.is_some()));
        if let Some(number) = number {
            self.u64(number);
        }
        self
    }

    pub(super) fn list<T>(
        &mut self,
        items: &[T],
        mut each: impl FnMut(&mut Self, &T),
    ) -> &mut Self {
        self.u64(items.len() as u64);
        for item in items {
            each(self, item);
        }
        self
    }
}

/// Fields that were not read yet.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], LinkError> {
        let (field, rest) = self.0.split_first_chunk().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(*field)
    }

    pub(super) fn u8(&mut self) -> Result<u8, LinkError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn flag(&mut self) -> Result<bool, LinkError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(malformed()),
        }
    }

    pub(super) fn u64(&mut self) -> Result<u64, LinkError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn size(&mut self) -> Result<usize, LinkError> {
        usize::try_from(self.u64()?).map_err(|_| malformed())
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], LinkError> {
        let count = self.size()?;
        let (field, rest) = self.0.split_at_checked(count).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(field)
    }

    pub(super) fn text(&mut self) -> Result<String, LinkError> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| malformed())?;
        Ok(text.to_owned())
    }

    pub(super) fn optional(&mut self) -> Result<Option<u64>, LinkError> {
        self.flag()?.then(|| self.u64()).transpose()
    }

    /// A list. Each item has a byte at least, so that the count is limited by what was received.
    pub(super) fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<T, LinkError>,
    ) -> Result<Vec<T>, LinkError> {
        let count = self.size()?;
        if count > self.0.len() {
            return Err(malformed());
        }
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(each(self)?);
        }
        Ok(items)
    }

    /// Checks that all fields were read.
    pub(super) fn end(self) -> Result<(), LinkError> {
        match self.0 {
            [] => Ok(()),
            _ => Err(malformed()),
        }
    }
}

pub(super) fn malformed() -> LinkError {
    LinkError::protocol("a message is not as it should be")
}
