//! Processes of one flow that crash, lose power, are paused and cut off, around the commit of epochs.
//!
//! The state machines are those of `millstream-cluster`. Their journals, connections and the flow above them are models. After each join, and
//! at each commit, what each process has committed is compared with what process 0 made the decision of.
//!
//! ```
//! use millstream_sim::cluster::{Kind, world};
//! assert_eq!(world(7, Kind::Sound).failure, None);
//! ```

mod disk;
mod judge;
pub mod latency;
mod network;
mod node;
mod world;

use millstream_cluster::protocol::planted::{self, Bug};

pub use crate::crash::Broken;

/// The kind of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everything as it is, which must hold.
    Sound,
    /// With a bug in the protocol.
    Planted(Bug),
    /// With a process that says it is prepared before its record is durable.
    PreparedBeforeDurable,
}

impl Kind {
    /// Everything that is done wrong, and must be found.
    pub const WRONG: [Kind; 4] = [
        Kind::Planted(Bug::CommitsEarly),
        Kind::Planted(Bug::TakesOldRun),
        Kind::Planted(Bug::KeepsWithoutRun),
        Kind::PreparedBeforeDurable,
    ];
}

/// The counts of a run, and the first promise that was broken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Processes killed, and machines that lost power.
    pub kills: u64,
    /// Runs that all processes joined.
    pub joins: u64,
    /// Epochs with changes that were committed.
    pub commits: u64,
    /// Prepared epochs that a process kept at a join, because process 0 had committed them.
    pub kept: u64,
    /// Prepared epochs that were aborted at a join.
    pub aborted: u64,
    /// Older copies that were refused.
    pub copies_refused: u64,
    /// The broken promise.
    pub failure: Option<Broken>,
}

impl Tally {
    /// Adds the counts of another world; the first failure stays.
    pub fn add(&mut self, other: &Tally) {
        self.kills += other.kills;
        self.joins += other.joins;
        self.commits += other.commits;
        self.kept += other.kept;
        self.aborted += other.aborted;
        self.copies_refused += other.copies_refused;
        if self.failure.is_none() {
            self.failure.clone_from(&other.failure);
        }
    }
}

/// Plays the world of a seed.
#[must_use]
pub fn world(seed: u64, kind: Kind) -> Tally {
    let bug = match kind {
        Kind::Planted(bug) => Some(bug),
        Kind::Sound | Kind::PreparedBeforeDurable => None,
    };
    planted::with(bug, || {
        let mut world = world::World::new(seed, kind);
        let failure = world.play().err();
        Tally {
            failure,
            ..world.tally
        }
    })
}

/// The first seed from `from` on, of `limit`, whose world finds the fault.
#[must_use]
pub fn first_found(from: u64, limit: u64, kind: Kind) -> Option<(u64, Broken)> {
    (from..from + limit).find_map(|seed| world(seed, kind).failure.map(|broken| (seed, broken)))
}
