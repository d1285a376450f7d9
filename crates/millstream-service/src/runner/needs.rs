//! Which inputs a later start needs.

/// Where a rebuild begins, and so what the cursors keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// All inputs that were ever taken.
    All,
    /// What comes after the last snapshot but one.
    Snapshots,
    /// What has not been taken yet.
    New,
}

impl Needs {
    /// What a service with or without snapshots, and with or without a state from its outputs, begins with.
    pub fn of(snapshots: bool, outputs: bool, rebuild: bool) -> Self {
        match (snapshots, outputs) {
            (true, _) => Self::Snapshots,
            (false, false) if rebuild => Self::All,
            (false, _) => Self::New,
        }
    }
}
