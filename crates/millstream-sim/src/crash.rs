//! Crashes: of processes between any two stores, of the machine with any disk that could be left.
//!
//! ```
//! use millstream_sim::crash::{Kind, world};
//! assert!(world(7, Kind::Sound).images > 0);
//! ```

mod bodies;
mod judge;
pub(crate) mod model;
mod tally;
mod world;

pub use model::Broken;
pub use tally::{Kind, Tally};

use self::model::Judged;
use self::world::World;

/// Play the world of a seed.
#[must_use]
pub fn world(seed: u64, kind: Kind) -> Tally {
    let mut world = World::new(seed, kind);
    let failure = play(&mut world).err();
    Tally {
        failure,
        ..world.tally
    }
}

/// Play all lives, and judge the disks after each.
fn play(world: &mut World) -> Judged<()> {
    for _ in 0..=world.random.below(3) {
        world.live()?;
        judge::images(world)?;
        world.attended_ns = 0;
    }
    Ok(())
}

/// The first seed from `from` on, of `limit`, whose world finds the fault.
#[must_use]
pub fn first_found(from: u64, limit: u64, kind: Kind) -> Option<(u64, Broken)> {
    (from..from + limit).find_map(|seed| world(seed, kind).failure.map(|broken| (seed, broken)))
}
