//! What a world plays, and what came of it.

use millstream_journal::planted::Bug;

use super::disks::Fault;
use crate::crash::Broken;

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
