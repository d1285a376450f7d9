//! Batches that can be written down and read again.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Batch, Data};
use crate::error::Cause;
use crate::framing::Frames;

/// How the items of a batch are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Kind {
    /// Each as the bytes that a source of frames gave.
    Bytes = 0,
    /// Each as MessagePack, fields by name.
    MessagePack = 1,
    /// All together as one list of Python, pickled.
    Pickle = 2,
}

impl Kind {
    pub(crate) fn of(byte: u8) -> Option<Self> {
        [Kind::Bytes, Kind::MessagePack, Kind::Pickle]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// A batch that can be recorded: frames as they are, other items in some form.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Raw: Batch {
    /// The form.
    const KIND: Kind;
    /// The batch as frames, written to `scratch` unless it consists of frames.
    ///
    /// # Errors
    /// An item that cannot be written.
    fn frames<'a>(&'a self, scratch: &'a mut Frames) -> Result<&'a Frames, Cause>;
    /// Fills this empty batch with what was written; `frames` may be taken over.
    ///
    /// # Errors
    /// An item that cannot be read.
    fn fill(&mut self, frames: &mut Frames) -> Result<(), Cause>;
}

impl Raw for Frames {
    const KIND: Kind = Kind::Bytes;

    fn frames<'a>(&'a self, _: &'a mut Frames) -> Result<&'a Frames, Cause> {
        Ok(self)
    }
    fn fill(&mut self, frames: &mut Frames) -> Result<(), Cause> {
        std::mem::swap(self, frames);
        Ok(())
    }
}

impl<T: Data + Serialize + DeserializeOwned> Raw for Vec<T> {
    const KIND: Kind = Kind::MessagePack;

    fn frames<'a>(&'a self, scratch: &'a mut Frames) -> Result<&'a Frames, Cause> {
        scratch.clear();
        let mut start = 0;
        for item in self {
            rmp_serde::encode::write_named(&mut scratch.data, item)?;
            let end = u32::try_from(scratch.data.len())
                .map_err(|_| "a batch of input is larger than 4 GiB")?;
            scratch.spans.push((start, end));
            start = end;
        }
        Ok(scratch)
    }
    fn fill(&mut self, frames: &mut Frames) -> Result<(), Cause> {
        for bytes in frames.iter() {
            self.push(rmp_serde::from_slice(bytes)?);
        }
        Ok(())
    }
}
