//! Opening a journal for the verbs that only read.

use std::path::Path;

use millstream_journal::{Journal, Options};

use crate::outcome::Outcome;

/// Opens a journal read-only.
pub(super) fn open_to_read(path: &Path) -> Outcome<Journal> {
    Ok(Journal::open(path, Options::read_only())?)
}
