//! Sinks that one worker writes: the first worker of process 0, to which the others send their items.
//!
//! Such a sink is the root of an operator of its own. Whether a sink is gathered is known when a run begins: some are
//! gathered always, others in a run of several processes only.
//!
//! Invariant: the node of a sink has `exchanged` set in a plan exactly if the sink is gathered in its runs.

use std::sync::Arc;

use crate::batch::Batch;
use crate::dataflow::build::{Outlet, Reader, Root, Route, SegmentBuild};
use crate::dataflow::plan::Plan;
use crate::dataflow::push::Push;
use crate::dataflow::segment::arrival_root;
use crate::dataflow::sink::Drain;
use crate::error::{Failure, FlowError};
use crate::key::Shards;
use crate::letters::Letters;
use crate::node::{DescribedEdge, EdgeId, NodeId, open_error};
use crate::sink::Sink;

/// A sink that is gathered in some runs.
pub(crate) struct Gathered {
    node: NodeId,
    /// Whether it is gathered in a run of one process too.
    always: bool,
    edge: DescribedEdge,
    root: Arc<dyn Fn(EdgeId) -> Root + Send + Sync>,
}

impl Gathered {
    /// A sink of `node`, which reads the stream of node `from`.
    pub(crate) fn new<B: Batch>(
        (from, node): (NodeId, NodeId),
        always: bool,
        sink: &Arc<dyn Sink<B>>,
        letters: Option<&Arc<dyn Letters>>,
    ) -> Self {
        let outlet = Outlet::new();
        outlet.read_by(drain(node, Arc::clone(sink), letters.cloned()));
        Gathered {
            node,
            always,
            edge: DescribedEdge::of::<B>(from, node),
            root: Arc::new(move |edge| arrival_root(node, vec![edge], true, outlet.clone())),
        }
    }

    /// Adds its operator to the plan of a run on several processes, or on one.
    pub(crate) fn add_to(&self, plan: &mut Plan, clustered: bool) {
        if !self.always && !clustered {
            return;
        }
        plan.roots.push((self.root)(plan.edges.len()));
        plan.edges.push(self.edge);
        plan.nodes[self.node].exchanged = true;
    }
}

/// Creates the end of a stream in a sink, or the way to the worker that writes it.
pub(crate) fn end<B: Batch>(
    node: NodeId,
    sink: Arc<dyn Sink<B>>,
    letters: Option<Arc<dyn Letters>>,
) -> Reader<B> {
    let drain = drain(node, sink, letters);
    Arc::new(move |segment: &mut SegmentBuild<'_, '_>| {
        if !segment.nodes[node].exchanged {
            return drain(segment);
        }
        let mut edges = segment.described_edges.iter();
        let edge = edges.position(|edge| edge.to == node).ok_or_else(|| {
            let cause = "the edge to its worker is missing";
            open_error(&segment.nodes[node], cause.into())
        })?;
        segment.leave(edge, Some(Box::new(ToFirst)))
    })
}

fn drain<B: Batch>(
    node: NodeId,
    sink: Arc<dyn Sink<B>>,
    letters: Option<Arc<dyn Letters>>,
) -> Reader<B> {
    Arc::new(move |segment: &mut SegmentBuild<'_, '_>| {
        let drain: Box<dyn Push<B>> =
            Box::new(Drain::open(node, &*sink, letters.as_deref(), segment)?);
        Ok::<_, FlowError>(drain)
    })
}

/// All batches to the first worker.
struct ToFirst;

impl<B: Batch> Route<B> for ToFirst {
    fn route(&mut self, batch: &mut B, parts: &mut [B], _: Shards) -> Result<(), Failure> {
        std::mem::swap(batch, &mut parts[0]);
        Ok(())
    }
}
