//! The context in which a step is created on a worker: its node, its error policy, its dead letters.

use std::cell::RefCell;
use std::sync::Arc;

use crate::clock::Clock;
use crate::control::Control;
use crate::dataflow::build::SegmentBuild;
use crate::dataflow::context::WorkerContext;
use crate::dataflow::dead_letters::DeadLetterSinks;
use crate::error::FlowError;
use crate::key::Shards;
use crate::node::Node;
use crate::panics::Owned;
use crate::policy::{DeadLetters, OnError, Policy};
use crate::rehearsal::Rehearsal;
use crate::sink::Sink;

/// The context in which a [`Step`](crate::step::Step) is created.
pub struct Making<'a> {
    /// The number of the step in its flow.
    #[doc(hidden)] // For the other crates of Millstream.
    pub node: usize,
    /// The node in the description.
    #[doc(hidden)] // For the other crates of Millstream.
    pub info: &'a Node,
    /// The worker for which it is created.
    pub worker: usize,
    /// The number of workers.
    pub workers: usize,
    /// The shards into which keys are divided.
    #[doc(hidden)] // For the other crates of Millstream.
    pub shards: Shards,
    /// Stop, failure and wake-up, shared by all workers.
    #[doc(hidden)] // For the other crates of Millstream.
    pub control: Arc<Control>,
    /// The clock of the run.
    #[doc(hidden)] // For the other crates of Millstream.
    pub clock: Arc<dyn Clock>,
    rehearsal: Option<&'a Rehearsal>,
    dead_letters: RefCell<DeadLetterSinks>,
}

impl<'a> Making<'a> {
    pub(crate) fn new(node: usize, segment: &SegmentBuild<'a, '_>) -> Self {
        Making::of(
            node,
            segment.nodes,
            &segment.context.borrow(),
            segment.rehearsal,
        )
    }

    /// The context of these nodes, on the worker of `context`.
    pub(crate) fn of(
        node: usize,
        nodes: &'a [Node],
        cx: &WorkerContext,
        rehearsal: Option<&'a Rehearsal>,
    ) -> Self {
        Making {
            node,
            info: &nodes[node],
            worker: cx.worker,
            workers: cx.workers,
            shards: cx.shards,
            control: Arc::clone(&cx.control),
            clock: Arc::clone(&cx.clock),
            rehearsal,
            dead_letters: RefCell::default(),
        }
    }

    /// The dead-letter sinks that were opened for the step.
    pub(crate) fn into_dead_letters(self) -> DeadLetterSinks {
        self.dead_letters.into_inner()
    }

    /// Opens a dead-letter sink of this step, or its replacement in a rehearsal. With recovery the sink must be
    /// announced with [`Pipe::dead_letters_to`](crate::Pipe::dead_letters_to); the engine prepares it at the
    /// end of each epoch and closes it at the end of the run.
    ///
    /// # Errors
    /// The sink cannot be opened.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn dead_letters<B: 'static>(
        &self,
        sink: &dyn Sink<B>,
    ) -> Result<DeadLetters<B>, FlowError> {
        let step = &self.info.name;
        let opened = match self.rehearsal {
            Some(rehearsal) => rehearsal
                .dead_letters(step, sink)
                .and_then(|instead| instead.open(self.worker, &self.control)),
            None => sink.open(self.worker, &self.control),
        };
        let opened = opened.map_err(|cause| FlowError::Open {
            what: format!("dead letters of \"{step}\" ({})", sink.describe()),
            cause,
        })?;
        let writer = Owned::new(opened, step, &self.control.life);
        Ok(self.dead_letters.borrow_mut().add(writer))
    }

    /// Opens an error policy for this step.
    ///
    /// # Errors
    /// The dead-letter sink cannot be opened.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn policy(&self, on_error: &OnError) -> Result<Policy, FlowError> {
        let dead = match on_error {
            OnError::DeadLetter(sink) => Some(self.dead_letters(&**sink)?),
            _ => None,
        };
        Ok(Policy::new(self.node, on_error, dead))
    }
}
