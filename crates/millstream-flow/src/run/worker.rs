//! The life of a worker thread: it builds its copy of the flow, then alternates between operators and its poller.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use timely::scheduling::Activator;
use timely::worker::Worker;

use crate::checkpoint::{CommitNotice, EpochPart, Resume, WorkerCheckpoint};
use crate::clock::{Clock, now_ns};
use crate::error::FlowError;
use crate::run::build::{Deadline, Epoch, WorkerBuild};
use crate::run::context::WorkerContext;
use crate::run::control::{Control, lock};
use crate::run::metrics::StepMetrics;
use crate::run::options::{Options, Packets};
use crate::run::plan::Plan;
use crate::run::poller::Poller;
use crate::testing::replay::Conductor;
use crate::time::NEVER;

/// The longest sleep: a sleeping worker looks about itself this often, whatever happens.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// For how long a flow that was asked to stop finishes what is in its steps. What is left then is abandoned: see
/// [`Control::abandon`].
const DRAIN_NS: u64 = 1_000_000_000;
/// Steps that a busy worker makes between two looks at its sockets.
const STEPS_PER_POLL: usize = 4;

/// What workers resume from, and where they send their parts of epochs; none in a run without epochs.
pub(super) type Checkpoints = Option<(Arc<Resume>, Mutex<Sender<CommitNotice>>)>;

/// Runs a worker and turns a panic of a step into the flow's failure.
pub(super) fn guarded(
    worker: &mut Worker,
    plan: &Plan,
    control: &Arc<Control>,
    options: &Options,
    clock: &Arc<dyn Clock>,
    checkpoints: &Checkpoints,
) {
    let metrics: Vec<StepMetrics> = plan
        .nodes
        .iter()
        .map(|node| StepMetrics::new(&node.name, node.kind))
        .collect();
    let place = (worker.index(), worker.peers());
    let mut context = WorkerContext::new(place, metrics, Arc::clone(clock), Arc::clone(control));
    context.unbounded = options.rehearsal.is_some();
    if let Some((resume, committer)) = checkpoints {
        context = context.with_checkpoint(WorkerCheckpoint {
            part: EpochPart::default(),
            resume: Arc::clone(resume),
            committer: lock(committer).clone(),
        });
    }
    let context = Rc::new(RefCell::new(context));
    let outcome = catch_unwind(AssertUnwindSafe(|| work(worker, plan, &context, options)));
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(error)) => control.fail(error),
        Err(panic) => {
            // The panic has unwound the operator that held the context.
            let cx = context.borrow();
            let step = cx.metrics.get(cx.current);
            let step = step.map_or_else(String::new, |m| m.name.clone());
            control.fail(FlowError::panicked(step, &*panic));
        }
    }
    for dataflow in worker.installed_dataflows() {
        worker.drop_dataflow(dataflow);
    }
    control.publish(worker.index(), &context.borrow().metrics);
}

fn work(
    worker: &mut Worker,
    plan: &Plan,
    context: &Rc<RefCell<WorkerContext>>,
    options: &Options,
) -> Result<(), FlowError> {
    let io_error = |cause| FlowError::Open {
        what: "the worker's poller".into(),
        cause,
    };
    let control = Arc::clone(&context.borrow().control);
    let (mut poller, waker) = Poller::new().map_err(|e| io_error(e.into()))?;
    control.set_waker(worker.index(), waker);
    let sources: Rc<RefCell<Vec<Activator>>> = Rc::default();
    let alarm: Rc<RefCell<Option<u64>>> = Rc::default();
    let deadlines: Rc<RefCell<Vec<Deadline>>> = Rc::default();
    let (index, peers) = (worker.index(), worker.peers());
    worker.dataflow::<Epoch, _, _>(|scope| {
        let mut build = WorkerBuild {
            scope,
            context: Rc::clone(context),
            poller: &poller,
            nodes: &plan.nodes,
            codecs: (options.packets == Packets::Bytes).then_some(&plan.codecs),
            described_edges: &plan.edges,
            edges: HashMap::new(),
            sources: Rc::clone(&sources),
            alarm: Rc::clone(&alarm),
            deadlines: Rc::clone(&deadlines),
            worker: index,
            workers: peers,
            hold: options.hold.clone(),
            rehearsal: options.rehearsal.as_deref(),
        };
        plan.roots.iter().try_for_each(|root| root(&mut build))
    })?;
    // No item is read before everything is open on all workers: a flow that cannot start takes no
    // input, and workers that share a file share it from the start.
    control.worker_built();
    while !control.all_built() {
        poller
            .wait(Some(LONGEST_SLEEP))
            .map_err(|e| io_error(e.into()))?;
    }
    let mut cycle = Cycle {
        conductor: (index == 0)
            .then(|| options.rehearsal.as_ref()?.conductor())
            .flatten(),
        worker,
        context,
        control,
        sources,
        alarm,
        deadlines,
        options,
        seen: 0,
        bell: 0,
        next_report: now_ns(),
        stop_seen: None,
    };
    while cycle.step() {
        let limit = cycle.rest();
        if let Some(limit) = limit {
            poller.wait(Some(limit)).map_err(|e| io_error(e.into()))?;
        }
        cycle.woken();
    }
    Ok(())
}

/// The state of a worker's loop.
struct Cycle<'a> {
    /// Who says what happens next, on the first worker of a replay.
    conductor: Option<Conductor>,
    worker: &'a mut Worker,
    context: &'a Rc<RefCell<WorkerContext>>,
    control: Arc<Control>,
    sources: Rc<RefCell<Vec<Activator>>>,
    alarm: Rc<RefCell<Option<u64>>>,
    deadlines: Rc<RefCell<Vec<Deadline>>>,
    options: &'a Options,
    seen: u64,
    /// What the bell showed when sources last looked about themselves.
    bell: u64,
    next_report: u64,
    /// When this worker first saw that the flow was asked to stop.
    stop_seen: Option<u64>,
}

impl Cycle<'_> {
    /// Lets the operators run; false when the flow has ended on this worker, or failed.
    fn step(&mut self) -> bool {
        for _ in 0..STEPS_PER_POLL {
            let alive = self.worker.step();
            self.tell_others();
            if !alive || self.control.aborted() {
                return false;
            }
            if !self.has_work() {
                break;
            }
            self.give_up_when_late();
        }
        true
    }

    /// A flow that was asked to stop does not work on for long.
    fn give_up_when_late(&self) {
        if self.stop_seen.is_some_and(|at| now_ns() > at + DRAIN_NS) {
            self.control.abandon();
        }
    }

    fn has_work(&self) -> bool {
        self.worker.activations().borrow().empty_for() == Some(Duration::ZERO)
    }

    /// Wakes the others when this worker did something since the last time.
    fn tell_others(&mut self) -> bool {
        let activity = self.context.borrow().activity;
        let active = activity != self.seen;
        self.seen = activity;
        if active && self.options.workers > 1 {
            self.control.wake_sleepers(self.worker.index());
        }
        active
    }

    /// How long to wait in the poller; not at all while there is work.
    fn rest(&mut self) -> Option<Duration> {
        if self.options.spin && self.conductor.is_none() {
            self.activate_sources();
            return Some(Duration::ZERO);
        }
        if self.has_work() {
            return Some(Duration::ZERO);
        }
        if self.options.workers > 1 {
            self.control.set_sleeping(self.worker.index(), true);
            self.worker.step();
            if self.tell_others() || self.has_work() || self.control.aborted() {
                return Some(Duration::ZERO);
            }
        }
        if let Some(conductor) = &mut self.conductor {
            match conductor.turn(&self.control) {
                Ok(false) => {}
                Ok(true) => return Some(Duration::ZERO),
                Err(error) => self.control.fail(error),
            }
        }
        let until_alarm = self.alarm.borrow().map(|at| at.saturating_sub(now_ns()));
        let limit = until_alarm.map_or(LONGEST_SLEEP, Duration::from_nanos);
        let until_deadline = self.deadline().map(|at| {
            let clock = Arc::clone(&self.context.borrow().clock);
            Duration::from_nanos(clock.wait_ns(at))
        });
        Some(
            until_deadline
                .map_or(limit, |other| limit.min(other))
                .min(LONGEST_SLEEP),
        )
    }

    /// The next moment in processing time that an operator waits for.
    fn deadline(&self) -> Option<i64> {
        let deadlines = self.deadlines.borrow();
        let next = deadlines.iter().map(|deadline| deadline.at.get()).min();
        next.filter(|at| *at != NEVER)
    }

    /// Activates the operators whose moment in processing time has come.
    fn ring(&self) {
        if let Some(next) = self.deadline() {
            let now = self.context.borrow().clock.time_ns();
            if now >= next {
                for deadline in self.deadlines.borrow().iter() {
                    if now >= deadline.at.get() {
                        deadline.activator.activate();
                    }
                }
            }
        }
    }

    /// After waiting: alarms, the wish to stop, metrics that are due.
    fn woken(&mut self) {
        if self.options.workers > 1 {
            self.control.set_sleeping(self.worker.index(), false);
        }
        if self.control.stopping() && self.stop_seen.is_none() {
            self.stop_seen = Some(now_ns());
            self.activate_sources();
        }
        let bell = self.control.bell();
        if bell != self.bell {
            self.bell = bell;
            self.activate_sources();
        }
        let alarm = *self.alarm.borrow();
        if let Some(at) = alarm
            && now_ns() >= at
        {
            *self.alarm.borrow_mut() = None;
            self.activate_sources();
        }
        self.ring();
        if let Some((interval, _)) = &self.options.on_metrics {
            let now = now_ns();
            if now >= self.next_report {
                self.next_report = now + interval.as_nanos() as u64;
                self.control
                    .publish(self.worker.index(), &self.context.borrow().metrics);
            }
        }
    }

    fn activate_sources(&self) {
        self.sources.borrow().iter().for_each(Activator::activate);
    }
}
