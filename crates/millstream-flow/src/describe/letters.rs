//! Where the dead letters of a sink go, as it is described.

use std::sync::Arc;

use crate::checkpoint::WriterId;
use crate::describe::graph::Graph;
use crate::error::Cause;
use crate::letters::{Letters, LettersTo};
use crate::node::NodeId;
use crate::sink::{Refused, Sink};

type Announce = Box<dyn Fn(&mut Graph, NodeId)>;

/// The dead letters of the records that the destination of a sink refuses: see
/// [`Pipe::sink_with_letters`](crate::Pipe::sink_with_letters).
#[doc(hidden)] // For the other crates of Millstream.
pub struct RefusedLetters {
    pub(crate) letters: Arc<dyn Letters>,
    announce: Announce,
}

impl RefusedLetters {
    /// Writes the batches that `make` makes of refused records to `sink`, which other steps may write to as well.
    pub fn new<D: 'static>(
        sink: &Arc<dyn Sink<D>>,
        make: impl Fn(Vec<Refused>) -> Result<D, Cause> + Send + Sync + 'static,
    ) -> Self {
        let announced = Arc::clone(sink);
        RefusedLetters {
            letters: Arc::new(LettersTo {
                sink: Arc::clone(sink),
                make: Arc::new(make),
            }),
            announce: Box::new(move |graph, node| {
                graph.add_sink(WriterId::dead_letters(node), &announced);
            }),
        }
    }

    /// Adds the sink of the letters of the sink at `node`.
    pub(crate) fn announce(&self, graph: &mut Graph, node: NodeId) {
        (self.announce)(graph, node);
    }
}
