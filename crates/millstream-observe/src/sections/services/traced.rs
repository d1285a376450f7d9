//! The calls of a service for traces: a sample of those whose outputs are new, from the history that the journals have
//! anyway.

use std::collections::HashMap;
use std::path::PathBuf;

use millstream_journal::{Journal, Options};
use millstream_service::{CallTimes, ServiceError, call_times};

use super::calls::Contents;
use super::look::last_part;
use super::service::ServiceOf;
use crate::sections::service_figures::CallTrace;

/// The calls of one look that are traced: the newest whose take was measured.
pub(super) const CALLS_MAX: usize = 16;
/// The newest records of the output that are read for them at one look.
const RECORDS_MAX: u64 = 500;

/// What has been traced of a service.
#[derive(Default)]
pub(super) struct Traced {
    /// The next record of the output; `None` before the first look.
    next: Option<u64>,
    /// The input and the record of the last call.
    last: Option<(PathBuf, u64)>,
}

impl Traced {
    /// The calls that have had outputs since the last look; none at the first one. Journals upstream that are pruned or
    /// elsewhere have no traces.
    pub(super) fn next(&mut self, service: &ServiceOf) -> Vec<CallTrace> {
        let times = self.times(service).unwrap_or_default();
        let mut inputs = HashMap::new();
        let calls = times.into_iter().filter_map(|call| {
            let reading = inputs
                .entry(call.input.clone())
                .or_insert_with(|| Contents::open(&call.input).ok());
            let method = reading.as_mut().and_then(|of| of.method(call.sequence));
            Some(CallTrace {
                service: service.name.clone(),
                method: method.unwrap_or_default(),
                input: last_part(&call.input),
                record: call.sequence,
                published_ns: call.published_ns,
                taken_ns: call.taken_ns?,
                output_ns: call.output_ns,
            })
        });
        calls.collect()
    }

    fn times(&mut self, service: &ServiceOf) -> Result<Vec<CallTimes>, ServiceError> {
        let Some(output) = service.output.as_deref().filter(|path| path.exists()) else {
            return Ok(Vec::new());
        };
        let next = Journal::open(output, Options::read_only())?.next()?;
        let Some(first) = self.next.replace(next).filter(|first| *first < next) else {
            return Ok(Vec::new());
        };
        let first = first.max(next.saturating_sub(RECORDS_MAX));
        let mut times = call_times(output, first, Some(next - 1), &[])?;
        times.retain(|call| call.taken_ns.is_some());
        // The first one may have had its first outputs at the last look.
        let is_known =
            |call: &CallTimes| self.last.as_ref() == Some(&(call.input.clone(), call.sequence));
        if times.first().is_some_and(is_known) {
            times.remove(0);
        }
        if let Some(call) = times.last() {
            self.last = Some((call.input.clone(), call.sequence));
        }
        let early = times.len().saturating_sub(CALLS_MAX);
        times.drain(..early);
        Ok(times)
    }
}
