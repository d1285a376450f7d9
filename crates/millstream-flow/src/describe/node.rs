//! One source, step or sink of a flow, as it is described.

use crate::error::{Cause, FlowError};

/// The number of a node in its flow.
pub(crate) type NodeId = usize;
/// The number of a connection between two timely operators.
pub(crate) type EdgeId = usize;

/// One source, step or sink, as it is described.
#[derive(Clone, Debug)]
pub struct Node {
    /// The name: given, or the kind with a number.
    pub name: String,
    /// The kind: `source`, `map`, `stateful`, `sink`, ...
    pub kind: &'static str,
    /// What more there is to say, for instance the address of a connector.
    pub detail: String,
    /// The nodes whose output this one reads.
    pub inputs: Vec<NodeId>,
    /// True when items may change the worker before this node.
    pub exchanged: bool,
}

/// Names a connector that could not be opened.
pub(crate) fn open_error(node: &Node, cause: Cause) -> FlowError {
    FlowError::Open {
        what: format!("{} \"{}\" ({})", node.kind, node.name, node.detail),
        cause,
    }
}
