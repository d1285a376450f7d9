//! Compressed files, and bytes from elsewhere: gzip and zstd.
//!
//! A compressed file is read as a stream of the bytes that were compressed; all positions count these bytes. A
//! file may consist of several members (gzip) or frames (zstd), whose contents follow one another. Memory is
//! bounded: by the window of gzip, 32 KiB, and by 128 MiB of zstd.
//!
//! Without the feature `compression`, on by default, a file that is compressed is an error that names the feature.
//!
//! Invariant: damage and a file that ends within a member are errors, never the end of the contents.

#[cfg(any(test, not(feature = "compression")))]
mod absent;
#[cfg(feature = "compression")]
mod codecs;
mod format;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

#[cfg(not(feature = "compression"))]
use self::absent::{Decoder, Member};
#[cfg(feature = "compression")]
use self::codecs::{Decoder, Member};
use self::format::Format;
use crate::named::DROP_STATE;

/// The compression of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// By the ending of the name: `.gz` is gzip, `.zst` is zstd, others are not compressed.
    #[default]
    ByName,
    /// The file is not compressed.
    Uncompressed,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
}

impl Compression {
    /// Returns the compression of the file at `path`.
    ///
    /// ```
    /// use millstream_flow::Compression;
    ///
    /// let by_name = Compression::ByName;
    /// assert_eq!(by_name.of("a.csv.gz".as_ref()), Compression::Gzip);
    /// assert_eq!(by_name.of("a.csv".as_ref()), Compression::Uncompressed);
    /// ```
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn of(self, path: &Path) -> Self {
        let ending = path.extension().and_then(|ending| ending.to_str());
        match (self, ending) {
            (Compression::ByName, Some("gz")) => Compression::Gzip,
            (Compression::ByName, Some("zst")) => Compression::Zstd,
            (Compression::ByName, _) => Compression::Uncompressed,
            (given, _) => given,
        }
    }

    /// Returns `bytes` compressed, as one member (gzip) or frame (zstd). [`ByName`](Self::ByName) does not compress:
    /// there is no name.
    ///
    /// # Errors
    /// The error of the encoder.
    ///
    /// ```
    /// use std::io::Read;
    ///
    /// use millstream_flow::Compression;
    ///
    /// let compressed = Compression::Zstd.compress(b"to be")?;
    /// let mut text = String::new();
    /// Compression::Zstd.decompress(&compressed[..])?.read_to_string(&mut text)?;
    /// assert_eq!(text, "to be");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn compress(self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        let Some(mut compressor) = Compressor::new(self) else {
            return Ok(bytes.to_vec());
        };
        let mut out = Vec::new();
        compressor.append(bytes, &mut out)?;
        compressor.end_member(&mut out)?;
        Ok(out)
    }

    /// Returns a reader of the contents of what `reader` reads. [`ByName`](Self::ByName) does not decompress: there is
    /// no name.
    ///
    /// # Errors
    /// The decoder cannot be created. When it reads: damage, and an end within a member.
    pub fn decompress<R: Read>(self, reader: R) -> std::io::Result<Decompressed<R>> {
        let stream = match self.format() {
            None => Stream::Plain(reader),
            Some(format) => Stream::Decoded(Decoder::new(format, reader)?),
        };
        Ok(Decompressed { stream, offset: 0 })
    }

    /// Returns the format of compressed bytes; `None` where nothing is compressed.
    fn format(self) -> Option<Format> {
        match self {
            Compression::Uncompressed | Compression::ByName => None,
            Compression::Gzip => Some(Format::Gzip),
            Compression::Zstd => Some(Format::Zstd),
        }
    }
}

/// Compresses bytes into members (gzip) or frames (zstd).
pub(crate) struct Compressor {
    format: Format,
    /// The member that is being written.
    member: Option<Member>,
}

impl Compressor {
    /// Returns a compressor for the file at `path`; `None` if it is not compressed.
    pub(crate) fn of(path: &Path, compression: Compression) -> Option<Self> {
        Self::new(compression.of(path))
    }

    /// Returns a compressor; `None` where nothing is compressed.
    fn new(compression: Compression) -> Option<Self> {
        compression.format().map(|format| Compressor {
            format,
            member: None,
        })
    }

    /// Compresses bytes, and appends what is ready of the compressed bytes to `out`. Begins a member if none is
    /// begun.
    ///
    /// # Errors
    /// The error of the encoder.
    pub(crate) fn append(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
        let member = match &mut self.member {
            Some(member) => member,
            None => self.member.insert(Member::begin(self.format)?),
        };
        member.append(bytes, out)
    }

    /// Ends the member, if one is begun, and appends the rest of it to `out`.
    ///
    /// # Errors
    /// The error of the encoder.
    pub(crate) fn end_member(&mut self, out: &mut Vec<u8>) -> std::io::Result<()> {
        if let Some(member) = self.member.take() {
            out.append(&mut member.finish()?);
        }
        Ok(())
    }
}

/// The contents of what a reader reads, which may be compressed.
#[derive(Debug)]
pub struct Decompressed<R> {
    stream: Stream<R>,
    /// The number of bytes of the contents that were read.
    offset: u64,
}

/// The contents of a file that may be compressed.
pub(crate) type Contents = Decompressed<File>;

enum Stream<R> {
    Plain(R),
    Decoded(Decoder<R>),
}

impl<R> std::fmt::Debug for Stream<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Stream::Plain(_) => "Plain",
            Stream::Decoded(_) => "Decoded",
        })
    }
}

impl Decompressed<File> {
    /// Opens a file at byte `from` of its contents. Those of a compressed file are decompressed up to there.
    ///
    /// # Errors
    /// The file cannot be read, or is compressed and has fewer bytes. The caller adds the path.
    pub(crate) fn open(path: &Path, compression: Compression, from: u64) -> std::io::Result<Self> {
        let mut file = File::open(path)?;
        // An empty file has no member, and no contents.
        let compression = match file.metadata()?.len() {
            0 => Compression::Uncompressed,
            _ => compression.of(path),
        };
        if compression == Compression::Uncompressed {
            file.seek(SeekFrom::Start(from))?;
            return Ok(Decompressed {
                stream: Stream::Plain(file),
                offset: from,
            });
        }
        let mut contents = compression.decompress(file)?;
        let skipped = std::io::copy(&mut (&mut contents).take(from), &mut std::io::sink())?;
        if skipped < from {
            let what = format!(
                "it has {skipped} bytes after decompression, fewer than the {from} that were read; put it back, or \
                 drop the state of the source ({DROP_STATE}) to start again"
            );
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, what));
        }
        Ok(contents)
    }
}

impl Decompressed<File> {
    /// Returns the number of bytes of a file that is not compressed, as it is now.
    pub(crate) fn length(&self) -> Option<u64> {
        match &self.stream {
            Stream::Plain(file) => Some(file.metadata().ok()?.len()),
            Stream::Decoded(_) => None,
        }
    }
}

impl<R: Read> Decompressed<R> {
    /// Adds to an error of the decoder where it occurred.
    fn located(&self, error: &std::io::Error) -> std::io::Error {
        let (name, part, at) = match &self.stream {
            Stream::Plain(_) => return std::io::Error::new(error.kind(), error.to_string()),
            Stream::Decoded(decoder) => decoder.place(),
        };
        let read = self.offset;
        let what = match error.kind() {
            std::io::ErrorKind::UnexpectedEof => format!(
                "the {name} data ends at byte {at} within a {part}, after {read} bytes of its contents; is it complete?"
            ),
            _ => format!(
                "the {name} data is damaged at or before byte {at}, after {read} bytes of its contents: {error}"
            ),
        };
        std::io::Error::new(error.kind(), what)
    }
}

impl<R: Read> Read for Decompressed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = match &mut self.stream {
            Stream::Plain(reader) => reader.read(buffer),
            Stream::Decoded(decoder) => decoder.read(buffer),
        };
        match read {
            Ok(bytes) => {
                self.offset += bytes as u64;
                Ok(bytes)
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Err(error),
            Err(error) => Err(self.located(&error)),
        }
    }
}
