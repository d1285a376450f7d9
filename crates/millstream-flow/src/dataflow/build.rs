//! The context in which a worker builds its copy of a flow: operators, connections, and the chains between
//! them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::dataflow::{Scope, Stream};
use timely::scheduling::Activator;

use crate::batch::Batch;
use crate::control::Wrapper;
use crate::control::remote::Others;
use crate::dataflow::chain::{Copier, Tee};
use crate::dataflow::context::WorkerContext;
use crate::dataflow::edge::Form;
use crate::dataflow::packet::Packet;
use crate::dataflow::push::Push;
use crate::error::{Failure, FlowError, chain};
use crate::key::Shards;
use crate::mutex::lock;
use crate::node::{DescribedEdge, EdgeId, Node, NodeId};
use crate::poller::Poller;
use crate::rehearsal::Rehearsal;
use crate::state::Restore;
use crate::step::Step;
use crate::time::BEFORE_ALL;

/// The time of the engine's progress tracking.
pub(crate) type Epoch = u64;

pub(crate) type Capabilities = Rc<RefCell<Vec<Capability<Epoch>>>>;

/// Which workers have input, by their numbers.
pub(crate) type Feeding = Rc<[bool]>;

/// A connection between two operators, on one worker.
pub(crate) struct Edge<'s> {
    pub(crate) stream: Stream<'s, Epoch, Packet>,
    /// The workers that may send items; the others have no input.
    pub(crate) feeding: Feeding,
}

/// The context in which a worker builds its copy of the flow.
pub(crate) struct WorkerBuild<'a, 's> {
    pub(crate) scope: Scope<'s, Epoch>,
    pub(crate) context: Rc<RefCell<WorkerContext>>,
    pub(crate) poller: &'a Poller,
    pub(crate) nodes: &'a [Node],
    pub(crate) described_edges: &'a [DescribedEdge],
    pub(crate) form: Form<'a>,
    pub(crate) edges: HashMap<EdgeId, Edge<'s>>,
    /// The sources' activators, for stopping and for spinning.
    pub(crate) sources: Rc<RefCell<Vec<Activator>>>,
    /// The time at which the next source requests another turn, if one does.
    pub(crate) alarm: Rc<RefCell<Option<u64>>>,
    /// The operators that use processing time.
    pub(crate) deadlines: Rc<RefCell<Vec<Deadline>>>,
    pub(crate) worker: usize,
    pub(crate) workers: usize,
    pub(crate) hold: Option<Wrapper>,
    /// The replacements of sources and sinks, if the run is a rehearsal.
    pub(crate) rehearsal: Option<&'a Rehearsal>,
}

/// The moment in processing time at which an operator must run.
pub(crate) struct Deadline {
    pub(crate) at: Rc<Cell<i64>>,
    pub(crate) activator: Activator,
}

/// The context in which the steps of a segment are created.
pub(crate) struct SegmentBuild<'a, 's> {
    pub(crate) builder: OperatorBuilder<'s, Epoch>,
    pub(crate) capabilities: Capabilities,
    pub(crate) described_edges: &'a [DescribedEdge],
    pub(crate) form: Form<'a>,
    pub(crate) edges: &'a mut HashMap<EdgeId, Edge<'s>>,
    pub(crate) outputs: usize,
    pub(crate) feed: Feed,
    /// True if a step of this segment uses processing time.
    pub(crate) keeps_time: bool,
    pub(crate) nodes: &'a [Node],
    pub(crate) context: &'a Rc<RefCell<WorkerContext>>,
    pub(crate) rehearsal: Option<&'a Rehearsal>,
}

/// The origin of the items of a segment.
pub(crate) struct Feed {
    /// The workers that have input.
    pub(crate) workers: Feeding,
    /// The partitions that this worker reads, if the root is a source.
    pub(crate) partitions: Vec<(usize, String)>,
}

impl Feed {
    /// Items that come from other operators, of `workers` workers.
    pub(crate) fn by(workers: usize) -> Self {
        let partitions = Vec::new();
        Feed {
            workers: vec![true; workers].into(),
            partitions,
        }
    }
}

/// Divides batches among workers.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Route<B>: Send + 'static {
    /// Moves each item of `batch` to the entry of `parts` of its worker; with a key that of its
    /// [shard](Shards::worker).
    ///
    /// # Errors
    /// An item without a usable key.
    fn route(&mut self, batch: &mut B, parts: &mut [B], shards: Shards) -> Result<(), Failure>;
}

impl<'s> WorkerBuild<'_, 's> {
    /// Gives the operator, which has inputs from others, a turn before each publication.
    pub(crate) fn publish_with(&self, builder: &OperatorBuilder<'s, Epoch>) {
        let activator = self.scope.activator_for(builder.operator_info().address);
        self.context.borrow_mut().arrivals.push(activator);
    }

    /// The number of processes of the run, and 0 if this one is alone.
    pub(crate) fn processes(&self) -> usize {
        let load = &self.context.borrow().load;
        let others = load.others();
        others.map_or(0, |others| others.membership.processes)
    }

    /// The first worker of this process.
    pub(crate) fn first(&self) -> usize {
        let load = &self.context.borrow().load;
        load.others().map_or(0, Others::first)
    }
}

impl<'s> SegmentBuild<'_, 's> {
    /// Restores the saved state of a step, in a run with recovery.
    pub(crate) fn restore<I: 'static, O: 'static>(
        &self,
        node: NodeId,
        step: &mut dyn Step<I, O>,
    ) -> Result<(), FlowError> {
        let cx = self.context.borrow();
        let checkpoint = cx.checkpoint.as_ref();
        let checkpoint = checkpoint.filter(|checkpoint| checkpoint.resume.saves());
        let (Some(checkpoint), Some(state)) = (checkpoint, step.stateful()) else {
            return Ok(());
        };
        state.restore(&Restore {
            shards: cx.shards,
            saved: &*checkpoint.resume,
            step: &self.nodes[node].name,
            worker: cx.worker,
            workers: cx.workers,
        })
    }

    /// The copier of batches, in a rehearsal that makes copies.
    pub(crate) fn copier<B: Batch>(&self) -> Result<Copier<B>, FlowError> {
        let copies = self.rehearsal.is_some_and(Rehearsal::makes_copies);
        let codecs = self.form.codecs().filter(|_| copies);
        let codec = codecs.map(|codecs| B::codec(codecs)).transpose();
        codec.map_err(|cause| {
            FlowError::Usage(format!("items cannot be copied: {}", chain(&*cause)))
        })
    }

    /// The partitions that the source of this chain reads on this worker, with their numbers and names.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (usize, &str)> {
        let partitions = self.feed.partitions.iter();
        partitions.map(|(number, name)| (*number, name.as_str()))
    }

    /// The event time of a partition of source `node` at the last commit.
    pub(crate) fn watermark(&self, node: NodeId, partition: &str) -> i64 {
        let cx = self.context.borrow();
        let resume = cx.checkpoint.as_ref().map(|checkpoint| &checkpoint.resume);
        let source = &self.nodes[node].name;
        resume.map_or(BEFORE_ALL, |resume| resume.watermark(source, partition))
    }
}

/// Creates a root's operator on one worker.
pub(crate) type Root =
    Arc<dyn for<'a, 's> Fn(&mut WorkerBuild<'a, 's>) -> Result<(), FlowError> + Send + Sync>;
/// Creates one reader of a stream on one worker.
pub(crate) type Reader<B> = Arc<
    dyn for<'a, 's> Fn(&mut SegmentBuild<'a, 's>) -> Result<Box<dyn Push<B>>, FlowError>
        + Send
        + Sync,
>;

/// The readers of a node's output; the list is filled while the flow is described.
pub(crate) struct Outlet<B>(Arc<Mutex<Vec<Reader<B>>>>);

impl<B> Clone for Outlet<B> {
    fn clone(&self) -> Self {
        Outlet(Arc::clone(&self.0))
    }
}

impl<B: Batch> Outlet<B> {
    pub(crate) fn new() -> Self {
        Outlet(Arc::default())
    }

    pub(crate) fn read_by(&self, reader: Reader<B>) {
        lock(&self.0).push(reader);
    }

    /// Whether the output has a reader.
    pub(crate) fn is_read(&self) -> bool {
        !lock(&self.0).is_empty()
    }

    /// Creates all readers on one worker.
    pub(crate) fn build(
        &self,
        segment: &mut SegmentBuild<'_, '_>,
    ) -> Result<Box<dyn Push<B>>, FlowError> {
        let readers = lock(&self.0).clone();
        let mut built = Vec::with_capacity(readers.len());
        for reader in &readers {
            built.push(reader(segment)?);
        }
        let copier = segment.copier()?;
        match built.pop() {
            Some(only) if built.is_empty() && copier.is_none() => Ok(only),
            Some(last) => {
                built.push(last);
                Ok(Box::new(Tee(built, copier)))
            }
            None => Ok(Box::new(Tee(built, copier))),
        }
    }
}
