//! The nodes of a flow, which are sources, steps and sinks, and the edges between operators.

pub(crate) mod meeting;
pub(crate) mod reads;

use crate::batch::Batch;
use crate::error::{Cause, FlowError};
use crate::saved::codec::Codecs;

pub(crate) use reads::Reads;

/// The number of a node in its flow.
pub(crate) type NodeId = usize;
/// The number of a connection between two timely operators.
pub(crate) type EdgeId = usize;

/// One source, step or sink in the description.
#[derive(Clone, Debug)]
pub struct Node {
    /// The name that the user gave, or the kind with a number.
    pub name: String,
    /// The kind: `source`, `map`, `stateful`, `sink`, ...
    pub kind: &'static str,
    /// Details: the address of a connector, the length of windows.
    pub detail: String,
    /// The nodes whose output this one reads.
    pub inputs: Vec<NodeId>,
    /// True if items may move to another worker before this node.
    pub exchanged: bool,
    /// What it reads, as far as it is known.
    pub(crate) reads: Reads,
}

/// A connection between two operators in the description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DescribedEdge {
    /// The node whose output it carries.
    pub(crate) from: NodeId,
    /// The node that reads it.
    pub(crate) to: NodeId,
    /// Checks whether its batches can be encoded.
    codec: fn(&Codecs) -> Result<(), Cause>,
}

impl DescribedEdge {
    /// An edge that carries batches of type `B`.
    pub(crate) fn of<B: Batch>(from: NodeId, to: NodeId) -> Self {
        let codec = |codecs: &Codecs| B::codec(codecs).map(drop);
        DescribedEdge { from, to, codec }
    }

    /// Checks that the batches of this edge can be encoded.
    pub(crate) fn check(&self, nodes: &[Node], codecs: &Codecs) -> Result<(), FlowError> {
        (self.codec)(codecs).map_err(|cause| self.no_codec(nodes, cause))
    }

    /// Returns the error that the batches of this edge cannot be encoded.
    pub(crate) fn no_codec(&self, nodes: &[Node], cause: Cause) -> FlowError {
        FlowError::NoCodec {
            from: nodes[self.from].name.clone(),
            to: nodes[self.to].name.clone(),
            cause,
        }
    }
}

/// Returns the error of a connector that could not be opened.
pub(crate) fn open_error(node: &Node, cause: Cause) -> FlowError {
    FlowError::Open {
        what: format!("{} \"{}\" ({})", node.kind, node.name, node.detail),
        cause,
    }
}
