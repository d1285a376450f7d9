//! Changes of leadership: a journal begins a term, learns of a newer one, or becomes a copy.

use super::term::{
    COPY_MAGIC, Leadership, SUPERSEDED_MAGIC, TERM_MAGIC, Term, file, leadership, names, read_term,
    remove, write,
};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::format::files::{COPY, SUPERSEDED, TERM};
use crate::journal::Journal;
use crate::storage::Storage;

impl<S: Storage> Journal<S> {
    /// All terms, oldest first. Empty in term 0.
    ///
    /// # Errors
    /// [`Error::Damage`]; an error of the system.
    #[doc(hidden)] // For the other crates of Millstream.
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
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn leadership(&self) -> Result<Leadership> {
        leadership(&self.core().storage)
    }

    /// Whether a newer term is known, by one load from the control page.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn is_superseded(&self) -> bool {
        let control = self.core().live_control();
        control.is_some_and(|control| control.is_superseded())
    }

    /// Begin the term `number`: from now on this journal is the leader's, and no copy. All that it holds is durable
    /// afterwards.
    ///
    /// # Errors
    /// [`Error::NotSoleWriter`] unless it was opened with [`sole_writer`](crate::Options::sole_writer);
    /// [`Error::Locked`] while another process appends, as a follower does; [`Error::Option`] when the number is not
    /// above all that are known.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn begin_term(&self, number: u64) -> Result<Term> {
        let core = self.sole()?;
        let leadership = self.leadership()?;
        let newest = leadership.superseded_by.unwrap_or(leadership.term);
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

    /// Note that another copy leads in the term `number`. If that is newer than the journal's own, all processes that
    /// have the journal open refuse appends at once, and so do later openings. Returns whether it is newer.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; an error of the system.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn supersede(&self, number: u64) -> Result<bool> {
        let core = self.core();
        let control = core.control()?;
        let leadership = self.leadership()?;
        if number <= leadership.term {
            return Ok(false);
        }
        if leadership.superseded_by.is_none_or(|by| by < number) {
            let name = format!("{SUPERSEDED}{number:020}");
            write(core, &name, &[SUPERSEDED_MAGIC, number])?;
        }
        control.supersede();
        Ok(true)
    }

    /// Mark this journal as a copy: only an opening with [`sole_writer`](crate::Options::sole_writer) appends from now
    /// on.
    ///
    /// # Errors
    /// As [`begin_term`](Self::begin_term).
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn mark_as_copy(&self) -> Result<()> {
        let core = self.sole()?;
        write(core, COPY, &[COPY_MAGIC])
    }

    /// Copy the terms of the leader, whose records the copy is about to get. Others are forgotten.
    ///
    /// # Errors
    /// As [`begin_term`](Self::begin_term).
    #[doc(hidden)] // For the other crates of Millstream.
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
        if self.leadership()?.superseded_by.is_none() {
            core.control()?.end_supersession();
        }
        Ok(())
    }

    fn write_term(&self, term: &Term) -> Result<()> {
        let Term { number, start, id } = *term;
        write(self.core(), &file(term), &[TERM_MAGIC, number, start, id])
    }

    /// No other process appends while the writer that this takes is open.
    fn sole(&self) -> Result<&Core<S>> {
        if !self.core().options.sole_writer {
            return Err(Error::NotSoleWriter { path: self.path() });
        }
        // Kept by the opening until it ends.
        drop(self.writer()?);
        Ok(self.core())
    }
}
