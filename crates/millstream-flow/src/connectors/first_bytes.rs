//! The first bytes of a file, which distinguish it from another file that has taken its name.
//!
//! The list of a directory has them for each file. A file that is a partition of its own has their checksum in its
//! position: of the bytes before the position, at most 4,096.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use xxhash_rust::xxh3::xxh3_64;

use crate::compression::{Compression, Contents};
use crate::error::{Cause, context};
use crate::named::DROP_STATE;
use crate::source::Position;

/// The number of bytes that are compared.
const BYTES_MAX: u64 = 4096;

/// The number of bytes with which a file began, at most 4,096, and their hash (XXH3-64). Formatted as
/// `BYTES:HASH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstBytes {
    bytes: u64,
    hash: u64,
}

impl FirstBytes {
    /// Reads the first bytes of a file; `None` if it does not exist.
    pub(crate) fn of(path: &Path) -> Result<Option<Self>, Cause> {
        Self::read(path, BYTES_MAX)
    }

    fn read(path: &Path, bytes: u64) -> Result<Option<Self>, Cause> {
        let mut first = Vec::new();
        let read = File::open(path).and_then(|file| file.take(bytes).read_to_end(&mut first));
        match read {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(context(path.display(), error)),
            Ok(bytes) => Ok(Some(FirstBytes {
                bytes: bytes as u64,
                hash: xxh3_64(&first),
            })),
        }
    }

    /// Checks that a file begins with these bytes.
    ///
    /// # Errors
    /// It begins with other bytes, or cannot be read. A file that does not exist is not an error here.
    pub(crate) fn compare(self, path: &Path) -> Result<(), Cause> {
        match Self::read(path, self.bytes)? {
            Some(now) if now != self => Err(format!(
                "{}: its first {} bytes are not those of the file that was read under this name; a new file needs a name of its own",
                path.display(),
                self.bytes
            )
            .into()),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for FirstBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:016x}", self.bytes, self.hash)
    }
}

impl FromStr for FirstBytes {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (bytes, hash) = text.split_once(':').ok_or(())?;
        Ok(FirstBytes {
            bytes: bytes.parse().map_err(|_| ())?,
            hash: u64::from_str_radix(hash, 16).map_err(|_| ())?,
        })
    }
}

/// A file that is read, whose positions know its first bytes.
pub(crate) struct KnownFile {
    contents: Contents,
    /// The first bytes of the contents that are before what is read next.
    first: Vec<u8>,
}

impl KnownFile {
    /// Opens a file at byte `from` of its contents.
    ///
    /// # Errors
    /// As for [`Contents::open`].
    pub(crate) fn open(path: &Path, compression: Compression, from: u64) -> std::io::Result<Self> {
        let first = match from {
            0 => Vec::new(),
            from => first_of(path, compression, from)?,
        };
        let contents = Contents::open(path, compression, from)?;
        Ok(KnownFile { contents, first })
    }

    /// Returns the number of bytes of a file that is not compressed, as it is now.
    pub(crate) fn length(&self) -> Option<u64> {
        self.contents.length()
    }

    /// Returns the position after so many bytes of the contents, which have been read.
    pub(crate) fn position(&self, read: u64) -> Position {
        let known =
            usize::try_from(read).map_or(self.first.len(), |read| read.min(self.first.len()));
        match &self.first[..known] {
            [] => read.into(),
            first => Position::with_checksum(read, checksum(first)),
        }
    }
}

impl Read for KnownFile {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.contents.read(into)?;
        let missing = (BYTES_MAX as usize).saturating_sub(self.first.len());
        self.first.extend_from_slice(&into[..read.min(missing)]);
        Ok(read)
    }
}

/// Checks that the contents of a file begin as they did when they were read up to this position.
///
/// # Errors
/// They begin with other bytes, or cannot be read. A file that does not exist is not an error here.
pub(crate) fn compare(
    path: &Path,
    compression: Compression,
    position: &Position,
) -> Result<(), Cause> {
    let (Some(read), Some(before)) = (position.number(), position.checksum()) else {
        return Ok(());
    };
    match first_of(path, compression, read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(context(path.display(), error)),
        Ok(first) if checksum(&first) == before => Ok(()),
        Ok(_) => Err(format!(
            "{}: its first {} bytes are not those of the file that was read; put it back, or drop the state of the source \
             ({DROP_STATE}) to read this one from its beginning",
            path.display(),
            read.min(BYTES_MAX),
        )
        .into()),
    }
}

/// Reads the first bytes of the contents, at most so many.
fn first_of(path: &Path, compression: Compression, most: u64) -> std::io::Result<Vec<u8>> {
    let mut first = Vec::new();
    let contents = Contents::open(path, compression, 0)?;
    contents.take(most.min(BYTES_MAX)).read_to_end(&mut first)?;
    Ok(first)
}

/// The lower half of their hash.
fn checksum(first: &[u8]) -> u32 {
    xxh3_64(first) as u32
}
