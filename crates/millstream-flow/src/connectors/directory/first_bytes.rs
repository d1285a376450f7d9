//! The first bytes of a file, which distinguish it from another file that has taken its name.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Cause, context};

/// The number of bytes that are compared.
const BYTES_MAX: u64 = 4096;

/// The number of bytes with which a file began, at most 4,096, and their hash (XXH3-64). Formatted as
/// `BYTES:HASH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FirstBytes {
    bytes: u64,
    hash: u64,
}

impl FirstBytes {
    /// Reads the first bytes of a file; `None` if it does not exist.
    pub(super) fn of(path: &Path) -> Result<Option<Self>, Cause> {
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
    pub(super) fn compare(self, path: &Path) -> Result<(), Cause> {
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
