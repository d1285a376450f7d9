//! Where a run keeps its state, how often it commits, and what it forgets.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a run keeps its state, and how often.
#[derive(Clone, Debug)]
pub struct Recovery {
    pub(crate) dir: PathBuf,
    pub(crate) epoch: Duration,
    pub(crate) sync: bool,
    pub(crate) drop: Vec<String>,
    pub(crate) fresh: bool,
    pub(crate) crash: Option<Crash>,
}

/// Where a run ends, as if the process had died. For tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// All that belongs to the n-th commit has been done, and nothing of it is committed.
    Before(u64),
    /// The n-th commit counts, and no sink has been told.
    Within(u64),
    /// The n-th commit counts, and all sinks have been told.
    Behind(u64),
}

impl Crash {
    /// The same moment around each commit, in the order in which they come.
    pub const MOMENTS: [fn(u64) -> Crash; 3] = [Crash::Before, Crash::Within, Crash::Behind];
}

impl std::fmt::Display for Crash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Crash::Before(n) => write!(f, "before commit {n}"),
            Crash::Within(n) => write!(f, "at commit {n}, before the sinks were told"),
            Crash::Behind(n) => write!(f, "behind commit {n}"),
        }
    }
}

impl Recovery {
    /// Keeps state in the directory `dir`; an epoch takes a second.
    #[must_use]
    pub fn new(dir: impl AsRef<Path>) -> Self {
        Recovery {
            dir: dir.as_ref().to_owned(),
            epoch: Duration::from_secs(1),
            sync: true,
            drop: Vec::new(),
            fresh: false,
            crash: None,
        }
    }
    /// How long an epoch takes. With none at all each source reads one batch in an epoch: for tests.
    #[must_use]
    pub fn epoch(mut self, epoch: Duration) -> Self {
        self.epoch = epoch;
        self
    }
    /// Whether a commit waits until it survives a loss of power, as it does unless told otherwise. What is
    /// committed survives the death of the process in any case.
    #[must_use]
    pub fn sync(mut self, sync: bool) -> Self {
        self.sync = sync;
        self
    }
    /// Where the state is kept.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    /// Forgets what is saved of a step, source or sink.
    #[must_use]
    pub fn drop_state(mut self, step: &str) -> Self {
        self.drop.push(step.to_owned());
        self
    }
    /// Forgets all that is saved of the flow, and begins anew. A directory that holds the state of another flow is an
    /// error, and nothing is forgotten.
    #[must_use]
    pub fn fresh(mut self) -> Self {
        self.fresh = true;
        self
    }
    /// Ends the run with an error behind its n-th commit, as if the process had died. For tests.
    #[must_use]
    pub fn crash_after(self, commits: u64) -> Self {
        self.crash(Crash::Behind(commits))
    }
    /// Ends the run with an error at a moment of its n-th commit, as if the process had died. For tests.
    #[must_use]
    pub fn crash(mut self, at: Crash) -> Self {
        self.crash = Some(at);
        self
    }
}
