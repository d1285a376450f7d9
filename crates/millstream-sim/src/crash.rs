//! Crashes: of processes between any two stores, of the machine with any disk that could be left.
//!
//! ```
//! use millstream_sim::crash::{Kind, world};
//! assert!(world(7, Kind::Sound).images > 0);
//! ```

mod bodies;
mod judge;
pub(crate) mod model;
mod world;

use millstream_journal::planted::{self, Bug};
pub use model::Broken;

/// What is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The journal as it is, which must hold.
    Sound,
    /// On a disk of which now and then a sync fails, and says so.
    FailingSyncs,
    /// On a disk whose syncs do nothing, which must be found out.
    Lying,
    /// With a bug, which must be found.
    Planted(Bug),
}

/// What was played, and the first promise that was broken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Disks that a loss of power has left, also one during a recovery. Each is recovered; what an interrupted recovery has lost is
    /// missing from the disk that is read in the end.
    pub images: u64,
    /// Recoveries in which the power went.
    pub relapses: u64,
    /// Processes killed inside a call.
    pub kills: u64,
    /// What was broken.
    pub failure: Option<Broken>,
}

impl Tally {
    /// Add what another world has played; the first failure stays.
    pub fn add(&mut self, other: &Tally) {
        self.images += other.images;
        self.relapses += other.relapses;
        self.kills += other.kills;
        if self.failure.is_none() {
            self.failure.clone_from(&other.failure);
        }
    }
}

/// Play the world of a seed.
#[must_use]
pub fn world(seed: u64, kind: Kind) -> Tally {
    planted::plant(match kind {
        Kind::Planted(bug) => Some(bug),
        Kind::Sound | Kind::FailingSyncs | Kind::Lying => None,
    });
    let mut world = world::World::new(seed, kind);
    let failure = world.play().err();
    planted::plant(None);
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
