//! Recovery: a flow that is killed resumes from its last committed epoch.
//!
//! With [`Options::recovery`](crate::Options) a run is divided into *epochs*, which are the timestamps of the
//! engine. When an epoch ends, each source records its positions. An operator completes an epoch when all its
//! inputs have completed it (alignment: input of a later epoch waits until then); it passes the keys that
//! changed and the tokens of its sinks to a background thread. That thread (`commit`) writes all of it to one
//! journal (`store`), and the epoch counts once its commit record is durable.
//!
//! Invariant: states, times, source positions and output always belong to the same epoch. What follows the last
//! commit is truncated when the flow starts again, from the state journal and from the sinks, and is processed
//! again.
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
//! flow.run(options)?; // after kill -9 the same line resumes the flow
//! assert_eq!(std::fs::read_to_string(&output).unwrap(), "a 1\nb 1\na 2\n");
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```
//!
//! Asynchronous barrier snapshots (Carbone et al., 2015) use the same idea; here the barrier is the progress
//! that timely tracks already.

mod begin;
mod commit;
mod copy;
mod directories;
mod division;
mod first_positions;
mod fits;
mod fragments;
mod kinds;
pub(crate) mod local;
mod moved_sources;
mod opened;
mod part;
mod per_worker;
mod record;
mod recovery;
mod replica;
mod rescale;
mod resume;
mod sinks;
mod sources;
mod store;
mod stored_position;
mod switch;

pub use copy::{Copied, copy};
pub use directories::{process_dir, processes_in};
pub use record::{Commit, Division, OutputMarks, SinkMark, SourceMark, StepMark, TimeMark};
pub use replica::{Replica, Serving, committed_end};
pub use rescale::{Rescaled, rescale};
pub use store::Saved;

pub use crate::saved::changes::{Changes, REMOVED};
pub use crate::saved::codec::{BoxedCodec, Codec, Codecs, StateCodec};
pub use crate::saved::restore::{Restore, SavedKey};
pub use crate::saved::{json, pack};
pub(crate) use begin::{ClusterStart, ResumedRun, resume};
pub(crate) use commit::{Committer, SharedCommits};
pub(crate) use fits::FlowParts;
pub(crate) use part::{CommitNotice, EpochPart, PartitionPosition, WorkerCheckpoint};
pub use per_worker::PerWorker;
pub use recovery::{Crash, Recovery};
pub(crate) use resume::Resume;
pub(crate) use sinks::{ErasedSink, SinkOf, Sinks, WriterId, dead_letters_of, erased_sink};
pub(crate) use sources::{Sources, erased_source};
