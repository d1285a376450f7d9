//! A run of several processes, as the flow sees it: the meeting of the processes, the connections for data, and the
//! events of the run.
//!
//! Each process builds the same flow and runs the same number of workers. `timely` carries packets between them, over
//! connections that a [`Cluster`] has made and authenticated. The epochs of all processes are committed together: each
//! process appends its parts with a *prepared* record to its own state directory; when all have, process 0 appends the
//! commit record, which is the commit point; then the others append theirs. A process that starts again asks process 0
//! whether its prepared epoch was committed. Without an answer that says so it was not (presumed abort; Gray, 1978, and
//! Mohan and Lindsay, 1983).
//!
//! Invariant: the implementation never passes on data or events of another run: each start of the whole has a run id of
//! its own.

mod resolve;

pub use resolve::{check_drops, check_own, resolve};

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use crate::error::Cause;
#[cfg(doc)]
use crate::error::NotMet;
use crate::input::InputId;

/// A process among those that run one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The number of this process, from 0.
    pub process: usize,
    /// The number of processes.
    pub processes: usize,
}

/// Meets the other processes of a run.
pub trait Cluster: Send + Sync {
    /// Returns the number of this process, and of all.
    fn membership(&self) -> Membership;

    /// Meets the other processes; returns when all have. It waits for a process that has not started yet, until
    /// `stopping` returns true.
    ///
    /// # Errors
    /// Another process has another flow, version or number of workers (the error names the difference), or could not be
    /// authenticated; or it has not come in time, which is a [`NotMet`]; or the wait was stopped, which is a
    /// [`JoinStopped`]: then the run ends without an error.
    fn join(&self, offer: Offer, stopping: &dyn Fn() -> bool) -> Result<Joined, Cause>;

    /// Returns the processes for which a call of [`join`](Self::join) waits at this moment, for a view of the start.
    /// None before and after it.
    fn missing(&self) -> Vec<Missing> {
        Vec::new()
    }
}

/// A process for which the start of a run waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its number.
    pub process: usize,
    /// Its address.
    pub address: String,
    /// How long it is waited for.
    pub waited: Duration,
    /// Why it is waited for although it is there: it is refused, or has not begun the run.
    pub reason: Option<String>,
}

/// The error of options that ask for something that no process has.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongOptions(pub String);

/// The error of a wait for other processes that was stopped.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("stopped while it waited for the other processes")]
pub struct JoinStopped;

/// What a process tells the others at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The name of the flow.
    pub flow: String,
    /// The version of the program, part by part: its name and its digest or version. All processes must have the same
    /// parts.
    pub version: Vec<(String, String)>,
    /// The graph of the flow, a line for each step and edge. All processes must have the same lines.
    pub graph: Vec<String>,
    /// The workers of this process. All processes must have the same number.
    pub workers: usize,
    /// The sources.
    pub sources: Vec<OfferedSource>,
    /// The state directory of this process; `None` in a run that keeps no state. All keep state, or none does.
    pub state: Option<StateOffer>,
}

/// A source, as a process has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedSource {
    /// Its name.
    pub name: String,
    /// Whether each process reads what its own machine has. Then no two processes may read one thing, and the rest is
    /// not compared.
    pub local: bool,
    /// The names of its partitions. Those of process 0 decide; another list elsewhere is an error.
    pub partitions: Vec<String>,
    /// The paths that it reads, and what is stored there, where that can be compared: it must be the same in all
    /// processes, each of which reads a part.
    pub inputs: Vec<(String, Option<InputId>)>,
}

/// Names a commit. Its epoch alone does not: a run uses the number of an epoch that was aborted again, and so do two
/// copies of one state that have each gone on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitId {
    /// The epoch.
    pub epoch: u64,
    /// The run that prepared it.
    pub run: u64,
}

/// The last records of a state directory.
///
/// A process without changes in an epoch writes nothing, so its last commit may be older than that of process 0. The
/// commit records of process 0 have the last commit of each process, with which an older copy of a directory is found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateOffer {
    /// The id of the cluster's state: made by process 0 at the first start, and part of each commit record.
    pub cluster: Option<u64>,
    /// The number of processes that the state is divided among; `None` if the directory is new.
    pub processes: Option<usize>,
    /// The last commit of this directory; `None` if it is new.
    pub committed: Option<CommitId>,
    /// What is prepared last, if no commit record follows it.
    pub prepared: Option<CommitId>,
    /// Process 0 only: the last commit in which each process had changes, as of its last commit record.
    pub members: Vec<CommitId>,
    /// The steps, sources and sinks whose state this process was asked to remove.
    pub drops: Vec<String>,
    /// If there are some: all names that this process knows, of its flow and its state.
    pub names: Vec<String>,
}

/// A run that all processes have joined.
pub struct Joined {
    /// The run id: new at each start of the whole, equal in all processes.
    pub run: u64,
    /// A connection for data to each other process; `None` at the number of this one.
    pub links: Vec<Option<Box<dyn Link>>>,
    /// The id of the cluster's state.
    pub cluster: u64,
    /// Whether the prepared epoch of this process was committed by process 0; false if it has none. If it was not, the
    /// process truncates it, durably, before it calls any function of [`member`](Self::member).
    pub keeps_prepared: bool,
    /// The last committed epoch of process 0, 0 without one: epochs of this run follow it, in all processes.
    pub epoch: u64,
    /// Where to send notices to.
    pub member: Arc<dyn Member>,
    /// The events of the run, in order.
    pub events: Receiver<Event>,
}

/// A connection for data, of bytes in order. Reads and writes block.
pub trait Link: Read + Write + Send + Sync {
    /// Returns another handle of this connection.
    ///
    /// # Errors
    /// The operating system refuses it.
    fn try_clone(&self) -> io::Result<Box<dyn Link>>;

    /// Ends one direction, or both.
    ///
    /// # Errors
    /// The connection is closed.
    fn shutdown(&self, how: Shutdown) -> io::Result<()>;
}

/// The notices of this process to the others. No call blocks; after the end of the run calls do nothing.
pub trait Member: Send + Sync {
    /// This process has opened all its connectors. When all have, each gets [`Event::Go`].
    fn built(&self);

    /// The sources of this process have ended; `has_input` tells whether they have read anything in this run, or its
    /// last commit is not that of a flow that has finished: then the flow has output at its end.
    fn drained(&self, has_input: bool);

    /// Process 0 only: ends the running epoch everywhere. Each process, process 0 too, gets [`Event::Raise`].
    fn raise(&self, raise: Raise);

    /// This process has nothing left to do before the commit of `epoch`: its prepared record is durable, or it has no
    /// changes (`changed` is false) and no such record. `last` if it has no parts of later epochs. Epochs come in
    /// order, beginning with the one after [`Joined::epoch`], which is prepared before any worker starts; each after
    /// the one before it is committed, so that a state directory has at most one prepared record without a commit.
    fn prepared(&self, epoch: u64, changed: bool, last: bool);

    /// Process 0 only: `epoch` is committed. Its commit record is durable in the state directory of process 0, or no
    /// process had changes.
    fn committed(&self, epoch: u64);

    /// The cumulative load that local workers have processed of what each process has sent to them: `handled[sender]`.
    /// Each sender gets its numbers by [`Event::Handled`].
    fn handled(&self, handled: &[HandledLoad]);

    /// How this process is doing: process 0 gets [`Event::Status`]. A later status may replace one that was not sent
    /// yet, except one that replaces the last.
    fn status(&self, _status: Status) {}

    /// This process was asked to stop: each process gets [`Event::Stop`].
    fn stop(&self);

    /// This process has failed: each process gets [`Event::Died`] with this cause, before the connection ends.
    fn failed(&self, cause: &str);

    /// This process has ended without a failure, and its connections for data may close without being taken for a
    /// death. When all have ended, each process gets [`Event::Ended`]; until then it must not exit, unless the run was
    /// asked to stop.
    fn ended(&self);

    /// Waits, for a short time at most, until all notices are sent, and the others know of the end of the run: the
    /// process is about to exit.
    fn flush(&self) {}
}

/// How a process is doing, for process 0, which shows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Whether the process has ended: it is its [report](crate::metrics::Report) then. Otherwise it is what an observer
    /// of the run has [sent](crate::watch::Watch::send_status).
    pub last: bool,
    /// The content. At most [`STATUS_BYTES_MAX`] bytes.
    #[serde(serialize_with = "as_bytes")]
    pub bytes: Vec<u8>,
}

/// One value, in place of a number for each byte.
fn as_bytes<S: Serializer>(bytes: &[u8], out: S) -> Result<S::Ok, S::Error> {
    out.serialize_bytes(bytes)
}

/// The longest status of a process, in bytes: a longer one is not sent.
pub const STATUS_BYTES_MAX: usize = 4 << 20;

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Status({} bytes, last: {})", self.bytes.len(), self.last)
    }
}

/// How an epoch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Raise {
    /// The sources continue in the next epoch.
    Next,
    /// All sources have ended: the next epoch has the output at the end of the flow.
    Ending,
    /// All sources have ended without any input since the flow finished: no step ends.
    Suspending,
}

/// What a process has handled of the packets of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandledLoad {
    /// The process that sent them.
    pub sender: usize,
    /// The worker, counted over all processes, that they were for.
    pub worker: usize,
    /// The packets' weights and items since the beginning of the run: sums that never decrease.
    pub weight: u64,
    /// See `weight`.
    pub items: u64,
    /// The number of items that the worker can process in a turn; `u64::MAX` if it is not slow.
    pub turn_items: u64,
    /// The number of items that may be in flight to the worker; `u64::MAX` if it is not slow.
    pub in_flight_items_max: u64,
    /// Whether the process of the worker has too much in flight to some worker: the sources of all processes pause. Of
    /// several loads of a process the last one counts.
    pub congested: bool,
    /// Whether an outbox of that process is full, with the same effect.
    pub outbox_full: bool,
}

/// What happens in a run of several processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All processes have built the flow: sources may read.
    Go,
    /// The sources of all processes have ended. To process 0 only.
    Drained {
        /// Whether any process has read input in this run.
        has_input: bool,
    },
    /// The running epoch ends.
    Raise(Raise),
    /// All processes have prepared the epoch, or an earlier one as their last: process 0 appends its commit record and
    /// calls [`Member::committed`]. To process 0 only, once per epoch, in order, after its own call of
    /// [`Member::prepared`], which may have been for an earlier epoch, its last.
    AllPrepared {
        /// The epoch.
        epoch: u64,
        /// The processes with changes in this epoch.
        changed: Vec<bool>,
        /// No process has parts of a later epoch.
        last: bool,
    },
    /// Process 0 has committed the epoch. To the other processes: those with a prepared record append their commit
    /// records and notify their sinks and sources.
    Committed {
        /// The epoch.
        epoch: u64,
        /// No process has parts of a later epoch.
        last: bool,
    },
    /// Another process has handled this of what this process sent to it.
    Handled(HandledLoad),
    /// Another process tells how it is doing. To process 0 only.
    Status {
        /// The process.
        process: usize,
        /// What it tells.
        status: Status,
    },
    /// A process was asked to stop.
    Stop,
    /// All processes have ended, or process 0 has in a run that was asked to stop. What dies now is not missed.
    Ended,
    /// A process has died, or its connection is lost: this one ends too, and does not commit any more.
    Died {
        /// The process that died first.
        process: usize,
        /// Why, as far as is known.
        cause: String,
    },
}
