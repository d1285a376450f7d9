//! The kinds of worlds, and the counts of a run.

use millstream_journal::storage::Defect;

use super::disks::Fault;
use crate::bug::Bug;
use crate::crash::Broken;

/// The kind of a world.
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
    /// Every fault that must be found. The bugs of the journal are those that affect a single writer. A torn end that
    /// is not cleared shows too rarely here: a new record must end exactly where an old frame begins. The worlds of
    /// journals find it.
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
            Kind::Sound | Kind::FailingSyncs | Kind::Faulty(_) => None,
        }
    }
}

/// The counts of a run, and the first promise that was broken.
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
    /// Items that came again after a loss of power: they had been delivered, and no later item of their queue was
    /// acknowledged.
    pub repeated: u64,
    /// The broken promise.
    pub failure: Option<Broken>,
}

impl Tally {
    /// Add the counts of another world; the first failure stays.
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
