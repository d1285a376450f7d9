//! The times of single calls, from the outputs that they have caused.

use std::path::{Path, PathBuf};

use super::Measurement;
use crate::error::ServiceError;

/// When a call was published, taken, and answered. Times are in ns since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct CallTimes {
    /// The path of the input journal.
    pub input: PathBuf,
    /// The record of the call in it.
    pub sequence: u64,
    /// The last record of the output that the call has caused.
    pub output: u64,
    /// When the call was written to the input.
    pub published_ns: u64,
    /// When the service took it; `None` where that was not measured.
    pub taken_ns: Option<u64>,
    /// When its last output was written.
    pub output_ns: u64,
}

/// Returns the times of the calls that have caused the records of the journal from `first` up to and including `last`,
/// in the order of those. Calls without an output are not among them, nor are those whose record has been pruned, and
/// ticks of timers.
///
/// Journals upstream are looked for as by [`latency`](super::latency()), in `folders` too.
///
/// # Errors
/// A journal upstream is missing or damaged.
#[doc(hidden)] // For the other crates of Millstream.
pub fn call_times(
    journal: &Path,
    first: u64,
    last: Option<u64>,
    folders: &[PathBuf],
) -> Result<Vec<CallTimes>, ServiceError> {
    let mut measurement = Measurement {
        folders,
        ..Measurement::default()
    };
    let root = measurement.node(journal.to_owned())?;
    let mut all: Vec<CallTimes> = Vec::new();
    for sequence in measurement.range(root, first, last)? {
        let Some(call) = measurement.call_of(root, sequence)? else {
            continue;
        };
        let is_same = |before: &&mut CallTimes| {
            (&before.input, before.sequence) == (&call.input, call.sequence)
        };
        match all.last_mut().filter(is_same) {
            Some(before) => {
                (before.output, before.output_ns) = (call.output, call.output_ns);
                before.taken_ns = before.taken_ns.or(call.taken_ns);
            }
            None => all.push(call),
        }
    }
    Ok(all)
}

impl Measurement<'_> {
    /// The call that has caused a record of the journal.
    fn call_of(&mut self, root: usize, sequence: u64) -> Result<Option<CallTimes>, ServiceError> {
        let Some(output) = self.event(root, sequence)?.filter(|event| event.is_call) else {
            return Ok(None);
        };
        let Some((from, input, cause)) = output.cause else {
            return Ok(None);
        };
        let Some(call) = self.event(from, cause)?.filter(|event| event.is_call) else {
            return Ok(None);
        };
        let times = [call.time_ns, output.time_ns];
        let scheduled = self.scheduled_take(root, (input, cause), times)?;
        let measured = || Some(call.time_ns.saturating_add(output.take?.after_ns));
        Ok(Some(CallTimes {
            input: self.nodes[from].path.clone(),
            sequence: cause,
            output: sequence,
            published_ns: call.time_ns,
            taken_ns: scheduled.or_else(measured),
            output_ns: output.time_ns,
        }))
    }
}
