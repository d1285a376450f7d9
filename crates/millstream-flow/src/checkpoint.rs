//! Recovery: a flow that is killed goes on from its last committed epoch.
//!
//! With [`Options::recovery`](crate::Options) a run is divided into *epochs*, which are the timestamps of
//! the engine. When an epoch ends, each source notes its positions. An operator has an epoch behind it when
//! all its inputs have (alignment: what comes of a later epoch until then waits); it hands over the keys
//! that changed and what its sinks have prepared. A background thread (`commit`) writes all of that to
//! one journal (`store`), and the epoch counts once the commit behind it is durable.
//!
//! Invariant: state, times, source positions and output are always those of the same epoch. What came after the
//! last commit is cut off when the flow starts again, from the state journal and from the sinks, and
//! happens again.
//!
//! ```
//! use millstream_flow::{Emit, Flow, Options, Recovery, codec, files};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let (input, output) = (folder.path().join("in"), folder.path().join("out"));
//! # let state = folder.path().join("state");
//! std::fs::write(&input, "a\nb\na\n").unwrap();
//! let flow = Flow::new("word-count");
//! flow.source("words", files::lines(&input))
//!     .key_by(|word| word.clone())
//!     .count(Emit::Each)
//!     .items()
//!     .map(|(word, count)| format!("{word} {count}"))
//!     .sink("out", codec::encode(files::write(&output), codec::display));
//! let mut options = Options::default();
//! options.recovery = Some(Recovery::new(&state));
//! flow.run(options)?; // after kill -9 the same line goes on where the flow was
//! assert_eq!(std::fs::read_to_string(&output).unwrap(), "a 1\nb 1\na 2\n");
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```
//!
//! Asynchronous barrier snapshots (Carbone et al., 2015) have the same idea; here the barrier is the
//! progress that timely tracks anyway.

mod commit;
pub mod durable;
pub mod json;
mod of_worker;
pub mod pack;
mod record;
mod resume;
mod sinks;
mod store;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

pub use record::{Commit, SinkMark, SourceMark, TimeMark};
pub use store::{Saved, SavedKey};

pub use crate::state::codec::{BoxedCodec, Codec, Codecs, StateCodec};
pub(crate) use commit::Committer;
pub use of_worker::OfWorker;
pub use record::{Changes, REMOVED};
pub use resume::Restore;
pub(crate) use resume::{Begun, Parts, Resume, Sources, resume};
pub(crate) use sinks::{SinkOf, Sinks, WriterId, dead_letters_of};

use crate::describe::graph::NodeId;

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

/// Where a partition of a source stands.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) partition: String,
    pub(crate) position: u64,
    /// What says it where a number cannot.
    pub(crate) place: Option<Vec<u8>>,
}

/// What an operator hands over at the end of an epoch.
#[derive(Default)]
pub(crate) struct Part {
    /// The operator.
    pub(crate) root: NodeId,
    pub(crate) worker: usize,
    /// The epoch that is behind it.
    pub(crate) epoch: u64,
    /// True when no other will follow.
    pub(crate) last: bool,
    /// Positions of partitions of the source, if it is one.
    pub(crate) positions: Vec<Standing>,
    /// How far event time has come, for steps and for partitions of sources.
    pub(crate) watermarks: Vec<TimeMark>,
    /// How far processing time has come on this worker.
    pub(crate) now: i64,
    /// The keys that changed, as records.
    pub(crate) changes: Vec<Vec<u8>>,
    /// What the sinks have prepared.
    pub(crate) tokens: Vec<(WriterId, Vec<u8>)>,
    /// The next moment in processing time that the operator waits for.
    pub(crate) deadline: i64,
}

/// What the committer is told.
pub(crate) enum Told {
    /// An operator has an epoch behind it.
    Part(Part),
    /// A worker has ended.
    Ended,
    /// All sources have ended.
    Drained,
}

/// A worker's hold on recovery.
pub(crate) struct Keeping {
    /// What the operator at work will hand over.
    pub(crate) part: Part,
    /// What there was when the run began.
    pub(crate) resume: Arc<Resume>,
    pub(crate) told: Sender<Told>,
}

impl Keeping {
    /// Says that all sources have ended.
    pub(crate) fn tell_drained(&self) {
        // A committer that has gone has failed the flow.
        let _ = self.told.send(Told::Drained);
    }

    /// Hands over the part of an operator.
    pub(crate) fn hand_over(
        &mut self,
        root: NodeId,
        (worker, now): (usize, i64),
        epoch: u64,
        last: bool,
    ) {
        let part = Part {
            root,
            worker,
            now,
            epoch,
            last,
            ..std::mem::take(&mut self.part)
        };
        // A committer that has gone has failed the flow.
        let _ = self.told.send(Told::Part(part));
    }
}
