//! Terms: who may append to a journal and its copies after one of the copies was promoted.
//!
//! A journal begins in term 0. Promoting a copy begins a term with a greater number and notes the first sequence number that belongs to it,
//! so that two histories can be compared. A journal that learns of a newer term than its own is *superseded*: it refuses appends, now and
//! when it is opened again. A *copy* refuses appends of everybody but its follower.
//!
//! The invariant: each file is complete and on the disk before it has its name, and is never changed. A greater number in a name wins, so
//! that a process that dies between two of these steps leaves one of the two states.
//!
//! ```
//! use millstream_journal::{Error, Journal, Options};
//!
//! # let folder = tempfile::tempdir()?;
//! let path = folder.path().join("orders");
//! let writer = Journal::open(&path, Options::default())?.writer()?;
//! writer.append(b"buy 100")?;
//! // Somebody reports that another copy leads in term 3:
//! writer.journal().supersede(3)?;
//! assert!(matches!(writer.append(b"sell 3"), Err(Error::Superseded { term: 0, by: 3, .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::format::sealed;
use crate::journal::Journal;
use crate::storage::Storage;

const BYTES: u64 = 64;
const TERM: &str = "term-";
const TERM_MAGIC: u64 = u64::from_le_bytes(*b"MSTERM\0\x01");
const SUPERSEDED: &str = "superseded-";
const SUPERSEDED_MAGIC: u64 = u64::from_le_bytes(*b"MSSUPER\x01");
/// How many digits the number in a name has.
const DIGITS: usize = 20;
const COPY: &str = "is-copy";
const COPY_MAGIC: u64 = u64::from_le_bytes(*b"MSCOPY\0\x01");

/// One term of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    /// The number. A journal that was never promoted is in term 0, which has no entry.
    pub number: u64,
    /// The first sequence number that belongs to it.
    pub start: u64,
    /// A random number that tells two promotions to one number apart.
    pub id: u64,
}

/// Who may append to a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The journal's term.
    pub term: u64,
    /// The newer term that it has learned of.
    pub superseded_by: Option<u64>,
    /// Whether it is a copy, to which only its follower appends.
    pub is_copy: bool,
}

/// Whether a file of the directory is one of these.
pub(crate) fn is_ours(name: &str) -> bool {
    let number = name
        .strip_prefix(TERM)
        .or_else(|| name.strip_prefix(SUPERSEDED));
    let digits = number.and_then(|number| number.get(..DIGITS));
    name == COPY || digits.is_some_and(|digits| digits.bytes().all(|c| c.is_ascii_digit()))
}

/// What the files say.
pub(crate) fn standing<S: Storage>(storage: &S) -> Result<Standing> {
    let mut standing = Standing::default();
    let mut newest = 0;
    for name in names(storage)? {
        if name == COPY {
            let [_]: [u64; 1] = read(storage, &name, COPY_MAGIC)?;
            standing.is_copy = true;
        } else if name.starts_with(TERM) {
            standing.term = standing.term.max(read_term(storage, &name)?.number);
        } else {
            let [_, number]: [u64; 2] = read(storage, &name, SUPERSEDED_MAGIC)?;
            newest = newest.max(number);
        }
    }
    standing.superseded_by = (newest > standing.term).then_some(newest);
    Ok(standing)
}

/// Whether the processes of this opening may append.
pub(crate) fn check<S: Storage>(core: &Core<S>) -> Result<()> {
    if core.options.sole_writer {
        return Ok(());
    }
    let standing = standing(&core.storage)?;
    if let Some(by) = standing.superseded_by {
        return Err(Error::Superseded {
            path: core.path(),
            term: standing.term,
            by,
        });
    }
    if standing.is_copy {
        return Err(Error::IsCopy { path: core.path() });
    }
    Ok(())
}

/// Why an append finds that appending has stopped.
#[cold]
pub(crate) fn stopped<S: Storage>(core: &Core<S>) -> Result<()> {
    if core.control()?.is_poisoned() {
        return Err(Error::Poisoned { path: core.path() });
    }
    check(core)
}

fn names<S: Storage>(storage: &S) -> Result<Vec<String>> {
    let mut names = storage
        .list("")
        .map_err(|source| failed("list", storage, "", source))?;
    names.retain(|name| is_ours(name));
    names.sort_unstable();
    Ok(names)
}

fn read<S: Storage, const WORDS: usize>(
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

fn read_term<S: Storage>(storage: &S, name: &str) -> Result<Term> {
    let [_, number, start, id]: [u64; 4] = read(storage, name, TERM_MAGIC)?;
    Ok(Term { number, start, id })
}

fn write<S: Storage>(core: &Core<S>, name: &str, words: &[u64]) -> Result<()> {
    let storage = &core.storage;
    let draft = format!("draft-{name}-{:016x}", core.options.host.random());
    match sealed::write(storage, &draft, name, BYTES, words) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // It says the same. What is left of ours goes at the next recovery, if not now.
            let _removed = storage.remove(&draft);
            Ok(())
        }
        written => written.map_err(|source| failed("create", storage, name, source)),
    }
}

fn remove<S: Storage>(storage: &S, name: &str) -> Result<()> {
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

fn file(term: &Term) -> String {
    format!("{TERM}{:020}-{:016x}", term.number, term.id)
}

impl<S: Storage> Journal<S> {
    /// All terms, oldest first. Empty in term 0.
    ///
    /// # Errors
    /// [`Error::Damage`]; what the system says.
    pub fn terms(&self) -> Result<Vec<Term>> {
        let storage = &self.core().storage;
        let names = names(storage)?.into_iter();
        let mut terms = names
            .filter(|name| name.starts_with(TERM))
            .map(|name| read_term(storage, &name))
            .collect::<Result<Vec<_>>>()?;
        terms.sort_unstable();
        Ok(terms)
    }

    /// The term, whether it is superseded, and whether the journal is a copy.
    ///
    /// # Errors
    /// As [`terms`](Self::terms).
    pub fn standing(&self) -> Result<Standing> {
        standing(&self.core().storage)
    }

    /// Whether a newer term is known, by one look at the control page.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        let control = self.core().live();
        control.is_some_and(|control| control.is_superseded())
    }

    /// Begin the term `number`: from now on this journal is the leader's, and no copy. All that it holds is durable afterwards.
    ///
    /// # Errors
    /// [`Error::NotSoleWriter`] unless it was opened with [`sole_writer`](crate::Options::sole_writer); [`Error::Locked`] while another
    /// process appends, as a follower does; [`Error::Option`] when the number is not above all that are known.
    pub fn begin_term(&self, number: u64) -> Result<Term> {
        let core = self.sole()?;
        let standing = self.standing()?;
        let newest = standing.superseded_by.unwrap_or(standing.term);
        if number <= newest {
            return Err(Error::Option {
                name: "term",
                value: number,
                expected: format!("more than {newest}"),
            });
        }
        self.sync()?;
        let term = Term {
            number,
            start: self.next()?,
            id: core.options.host.random(),
        };
        self.write_term(&term)?;
        remove(&core.storage, COPY)?;
        core.sync_names()?;
        core.control()?.end_supersession();
        Ok(term)
    }

    /// Note that another copy leads in the term `number`. If that is newer than the journal's own, all processes that have the journal open
    /// refuse appends at once, and so does who opens it later. Returns whether it is newer.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; what the system says.
    pub fn supersede(&self, number: u64) -> Result<bool> {
        let core = self.core();
        let control = core.control()?;
        let standing = self.standing()?;
        if number <= standing.term {
            return Ok(false);
        }
        if standing.superseded_by.is_none_or(|by| by < number) {
            let name = format!("{SUPERSEDED}{number:020}");
            write(core, &name, &[SUPERSEDED_MAGIC, number])?;
        }
        control.supersede();
        Ok(true)
    }

    /// Mark this journal as a copy: only an opening with [`sole_writer`](crate::Options::sole_writer) appends from now on.
    ///
    /// # Errors
    /// As [`begin_term`](Self::begin_term).
    pub fn mark_as_copy(&self) -> Result<()> {
        let core = self.sole()?;
        write(core, COPY, &[COPY_MAGIC])
    }

    /// Take over the terms of the leader, whose records the copy is about to get. Others are forgotten.
    ///
    /// # Errors
    /// As [`begin_term`](Self::begin_term).
    pub fn adopt_terms(&self, terms: &[Term]) -> Result<()> {
        let core = self.sole()?;
        let own = self.terms()?;
        for term in terms.iter().filter(|term| !own.contains(term)) {
            self.write_term(term)?;
        }
        for term in own.iter().filter(|term| !terms.contains(term)) {
            remove(&core.storage, &file(term))?;
            core.sync_names()?;
        }
        if self.standing()?.superseded_by.is_none() {
            core.control()?.end_supersession();
        }
        Ok(())
    }

    fn write_term(&self, term: &Term) -> Result<()> {
        let Term { number, start, id } = *term;
        write(self.core(), &file(term), &[TERM_MAGIC, number, start, id])
    }

    /// Nobody else appends, while the writer that this takes is open.
    fn sole(&self) -> Result<&Core<S>> {
        if !self.core().options.sole_writer {
            return Err(Error::NotSoleWriter { path: self.path() });
        }
        // Kept by the opening until it ends.
        drop(self.writer()?);
        Ok(self.core())
    }
}
