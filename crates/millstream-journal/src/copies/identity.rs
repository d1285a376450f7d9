//! The identity of a journal: a number that it shares with its copies, under any path and on any machine, and one of its own.
//!
//! A journal gets its identity when it is made. One of an earlier version has none: it gets one when it is first opened to write, whose
//! lineage follows from its oldest segment, so that copies that were made before agree on it. The file is complete before it gets its
//! name. It changes only when the journal becomes a copy of another one.
//!
//! ```
//! use millstream_journal::{Journal, Options};
//!
//! # let folder = tempfile::tempdir()?;
//! let journal = Journal::open(folder.path().join("orders"), Options::default())?;
//! let identity = journal.identity()?.expect("it was made with one");
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

    /// The identity of the journal in a directory, which is not opened; `None` where there is no journal, or one of an earlier version.
    ///
    /// # Errors
    /// [`Error::Damage`]; an error of the system.
    pub fn of(path: impl AsRef<Path>) -> Result<Option<Self>> {
        read(&Mapped::new(path))
    }

    fn words(self) -> [u64; WORDS] {
        let (low, high) = (self.lineage as u64, (self.lineage >> 64) as u64);
        [MAGIC, low, high, self.own]
    }
}

/// The identity that is there, if any is.
pub(crate) fn read<S: Storage>(storage: &S) -> Result<Option<Identity>> {
    let words = match sealed::read(storage, IDENTITY, BYTES, MAGIC) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        words => words.map_err(|source| failed("open", storage, source))?,
    };
    let words = words.ok_or_else(|| Error::Damage {
        path: storage.path(IDENTITY),
        offset: 0,
        what: "the identity does not match its checksum".to_owned(),
    })?;
    let [_, low, high, own]: [u64; WORDS] = words;
    Ok(Some(Identity {
        lineage: u128::from(high) << 64 | u128::from(low),
        own,
    }))
}

/// Give the journal this lineage in place of its own. A crash in between leaves a journal without identity.
pub(crate) fn replace<S: Storage>(storage: &S, identity: Identity) -> Result<()> {
    loop {
        remove(storage)?;
        // Another process may be opening the journal at this moment, and finds it without an identity.
        if write(storage, identity)? == identity {
            return Ok(());
        }
    }
}

/// Give the journal this identity, unless it has one; returns the one that it has afterwards.
pub(crate) fn write<S: Storage>(storage: &S, identity: Identity) -> Result<Identity> {
    let draft = format!("draft-identity-{:016x}", identity.own);
    match sealed::write(storage, &draft, IDENTITY, BYTES, &identity.words()) {
        Ok(()) => Ok(identity),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            // Another process was faster. The draft is removed by the next recovery, if not now.
            let _removed = storage.remove(&draft);
            Ok(read(storage)?.unwrap_or(identity))
        }
        Err(error) => Err(failed("create", storage, error)),
    }
}

/// Remove the identity, if there is one.
pub(crate) fn remove<S: Storage>(storage: &S) -> Result<()> {
    match storage.remove(IDENTITY) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|source| failed("remove", storage, source)),
    }
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
