//! Queues that crash: many clients of one server, killed between any two stores, on a machine that loses power.
//!
//! Protocol, sessions and queues are those of the server, over the journal's own recovery on a simulated disk. What clients
//! get is judged answer by answer, and after each crash the items that are left.
//!
//! ```
//! use millstream_sim::queues::{Kind, world};
//! assert_eq!(world(7, Kind::Sound).failure, None);
//! ```

mod disks;
mod model;
mod server;
mod world;

use millstream_journal::planted::{self, Bug};

pub use crate::crash::Broken;
pub use disks::Fault;

/// What is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everything as it is, which must hold.
    Sound,
    /// On a disk of which now and then a sync fails, and says so.
    FailingSyncs,
    /// On a disk whose syncs do nothing.
    Lying,
    /// With something done wrong between a queue and its journal.
    Faulty(Fault),
    /// With a bug in the journal.
    Planted(Bug),
}

impl Kind {
    /// Everything that must be found out. The bugs of the journal are those that a single writer can suffer from. A torn end that is left
    /// shows too rarely here: what comes over it must end exactly where an old frame begins. The worlds of journals find it.
    pub const WRONG: [Kind; 13] = [
        Kind::Lying,
        Kind::Faulty(Fault::AnswerBeforeSync),
        Kind::Faulty(Fault::ForgetRemovals),
        Kind::Faulty(Fault::LoseItems),
        Kind::Faulty(Fault::RepeatItems),
        Kind::Faulty(Fault::PruneTooFar),
        Kind::Planted(Bug::NoChecksum),
        Kind::Planted(Bug::AcknowledgeBeforeSync),
        Kind::Planted(Bug::TrustTail),
        Kind::Planted(Bug::WatermarkBeforeSync),
        Kind::Planted(Bug::NamesNotSynced),
        Kind::Planted(Bug::PublishFirst),
        Kind::Planted(Bug::ForgetFailedSync),
    ];
}

/// What was played, and the first promise that was broken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Servers killed inside a request.
    pub kills: u64,
    /// Disks judged after a loss of power.
    pub images: u64,
    /// Losses of power during a restart.
    pub relapses: u64,
    /// Items that were acknowledged.
    pub acknowledged: u64,
    /// Items that came again after a loss of power: they had been delivered, and no later item of their queue was acknowledged.
    pub repeated: u64,
    /// What was broken.
    pub failure: Option<Broken>,
}

impl Tally {
    /// Add what another world has played; the first failure stays.
    pub fn add(&mut self, other: &Tally) {
        self.kills += other.kills;
        self.images += other.images;
        self.relapses += other.relapses;
        self.acknowledged += other.acknowledged;
        self.repeated += other.repeated;
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
        Kind::Sound | Kind::FailingSyncs | Kind::Lying | Kind::Faulty(_) => None,
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
