//! Encoders and decoders of gzip and zstd.

use std::io::{self, BufReader, Read, Write};

use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::format::Format;

/// The largest window of zstd, as a power of two.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// A member (gzip) or frame (zstd) that is being written.
pub(super) enum Member {
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Member {
    /// Begins a member.
    ///
    /// # Errors
    /// The error of the encoder.
    pub(super) fn begin(format: Format) -> io::Result<Self> {
        match format {
            Format::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 0)?;
                encoder.include_checksum(true)?;
                Ok(Member::Zstd(encoder))
            }
            Format::Gzip => {
                let level = flate2::Compression::default();
                Ok(Member::Gzip(GzEncoder::new(Vec::new(), level)))
            }
        }
    }

    /// Compresses bytes, and appends what is ready of the compressed bytes to `out`.
    ///
    /// # Errors
    /// The error of the encoder.
    pub(super) fn append(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Member::Gzip(encoder) => {
                encoder.write_all(bytes)?;
                out.append(encoder.get_mut());
            }
            Member::Zstd(encoder) => {
                encoder.write_all(bytes)?;
                out.append(encoder.get_mut());
            }
        }
        Ok(())
    }

    /// Returns the rest of the compressed bytes.
    ///
    /// # Errors
    /// The error of the encoder.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Member::Gzip(encoder) => encoder.finish(),
            Member::Zstd(encoder) => encoder.finish(),
        }
    }
}

/// The contents of what a reader reads.
pub(super) enum Decoder<R> {
    Gzip(Box<MultiGzDecoder<BufReader<Counted<R>>>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, BufReader<Counted<R>>>>),
}

impl<R: Read> Decoder<R> {
    /// Returns a decoder of what `reader` reads.
    ///
    /// # Errors
    /// The decoder cannot be created.
    pub(super) fn new(format: Format, reader: R) -> io::Result<Self> {
        match format {
            Format::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(Counted::new(reader))?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Ok(Decoder::Zstd(Box::new(decoder)))
            }
            Format::Gzip => {
                let counted = BufReader::new(Counted::new(reader));
                Ok(Decoder::Gzip(Box::new(MultiGzDecoder::new(counted))))
            }
        }
    }

    /// Returns the name of the format, that of its parts, and how many bytes of it have been decoded.
    pub(super) fn place(&self) -> (&'static str, &'static str, u64) {
        match self {
            Decoder::Gzip(decoder) => ("gzip", "member", taken(decoder.get_ref())),
            Decoder::Zstd(decoder) => ("zstd", "frame", taken(decoder.get_ref())),
        }
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Decoder::Gzip(decoder) => decoder.read(buffer),
            Decoder::Zstd(decoder) => decoder.read(buffer),
        }
    }
}

/// A reader with the number of bytes that it has read.
pub(super) struct Counted<R> {
    reader: R,
    bytes: u64,
}

impl<R> Counted<R> {
    fn new(reader: R) -> Self {
        Counted { reader, bytes: 0 }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

/// How many bytes a decoder has taken from its reader.
fn taken<R: Read>(reader: &BufReader<Counted<R>>) -> u64 {
    reader.get_ref().bytes - reader.buffer().len() as u64
}
