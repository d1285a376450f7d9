//! Where a record comes from: the record that caused it, the one that caused that, and when each was written.

use std::path::Path;

use millstream_journal::{Journal, Options};
use millstream_wire::{Call, Catalog, Cause, Head, Lineage, Record, Unpacker};

use super::error::ServiceError;
use super::inlet::learn_segment;
use super::resume::input_name;

/// A record on the way of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct Hop {
    /// The journal.
    pub journal: String,
    /// The record in it.
    pub sequence: u64,
    /// When it was written, in ns since 1970.
    pub time_ns: u64,
    /// What it says; nothing for the tick of a timer.
    pub call: Option<Call>,
}

/// The way of the message of one record, its origin last.
///
/// # Errors
/// A journal on the way is not there; a record has been pruned.
pub fn history(journal: &Path, sequence: u64) -> Result<Vec<Hop>, ServiceError> {
    let mut hops = Vec::new();
    let mut next = Some((journal.display().to_string(), sequence));
    while let Some((name, sequence)) = next.take() {
        let journal = Journal::open(&name, Options::read_only())?;
        let mut reader = journal.reader()?;
        let record = reader.read(sequence)?;
        let mut hop = Hop {
            journal: name,
            sequence,
            time_ns: record.time_ns,
            call: None,
        };
        if let Ok(Record::Call(lineage, head, arguments)) = Record::read(record.body) {
            let call = call(&journal, sequence, head, arguments);
            hop.call = Some(call.map_err(|cause| ServiceError::Input {
                journal: hop.journal.clone(),
                sequence,
                cause,
            })?);
            if let Some(Lineage {
                input,
                sequence: parent,
            }) = lineage
            {
                next = Some((input_name(&journal, sequence, input)?, parent));
            }
        }
        hops.push(hop);
    }
    Ok(hops)
}

fn call(
    journal: &Journal,
    sequence: u64,
    head: Head,
    arguments: Unpacker<'_>,
) -> Result<Call, Cause> {
    let mut catalog = Catalog::default();
    learn_segment(journal, sequence, &mut catalog)?;
    let schema = catalog
        .schema(head.schema)
        .ok_or(millstream_wire::WireError::UnknownSchema { id: head.schema })?;
    Ok(Call::unpack(
        schema.method(head.method)?,
        arguments,
        schema,
    )?)
}
