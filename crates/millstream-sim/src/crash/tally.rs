//! What a world plays, and what came of it.

use millstream_journal::planted::Bug;

use super::model::Broken;

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
