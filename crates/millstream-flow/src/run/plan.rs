//! A described flow, ready to be run.

use crate::checkpoint::{Codecs, Sinks, Sources};
use crate::describe::node::Node;
use crate::run::build::Root;

/// The operators of a flow, with the sources and sinks that take part in checkpoints.
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) nodes: Vec<Node>,
    pub(crate) roots: Vec<Root>,
    pub(crate) sources: Sources,
    pub(crate) sinks: Sinks,
    pub(crate) codecs: Codecs,
}
