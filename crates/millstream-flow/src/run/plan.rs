//! A described flow that is ready to run.

use crate::checkpoint::{Codecs, Sinks, Sources};
use crate::describe::node::{DescribedEdge, Node};
use crate::error::FlowError;
use crate::run::build::Root;

/// The operators of a flow, with the sources and sinks that take part in checkpoints.
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) nodes: Vec<Node>,
    pub(crate) roots: Vec<Root>,
    pub(crate) edges: Vec<DescribedEdge>,
    pub(crate) sources: Sources,
    pub(crate) sinks: Sinks,
    pub(crate) codecs: Codecs,
}

impl Plan {
    /// Checks that the batches of each edge can be encoded.
    pub(crate) fn check_codecs(&self) -> Result<(), FlowError> {
        let mut edges = self.edges.iter();
        edges.try_for_each(|edge| edge.check(&self.nodes, &self.codecs))
    }
}
