//! The trace of a call of a service: the wait in the input, and the call up to its last output.
//!
//! The times are those of the history, which the machine's clock made: an effect before its cause has a span of no
//! length.

use std::hash::BuildHasher;

use serde_json::{Value, json};

use super::{Exporter, Trace};
use crate::sections::service_figures::CallTrace;

impl Exporter {
    /// Sends the traces of calls of services, which are in the order of the services.
    pub(crate) fn export_calls(&self, calls: &[CallTrace]) {
        for of_service in calls.chunk_by(|one, other| one.service == other.service) {
            let spans = of_service.iter().flat_map(|call| {
                let key = (&call.service, &call.input, call.record);
                spans(self.ids.hash_one(key), call)
            });
            let spans: Vec<Value> = spans.collect();
            self.send(&of_service[0].service, &spans);
        }
    }
}

fn spans(id: u64, call: &CallTrace) -> [Value; 3] {
    let trace = Trace {
        id: format!("{id:016x}{:016x}", call.published_ns),
        spans_id: id,
        attributes: json!([
            {"key": "service", "value": {"stringValue": call.service}},
            {"key": "method", "value": {"stringValue": call.method}},
            {"key": "input", "value": {"stringValue": call.input}},
            {"key": "record", "value": {"intValue": call.record.to_string()}},
        ]),
    };
    let from_ns = call.published_ns;
    let taken_ns = call.taken_ns.max(from_ns);
    let to_ns = call.output_ns.max(taken_ns);
    [
        trace.span(0, &call.method, [from_ns, to_ns]),
        trace.span(1, "wait", [from_ns, taken_ns]),
        trace.span(2, "call", [taken_ns, to_ns]),
    ]
}
