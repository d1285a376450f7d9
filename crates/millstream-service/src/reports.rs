//! Reports from the journals of services: the history of a record, and latencies.

pub(crate) mod answers;
pub(crate) mod history;
pub(crate) mod latency;
