//! What a service records beside its output, and reads when it starts: the schedule, snapshots, the last input.

pub(crate) mod resume;
pub(crate) mod schedule;
pub(crate) mod snapshot;
