//! How a batch goes through a chain of fused steps: each step is handed the batch, works, and
//! hands its output to the next by a plain call.

use std::sync::Arc;

use crate::batch::Batch;
use crate::checkpoint::{Changes, Keeping, Restore};
use crate::clock::{Clock, now_ns};
use crate::error::{Failure, FlowError};
use crate::run::control::{Control, Phase};
use crate::run::letters::Letters;
use crate::run::metrics::StepMetrics;
use crate::run::pace::{Pace, Slow};
use crate::time::{BEFORE_ALL, NEVER, Watermark};

/// The worker's side of a step: who it is, what time it is, where its counters are.
pub struct Context {
    /// This worker's number, from 0.
    pub worker: usize,
    /// How many workers there are.
    pub workers: usize,
    /// When the current batch was whole at its source; nanoseconds of the engine's clock.
    pub stamp: u64,
    pub(crate) last: u64,
    pub(crate) current: usize,
    pub(crate) activity: u64,
    pub(crate) metrics: Vec<StepMetrics>,
    /// Which partition of its source the current batch was read from.
    pub(crate) partition: usize,
    /// The partitions of the source at work that have not ended.
    pub(crate) live: Vec<usize>,
    pub(crate) floor: i64,
    pub(crate) now: i64,
    pub(crate) deadline: i64,
    pub(crate) clock: Arc<dyn Clock>,
    /// The places of this worker where connections come in that are slow, by their nodes.
    slow: Vec<(usize, Slow)>,
    /// Whether this worker has told the others what it can take.
    told_pace: bool,
    /// This worker's hold on recovery, if the run has a state directory.
    pub(crate) keeping: Option<Keeping>,
    /// Stop, failure and wake-up, shared by all workers.
    pub control: Arc<Control>,
}

impl Context {
    pub(crate) fn new(
        (worker, workers): (usize, usize),
        metrics: Vec<StepMetrics>,
        clock: Arc<dyn Clock>,
        control: Arc<Control>,
    ) -> Self {
        Context {
            worker,
            workers,
            stamp: 0,
            last: 0,
            current: 0,
            activity: 0,
            metrics,
            partition: 0,
            live: Vec::new(),
            floor: NEVER,
            now: BEFORE_ALL,
            deadline: NEVER,
            clock,
            slow: Vec::new(),
            told_pace: false,
            keeping: None,
            control,
        }
    }

    /// True where turns are not cut by the time that they take: a replay and a trial are the same each time.
    pub(crate) fn unbounded(&self) -> bool {
        self.control.rehearsal().is_some() || self.lockstep()
    }

    /// True when no more than one batch of a source belongs to an epoch.
    pub(crate) fn lockstep(&self) -> bool {
        let lockstep = |keeping: &Keeping| keeping.resume.lockstep;
        self.keeping.as_ref().is_some_and(lockstep)
    }

    /// The place at `node` where connections come in has had a turn: those who send learn what this worker can take.
    pub(crate) fn tell_pace(&mut self, node: usize, pace: &Pace) {
        let known = self.slow.iter().position(|(of, _)| *of == node);
        match (pace.slow(), known) {
            (None, None) if self.told_pace => return,
            (None, None) => {}
            (None, Some(at)) => drop(self.slow.remove(at)),
            (Some(slow), Some(at)) => self.slow[at].1 = slow,
            (Some(slow), None) => self.slow.push((node, slow)),
        }
        self.told_pace = true;
        let slow = self.slow.iter().map(|(_, slow)| *slow);
        let least = slow.reduce(|one, other| Slow {
            turn: one.turn.min(other.turn),
            in_flight: one.in_flight.min(other.in_flight),
        });
        self.control.set_slow(self.worker, least);
    }

    /// True when the run ends before its input: it goes on with the next start.
    pub(crate) fn suspended(&self) -> bool {
        self.keeping.is_some() && self.control.phase() == Phase::Suspended
    }

    /// The number of an epoch of this run among all epochs of the flow.
    pub(crate) fn epoch_number(&self, epoch: u64) -> u64 {
        let before = self
            .keeping
            .as_ref()
            .map_or(0, |keeping| keeping.resume.epoch);
        before + 1 + epoch
    }

    /// The number of an epoch among all epochs of the flow, of which this run has seen `ended`; none without a state
    /// directory, where there are no epochs.
    #[must_use]
    pub fn epoch_after(&self, ended: u64) -> Option<u64> {
        self.keeping.as_ref().map(|_| self.epoch_number(ended))
    }

    /// Processing time when this turn of the operator began; nanoseconds since 1970. It is read for
    /// steps that [keep time](Step::keeps_time), and never goes back.
    #[must_use]
    pub fn now(&self) -> i64 {
        self.now
    }

    /// How far all others than the partition of the current batch let event time come. The watermark
    /// at an item is the lesser of this and the item's own.
    #[must_use]
    pub fn floor(&self) -> i64 {
        self.floor
    }

    /// Asks for a [`Step::tick`] once processing time has come to `at`. It holds until the next tick,
    /// in which a step asks again for what it still waits for.
    pub fn wake_at(&mut self, at: i64) {
        self.deadline = self.deadline.min(at);
    }

    /// Starts a turn of an operator that keeps time.
    pub(crate) fn read_clock(&mut self) {
        self.now = self.now.max(self.clock.time_ns());
        self.deadline = NEVER;
    }

    /// Starts the account of a batch that was whole at `stamp`.
    pub(crate) fn begin(&mut self, stamp: u64, now: u64) {
        self.stamp = stamp;
        self.last = now;
        self.activity += 1;
    }

    /// Books a step's work on a batch: one clock read.
    pub(crate) fn book(&mut self, node: usize, items_in: usize, items_out: usize) {
        let now = now_ns();
        let step = &mut self.metrics[node];
        step.items_in += items_in as u64;
        step.items_out += items_out as u64;
        step.batches += 1;
        step.busy_ns += now.saturating_sub(self.last);
        let age = now.saturating_sub(self.stamp).max(1);
        step.latency_ns.saturating_record_n(age, items_in as u64);
        self.last = now;
    }

    /// The name of the step at work.
    #[must_use]
    pub fn step_name(&self) -> String {
        self.metrics[self.current].name.clone()
    }

    /// Counts items of the current step that came too late.
    pub fn late(&mut self, items: usize) {
        self.metrics[self.current].late += items as u64;
    }

    /// Counts an item that step `node` passed over.
    pub(crate) fn skipped(&mut self, node: usize) {
        self.metrics[node].skipped += 1;
    }
}

/// The receiving end of a stream inside one chain of fused steps.
pub trait Push<B> {
    /// Takes the items out of `batch`; what is left in it is dropped by the caller.
    ///
    /// # Errors
    /// The failure of a step further on, which ends the flow.
    fn push(&mut self, batch: &mut B, cx: &mut Context) -> Result<(), Failure>;
    /// Sends on what is buffered; called when the source pauses.
    ///
    /// # Errors
    /// As for `push`.
    fn flush(&mut self, cx: &mut Context) -> Result<(), Failure>;
    /// Event time has come to `mark`; in order with the batches.
    ///
    /// # Errors
    /// As for `push`.
    fn watermark(&mut self, mark: Watermark, cx: &mut Context) -> Result<(), Failure>;
    /// A turn of the operator begins; processing time may have gone on. Only called where a step
    /// keeps time.
    ///
    /// # Errors
    /// As for `push`.
    fn tick(&mut self, cx: &mut Context) -> Result<(), Failure>;
    /// Epoch `epoch` ends; all its batches have been pushed. States that changed and what sinks have
    /// prepared go to the worker's part of the epoch.
    ///
    /// # Errors
    /// As for `push`; a state that cannot be saved.
    fn epoch(&mut self, epoch: u64, cx: &mut Context) -> Result<(), Failure>;
    /// All input has been seen: last outputs, then close. It is the end of epoch `epoch` too.
    ///
    /// # Errors
    /// As for `push`.
    fn end(&mut self, epoch: u64, cx: &mut Context) -> Result<(), Failure>;
}

/// A step of a flow, on one worker: batches in, batches out.
pub trait Step<I, O>: 'static {
    /// Works on `input` and appends to `output`.
    ///
    /// # Errors
    /// The failure that ends the flow; a step that may skip items does so itself.
    fn apply(&mut self, input: &mut I, output: &mut O, cx: &mut Context) -> Result<(), Failure>;
    /// Event time has come to `at`: no item before it is expected. Append what that brings about; the
    /// watermark itself goes on behind it.
    ///
    /// # Errors
    /// As for `apply`.
    fn watermark(&mut self, _at: i64, _output: &mut O, _cx: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
    /// True for a step that goes by processing time and wants [`tick`](Step::tick).
    fn keeps_time(&self) -> bool {
        false
    }
    /// A turn of the operator begins, at the processing time [`Context::now`]: append what that brings
    /// about, and ask with [`Context::wake_at`] for the next moment.
    ///
    /// # Errors
    /// As for `apply`.
    fn tick(&mut self, _output: &mut O, _cx: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
    /// All input has been seen: append what is still to come.
    ///
    /// # Errors
    /// As for `apply`.
    fn end(&mut self, _output: &mut O, _cx: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
    /// There is no more input in this run, and its last epoch is about to be saved: append what is given once, whether or
    /// not the flow goes on in another run. What [`end`](Step::end) appends later belongs to this run alone, and is
    /// not part of any state. Only called in a run with recovery.
    ///
    /// # Errors
    /// As for `apply`.
    fn settle(&mut self, _output: &mut O, _cx: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
    /// The run ends before the input, to go on with the next start: close what is open.
    ///
    /// # Errors
    /// As for `apply`.
    fn suspend(&mut self, _cx: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
    /// An epoch ends: write the keys whose state has changed since the last one.
    ///
    /// # Errors
    /// A state that cannot be saved, with its key.
    fn save(&mut self, _changes: &mut Changes, _cx: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
    /// A run with recovery begins: take up what was saved. Called once, before anything else; from then
    /// on changes are to be noted.
    ///
    /// # Errors
    /// A state that cannot be read, or is of a type that cannot be saved.
    fn restore(&mut self, _from: &Restore<'_>) -> Result<(), FlowError> {
        Ok(())
    }
}

/// A step joined to what follows it.
pub(crate) struct Joined<O, S> {
    pub(crate) node: usize,
    pub(crate) step: S,
    pub(crate) output: O,
    pub(crate) letters: Letters,
    pub(crate) next: Box<dyn Push<O>>,
}

impl<I: Batch, O: Batch> Push<I> for Joined<O, Box<dyn Step<I, O>>> {
    fn push(&mut self, batch: &mut I, cx: &mut Context) -> Result<(), Failure> {
        cx.current = self.node;
        let items = batch.len();
        self.step.apply(batch, &mut self.output, cx)?;
        cx.book(self.node, items, self.output.len());
        self.forward(cx)
    }
    fn flush(&mut self, cx: &mut Context) -> Result<(), Failure> {
        self.next.flush(cx)
    }
    fn watermark(&mut self, mark: Watermark, cx: &mut Context) -> Result<(), Failure> {
        cx.current = self.node;
        self.step.watermark(mark.at, &mut self.output, cx)?;
        self.send(cx)?;
        self.next.watermark(mark, cx)
    }
    fn tick(&mut self, cx: &mut Context) -> Result<(), Failure> {
        cx.current = self.node;
        self.step.tick(&mut self.output, cx)?;
        self.send(cx)?;
        self.next.tick(cx)
    }
    fn epoch(&mut self, epoch: u64, cx: &mut Context) -> Result<(), Failure> {
        cx.current = self.node;
        if cx.keeping.is_some() && cx.control.settles(epoch) {
            self.step.settle(&mut self.output, cx)?;
            self.send(cx)?;
            cx.current = self.node;
        }
        self.save(cx)?;
        self.letters.prepare(self.node, epoch, cx)?;
        self.next.epoch(epoch, cx)
    }
    fn end(&mut self, epoch: u64, cx: &mut Context) -> Result<(), Failure> {
        cx.current = self.node;
        if cx.suspended() {
            self.save(cx)?;
            self.step.suspend(cx)?;
        } else {
            // What is given at the end belongs to this run: the state that is kept is that of the epoch before.
            self.step.end(&mut self.output, cx)?;
            self.send(cx)?;
        }
        self.letters.close(self.node, epoch, cx)?;
        self.next.end(epoch, cx)
    }
}

impl<I: Batch, O: Batch> Joined<O, Box<dyn Step<I, O>>> {
    fn save(&mut self, cx: &mut Context) -> Result<(), Failure> {
        if !cx.keeping.as_ref().is_some_and(|k| k.resume.saves()) {
            return Ok(());
        }
        let mut changes = Changes::new(&cx.metrics[self.node].name);
        self.step.save(&mut changes, cx)?;
        if let Some(keeping) = &mut cx.keeping {
            keeping.part.watermarks.extend(changes.time_mark());
            keeping.part.changes.extend(changes.records());
        }
        Ok(())
    }
}

impl<O: Batch, S> Joined<O, S> {
    /// Forwards what came out without a batch that went in.
    fn send(&mut self, cx: &mut Context) -> Result<(), Failure> {
        cx.metrics[self.node].items_out += self.output.len() as u64;
        self.forward(cx)
    }

    fn forward(&mut self, cx: &mut Context) -> Result<(), Failure> {
        if !self.output.is_empty() {
            self.next.push(&mut self.output, cx)?;
            self.output.clear();
        }
        Ok(())
    }
}

/// Several readers of one stream: each gets the batch, the last one without a copy.
pub(crate) struct Tee<B>(pub(crate) Vec<Box<dyn Push<B>>>);

impl<B: Batch> Push<B> for Tee<B> {
    fn push(&mut self, batch: &mut B, cx: &mut Context) -> Result<(), Failure> {
        if let Some((last, others)) = self.0.split_last_mut() {
            for reader in others {
                reader.push(&mut batch.clone(), cx)?;
            }
            last.push(batch, cx)?;
        }
        Ok(())
    }
    fn flush(&mut self, cx: &mut Context) -> Result<(), Failure> {
        self.0.iter_mut().try_for_each(|reader| reader.flush(cx))
    }
    fn watermark(&mut self, mark: Watermark, cx: &mut Context) -> Result<(), Failure> {
        self.0
            .iter_mut()
            .try_for_each(|reader| reader.watermark(mark, cx))
    }
    fn tick(&mut self, cx: &mut Context) -> Result<(), Failure> {
        self.0.iter_mut().try_for_each(|reader| reader.tick(cx))
    }
    fn epoch(&mut self, epoch: u64, cx: &mut Context) -> Result<(), Failure> {
        self.0
            .iter_mut()
            .try_for_each(|reader| reader.epoch(epoch, cx))
    }
    fn end(&mut self, epoch: u64, cx: &mut Context) -> Result<(), Failure> {
        self.0
            .iter_mut()
            .try_for_each(|reader| reader.end(epoch, cx))
    }
}

/// The two halves of a stream that was divided.
pub(crate) struct Halves<A, B>(
    pub(crate) Box<dyn Push<A>>,
    pub(crate) Box<dyn Push<B>>,
    pub(crate) Unread,
);

/// What is said once of late items that nobody reads.
pub(crate) struct Unread {
    pub(crate) step: usize,
    /// Nothing is to be said, or it was said.
    pub(crate) told: bool,
}

impl Unread {
    #[cold]
    fn tell(&mut self, cx: &Context) {
        let metrics = &cx.metrics[self.step];
        if metrics.late == 0 {
            return; // it is no step for which items are late
        }
        self.told = true;
        if cx.control.first_late(self.step) {
            tracing::warn!(
                step = metrics.name.as_str(),
                "step \"{}\": an item came too late and was dropped, as will be more of them, which are counted; give the stream \
                 `late` of its result a sink to keep them, or allow for more lateness",
                metrics.name
            );
        }
    }
}

impl<A: Batch, B: Batch> Push<(A, B)> for Halves<A, B> {
    fn push(&mut self, batch: &mut (A, B), cx: &mut Context) -> Result<(), Failure> {
        if !batch.0.is_empty() {
            self.0.push(&mut batch.0, cx)?;
        }
        if !batch.1.is_empty() {
            if !self.2.told {
                self.2.tell(cx);
            }
            self.1.push(&mut batch.1, cx)?;
        }
        Ok(())
    }
    fn flush(&mut self, cx: &mut Context) -> Result<(), Failure> {
        self.0.flush(cx)?;
        self.1.flush(cx)
    }
    fn watermark(&mut self, mark: Watermark, cx: &mut Context) -> Result<(), Failure> {
        self.0.watermark(mark, cx)?;
        self.1.watermark(mark, cx)
    }
    fn tick(&mut self, cx: &mut Context) -> Result<(), Failure> {
        self.0.tick(cx)?;
        self.1.tick(cx)
    }
    fn epoch(&mut self, epoch: u64, cx: &mut Context) -> Result<(), Failure> {
        self.0.epoch(epoch, cx)?;
        self.1.epoch(epoch, cx)
    }
    fn end(&mut self, epoch: u64, cx: &mut Context) -> Result<(), Failure> {
        self.0.end(epoch, cx)?;
        self.1.end(epoch, cx)
    }
}
