//! The options of recovery: the state directory, the length of an epoch, what is removed at the start.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::directories::process_dir;
use super::division::check_layout;
use super::replica::Replica;
use crate::cluster::Membership;
use crate::error::FlowError;
use crate::named::STATE;

/// The state directory of a run, and the length of its epochs.
///
/// ```
/// use millstream_flow::{Emit, Flow, Options, Recovery, testing};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let state = folder.path().join("state");
/// let (flow, out) = (Flow::new("counts"), testing::Collected::new());
/// flow.source("words", testing::items(["to", "be", "to"]))
///     .key_by(|word| *word)
///     .count(Emit::Each)
///     .items()
///     .sink("out", out.sink());
/// let mut options = Options::default();
/// options.recovery = Some(Recovery::new(&state));
/// flow.run(options.clone())?;
/// flow.run(options)?; // no new input: no output is repeated
/// assert_eq!(out.take(), [("to", 1), ("be", 1), ("to", 2)]);
/// # Ok::<(), millstream_flow::FlowError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Recovery {
    pub(crate) dir: PathBuf,
    pub(crate) epoch: Duration,
    pub(crate) sync: bool,
    pub(crate) drop: Vec<String>,
    pub(crate) fresh: bool,
    pub(crate) reset_clock: bool,
    pub(crate) crash: Option<Crash>,
    pub(crate) replica: Option<Arc<dyn Replica>>,
    pub(crate) commit_on_replica: bool,
}

/// The point at which a run ends as if the process had died. For tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Crash {
    /// The n-th commit is prepared, and its record is not written.
    Before(u64),
    /// In a run of several processes: the n-th commit is prepared, and no other process knows it.
    Prepared(u64),
    /// In a run of several processes: all have prepared the n-th commit, and its record is not written here.
    Decided(u64),
    /// The n-th commit is written, and no sink is notified, nor another process.
    Within(u64),
    /// The n-th commit is written, and all sinks are notified.
    After(u64),
}

impl Crash {
    /// The points around each commit, in the order in which they occur.
    pub const MOMENTS: [fn(u64) -> Crash; 3] = [Crash::Before, Crash::Within, Crash::After];
    /// The same in a run of several processes.
    pub const SHARED_MOMENTS: [fn(u64) -> Crash; 5] = [
        Crash::Before,
        Crash::Prepared,
        Crash::Decided,
        Crash::Within,
        Crash::After,
    ];
}

impl std::fmt::Display for Crash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Crash::Before(n) => write!(f, "before commit {n}"),
            Crash::Prepared(n) => write!(f, "after commit {n} was prepared"),
            Crash::Decided(n) => write!(f, "before the record of commit {n}"),
            Crash::Within(n) => write!(f, "at commit {n}, before the sinks were notified"),
            Crash::After(n) => write!(f, "after commit {n}"),
        }
    }
}

impl Recovery {
    /// Keeps state in the directory `dir`, with epochs of one second.
    #[must_use]
    pub fn new(dir: impl AsRef<Path>) -> Self {
        Recovery {
            dir: dir.as_ref().to_owned(),
            epoch: Duration::from_secs(1),
            sync: true,
            drop: Vec::new(),
            fresh: false,
            reset_clock: false,
            crash: None,
            replica: None,
            commit_on_replica: false,
        }
    }
    /// Sets the length of an epoch. With zero each source reads one batch in an epoch: for tests.
    #[must_use]
    pub fn epoch(mut self, epoch: Duration) -> Self {
        self.epoch = epoch;
        self
    }
    /// Sets whether a commit waits until it survives a loss of power, which is the default. A committed epoch
    /// survives the death of the process in any case.
    #[must_use]
    pub fn sync(mut self, sync: bool) -> Self {
        self.sync = sync;
        self
    }
    /// The same for one process of a cluster: it keeps its state in a directory of its own. Checks that the state is
    /// divided as the run is.
    pub(crate) fn of_process(&self, membership: Option<Membership>) -> Result<Self, FlowError> {
        if std::fs::metadata(&self.dir).is_ok_and(|found| !found.is_dir()) {
            let path = self.dir.display();
            return Err(FlowError::Usage(format!(
                "{STATE}: {path} is a file, not a directory"
            )));
        }
        check_layout(&self.dir, membership)?;
        let mut own = self.clone();
        if let Some(membership) = membership {
            own.dir = process_dir(&self.dir, membership.process);
        }
        Ok(own)
    }
    /// Returns the state directory.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    /// Removes the saved state of a step, source or sink.
    #[must_use]
    pub fn drop_state(mut self, step: &str) -> Self {
        self.drop.push(step.to_owned());
        self
    }
    /// Removes all saved state of the flow, which starts from nothing. If the directory holds the state of
    /// another flow, this is an error, and nothing is removed.
    #[must_use]
    pub fn fresh(mut self) -> Self {
        self.fresh = true;
        self
    }
    /// Sets processing time, and event times that are ahead of the clock, back to the clock, after a run whose clock
    /// was wrong: otherwise processing time stands still until the clock has reached it.
    #[must_use]
    pub fn reset_clock(mut self) -> Self {
        self.reset_clock = true;
        self
    }
    /// Serves the state directory to followers on other machines while the flow runs. In a run of several processes
    /// each serves its own.
    #[must_use]
    pub fn replica(mut self, replica: Arc<dyn Replica>) -> Self {
        self.replica = Some(replica);
        self
    }

    /// Sets whether a commit waits until a follower has it durably. While none is connected nothing is committed, and
    /// after a second the sources pause. It needs a [`replica`](Self::replica).
    #[must_use]
    pub fn commit_on_replica(mut self, waits: bool) -> Self {
        self.commit_on_replica = waits;
        self
    }
    /// Ends the run with an error after its n-th commit, as if the process had died. For tests.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn crash_after(self, commits: u64) -> Self {
        self.crash(Crash::After(commits))
    }
    /// Ends the run with an error at a point of its n-th commit, as if the process had died. For tests.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn crash(mut self, at: Crash) -> Self {
        self.crash = Some(at);
        self
    }
}
