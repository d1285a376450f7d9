//! Where a record comes from: the record that caused it, the one that caused that, and when each was written.

use std::path::Path;

use millstream_journal::{Journal, Options};
use millstream_wire::{Call, Lineage, Record};

use super::calls::{Calls, Content};
use super::error::ServiceError;
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
                }) = lineage
                {
                    next = Some((input_name(&journal, sequence, input)?, parent));
                }
            }
        }
        hops.push(hop);
    }
    Ok(hops)
}
