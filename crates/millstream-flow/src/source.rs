//! What a source is: a description that every worker shares, and partitions that one worker reads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::batch::Kind;
use crate::clock::Clock;
use crate::error::Cause;
use crate::framing::Frames;
use crate::policy::{OnError, Policy};
use crate::run::poller::Io;
use crate::step::Context;

/// Where a partition stands, in its own unit: bytes of a file, items of a list, messages of a
/// socket. A partition opened at a position goes on behind it.
pub type Position = u64;

/// What asking for a batch brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A batch.
    Batch,
    /// Nothing now; see [`Partition::next_awake`].
    Idle,
    /// Nothing any more.
    End,
    /// Input that breaks off without an end: the flow fails, as it would at a crash.
    Abort,
}

/// A source of a flow.
pub trait Source<B>: Send + Sync + 'static {
    /// The kind and the place, for people: `tcp listen 127.0.0.1:7001`.
    fn describe(&self) -> String;
    /// The names of the partitions; they are dealt to the workers in turn.
    ///
    /// # Errors
    /// A file that is not there, for instance.
    fn partitions(&self) -> Result<Vec<String>, Cause> {
        Ok(vec!["0".to_owned()])
    }
    /// The same, by a source whose partitions depend on the number of workers: one for each, for instance.
    ///
    /// # Errors
    /// As for [`partitions`](Self::partitions).
    fn partitions_for(&self, _workers: usize) -> Result<Vec<String>, Cause> {
        self.partitions()
    }
    /// The files that it reads, which no sink of the flow may write.
    fn inputs(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    /// Whether the partition `name` is the one that an earlier run saved as `saved`: a file by another path, for instance. It
    /// then resumes where that one was, and keeps its saved name.
    fn is_same_partition(&self, name: &str, saved: &str) -> bool {
        name == saved
    }
    /// Opens a partition, at its start or behind `resume`. [`Io::place`] says for which worker.
    ///
    /// # Errors
    /// A port in use, a file that cannot be read.
    fn open(
        &self,
        partition: usize,
        resume: Option<Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<B>>, Cause>;

    /// As [`open`](Self::open), behind a position that is no number: what [`Partition::place`] gave at the last commit.
    ///
    /// # Errors
    /// As for `open`.
    fn open_at(
        &self,
        partition: usize,
        resume: Option<Position>,
        _place: Option<&[u8]>,
        io: &Io,
    ) -> Result<Box<dyn Partition<B>>, Cause> {
        self.open(partition, resume, io)
    }

    /// How many items a batch of this source has at most where steps see it; `None`: as many as the source puts into it, and
    /// no more than a turn allows. [`Events::limit`] never exceeds this number, and a larger batch is handed on in parts. See
    /// [`SourceExt::batch_size`](crate::SourceExt::batch_size).
    fn batch_size_max(&self) -> Option<usize> {
        None
    }

    /// A run begins, and nothing is open. A source that is to be told of commits gives what to tell. Where a flow was killed
    /// behind its last commit, before it was told of that, it is told now, and no partition is opened.
    ///
    /// # Errors
    /// A run without a state directory, for a source that needs one.
    fn begin(&self, _run: &Beginning<'_>) -> Result<Option<Arc<dyn Recording>>, Cause> {
        Ok(None)
    }
    /// What becomes of input of which no item can be made: see [`Events::poison`].
    fn on_error(&self) -> OnError {
        OnError::Fail
    }
    /// The same source with `frames` in the place of what it reads, in which items are written as `kind`
    /// says, for a [rehearsal](crate::Rehearsal). A source that cannot make its items of that gives nothing.
    fn over(&self, _frames: Arc<dyn Source<Frames>>, _kind: Kind) -> Option<Arc<dyn Source<B>>> {
        None
    }
}

/// A source whose kind is chosen when the flow is described.
impl<B: 'static> Source<B> for Box<dyn Source<B>> {
    fn describe(&self) -> String {
        (**self).describe()
    }
    fn partitions(&self) -> Result<Vec<String>, Cause> {
        (**self).partitions()
    }
    fn partitions_for(&self, workers: usize) -> Result<Vec<String>, Cause> {
        (**self).partitions_for(workers)
    }
    fn inputs(&self) -> Vec<PathBuf> {
        (**self).inputs()
    }
    fn is_same_partition(&self, name: &str, saved: &str) -> bool {
        (**self).is_same_partition(name, saved)
    }
    fn open(
        &self,
        partition: usize,
        resume: Option<Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<B>>, Cause> {
        (**self).open(partition, resume, io)
    }
    fn open_at(
        &self,
        partition: usize,
        resume: Option<Position>,
        place: Option<&[u8]>,
        io: &Io,
    ) -> Result<Box<dyn Partition<B>>, Cause> {
        (**self).open_at(partition, resume, place, io)
    }
    fn batch_size_max(&self) -> Option<usize> {
        (**self).batch_size_max()
    }
    fn begin(&self, run: &Beginning<'_>) -> Result<Option<Arc<dyn Recording>>, Cause> {
        (**self).begin(run)
    }
    fn over(&self, frames: Arc<dyn Source<Frames>>, kind: Kind) -> Option<Arc<dyn Source<B>>> {
        (**self).over(frames, kind)
    }
    fn on_error(&self) -> OnError {
        (**self).on_error()
    }
}

/// A source that a flow shares.
impl<B: 'static> Source<B> for Arc<dyn Source<B>> {
    fn describe(&self) -> String {
        (**self).describe()
    }
    fn partitions(&self) -> Result<Vec<String>, Cause> {
        (**self).partitions()
    }
    fn partitions_for(&self, workers: usize) -> Result<Vec<String>, Cause> {
        (**self).partitions_for(workers)
    }
    fn inputs(&self) -> Vec<PathBuf> {
        (**self).inputs()
    }
    fn is_same_partition(&self, name: &str, saved: &str) -> bool {
        (**self).is_same_partition(name, saved)
    }
    fn open(
        &self,
        partition: usize,
        resume: Option<Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<B>>, Cause> {
        (**self).open(partition, resume, io)
    }
    fn open_at(
        &self,
        partition: usize,
        resume: Option<Position>,
        place: Option<&[u8]>,
        io: &Io,
    ) -> Result<Box<dyn Partition<B>>, Cause> {
        (**self).open_at(partition, resume, place, io)
    }
    fn batch_size_max(&self) -> Option<usize> {
        (**self).batch_size_max()
    }
    fn begin(&self, run: &Beginning<'_>) -> Result<Option<Arc<dyn Recording>>, Cause> {
        (**self).begin(run)
    }
    fn on_error(&self) -> OnError {
        (**self).on_error()
    }
    fn over(&self, frames: Arc<dyn Source<Frames>>, kind: Kind) -> Option<Arc<dyn Source<B>>> {
        (**self).over(frames, kind)
    }
}

/// What a source is told when a run begins.
pub struct Beginning<'a> {
    /// The name of the source in the flow.
    pub source: &'a str,
    /// Where the run keeps its state, if it does.
    pub state_dir: Option<&'a Path>,
    /// Whether what is committed must survive a loss of power.
    pub sync: bool,
    /// The positions of partitions at the last commit, those of partitions that the source no longer has among them.
    pub committed: &'a [(&'a str, Position)],
    /// The same where they are those of records, because the source was durable then.
    pub recorded: &'a [(&'a str, Position)],
    /// How many workers the run has.
    pub workers: usize,
    /// Whether the flow had come to its end: sources that have ended are asked for what is new.
    pub had_ended: bool,
    /// Whether what was saved of the source is to be forgotten.
    pub forget: bool,
    /// Processing time; nanoseconds since 1970.
    pub time_ns: i64,
}

/// What a source keeps beside the state directory, as commits see it: recorded input, a cursor.
pub trait Recording: Send + Sync {
    /// Whether the positions of the source are those of records that it wrote itself.
    fn is_durable(&self) -> bool {
        false
    }
    /// An epoch is about to be committed: make what its positions stand for survive a loss of power. Called in the background,
    /// unless the run does without.
    ///
    /// # Errors
    /// What the system says.
    fn sync(&self) -> Result<(), Cause> {
        Ok(())
    }
    /// An epoch counts in which the partitions stood at these positions. Called in the background.
    ///
    /// # Errors
    /// What ends the flow.
    fn commit(&self, positions: &[(&str, Position)]) -> Result<(), Cause>;
}

/// One partition of a source, on the worker that reads it.
pub trait Partition<B> {
    /// Puts the next items into the empty `batch`, no more than [`Events::limit`] allows. Never waits.
    ///
    /// # Errors
    /// What ends the flow. Input that only one client can have spoiled is counted, not raised.
    fn next_batch(&mut self, batch: &mut B, cx: &mut Events<'_>) -> Result<Next, Cause>;
    /// After [`Next::Idle`]: when to ask again, in nanoseconds of the engine's clock; `None` when
    /// a watched socket will say so.
    fn next_awake(&self) -> Option<u64> {
        None
    }
    /// The position behind the last batch.
    fn position(&self) -> Position;
    /// The same where a number cannot say it, as bytes of the source's own; it is what [`Source::open_at`] is given.
    ///
    /// # Errors
    /// What ends the flow: it cannot be written.
    fn place(&self) -> Result<Option<Vec<u8>>, Cause> {
        Ok(None)
    }
}

/// Where a partition reports what is no batch.
pub struct Events<'a> {
    pub(crate) cx: &'a mut Context,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) node: usize,
    pub(crate) limit: usize,
    pub(crate) policy: &'a mut Policy,
}

impl Events<'_> {
    /// How many items the next batch has at most, from 1: about as many as the steps handle in a millisecond. A batch with more
    /// is handed on in parts, and its epoch cannot be committed before the last of them, as the position of the partition is
    /// that behind the batch.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit.max(1)
    }
    /// Whether nothing that sources have handed on is on its way any more, but for what this chain has not flushed.
    #[must_use]
    pub fn quiet(&self) -> bool {
        self.cx.control.quiet()
    }
    /// No item can be made of a piece of input, `item` in words: what becomes of it is up to [`Source::on_error`].
    ///
    /// # Errors
    /// The policy is to fail; a dead letter could not be written.
    pub fn poison(&mut self, item: Option<String>, cause: Cause) -> Result<(), Cause> {
        Ok(self.policy.settle(None, item, cause, self.cx)?)
    }
    /// Input was given up: a client sent a frame too long, or broke off inside one. Counted as a
    /// fault of the source, and logged as a warning.
    pub fn fault(&mut self, what: &str) {
        let step = &mut self.cx.metrics[self.node];
        step.faults += 1;
        tracing::warn!(
            source = step.name.as_str(),
            "source \"{}\": {what}",
            step.name
        );
    }
}
