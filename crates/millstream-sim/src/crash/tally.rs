//! The kinds of worlds, and the counts of a run.

use millstream_journal::storage::Defect;

use super::model::Broken;
use crate::bug::Bug;

/// The kind of a world.
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

impl Kind {
    pub(crate) fn bug(self) -> Option<Bug> {
        match self {
            Kind::Planted(bug) => Some(bug),
            _ => None,
        }
    }

    /// What is wrong with the machine.
    pub(crate) fn defect(self) -> Option<Defect> {
        match self {
            Kind::Planted(bug) => bug.defect(),
            Kind::Lying => Some(Defect::NoSyncs),
            Kind::Sound | Kind::FailingSyncs => None,
        }
    }
}

/// The counts of a run, and the first promise that was broken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Disks that a loss of power has left, also one during a recovery. Each is recovered; records that an interrupted
    /// recovery has lost are missing from the disk that is read in the end.
    pub images: u64,
    /// Recoveries in which the power went.
    pub relapses: u64,
    /// Processes killed inside a call.
    pub kills: u64,
    /// The broken promise.
    pub failure: Option<Broken>,
}

impl Tally {
    /// Add the counts of another world; the first failure stays.
    pub fn add(&mut self, other: &Tally) {
        self.images += other.images;
        self.relapses += other.relapses;
        self.kills += other.kills;
        if self.failure.is_none() {
            self.failure.clone_from(&other.failure);
        }
    }
}
