//! Who says what happens next in a replay.
//!
//! The conductor works on the first worker, when that has nothing else to do. An epoch ends when all operators
//! of all workers have handed over their parts: then everything that was read has been processed, everywhere.
//! Only then the clock goes on.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::input::Input;
use super::moment::Moment;
use super::stage::Stage;
use crate::checkpoint::CommitNotice;
use crate::clock::Clock;
use crate::error::FlowError;
use crate::run::control::Control;
use crate::testing::VirtualClock;
use crate::time::NEVER;

/// The least that the clock goes on by for a step that asks again for a moment that has come.
const LEAST_NS: i64 = 1_000;

/// The conductor of a replay.
pub(crate) struct Conductor {
    inputs: Vec<Input>,
    stage: Arc<Stage>,
    batch: Option<usize>,
    clock: VirtualClock,
    notices: Option<Receiver<CommitNotice>>,
    /// What is left of a batch that was divided, and whose it is.
    rest: Option<(usize, Moment)>,
    /// How many operators there are on all workers.
    operators: usize,
    /// How many have handed over their part of the epoch that ends.
    parts: usize,
    /// The nearest moment that one of them waits for.
    deadline: i64,
    doing: Doing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// Nothing has begun.
    Beginning,
    /// A batch stands ready and is to be read.
    Placed,
    /// An epoch ends.
    Ending,
    /// All has been read.
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
            doing: Doing::Beginning,
        }
    }

    /// Begins for a flow with so many operators on all workers. Gives the clock, and whom they are to tell.
    pub(crate) fn begin(&mut self, operators: usize) -> (Arc<dyn Clock>, Sender<CommitNotice>) {
        let (sender, notices) = channel();
        self.notices = Some(notices);
        self.operators = operators;
        (Arc::new(self.clock.clone()), sender)
    }

    /// Does the next thing when it is time; true when it did something.
    pub(crate) fn turn(&mut self, control: &Control) -> Result<bool, FlowError> {
        self.hear();
        let ready = match self.doing {
            Doing::Beginning => true,
            Doing::Placed => !self.stage.is_waiting(),
            Doing::Ending => self.parts >= self.operators,
            Doing::Over => false,
        };
        if !ready || control.stopping() {
            return Ok(false);
        }
        match self.doing {
            Doing::Ending => self.go_on(control)?,
            // Everyone looks about himself at the time of the first batch; or a batch is processed.
            _ => self.end_epoch(control),
        }
        Ok(true)
    }

    fn hear(&mut self) {
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

    fn end_epoch(&mut self, control: &Control) {
        self.parts = 0;
        self.deadline = NEVER;
        self.doing = Doing::Ending;
        control.raise_epoch();
    }

    /// Everything has been processed: the next timer or the next batch, whichever is earlier.
    fn go_on(&mut self, control: &Control) -> Result<(), FlowError> {
        if let Some((source, moment)) = self.rest.take() {
            self.place(source, moment, control);
            return Ok(());
        }
        let times = self.inputs.iter().enumerate();
        let times = times.filter_map(|(source, input)| Some((input.time_ns()?, source)));
        let Some((time, source)) = times.min() else {
            self.doing = Doing::Over;
            self.stage.end();
            control.ring();
            return Ok(());
        };
        let now = self.clock.time_ns();
        let timer = match self.deadline > now {
            true => self.deadline,
            false => now.saturating_add(LEAST_NS),
        };
        if self.deadline < NEVER && timer <= time {
            self.clock.set(timer);
            self.end_epoch(control);
            return Ok(());
        }
        // Whatever the clock did when it was recorded: time does not go back.
        self.clock.set(time.max(now));
        if let Some(moment) = self.inputs[source].take()? {
            self.place(source, moment, control);
        }
        Ok(())
    }

    /// Places a batch, or the first part of it.
    fn place(&mut self, source: usize, mut moment: Moment, control: &Control) {
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
        self.doing = Doing::Placed;
        control.ring();
    }
}
