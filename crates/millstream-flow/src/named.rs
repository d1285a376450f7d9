//! The options of a run in messages, each with its names in Rust, in Python, and on the command line.
//!
//! ```
//! assert_eq!(millstream_flow::named::drop_state("orders"), "Recovery::drop_state(\"orders\")");
//! ```

pub use millstream_journal::named::Named;

/// Commits wait for a follower.
pub(crate) const COMMIT_ON_REPLICA: Named = Named([
    "Recovery::commit_on_replica",
    "commit_on_replica=True",
    "--commit-on-replica",
]);
/// Removes the state of a step, source or sink.
pub const DROP_STATE: Named = Named(["Recovery::drop_state", "drop_state=", "--drop-state"]);
/// Removes all state.
pub(crate) const FRESH: Named = Named(["Recovery::fresh", "fresh=True", "--fresh"]);
/// The state is followed by other machines.
pub(crate) const REPLICA: Named = Named(["Recovery::replica", "replica=", "--replica"]);
/// Sets saved times back to the clock.
pub(crate) const RESET_CLOCK: Named =
    Named(["Recovery::reset_clock", "reset_clock=True", "--reset-clock"]);
/// Into how many parts keys are divided; a number follows.
const SHARDS: Named = Named(["Options::shards = ", "shards=", "--shards "]);
/// The directory of the state.
pub(crate) const STATE: Named = Named(["Options::recovery", "state=", "--state DIR"]);

/// How the state of a step, source or sink is removed.
#[must_use]
pub fn drop_state(name: &str) -> String {
    DROP_STATE.with(name)
}

/// How so many shards are asked for.
pub(crate) fn shards(count: usize) -> String {
    format!("{SHARDS}{count}")
}
