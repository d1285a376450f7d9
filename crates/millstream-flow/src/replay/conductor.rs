//! The conductor decides the order of events in a replay.
//!
//! The conductor runs on the first worker, when that has no other work. An epoch ends when all operators of all
//! workers have sent their parts: then all input so far has been processed, everywhere. Only then the clock
//! advances.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::clock::VirtualClock;
use super::input::Input;
use super::moment::Moment;
use super::stage::Stage;
use crate::checkpoint::CommitNotice;
use crate::clock::Clock;
use crate::control::Epochs;
use crate::error::FlowError;
use crate::time::NEVER;

/// The least advance of the clock for a step that requests a moment again that has passed.
const LEAST_NS: i64 = 1_000;

/// The conductor of a replay.
pub(crate) struct Conductor {
    inputs: Vec<Input>,
    stage: Arc<Stage>,
    batch: Option<usize>,
    clock: VirtualClock,
    notices: Option<Receiver<CommitNotice>>,
    /// The rest of a divided batch, and the index of its source.
    rest: Option<(usize, Moment)>,
    /// The number of operators on all workers.
    operators: usize,
    /// The number of operators that have sent their part of the epoch that ends.
    parts: usize,
    /// The earliest deadline of an operator.
    deadline: i64,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The replay has not begun.
    Beginning,
    /// A batch is placed and not read yet.
    Placed,
    /// An epoch ends.
    Ending,
    /// All input has been read.
    Over,
}

impl Conductor {
    pub(super) fn new(inputs: Vec<Input>, stage: Arc<Stage>, batch: Option<usize>) -> Self {
        let first = inputs.iter().filter_map(Input::time_ns).min();
        Conductor {
            inputs,
            stage,
            batch,
            clock: VirtualClock::starting_at(first.unwrap_or(0)),
            notices: None,
            rest: None,
            operators: 0,
            parts: 0,
            deadline: NEVER,
            phase: Phase::Beginning,
        }
    }

    /// Begins the replay of a flow with `operators` operators on all workers. Returns the clock, and the
    /// channel for their parts.
    pub(crate) fn begin(&mut self, operators: usize) -> (Arc<dyn Clock>, Sender<CommitNotice>) {
        let (sender, notices) = channel();
        self.notices = Some(notices);
        self.operators = operators;
        (Arc::new(self.clock.clone()), sender)
    }

    /// Performs the next event if it is due and the run is not stopping; true if it did.
    pub(crate) fn turn(&mut self, epochs: &Epochs, stopping: bool) -> Result<bool, FlowError> {
        self.receive_parts();
        let ready = match self.phase {
            Phase::Beginning => true,
            Phase::Placed => !self.stage.is_waiting(),
            Phase::Ending => self.parts >= self.operators,
            Phase::Over => false,
        };
        if !ready || stopping {
            return Ok(false);
        }
        match self.phase {
            Phase::Ending => self.advance(epochs)?,
            // Before the first batch operators see its time; after a batch, it has been read.
            _ => self.end_epoch(epochs),
        }
        Ok(true)
    }

    fn receive_parts(&mut self) {
        let notices = self
            .notices
            .as_ref()
            .into_iter()
            .flat_map(Receiver::try_iter);
        for notice in notices {
            if let CommitNotice::Part(part) = notice {
                self.parts += 1;
                self.deadline = self.deadline.min(part.deadline);
            }
        }
    }

    fn end_epoch(&mut self, epochs: &Epochs) {
        self.parts = 0;
        self.deadline = NEVER;
        self.phase = Phase::Ending;
        epochs.raise();
    }

    /// After everything has been processed, performs the next timer or the next batch, whichever is earlier.
    fn advance(&mut self, epochs: &Epochs) -> Result<(), FlowError> {
        if let Some((source, moment)) = self.rest.take() {
            self.place(source, moment, epochs);
            return Ok(());
        }
        let times = self.inputs.iter().enumerate();
        let times = times.filter_map(|(source, input)| Some((input.time_ns()?, source)));
        let Some((time, source)) = times.min() else {
            self.phase = Phase::Over;
            self.stage.end();
            epochs.signal_sources();
            return Ok(());
        };
        let now = self.clock.time_ns();
        let timer = if self.deadline > now {
            self.deadline
        } else {
            now.saturating_add(LEAST_NS)
        };
        if self.deadline < NEVER && timer <= time {
            self.clock.set(timer);
            self.end_epoch(epochs);
            return Ok(());
        }
        // If the clock was set back during the recording, the time of the replay stays.
        self.clock.set(time.max(now));
        if let Some(moment) = self.inputs[source].take()? {
            self.place(source, moment, epochs);
        }
        Ok(())
    }

    /// Places a batch, or the first part of it.
    fn place(&mut self, source: usize, mut moment: Moment, epochs: &Epochs) {
        if let Some(most) = self.batch.filter(|most| moment.frames.spans.len() > *most) {
            let rest = Moment {
                frames: moment.frames.clone(),
                ..moment
            };
            self.rest = Some((source, rest));
            moment.frames.spans.truncate(most);
            moment.ended = false;
            if let Some((_, rest)) = &mut self.rest {
                rest.frames.spans.drain(..most);
            }
        }
        self.stage.place(source, moment);
        self.phase = Phase::Placed;
        epochs.signal_sources();
    }
}
