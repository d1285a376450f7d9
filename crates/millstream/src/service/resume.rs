//! Where a service goes on after a restart: read from the end of its output journal.

use millstream_journal::Journal;
use millstream_wire::{Lineage, Record};

use super::calls::Calls;
use super::error::ServiceError;

/// The last input that has outputs.
#[derive(Debug, Clone)]
pub(super) struct Resume {
    /// The input and the record.
    pub lineage: Lineage,
    /// How many outputs of that record are there. There may be more to come: the crash may have been between two of them.
    pub outputs: u64,
    /// The sequence number of the first of them.
    pub first: u64,
    /// The name of the input's journal.
    pub input: String,
}

/// Looks for the last output that has a lineage, and counts those of the same lineage before it.
pub(super) fn find(output: &Journal) -> Result<Option<Resume>, ServiceError> {
    let mut reader = output.reader()?;
    // The lineage, how many outputs it has, and the last and the first of them.
    let mut found: Option<(Lineage, u64, u64, u64)> = None;
    for sequence in (output.first()?..output.next()?).rev() {
        let record = reader.read(sequence)?;
        let Ok(Record::Call(Some(lineage), ..)) = Record::read(record.body) else {
            continue;
        };
        match &mut found {
            None => found = Some((lineage, 1, sequence, sequence)),
            Some((last, outputs, _, first)) if *last == lineage => {
                *outputs += 1;
                *first = sequence;
            }
            Some(_) => break,
        }
    }
    let Some((lineage, outputs, sequence, first)) = found else {
        return Ok(None);
    };
    Ok(Some(Resume {
        lineage,
        outputs,
        first,
        input: input_name(output, sequence, lineage.input)?,
    }))
}

/// The name of an input of a lineage in the record `sequence` of a journal.
pub(super) fn input_name(
    journal: &Journal,
    sequence: u64,
    number: u32,
) -> Result<String, ServiceError> {
    let mut calls = Calls::of(journal);
    let name = calls.input(number, sequence).map(str::to_owned);
    name.map_err(|cause| ServiceError::Input {
        journal: journal.path().display().to_string(),
        sequence,
        cause,
    })
}
