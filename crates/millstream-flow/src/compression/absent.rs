//! In place of the encoders and decoders, without the feature `compression`: an error that names the feature.

#![cfg_attr(
    feature = "compression",
    expect(dead_code, reason = "with the feature, the tests alone use it")
)]

use std::convert::Infallible;
use std::io::{self, Read};
use std::marker::PhantomData;

use super::format::Format;

/// A member that is never begun.
pub(super) enum Member {}

impl Member {
    pub(super) fn begin(format: Format) -> io::Result<Self> {
        Err(absent(format))
    }

    pub(super) fn append(&mut self, _bytes: &[u8], _out: &mut Vec<u8>) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {}
    }
}

/// A decoder that is never created.
pub(super) struct Decoder<R> {
    never: Infallible,
    reader: PhantomData<R>,
}

impl<R: Read> Decoder<R> {
    pub(super) fn new(format: Format, _reader: R) -> io::Result<Self> {
        Err(absent(format))
    }

    pub(super) fn place(&self) -> (&'static str, &'static str, u64) {
        match self.never {}
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
        let _ = self.reader;
        match self.never {}
    }
}

fn absent(format: Format) -> io::Error {
    let name = match format {
        Format::Zstd => "zstd",
        Format::Gzip => "gzip",
    };
    let what = format!(
        "{name} is not compiled in: turn on the feature \"compression\" of the crate millstream (or millstream-flow)"
    );
    io::Error::new(io::ErrorKind::Unsupported, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_format_and_the_feature() {
        for (format, name) in [(Format::Gzip, "gzip"), (Format::Zstd, "zstd")] {
            let read = Decoder::new(format, io::empty()).err();
            let written = Member::begin(format).err();
            for error in [read, written].map(|error| error.expect("an error")) {
                assert_eq!(error.kind(), io::ErrorKind::Unsupported);
                let text = error.to_string();
                assert!(
                    text.contains(name) && text.contains("the feature \"compression\""),
                    "{text}"
                );
            }
        }
    }
}
