//! Bugs of the protocol that a test plants, to see whether its simulation finds them.

use std::cell::Cell;

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Process 0 commits when it is prepared itself.
    CommitsEarly,
    /// A message of another run is taken.
    TakesOldRun,
    /// A prepared epoch is kept, whichever run has prepared it.
    KeepsWithoutRun,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 3] = [Bug::CommitsEarly, Bug::TakesOldRun, Bug::KeepsWithoutRun];
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Runs `act` with this bug in the machines of this thread.
pub fn with<T>(bug: Option<Bug>, act: impl FnOnce() -> T) -> T {
    let before = PLANTED.replace(bug);
    let outcome = act();
    PLANTED.set(before);
    outcome
}

pub(super) fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}
