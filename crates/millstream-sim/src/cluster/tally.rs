//! The kinds of worlds, and the counts of a run.

use crate::crash::Broken;

/// The kind of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everything as it is, which must hold.
    Sound,
    /// Process 0 commits when it is prepared itself: the others then appear prepared too.
    CommitsEarly,
    /// A message of another run is taken: it comes with the number of this run.
    TakesOtherRun,
    /// A prepared epoch is kept, whichever run has prepared it: it is offered as one of the run that has committed.
    KeepsWithoutRun,
    /// With a process that says it is prepared before its record is durable.
    PreparedBeforeDurable,
}

impl Kind {
    /// Everything that is done wrong, and must be found.
    pub const WRONG: [Kind; 4] = [
        Kind::CommitsEarly,
        Kind::TakesOtherRun,
        Kind::KeepsWithoutRun,
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
