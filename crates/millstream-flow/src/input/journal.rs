//! Identifies a journal by its lineage, which its copies share.

use std::path::Path;

use millstream_journal::{Journal, Options};
use serde::{Deserialize, Serialize};

use super::storage::Place;

/// Identifies a journal that has a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct JournalId {
    pub(super) place: Place,
    /// The two halves of its lineage.
    lineage: (u64, u64),
}

impl JournalId {
    pub(super) fn of(path: &Path) -> Option<Self> {
        let about = std::fs::metadata(path).ok()?;
        let journal = Journal::open(path, Options::read_only()).ok()?;
        if journal.next().ok()? == 0 {
            // It may become a copy of any other.
            return None;
        }
        let lineage = journal.lineage().ok()?;
        Some(JournalId {
            place: Place::of(path, &about),
            lineage: ((lineage >> 64) as u64, lineage as u64),
        })
    }

    pub(super) fn difference(&self, other: &JournalId) -> Option<String> {
        (self.lineage != other.lineage).then(|| "they are two journals".to_owned())
    }
}
