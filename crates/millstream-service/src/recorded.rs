//! Journals beside the output, which a service reads when it starts: the schedule, snapshots, the last input.

pub(crate) mod finished;
pub(crate) mod resume;
pub(crate) mod schedule;
pub(crate) mod snapshot;
