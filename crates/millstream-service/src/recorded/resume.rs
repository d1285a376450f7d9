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
    /// How many outputs of that record exist. More may be missing: the crash may have been between two of them.
    pub outputs: u64,
    /// The sequence number of the first of them.
    pub first: u64,
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

/// Looks for the last output that has a lineage, and counts those of the same lineage before it.
pub(crate) fn find(output: &Journal) -> Result<Option<Resume>, ServiceError> {
    let mut reader = output.reader()?;
    // The lineage, how many outputs it has, the last and the first of them.
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
    let mut calls = Calls::of(output);
    let input = named(output, &mut calls, sequence, lineage.input)?;
    Ok(Some(Resume {
        lineage,
        outputs,
        first,
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
