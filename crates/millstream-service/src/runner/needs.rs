//! Which inputs a later start needs.

/// Where a rebuild begins, and so which records the cursors protect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// All inputs that were taken in any run.
    All,
    /// The inputs after the last snapshot but one.
    Snapshots,
    /// The inputs that were not taken yet.
    New,
}

impl Needs {
    /// The needs of a service with or without snapshots, and with or without a state from its outputs.
    pub fn of(snapshots: bool, outputs: bool, rebuild: bool) -> Self {
        match (snapshots, outputs) {
            (true, _) => Self::Snapshots,
            (false, false) if rebuild => Self::All,
            (false, _) => Self::New,
        }
    }
}
