//! Claims: a writer that may cut the journal back to its last commit, as a flow does, keeps all others from appending
//! what the cut would take.
//!
//! A *claim* is there while its owner writes, and after it until it has ended in order. Then the journal is *closed* by
//! it: all before the noted number is committed, and what others append later is theirs. A journal with both files is
//! closed: the owner removes that file before its first append, and makes it before it removes the claim.

use super::term::{names, read, remove, write};
use crate::core::Core;
use crate::error::Result;
use crate::format::files::{CLAIM, CLOSED};
use crate::journal::Journal;
use crate::storage::Storage;

const CLAIM_MAGIC: u64 = u64::from_le_bytes(*b"MSCLAIM\x01");
const CLOSED_MAGIC: u64 = u64::from_le_bytes(*b"MSCLOSE\x01");

/// The last owner of a journal, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Ownership {
    /// The owner.
    pub owner: u64,
    /// The number of the first record that is not its own, if it has ended in order.
    pub closed_at: Option<u64>,
}

impl<S: Storage> Journal<S> {
    /// The last owner, if there was one.
    ///
    /// # Errors
    /// [`Error::Damage`](crate::Error::Damage); an error of the system.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn ownership(&self) -> Result<Option<Ownership>> {
        let core = self.core();
        if has(core, CLOSED)? {
            let [_, owner, end]: [u64; 3] = read(&core.storage, CLOSED, CLOSED_MAGIC)?;
            let closed_at = Some(end);
            return Ok(Some(Ownership { owner, closed_at }));
        }
        if has(core, CLAIM)? {
            let [_, owner]: [u64; 2] = read(&core.storage, CLAIM, CLAIM_MAGIC)?;
            let closed_at = None;
            return Ok(Some(Ownership { owner, closed_at }));
        }
        Ok(None)
    }

    /// Keeps all from appending but openings that [claim](crate::Options::claims) the journal. Returns the number of
    /// the owner: `owner`, or a new one.
    ///
    /// # Errors
    /// An error of the system.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn begin_claim(&self, owner: Option<u64>) -> Result<u64> {
        let core = self.core();
        let owner = owner.unwrap_or_else(|| core.options.host.random());
        remove(&core.storage, CLAIM)?;
        write(core, CLAIM, &[CLAIM_MAGIC, owner])?;
        Ok(owner)
    }

    /// The owner is about to append: the journal is closed no more.
    ///
    /// # Errors
    /// An error of the system.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn reopen_claim(&self) -> Result<()> {
        let core = self.core();
        remove(&core.storage, CLOSED)?;
        core.sync_names()
    }

    /// The owner has ended in order, and all records before `end` are committed: others may append.
    ///
    /// # Errors
    /// An error of the system.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn end_claim(&self, owner: u64, end: u64) -> Result<()> {
        let core = self.core();
        write(core, CLOSED, &[CLOSED_MAGIC, owner, end])?;
        remove(&core.storage, CLAIM)
    }
}

fn has<S: Storage>(core: &Core<S>, name: &str) -> Result<bool> {
    Ok(names(&core.storage)?.iter().any(|it| it == name))
}
