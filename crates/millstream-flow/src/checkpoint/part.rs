//! The part of an operator in an epoch, and its way to the committer.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::record::TimeMark;
use super::resume::Resume;
use super::sinks::WriterId;
use crate::cluster::Event;
use crate::node::NodeId;
use crate::source::Position;

/// The position of a partition of a source.
#[derive(Clone, Debug)]
pub(crate) struct PartitionPosition {
    pub(crate) partition: String,
    pub(crate) position: Position,
}

/// The part of one operator in an epoch that ends.
#[derive(Default)]
pub(crate) struct EpochPart {
    /// The operator.
    pub(crate) root: NodeId,
    pub(crate) worker: usize,
    /// The epoch that it has ended.
    pub(crate) epoch: u64,
    /// True if no other part of this operator follows.
    pub(crate) last: bool,
    /// Positions of partitions of the source, if it is one.
    pub(crate) positions: Vec<PartitionPosition>,
    /// The event times of steps and of partitions of sources.
    pub(crate) watermarks: Vec<TimeMark>,
    /// The processing time of this worker.
    pub(crate) now: i64,
    /// The keys that changed, as records.
    pub(crate) changes: Vec<Vec<u8>>,
    /// The steps whose keys these are, and what surrounds the values in their states.
    pub(crate) steps: Vec<(NodeId, Vec<&'static str>)>,
    /// The tokens that the sinks have prepared.
    pub(crate) tokens: Vec<(WriterId, Vec<u8>)>,
    /// The next moment in processing time that the operator waits for.
    pub(crate) deadline: i64,
}

/// A notice to the committer.
pub(crate) enum CommitNotice {
    /// An operator has ended an epoch.
    Part(EpochPart),
    /// A worker has ended.
    WorkerEnded,
    /// All sources of this process have ended.
    Drained,
    /// An event of a run of several processes that concerns commits.
    Cluster(Event),
}

/// The parts of one worker in the epochs of a run.
pub(crate) struct WorkerCheckpoint {
    /// The part of the operator that runs now.
    pub(crate) part: EpochPart,
    /// What the run resumed from.
    pub(crate) resume: Arc<Resume>,
    pub(crate) committer: Sender<CommitNotice>,
}

impl WorkerCheckpoint {
    /// Notifies the committer that all sources have ended.
    pub(crate) fn notify_drained(&self) {
        // A committer that has ended has failed the flow.
        let _ = self.committer.send(CommitNotice::Drained);
    }

    /// Sends the part of an operator.
    pub(crate) fn send_part(
        &mut self,
        root: NodeId,
        (worker, now): (usize, i64),
        epoch: u64,
        last: bool,
    ) {
        let part = EpochPart {
            root,
            worker,
            now,
            epoch,
            last,
            ..std::mem::take(&mut self.part)
        };
        // A committer that has ended has failed the flow.
        let _ = self.committer.send(CommitNotice::Part(part));
    }
}
