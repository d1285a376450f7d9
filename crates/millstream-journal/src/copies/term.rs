//! Terms: which of a journal and its copies accepts appends after one of the copies was promoted.
//!
//! A journal begins in term 0. Promoting a copy begins a term with a greater number and notes the first sequence number
//! that belongs to it, so that two histories can be compared. A journal that learns of a newer term than its own is
//! *superseded*: it refuses appends, now and when it is opened again. A *copy* refuses appends of every process but its
//! follower.
//!
//! The invariant: each file is complete and on the disk before it has its name, and is never changed. A greater number
//! in a name wins, so that a process that dies between two of these steps leaves one of the two states.
//!
//! ```
//! use millstream_journal::{Error, Journal, Options};
//!
//! # let folder = tempfile::tempdir()?;
//! let path = folder.path().join("orders");
//! let writer = Journal::open(&path, Options::default())?.writer()?;
//! writer.append(b"buy 100")?;
//! // A process reports that another copy leads in term 3:
//! writer.journal().supersede(3)?;
//! assert!(matches!(writer.append(b"sell 3"), Err(Error::Superseded { term: 0, by: 3, .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::format::files::{CLAIM, CLOSED, COPY, TERM, is_term};
use crate::format::sealed;
use crate::storage::Storage;

const BYTES: u64 = 64;
pub(super) const TERM_MAGIC: u64 = u64::from_le_bytes(*b"MSTERM\0\x01");
pub(super) const SUPERSEDED_MAGIC: u64 = u64::from_le_bytes(*b"MSSUPER\x01");
pub(super) const COPY_MAGIC: u64 = u64::from_le_bytes(*b"MSCOPY\0\x01");

/// One term of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Term {
    /// The number. A journal that was never promoted is in term 0, which has no entry.
    pub number: u64,
    /// The first sequence number that belongs to it.
    pub start: u64,
    /// A random number that distinguishes two promotions to one number.
    pub id: u64,
}

/// Whether a journal accepts appends, and from which openings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Leadership {
    /// The journal's term.
    pub term: u64,
    /// The newer term that it has learned of.
    pub superseded_by: Option<u64>,
    /// Whether it is a copy, to which only its follower appends.
    pub is_copy: bool,
}

/// Reads the leadership from the files.
pub(crate) fn leadership<S: Storage>(storage: &S) -> Result<Leadership> {
    let mut leadership = Leadership::default();
    let mut newest = 0;
    for name in names(storage)? {
        if [CLAIM, CLOSED].contains(&name.as_str()) {
            continue;
        }
        if name == COPY {
            let [_]: [u64; 1] = read(storage, &name, COPY_MAGIC)?;
            leadership.is_copy = true;
        } else if name.starts_with(TERM) {
            leadership.term = leadership.term.max(read_term(storage, &name)?.number);
        } else {
            let [_, number]: [u64; 2] = read(storage, &name, SUPERSEDED_MAGIC)?;
            newest = newest.max(number);
        }
    }
    leadership.superseded_by = (newest > leadership.term).then_some(newest);
    Ok(leadership)
}

/// Whether the processes of this opening may append.
pub(crate) fn check<S: Storage>(core: &Core<S>) -> Result<()> {
    if core.options.sole_writer {
        return Ok(());
    }
    let leadership = leadership(&core.storage)?;
    if let Some(by) = leadership.superseded_by {
        return Err(Error::Superseded {
            path: core.path(),
            term: leadership.term,
            by,
        });
    }
    if leadership.is_copy {
        return Err(Error::IsCopy { path: core.path() });
    }
    if !core.options.claims && names(&core.storage)?.iter().any(|name| name == CLAIM) {
        let (path, claim) = (core.path(), core.storage.path(CLAIM));
        return Err(Error::Claimed { path, claim });
    }
    Ok(())
}

/// The error of an append in a superseded journal or a copy.
#[cold]
pub(crate) fn stopped<S: Storage>(core: &Core<S>) -> Result<()> {
    if core.control()?.is_poisoned() {
        return Err(Error::Poisoned { path: core.path() });
    }
    check(core)
}

pub(super) fn names<S: Storage>(storage: &S) -> Result<Vec<String>> {
    let mut names = storage
        .list("")
        .map_err(|source| failed("list", storage, "", source))?;
    names.retain(|name| is_term(name));
    names.sort_unstable();
    Ok(names)
}

pub(super) fn read<S: Storage, const WORDS: usize>(
    storage: &S,
    name: &str,
    magic: u64,
) -> Result<[u64; WORDS]> {
    let words = sealed::read(storage, name, BYTES, magic)
        .map_err(|source| failed("open", storage, name, source))?;
    words.ok_or_else(|| Error::Damage {
        path: storage.path(name),
        offset: 0,
        what: "the file does not match its checksum".to_owned(),
    })
}

pub(super) fn read_term<S: Storage>(storage: &S, name: &str) -> Result<Term> {
    let [_, number, start, id]: [u64; 4] = read(storage, name, TERM_MAGIC)?;
    Ok(Term { number, start, id })
}

pub(super) fn write<S: Storage>(core: &Core<S>, name: &str, words: &[u64]) -> Result<()> {
    let storage = &core.storage;
    let draft = format!("draft-{name}-{:016x}", core.options.host.random());
    match sealed::write(storage, &draft, name, BYTES, words) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // The file that is there says the same. The draft is removed by the next recovery, if not now.
            let _removed = storage.remove(&draft);
            Ok(())
        }
        written => written.map_err(|source| failed("create", storage, name, source)),
    }
}

pub(super) fn remove<S: Storage>(storage: &S, name: &str) -> Result<()> {
    match storage.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|source| failed("remove", storage, name, source)),
    }
}

fn failed<S: Storage>(verb: &'static str, storage: &S, name: &str, source: io::Error) -> Error {
    let path = storage.path(name);
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::DiskFull { path, source }
        }
        _ => Error::Io { verb, path, source },
    }
}

pub(super) fn file(term: &Term) -> String {
    format!("{TERM}{:020}-{:016x}", term.number, term.id)
}
