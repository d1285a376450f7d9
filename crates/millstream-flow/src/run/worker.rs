//! A worker thread: it builds its copy of the flow, then alternates between operators and its poller.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use timely::scheduling::Activator;
use timely::worker::Worker;

use crate::checkpoint::{CommitNotice, EpochPart, Resume, WorkerCheckpoint};
use crate::clock::{Clock, now_ns};
use crate::control::{Control, Lifecycle, Load, Wakers};
use crate::dataflow::build::{Deadline, Epoch, WorkerBuild};
use crate::dataflow::context::WorkerContext;
use crate::dataflow::edge::Form;
use crate::dataflow::plan::Plan;
use crate::error::FlowError;
use crate::metrics::StepMetrics;
use crate::mutex::lock;
use crate::panics::caught;
use crate::poller::Poller;
use crate::replay::Conductor;
use crate::run::options::Options;
use crate::run::waiting::{self, Waiting};
use crate::time::NEVER;

/// The longest sleep of a worker, after which it checks the state of the run.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// The time for which a stopping flow processes the items in its steps. After that it is abandoned: see
/// [`Control::abandon`].
const DRAIN_NS: u64 = 1_000_000_000;
/// The same for a worker that has nothing to do: another process may have been abandoned.
const IDLE_DRAIN_NS: u64 = 1_500_000_000;
/// The number of steps of a busy worker between two polls of its sockets.
const STEPS_PER_POLL: usize = 4;

/// The state from which workers resume, and the channel for their parts of epochs; `None` in a run without
/// epochs.
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
    control.figures.current_of(worker.index()).begin();
    let mut context = WorkerContext::new(place, metrics, Arc::clone(clock), Arc::clone(control));
    context.unbounded = options.rehearsal.is_some();
    context.shards = match checkpoints {
        Some((resume, _)) => resume.shards,
        None => options.shards.unwrap_or_default(),
    };
    if let Some((resume, committer)) = checkpoints {
        context = context.with_checkpoint(WorkerCheckpoint {
            part: EpochPart::default(),
            resume: Arc::clone(resume),
            committer: lock(committer).clone(),
        });
    }
    let context = Rc::new(RefCell::new(context));
    let _span = span(plan, &control.load, worker.index()).entered();
    // A panic has unwound the operator that borrowed the context.
    let running = || {
        let cx = context.borrow();
        let step = cx.metrics.get(cx.current());
        step.map_or_else(String::new, |step| step.name.clone())
    };
    let worked = caught(running, || work(worker, plan, &context, options));
    // Before parts are dropped, which may panic too.
    let worked = worked.and_then(|worked| worked);
    worked.unwrap_or_else(|error| control.life.fail(error));
    let dropped = caught(running, || {
        for dataflow in worker.installed_dataflows() {
            worker.drop_dataflow(dataflow);
        }
    });
    dropped.unwrap_or_else(|error| control.life.fail(error));
    control
        .figures
        .publish(worker.index(), &context.borrow().metrics);
}

/// What each line of the log of a worker has beside its own fields.
fn span(plan: &Plan, load: &Load, worker: usize) -> tracing::Span {
    let flow = plan.name.as_str();
    match load.others() {
        Some(others) => {
            let process = others.membership.process;
            tracing::error_span!("worker", flow, worker, process)
        }
        None => tracing::error_span!("worker", flow, worker),
    }
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
    control.wakers.set(worker.index(), waker);
    let sources: Rc<RefCell<Vec<Activator>>> = Rc::default();
    let alarm: Rc<RefCell<Option<u64>>> = Rc::default();
    let deadlines: Rc<RefCell<Vec<Deadline>>> = Rc::default();
    let index = worker.index();
    let peers = worker.peers();
    worker.dataflow::<Epoch, _, _>(|scope| {
        let mut build = WorkerBuild {
            scope,
            context: Rc::clone(context),
            poller: &poller,
            nodes: &plan.nodes,
            form: Form::of(options.packets, &control.load, &plan.codecs),
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
    // No item is read before everything is open on all workers: a flow that cannot start takes no input, and
    // workers that share a file share it from the start.
    control.ends.worker_built();
    await_others(&control, &mut poller).map_err(|e| io_error(e.into()))?;
    let mut cycle = Cycle {
        conductor: (index == 0)
            .then(|| options.rehearsal.as_ref()?.conductor())
            .flatten(),
        worker,
        context,
        shared: control.load.has_peers(),
        life: Arc::clone(&control.life),
        load: Arc::clone(&control.load),
        wakers: Arc::clone(&control.wakers),
        sources,
        alarm,
        deadlines,
        options,
        seen: 0,
        source_signals: 0,
        next_report: now_ns(),
        stop_noticed_ns: None,
    };
    let mut waiting = waiting::of_this_thread();
    while cycle.step() {
        let limit = cycle.sleep_limit(&mut waiting);
        poller.wait(Some(limit)).map_err(|e| io_error(e.into()))?;
        cycle.after_wait();
    }
    Ok(())
}

/// Waits until all workers have opened their connectors, or the run has failed.
fn await_others(control: &Control, poller: &mut Poller) -> io::Result<()> {
    while !control.ends.all_built() {
        poller.wait(Some(LONGEST_SLEEP))?;
    }
    Ok(())
}

/// The state of a worker's loop.
struct Cycle<'a> {
    /// Decides the next event, on the first worker of a replay.
    conductor: Option<Conductor>,
    worker: &'a mut Worker,
    context: &'a Rc<RefCell<WorkerContext>>,
    life: Arc<Lifecycle>,
    load: Arc<Load>,
    wakers: Arc<Wakers>,
    sources: Rc<RefCell<Vec<Activator>>>,
    alarm: Rc<RefCell<Option<u64>>>,
    deadlines: Rc<RefCell<Vec<Deadline>>>,
    options: &'a Options,
    /// Whether there are other workers, which wake this one.
    shared: bool,
    seen: u64,
    /// The value of `source_signals` when sources last checked the state of the run.
    source_signals: u64,
    next_report: u64,
    /// The time at which this worker first saw that the flow was asked to stop.
    stop_noticed_ns: Option<u64>,
}

impl Cycle<'_> {
    /// Runs the operators; false if the flow has ended on this worker, or failed.
    fn step(&mut self) -> bool {
        for _ in 0..STEPS_PER_POLL {
            let alive = self.worker.step();
            self.wake_others();
            if !alive || self.life.aborted() {
                return false;
            }
            if !self.has_work() {
                break;
            }
            self.abandon_if_late(DRAIN_NS);
        }
        true
    }

    /// Abandons the run if it has been stopping for too long.
    fn abandon_if_late(&self, limit_ns: u64) {
        if self
            .stop_noticed_ns
            .is_some_and(|at| now_ns() > at + limit_ns)
        {
            self.life.abandon();
        }
    }

    fn has_work(&self) -> bool {
        self.worker.activations().borrow().empty_for() == Some(Duration::ZERO)
    }

    /// Wakes the other workers if this one was active since the last call.
    fn wake_others(&mut self) -> bool {
        let activity = self.context.borrow().activity;
        let active = activity != self.seen;
        self.seen = activity;
        if active && self.shared {
            self.load.wake_sleepers(self.worker.index());
        }
        active
    }

    /// Prepares a wait in the poller; returns its limit, which is zero if there is work.
    fn sleep_limit(&mut self, waiting: &mut Waiting<impl FnMut() -> Option<u64>>) -> Duration {
        if self.options.spin && self.conductor.is_none() {
            self.activate_sources();
            return Duration::ZERO;
        }
        // The poller activates the sources that have input.
        if self.options.rehearsal.is_none() && waiting.polls(self.context.borrow().activity) {
            return Duration::ZERO;
        }
        if self.has_work() {
            return Duration::ZERO;
        }
        if self.shared {
            self.load.set_sleeping(self.worker.index(), true);
            self.worker.step();
            if self.wake_others() || self.has_work() || self.life.aborted() {
                return Duration::ZERO;
            }
        }
        if let Some(conductor) = &mut self.conductor {
            let turn = conductor.turn(&self.context.borrow().epochs, self.life.stopping());
            match turn {
                Ok(false) => {}
                Ok(true) => return Duration::ZERO,
                Err(error) => self.life.fail(error),
            }
        }
        let until_alarm = self.alarm.borrow().map(|at| at.saturating_sub(now_ns()));
        let limit = until_alarm.map_or(LONGEST_SLEEP, Duration::from_nanos);
        let until_deadline = self.deadline().map(|at| {
            let clock = Arc::clone(&self.context.borrow().clock);
            Duration::from_nanos(clock.wait_ns(at))
        });
        until_deadline
            .map_or(limit, |other| limit.min(other))
            .min(LONGEST_SLEEP)
    }

    /// Returns the next moment in processing time that an operator waits for.
    fn deadline(&self) -> Option<i64> {
        let deadlines = self.deadlines.borrow();
        let next = deadlines.iter().map(|deadline| deadline.at.get()).min();
        next.filter(|at| *at != NEVER)
    }

    /// Activates the operators whose moment in processing time has come.
    fn activate_due(&self) {
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

    /// Handles alarms, a stop request and due metrics after a wait.
    fn after_wait(&mut self) {
        if self.shared {
            self.load.set_sleeping(self.worker.index(), false);
        }
        if self.load.others().is_some() {
            self.abandon_if_late(IDLE_DRAIN_NS);
        }
        if self.life.stopping() && self.stop_noticed_ns.is_none() {
            self.stop_noticed_ns = Some(now_ns());
            self.activate_sources();
        }
        let source_signals = self.wakers.source_signals();
        if source_signals != self.source_signals {
            self.source_signals = source_signals;
            self.activate_sources();
        }
        let alarm = *self.alarm.borrow();
        if let Some(at) = alarm
            && now_ns() >= at
        {
            *self.alarm.borrow_mut() = None;
            self.activate_sources();
        }
        self.activate_due();
        if let Some(interval) = self.options.publish_interval() {
            self.publish_in_time(interval);
        }
    }

    /// Publishes the metrics when they are due, after each operator has had a turn to note the sizes that only it
    /// knows.
    fn publish_in_time(&mut self, interval: Duration) {
        let now = now_ns();
        let mut context = self.context.borrow_mut();
        if std::mem::take(&mut context.publishes) {
            context
                .figures
                .publish(self.worker.index(), &context.metrics);
        } else if now >= self.next_report {
            self.next_report = now + interval.as_nanos() as u64;
            context.publishes = true;
            context.publication = context.publication.wrapping_add(1);
            context.arrivals.iter().for_each(Activator::activate);
            self.activate_sources();
        }
    }

    fn activate_sources(&self) {
        self.sources.borrow().iter().for_each(Activator::activate);
    }
}
