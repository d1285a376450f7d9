//! What can be read from the journals of services afterwards: the history of a record, and latencies.

pub(crate) mod history;
pub(crate) mod latency;
