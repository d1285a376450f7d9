//! Durable sources: the input of a source is recorded in the state directory before it is processed.
//!
//! [`SourceExt::durable`](crate::SourceExt::durable) makes any source replayable, a TCP socket for instance. Each batch
//! is one record of the journal `STATE/inputs/NAME`. A run that resumes first processes the records after the last
//! commit, then asks the source for more.
//!
//! Invariant: a batch is processed only once it is recorded. So the records are the complete input of the flow,
//! in the order in which each partition was processed.
//!
//! ```
//! use millstream_flow::{Flow, Options, Recovery, SourceExt, durable::Recorded, testing};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let state = folder.path().join("state");
//! let (flow, out) = (Flow::new("numbers"), testing::Collected::new());
//! flow.source("numbers", testing::items(["one".to_owned(), "two".to_owned()]).durable())
//!     .sink("out", out.sink());
//! let mut options = Options::default();
//! options.recovery = Some(Recovery::new(&state));
//! flow.run(options)?;
//!
//! let mut recorded = Recorded::open(state.join("inputs/numbers"))?;
//! let mut items = 0;
//! while let Some(batch) = recorded.next_batch()? {
//!     items += batch.items().count();
//! }
//! assert_eq!(items, 2);
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! The bytes are drawn in `docs/journal-format.md`.

mod directory;
pub(crate) mod handed_on;
mod input_position;
mod partition;
mod record;
mod recorded;
mod recorder;
mod refill;

use std::sync::{Arc, Mutex, Weak};

use crate::error::Cause;
use crate::forward_source;
use crate::framing::Frames;
use crate::mutex::lock;
use crate::poller::Io;
use crate::source::{
    Beginning, Growing, NewPartitions, Partition, Position, Recording, Resumable, Source,
    is_same_partition,
};
use crate::starting::Starting;

pub use crate::batch::{Kind, Raw};
pub(crate) use directory::unescape;
pub use directory::{Retain, escape, inputs, recorded_input_dir};
pub use record::RecordedBatch;
pub use recorded::Recorded;

use partition::DurablePartition;
use recorder::Recorder;
use refill::Refill;

/// A source whose input is recorded before it is processed. Made by [`SourceExt::durable`](crate::SourceExt::durable).
pub struct Durable<S> {
    source: S,
    keep: Retain,
    /// What the source itself does when a run begins.
    resumable: fn(&S) -> Option<&dyn Resumable>,
    /// The recorder of the current run.
    recorder: Mutex<Weak<Recorder>>,
}

impl<S> Durable<S> {
    /// Records the input of `source`.
    #[must_use]
    pub fn new<B>(source: S) -> Self
    where
        S: Source<B>,
    {
        Durable {
            source,
            keep: Retain::default(),
            resumable: S::resumable,
            recorder: Mutex::default(),
        }
    }

    /// Keeps recorded input for longer than it is needed.
    #[must_use]
    pub fn keep(mut self, keep: Retain) -> Self {
        self.keep = keep;
        self
    }
}

#[warn(clippy::missing_trait_methods)]
impl<S: Source<B>, B: Raw> Source<B> for Durable<S> {
    forward_source!(this => this.source; partitions settings);
    fn describe(&self) -> String {
        format!("{}, durable", self.source.describe())
    }
    fn open(
        &self,
        partition: usize,
        resume: Option<&Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<B>>, Cause> {
        let recorder = lock(&self.recorder).upgrade();
        let recorder =
            recorder.ok_or("a durable source is opened by a run with a state directory")?;
        let start = recorder.resume(partition, resume)?;
        let source = if start.ended {
            None
        } else {
            Some(self.source.open(partition, start.position.as_ref(), io)?)
        };
        Ok(Box::new(DurablePartition::new(
            recorder, partition, source, start,
        )))
    }
    fn over(&self, frames: Arc<dyn Source<Frames>>, kind: Kind) -> Option<Arc<dyn Source<B>>> {
        if kind == B::KIND && kind != Kind::Bytes {
            Some(Arc::new(Refill::new(frames)))
        } else {
            self.source.over(frames, kind)
        }
    }
    fn resumable(&self) -> Option<&dyn Resumable> {
        Some(self)
    }
    fn growing(&self) -> Option<&dyn Growing> {
        // Its record has the partitions with which the run began.
        None
    }
}

#[warn(clippy::missing_trait_methods)]
impl<S: Send + Sync + 'static> Resumable for Durable<S> {
    fn await_server(&self, starting: &Starting) -> Result<(), Cause> {
        (self.resumable)(&self.source).map_or(Ok(()), |it| it.await_server(starting))
    }
    fn first_positions(
        &self,
        new: &NewPartitions<'_>,
        resumes: bool,
    ) -> Result<Vec<(String, Position)>, Cause> {
        match (self.resumable)(&self.source) {
            Some(resumable) => resumable.first_positions(new, resumes),
            None => Ok(Vec::new()),
        }
    }
    fn begin(&self, run: &Beginning<'_>) -> Result<Option<Arc<dyn Recording>>, Cause> {
        let recorder = Arc::new(Recorder::begin(run, self.keep, (run.partitions)()?)?);
        *lock(&self.recorder) = Arc::downgrade(&recorder);
        Ok(Some(recorder))
    }
    fn is_same_partition(&self, name: &str, saved: &str) -> bool {
        is_same_partition((self.resumable)(&self.source), name, saved)
    }
}
