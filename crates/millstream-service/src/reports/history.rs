//! The history of a record: the chain of records that caused it, and when each was written.

use std::path::{Path, PathBuf};

use millstream_journal::{Bookmark, Identity, Journal, Options};
use millstream_wire::{Call, InputName, Lineage, Record};

use crate::error::ServiceError;
use crate::inputs::calls::{Calls, Content};
use crate::recorded::resume::input_name;

/// A record in the chain of causes.
#[derive(Debug, Clone, PartialEq)]
#[doc(hidden)] // For the other crates of Millstream.
#[non_exhaustive]
pub struct Hop {
    /// The journal.
    pub journal: String,
    /// The record in it.
    pub sequence: u64,
    /// When it was written, in ns since 1970.
    pub time_ns: u64,
    /// Its contents; `None` for the tick of a timer.
    pub call: Option<Call>,
}

/// The chain of causes of one record, its origin last.
///
/// Journals are recognised by their identity. Each is looked for under the recorded path, as it is and relative to the
/// directory of the journal that names it; among the journals beside that one; and in `folders`, and the journals in
/// these.
///
/// # Errors
/// A journal on the way is not found; a record has been pruned, or is lost: another one may have its number.
#[doc(hidden)] // For the other crates of Millstream.
pub fn history(
    journal: &Path,
    sequence: u64,
    folders: &[PathBuf],
) -> Result<Vec<Hop>, ServiceError> {
    let mut hops = Vec::new();
    let mut next = Some((journal.to_owned(), sequence, None));
    while let Some((path, sequence, expected)) = next.take() {
        let journal = Journal::open(&path, Options::read_only())?;
        if let Some(checksum) = expected {
            journal.confirm(Bookmark::after(sequence, checksum))?;
        }
        let mut reader = journal.reader()?;
        let record = reader.read(sequence)?;
        let mut hop = Hop {
            journal: path.display().to_string(),
            sequence,
            time_ns: record.time_ns,
            call: None,
        };
        // The tick of a timer is recorded as what is no call.
        if let Ok(Record::Call(..)) = Record::read(record.body) {
            let read = Calls::of(&journal).read(sequence, record.body);
            let content = read.map_err(|cause| ServiceError::Input {
                journal: hop.journal.clone(),
                sequence,
                cause,
            })?;
            if let Content::Call(call, lineage) = content {
                hop.call = Some(call);
                if let Some(Lineage {
                    input,
                    sequence: parent,
                    checksum,
                }) = lineage
                {
                    let name = input_name(&journal, sequence, input)?;
                    next = Some((find(&name, &path, folders)?, parent, Some(checksum)));
                }
            }
        }
        hops.push(hop);
    }
    Ok(hops)
}

/// The path of the journal that a record of the journal `beside` names.
pub(crate) fn find(
    name: &InputName,
    beside: &Path,
    folders: &[PathBuf],
) -> Result<PathBuf, ServiceError> {
    let hint = Path::new(&name.path);
    let here = match beside.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut places = vec![hint.to_owned(), here.join(hint), beside.join(hint)];
    for folder in std::iter::once(here).chain(folders.iter().map(PathBuf::as_path)) {
        places.extend(hint.file_name().map(|last| folder.join(last)));
        places.push(folder.to_owned());
        places.extend(journals_in(folder));
    }
    // A journal that is damaged, or may not be read, is not the one.
    let is_it =
        |place: &&PathBuf| Identity::of(place).is_ok_and(|found| found.lineage == name.identity);
    let found = places.iter().find(is_it).cloned();
    found.ok_or_else(|| ServiceError::Unknown {
        journal: name.path.clone(),
        named_by: beside.display().to_string(),
    })
}

/// The directories in a directory, by name.
fn journals_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir())
        .collect();
    found.sort_unstable();
    found
}
