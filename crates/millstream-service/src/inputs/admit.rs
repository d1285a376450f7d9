//! Which journals a service accepts as inputs: none that it writes to itself, and none whose records are all for other
//! services.

use std::collections::BTreeSet;

use millstream_journal::Journal;
use millstream_wire::{Note, Record, Schema};

use crate::error::ServiceError;
use crate::inputs::names::same_directory;
use crate::settings::OnError;

/// Refuses an input that is the output journal, under whatever name.
pub(crate) fn not_own_output(input: &Journal, written: &Journal) -> Result<(), ServiceError> {
    let input = input.path();
    let written = written.path();
    if same_directory(&input, &written) {
        return Err(ServiceError::SameJournal {
            input: input.display().to_string(),
            written: written.display().to_string(),
        });
    }
    Ok(())
}

/// Refuses an input to which the service would write, its output or its dead letters.
pub(crate) fn not_written<'a>(
    inputs: impl Iterator<Item = &'a Journal> + Clone,
    output: Option<&Journal>,
    on_error: &OnError,
) -> Result<(), ServiceError> {
    let dead = match on_error {
        OnError::DeadLetter(journal) => Some(journal),
        OnError::Fail | OnError::Skip => None,
    };
    for written in output.into_iter().chain(dead) {
        for input in inputs.clone() {
            not_own_output(input, written)?;
        }
    }
    Ok(())
}

/// Refuses a journal that holds records, none of which is a call of one of these interfaces. An empty journal is
/// accepted.
///
/// Usually the first record is such a call. Only a journal that is refused is read to its end.
pub(crate) fn has_calls_of(journal: &Journal, schemas: &[&Schema]) -> Result<(), ServiceError> {
    let mut reader = journal.reader()?;
    let end = journal.next()?;
    let mut foreign = BTreeSet::new();
    let mut no_call = None;
    while reader.position() < end
        && let Some(record) = reader.next()?
    {
        match Record::read(record.body) {
            Ok(Record::Note(note)) => match Note::from_bytes(note) {
                Ok(Note::Schema(theirs)) => {
                    let known = |ours: &&Schema| ours.interface() == theirs.interface();
                    if schemas.iter().any(known) {
                        return Ok(());
                    }
                    foreign.insert(theirs.interface().to_owned());
                }
                Ok(Note::Dead { .. }) => no_call = no_call.or(Some(record.sequence)),
                _ => {}
            },
            // A schema names the interface of a call, unless the schema has been pruned.
            Ok(Record::Call(..)) if foreign.is_empty() => return Ok(()),
            Ok(Record::Call(..)) => {}
            Err(_) => no_call = no_call.or(Some(record.sequence)),
        }
    }
    let journal = journal.path().display().to_string();
    let names = schemas.iter().map(|schema| schema.interface());
    let expected = names.collect::<Vec<_>>().join(", ");
    if !foreign.is_empty() {
        let found = foreign.into_iter().collect::<Vec<_>>().join(", ");
        return Err(ServiceError::Foreign {
            journal,
            found,
            expected,
        });
    }
    match no_call {
        Some(sequence) => Err(ServiceError::NoCalls {
            journal,
            sequence,
            expected,
        }),
        None => Ok(()),
    }
}
