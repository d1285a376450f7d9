//! The input from which a service resumes after a restart: read from the end of its output journal.

use millstream_journal::Journal;
use millstream_wire::{InputName, Lineage, Record};

use crate::error::ServiceError;
use crate::inputs::calls::Calls;

/// The last input that has outputs.
#[derive(Debug, Clone)]
pub(crate) struct Resume {
    /// The input and the record.
    pub lineage: Lineage,
    /// The sequence numbers of the first and the last of them.
    pub first: u64,
    pub last: u64,
    /// The input's journal.
    pub input: InputName,
    /// How many inputs the service had then, the schedule among them.
    pub inputs: usize,
}

impl Resume {
    /// Whether its input is this one.
    pub fn is_of(&self, input: &InputName) -> bool {
        self.input.identity == input.identity
    }
}

/// Looks for the last output that has a lineage, and for the first one of the same lineage.
pub(crate) fn find(output: &Journal) -> Result<Option<Resume>, ServiceError> {
    let mut reader = output.reader()?;
    // The lineage, and its last and its first output.
    let mut found: Option<(Lineage, u64, u64)> = None;
    for sequence in (output.first()?..output.next()?).rev() {
        let record = reader.read(sequence)?;
        let Ok(Record::Call(Some(lineage), ..)) = Record::read(record.body) else {
            continue;
        };
        match &mut found {
            None => found = Some((lineage, sequence, sequence)),
            Some((same, _, first)) if *same == lineage => *first = sequence,
            Some(_) => break,
        }
    }
    let Some((lineage, last, first)) = found else {
        return Ok(None);
    };
    let mut calls = Calls::of(output);
    let input = named(output, &mut calls, last, lineage.input)?;
    Ok(Some(Resume {
        lineage,
        first,
        last,
        input,
        inputs: calls.inputs(),
    }))
}

/// The journal of an input of a lineage in the record `sequence` of a journal.
pub(crate) fn input_name(
    journal: &Journal,
    sequence: u64,
    number: u32,
) -> Result<InputName, ServiceError> {
    named(journal, &mut Calls::of(journal), sequence, number)
}

fn named(
    journal: &Journal,
    calls: &mut Calls,
    sequence: u64,
    number: u32,
) -> Result<InputName, ServiceError> {
    let name = calls.input(number, sequence).cloned();
    name.map_err(|cause| ServiceError::Input {
        journal: journal.path().display().to_string(),
        sequence,
        cause,
    })
}
