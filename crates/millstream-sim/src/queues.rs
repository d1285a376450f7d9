//! Queues that crash: many clients of one server, killed between any two stores, on a machine that loses power.
//!
//! Protocol, sessions and queues are those of the server, over the journal's own recovery on a simulated disk. Each
//! answer to a client is checked, and after each crash the items that are left.
//!
//! ```
//! use millstream_sim::queues::{Kind, world};
//! assert_eq!(world(7, Kind::Sound).failure, None);
//! ```

mod disks;
mod model;
mod server;
mod tally;
mod world;

pub use crate::crash::Broken;
pub use disks::Fault;
pub use tally::{Kind, Tally};

/// Play the world of a seed.
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
