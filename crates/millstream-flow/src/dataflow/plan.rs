//! A described flow that is ready to run.

use crate::checkpoint::{Codecs, Sinks, Sources};
use crate::dataflow::build::Root;
use crate::error::FlowError;
use crate::letters::SinkLetters;
use crate::node::{DescribedEdge, Node, NodeId};

/// The operators of a flow, with the sources and sinks that take part in checkpoints.
pub(crate) struct Plan {
    pub(crate) name: String,
    /// The version of the program, if the flow was given one.
    pub(crate) version: Option<Vec<(String, String)>>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) roots: Vec<Root>,
    pub(crate) edges: Vec<DescribedEdge>,
    pub(crate) sources: Sources,
    pub(crate) sinks: Sinks,
    /// The dead letters of sinks that have some.
    pub(crate) letters: SinkLetters,
    pub(crate) codecs: Codecs,
}

impl Plan {
    /// Returns a line for each node and edge: equal in all processes that run the flow. Addresses may differ.
    pub(crate) fn graph_lines(&self) -> Vec<String> {
        let name = |node: &NodeId| format!("\"{}\"", self.nodes[*node].name);
        let nodes = self.nodes.iter().map(|node| {
            let inputs: Vec<String> = node.inputs.iter().map(name).collect();
            let by = match (node.kind, node.exchanged) {
                ("sink", true) => " gathered",
                (_, true) => " by key",
                (_, false) => "",
            };
            if inputs.is_empty() {
                format!("{} \"{}\"", node.kind, node.name)
            } else {
                format!(
                    "{} \"{}\"{by} from {}",
                    node.kind,
                    node.name,
                    inputs.join(", ")
                )
            }
        });
        let edges = self.edges.iter();
        let edges = edges.map(|edge| format!("edge {} to {}", name(&edge.from), name(&edge.to)));
        nodes.chain(edges).collect()
    }

    /// Checks that the batches of each edge can be encoded.
    pub(crate) fn check_codecs(&self) -> Result<(), FlowError> {
        let mut edges = self.edges.iter();
        edges.try_for_each(|edge| edge.check(&self.nodes, &self.codecs))
    }
}
