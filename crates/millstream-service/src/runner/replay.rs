//! A replay: a component is called as the service called it, and nothing is recorded.
//!
//! The [schedule](crate::recorded::schedule) of the service says in which order inputs were taken, and when timers
//! fired. Where there is none, inputs are merged by the times of their records. A timer that the schedule does not
//! know, or any without a schedule, fires by the times of the records: at each multiple of its period between two of
//! them.

use crate::recorded::schedule::Schedule;

/// The order of a replay.
#[derive(Default)]
pub(super) struct Replay {
    /// The order in which the service took its inputs.
    pub schedule: Option<Schedule>,
    /// Which timers the schedule knows.
    pub recorded: Vec<bool>,
    /// Whether a record has been taken, which is when the other timers begin.
    pub has_begun: bool,
}
