//! The identity of a journal: a number that it shares with its copies, under any path and on any machine, and one of
//! its own.
//!
//! A journal gets its identity before its first segment. The file is complete before it gets its name. It changes only
//! when the journal becomes a copy of another one.
//!
//! ```
//! use millstream_journal::{Journal, Options};
//!
//! # let folder = tempfile::tempdir()?;
//! let journal = Journal::open(folder.path().join("orders"), Options::default())?;
//! let identity = journal.identity()?;
//! assert_eq!(journal.lineage()?, identity.lineage);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::Path;

use crate::error::{Error, Result};
use crate::format::files::IDENTITY;
use crate::format::sealed;
use crate::host::Host;
use crate::storage::{Mapped, Storage};

const BYTES: u64 = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"MSIDENT\x01");
const WORDS: usize = 4;

/// The identity of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Identity {
    /// The same for a journal and all that were copied from it, record by record.
    pub lineage: u128,
    /// This directory's own.
    pub own: u64,
}

impl Identity {
    /// One of its own, in this lineage or in a new one.
    #[must_use]
    pub fn new(lineage: Option<u128>, host: &Host) -> Self {
        let fresh = || u128::from(host.random()) << 64 | u128::from(host.random());
        Identity {
            lineage: lineage.unwrap_or_else(fresh),
            own: host.random(),
        }
    }

    /// The identity of the journal in a directory, which is not opened.
    ///
    /// # Errors
    /// [`Error::Damage`], also where there is no journal; an error of the system.
    pub fn of(path: impl AsRef<Path>) -> Result<Self> {
        read(&Mapped::new(path))
    }

    fn words(self) -> [u64; WORDS] {
        let low = self.lineage as u64;
        let high = (self.lineage >> 64) as u64;
        [MAGIC, low, high, self.own]
    }
}

/// The identity that is there.
pub(crate) fn read<S: Storage>(storage: &S) -> Result<Identity> {
    let damage = |what: &str| Error::Damage {
        path: storage.path(IDENTITY),
        offset: 0,
        what: what.to_owned(),
    };
    let words = match sealed::read(storage, IDENTITY, BYTES, MAGIC) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(damage("the file is missing, and every journal has one"));
        }
        words => words.map_err(|source| failed("open", storage, source))?,
    };
    let words = words.ok_or_else(|| damage("the identity does not match its checksum"))?;
    let [_, low, high, own]: [u64; WORDS] = words;
    Ok(Identity {
        lineage: u128::from(high) << 64 | u128::from(low),
        own,
    })
}

/// Give the journal this identity in place of the one that it has, if any. A crash leaves one of the two.
pub(crate) fn write<S: Storage>(storage: &S, identity: Identity) -> Result<()> {
    let draft = format!("draft-identity-{:016x}", identity.own);
    sealed::replace(storage, &draft, IDENTITY, BYTES, &identity.words())
        .map_err(|source| failed("create", storage, source))
}

fn failed<S: Storage>(verb: &'static str, storage: &S, source: std::io::Error) -> Error {
    let path = storage.path(IDENTITY);
    match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            Error::DiskFull { path, source }
        }
        _ => Error::Io { verb, path, source },
    }
}
