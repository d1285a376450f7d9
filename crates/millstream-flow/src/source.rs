//! Sources: a description that all workers share, and partitions, each read by one worker.

use std::path::Path;
use std::sync::Arc;

use millstream_journal::Journal;

use crate::batch::Kind;
use crate::clock::Clock;
use crate::error::Cause;
use crate::framing::Frames;
use crate::input::Input;
use crate::metrics::lag::Lag;
use crate::policy::{OnError, Policy};
use crate::poller::Io;
use crate::starting::Starting;
use crate::step::Context;

pub use crate::position::{Position, PositionError};

/// The result of asking for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A batch.
    Batch,
    /// No input now; see [`Partition::next_awake`].
    Idle,
    /// The end of the input.
    End,
    /// The input breaks off without an end: the flow fails, as in a crash.
    Abort,
}

/// A source of a flow.
///
/// A source that only reads implements [`describe`](Self::describe) and [`open`](Self::open), and
/// [`partitions`](Self::partitions) if it has several. One that keeps more than positions over runs also implements
/// [`Resumable`].
pub trait Source<B>: Send + Sync + 'static {
    /// The kind and the address, for people: `tcp listen 127.0.0.1:7001`.
    fn describe(&self) -> String;
    /// The names of the partitions in a run of so many workers; they are assigned to the workers in turn.
    ///
    /// # Errors
    /// A file that does not exist, for instance.
    fn partitions(&self, _workers: usize) -> Result<Vec<String>, Cause> {
        Ok(vec!["0".to_owned()])
    }
    /// Opens a partition, at its start or after `resume`: what [`Partition::position`] returned at the last commit.
    /// [`Io::place`] says for which worker.
    ///
    /// # Errors
    /// A port in use, a file that cannot be read, a position that the source cannot read (a [`PositionError`]).
    fn open(
        &self,
        partition: usize,
        resume: Option<&Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<B>>, Cause>;
    /// What the engine needs to know of the source to read it.
    fn settings(&self) -> SourceSettings {
        SourceSettings::default()
    }
    /// What the source does when a run begins, and keeps across runs apart from the positions of its partitions.
    fn resumable(&self) -> Option<&dyn Resumable> {
        None
    }
    /// The partitions that the source finds during a run, if there may be some.
    fn growing(&self) -> Option<&dyn Growing> {
        None
    }
    /// The same source with `frames` as its input, in which items are written as `kind` defines, for a
    /// [rehearsal](crate::Rehearsal). `None` if the source cannot make its items of that.
    #[doc(hidden)] // For the other crates of Millstream.
    fn over(&self, _frames: Arc<dyn Source<Frames>>, _kind: Kind) -> Option<Arc<dyn Source<B>>> {
        None
    }
}

/// Returns the names of the partitions that a process reads and that the flow has not read before.
pub type NewPartitions<'a> = dyn Fn() -> Result<Vec<String>, Cause> + 'a;

/// What the engine needs to know of a source to read it.
#[derive(Clone, Default)]
pub struct SourceSettings {
    /// What it reads of the storage of its machine: a file for each partition, which no sink of the flow may write, or
    /// a directory. Processes that run the flow together compare it at their start.
    pub inputs: Vec<Input>,
    /// Whether each process reads what its own machine has, as partitions of its own: files with the same names on
    /// several machines are different ones then.
    pub local: bool,
    /// The largest number of items in a batch that steps see. `None`: as many as the source puts into it, and at most
    /// what a turn allows. [`Events::limit`] never exceeds this number, and a larger batch is divided. See
    /// [`SourceExt::batch_size`](crate::SourceExt::batch_size).
    pub batch_size_max: Option<usize>,
    /// The policy for input from which no item can be made: see [`Events::poison`].
    pub on_error: OnError,
    /// Whether what it reads can be open in one process only. In a run of several processes process 0 then reads all
    /// its partitions.
    #[doc(hidden)] // For the other crates of Millstream.
    pub in_one_process: bool,
}

/// A source that has more to do when a run begins than to open its partitions: it waits for a server, or keeps more
/// across runs than the positions of its partitions, such as a list of files, a cursor, recorded input.
pub trait Resumable: Send + Sync {
    /// Waits until the server of the source answers, so that its partitions can be asked for. Called once at the
    /// beginning of each run, before all else, in each process. [`Starting`] takes the reason of a wait, for views of
    /// the start, and says when to give up.
    ///
    /// # Errors
    /// The server refuses the client, or the wait was [stopped](Starting::wait).
    #[doc(hidden)] // For the other crates of Millstream.
    fn await_server(&self, _starting: &Starting) -> Result<(), Cause> {
        Ok(())
    }
    /// Returns where partitions begin that the flow has not read before, if another start might find other positions:
    /// the end of a topic, for instance. They are committed before any input is read, and [`open`](Source::open)
    /// receives them. `new` returns the names of those that this process reads; `resumes` if the flow has read other
    /// partitions of the source.
    ///
    /// # Errors
    /// The server does not answer.
    fn first_positions(
        &self,
        _new: &NewPartitions<'_>,
        _resumes: bool,
    ) -> Result<Vec<(String, Position)>, Cause> {
        Ok(Vec::new())
    }
    /// Begins a run, before any partition is open. A source that needs to know of commits returns a [`Recording`]. If a
    /// flow was killed after its last commit, before the source was notified, the run notifies it now.
    ///
    /// # Errors
    /// A run without a state directory, for a source that needs one.
    #[doc(hidden)] // For the other crates of Millstream.
    fn begin(&self, _run: &Beginning<'_>) -> Result<Option<Arc<dyn Recording>>, Cause> {
        Ok(None)
    }
    /// Whether the partition `name` is the one that an earlier run saved as `saved`: a file by another path, for
    /// instance. It then resumes from that position, and keeps its saved name.
    #[doc(hidden)] // For the other crates of Millstream.
    fn is_same_partition(&self, name: &str, saved: &str) -> bool {
        name == saved
    }
}

/// Whether the partition `name` of a source is the one that an earlier run saved as `saved`. `resumable` is that of the source.
pub(crate) fn is_same_partition(
    resumable: Option<&dyn Resumable>,
    name: &str,
    saved: &str,
) -> bool {
    resumable.map_or(name == saved, |it| it.is_same_partition(name, saved))
}

/// A source that finds partitions during a run: those that are added to a topic, for instance.
///
/// A partition that was found is opened between two epochs, by the worker that its number stands for, and has a
/// position in the state from the end of its first epoch on. The next run learns of it by [`Source::partitions`].
pub trait Growing: Send + Sync {
    /// Returns the names of the partitions from the number `known` on. Those of [`Source::partitions`] have the first
    /// numbers, and those that were found since follow in the order in which they were found. Each worker asks after
    /// each epoch, and some times a second in a run without epochs. It must not wait.
    ///
    /// # Errors
    /// An error, which ends the flow.
    fn found(&self, known: usize) -> Result<Vec<String>, Cause>;
}

/// Passes methods of a [`Source`](crate::source::Source) on to a source inside: `forward_source!(this => this.source;
/// describe settings)`.
///
/// A wrapper names here what it passes on, and implements the others. Its `impl` has the lint
/// `clippy::missing_trait_methods`, which finds a forgotten one: with the default of a trait in its place input would
/// be lost.
#[doc(hidden)] // For the other crates of Millstream.
#[macro_export]
macro_rules! forward_source {
    ($this:ident => $inner:expr; $($method:ident)+) => {
        $($crate::forward_source!(@$method $this $inner);)+
    };
    (@describe $this:ident $inner:expr) => {
        fn describe(&self) -> String {
            let $this = self;
            $inner.describe()
        }
    };
    (@partitions $this:ident $inner:expr) => {
        fn partitions(&self, workers: usize) -> Result<Vec<String>, $crate::error::Cause> {
            let $this = self;
            $inner.partitions(workers)
        }
    };
    (@settings $this:ident $inner:expr) => {
        fn settings(&self) -> $crate::source::SourceSettings {
            let $this = self;
            $inner.settings()
        }
    };
    (@resumable $this:ident $inner:expr) => {
        fn resumable(&self) -> Option<&dyn $crate::source::Resumable> {
            let $this = self;
            $inner.resumable()
        }
    };
    (@growing $this:ident $inner:expr) => {
        fn growing(&self) -> Option<&dyn $crate::source::Growing> {
            let $this = self;
            $inner.growing()
        }
    };
}

/// Passes methods of a [`Partition`](crate::source::Partition) on, as [`forward_source`] does for a source.
#[doc(hidden)] // For the other crates of Millstream.
#[macro_export]
macro_rules! forward_partition {
    ($this:ident => $inner:expr) => {
        fn next_awake(&self) -> Option<u64> {
            let $this = self;
            $inner.next_awake()
        }
        fn lag(&self) -> Option<$crate::metrics::Lag> {
            let $this = self;
            $inner.lag()
        }
        fn position(&self) -> Result<$crate::source::Position, $crate::error::Cause> {
            let $this = self;
            $inner.position()
        }
    };
}

/// Implements a source through a pointer.
macro_rules! source_behind {
    ($pointer:ident) => {
        #[warn(clippy::missing_trait_methods)]
        impl<B: 'static> Source<B> for $pointer<dyn Source<B>> {
            forward_source!(this => (**this); describe partitions settings resumable growing);
            fn open(
                &self,
                partition: usize,
                resume: Option<&Position>,
                io: &Io,
            ) -> Result<Box<dyn Partition<B>>, Cause> {
                (**self).open(partition, resume, io)
            }
            fn over(
                &self,
                frames: Arc<dyn Source<Frames>>,
                kind: Kind,
            ) -> Option<Arc<dyn Source<B>>> {
                (**self).over(frames, kind)
            }
        }
    };
}

source_behind!(Box);
source_behind!(Arc);

/// What a source learns when a run begins.
#[doc(hidden)] // For the other crates of Millstream.
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
    /// The names of the partitions of the source in this run.
    pub partitions: &'a dyn Fn() -> Result<Vec<String>, Cause>,
    /// Whether the flow had come to its end: sources that have ended are asked for what is new.
    pub had_ended: bool,
    /// Whether to remove the saved data of the source.
    pub forget: bool,
    /// Processing time; nanoseconds since 1970.
    pub time_ns: i64,
}

/// What a source keeps beside the state directory, as commits see it: recorded input, a cursor.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Recording: Send + Sync {
    /// The journal in the state directory to which the source records its input, if it has one: another machine may
    /// follow it.
    fn journal(&self) -> Option<Journal> {
        None
    }
    /// Whether the positions of the source are those of records that it wrote itself.
    fn is_durable(&self) -> bool {
        false
    }
    /// An epoch is about to be committed: make what its positions stand for survive a loss of power. Called in the
    /// background, unless the run does without.
    ///
    /// # Errors
    /// An error of the system.
    fn sync(&self) -> Result<(), Cause> {
        Ok(())
    }
    /// An epoch is committed; these are the positions of the partitions in it. Called in the background.
    ///
    /// # Errors
    /// An error, which ends the flow.
    fn commit(&self, positions: &[(&str, Position)]) -> Result<(), Cause>;
}

/// One partition of a source, on the worker that reads it.
pub trait Partition<B> {
    /// Puts the next items into the empty `batch`, no more than [`Events::limit`] allows. Never waits.
    ///
    /// # Errors
    /// An error, which ends the flow. Input that only one client can have spoiled is counted, not raised.
    fn next_batch(&mut self, batch: &mut B, cx: &mut Events<'_>) -> Result<Next, Cause>;
    /// After [`Next::Idle`]: when to ask again, in nanoseconds of the engine's clock; `None` when
    /// a watched socket will say so.
    fn next_awake(&self) -> Option<u64> {
        None
    }
    /// Returns how much of its input is not read yet, where that is known without waiting. It is asked for once a
    /// second while a view of the run is published; a source that learns its lag from a server reports it with
    /// [`Io::lag_gauge`] instead.
    fn lag(&self) -> Option<Lag> {
        None
    }
    /// The position after the last batch, which [`Source::open`] receives when the flow resumes. A durable source is
    /// asked after each batch, others at the end of each epoch.
    ///
    /// # Errors
    /// An error, which ends the flow.
    fn position(&self) -> Result<Position, Cause>;
}

/// Receives what a partition reports besides batches.
pub struct Events<'a> {
    pub(crate) cx: &'a mut Context,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) node: usize,
    pub(crate) limit: usize,
    pub(crate) policy: &'a mut Policy,
}

impl Events<'_> {
    /// The largest number of items for the next batch, from 1: about as many as the steps handle in a millisecond. A
    /// larger batch is divided, and its epoch cannot be committed before the last part, as the position of the
    /// partition is that after the whole batch.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit.max(1)
    }
    /// Whether no batch of a source is in flight, apart from those that this chain has not flushed. In a run of several
    /// processes: to a worker of this process, or sent by it.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn quiet(&self) -> bool {
        self.cx.control.load.quiet()
    }
    /// Whether the run has other processes.
    pub(crate) fn beyond_this_process(&self) -> bool {
        self.cx.control.load.others().is_some()
    }
    /// Reports input from which no item can be made, `item` as text. [`SourceSettings::on_error`] decides what happens.
    ///
    /// # Errors
    /// The policy is to fail; a dead letter could not be written.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn poison(&mut self, item: Option<String>, cause: Cause) -> Result<(), Cause> {
        Ok(self.policy.apply(None, item, cause, self.cx)?)
    }
    /// Input was given up: a client sent a frame too long, or broke off inside one. Counted as a
    /// fault of the source, and logged as a warning.
    pub fn fault(&mut self, what: &str) {
        self.faults(1, Some(what));
    }
    /// Counts `count` faults of the source; `what`, if it is given, is logged as a warning. For faults of which clients
    /// can cause any number.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn faults(&mut self, count: u64, what: Option<&str>) {
        let step = &mut self.cx.metrics[self.node];
        step.faults += count;
        if let Some(what) = what {
            tracing::warn!(
                source = step.name.as_str(),
                "source \"{}\": {what}",
                step.name
            );
        }
    }
}
