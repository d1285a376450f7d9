//! Processes of one flow that crash, lose power, are paused and disconnected, around the commit of epochs.
//!
//! The state machines are those of `millstream-cluster`. Their journals, connections and the flow above them are
//! models. After each join, and at each commit, what each process has committed is compared with what process 0 made
//! the decision of.
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
mod tally;
mod world;

pub use crate::crash::Broken;
pub use tally::{Kind, Tally};

/// Plays the world of a seed.
#[must_use]
pub fn world(seed: u64, kind: Kind) -> Tally {
    let mut world = world::World::new(seed, kind);
    let failure = world.play().err();
    Tally {
        failure,
        ..world.tally
    }
}

/// The first seed from `from` on, of `limit`, whose world finds the fault.
#[must_use]
pub fn first_found(from: u64, limit: u64, kind: Kind) -> Option<(u64, Broken)> {
    (from..from + limit).find_map(|seed| world(seed, kind).failure.map(|broken| (seed, broken)))
}
