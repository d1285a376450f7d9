//! Running a flow: worker threads, their loops, stopping and failing.
//!
//! A worker alternates between timely steps, in which operators run, and its poller, in which it
//! sleeps until a socket, another worker or a moment in time wakes it. Before it sleeps it says
//! so and steps once more: whatever another worker sent before it could see the sign is found by
//! that step, whatever is sent later comes with a wake-up.

pub mod control;
pub mod letters;
pub mod metrics;
pub(crate) mod pace;
mod packet;
pub mod poller;
pub(crate) mod reading;
pub(crate) mod segment;
pub(crate) mod sinking;

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use timely::WorkerConfig;
use timely::communication::Config as Threads;
use timely::execute::Config;
use timely::scheduling::Activator;
use timely::worker::Worker;

use crate::checkpoint::{
    self, Begun, Codecs, Committer, Keeping, Part, Parts, Recovery, Resume, Sinks, Sources, Told,
};
use crate::clock::{Clock, WallClock, now_ns};
use crate::describe::graph::{Node, Root, open_error};
use crate::describe::stream::Flow;
use crate::error::FlowError;
use crate::push::Context;
use crate::run::control::{Control, lock};
use crate::run::metrics::{Report, StepMetrics};
use crate::run::poller::Poller;
use crate::run::segment::{Deadline, Epoch, WorkerBuild};
use crate::source::Beginning;
use crate::testing::rehearsal::Rehearsal;
use crate::testing::replay::Conductor;
use crate::time::NEVER;

/// The most worker threads of a flow.
pub const WORKERS_MAX: usize = 256;
/// The longest sleep: a sleeping worker looks about itself this often, whatever happens.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// For how long a flow that was asked to stop finishes what is in its steps. What is left then is abandoned: see
/// [`Control::abandon`].
const DRAIN_NS: u64 = 1_000_000_000;
/// Steps that a busy worker makes between two looks at its sockets.
const STEPS_PER_POLL: usize = 4;

/// Wraps the whole life of a worker thread; the Python face attaches its interpreter here.
pub type Around = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;
/// Called with the metrics from time to time.
pub type OnMetrics = Arc<dyn Fn(&Report) + Send + Sync>;

/// How to run a flow.
#[derive(Clone)]
pub struct Options {
    /// Worker threads, from 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// Never sleep: a core for each worker buys the last microseconds.
    pub spin: bool,
    /// Call back with the metrics at this interval.
    pub on_metrics: Option<(Duration, OnMetrics)>,
    /// Wraps each worker thread.
    pub around: Option<Around>,
    /// Wraps each turn of an operator: the Python face holds its interpreter for that long.
    pub hold: Option<Around>,
    /// Wraps each wait of a step for the outside: the Python face lets go of its interpreter.
    pub release: Option<Around>,
    /// Drain and end on SIGINT and SIGTERM; a second one ends the process at once, with 128 and the number of the signal.
    pub signals: bool,
    /// Where to keep state, to go on after a crash.
    pub recovery: Option<Recovery>,
    /// Processing time; a [`WallClock`] unless something else is handed in.
    pub clock: Option<Arc<dyn Clock>>,
    /// What stands in for sources and sinks, so that nothing outside is touched.
    pub rehearsal: Option<Arc<Rehearsal>>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            workers: 1,
            spin: false,
            on_metrics: None,
            around: None,
            hold: None,
            release: None,
            signals: false,
            recovery: None,
            clock: None,
            rehearsal: None,
        }
    }
}

impl Options {
    /// The default with `workers` threads.
    #[must_use]
    pub fn workers(workers: usize) -> Self {
        Options {
            workers,
            ..Options::default()
        }
    }
}

/// A flow that runs on threads of its own.
pub struct Running {
    name: String,
    started: u64,
    control: Arc<Control>,
    threads: Option<timely::communication::WorkerGuards<()>>,
    committer: Option<JoinHandle<()>>,
    signals: Option<Signals>,
    options: Options,
}

struct Plan {
    nodes: Vec<Node>,
    roots: Vec<Root>,
    sources: Sources,
    sinks: Sinks,
    codecs: Codecs,
}

/// What workers get of recovery: what there was, and whom to tell what there is.
type Kept = Option<(Arc<Resume>, Mutex<Sender<Told>>)>;

/// Starts `flow`; see [`Flow::start`].
pub(crate) fn start(flow: &Flow, options: Options) -> Result<Running, FlowError> {
    let (mut running, life) = prepare(flow, options)?;
    let config = Config {
        communication: match running.options.workers {
            1 => Threads::Thread,
            n => Threads::Process(n),
        },
        worker: WorkerConfig::default(),
    };
    if let Some(life) = life {
        // Before the first item: a signal that comes early has to find them.
        running.signals = running.options.signals.then(Signals::hook);
        running.threads = Some(timely::execute(config, life).map_err(FlowError::Usage)?);
    }
    Ok(running)
}

/// Runs `flow` on the thread that calls; see [`Flow::run_here`].
pub(crate) fn run_here(flow: &Flow, options: Options) -> Result<Report, FlowError> {
    if options.workers != 1 {
        let asked = options.workers;
        return Err(FlowError::Usage(format!(
            "{asked} workers asked for; on the thread that calls there is one"
        )));
    }
    let (running, life) = prepare(flow, options)?;
    if let Some(life) = life {
        timely::execute_directly(life);
    }
    running.wait()
}

/// The description of a flow, with what stands in for its sources and sinks in a rehearsal.
fn plan(flow: &Flow, rehearsal: Option<&Rehearsal>) -> Result<Plan, FlowError> {
    let graph = lock(&flow.graph);
    graph.check_whole()?;
    let (sources, sinks) = match rehearsal {
        Some(instead) => (
            instead.left(&graph.nodes, &graph.sources),
            instead.settled(&graph.nodes, &graph.sinks)?,
        ),
        None => (graph.sources.clone(), graph.sinks.clone()),
    };
    Ok(Plan {
        nodes: graph.nodes.clone(),
        roots: graph.roots.clone(),
        sources,
        sinks,
        codecs: graph.codecs.clone(),
    })
}

/// Makes a run ready: gives it with what each of its workers is to do, if there is anything to do.
fn prepare(
    flow: &Flow,
    options: Options,
) -> Result<
    (
        Running,
        Option<impl Fn(&mut Worker) + Send + Sync + 'static>,
    ),
    FlowError,
> {
    if options.workers == 0 || options.workers > WORKERS_MAX {
        let asked = options.workers;
        return Err(FlowError::Usage(format!(
            "{asked} workers asked for; 1 to {WORKERS_MAX} work"
        )));
    }
    let plan = plan(flow, options.rehearsal.as_deref())?;
    if options.rehearsal.is_none() {
        let graph = lock(&flow.graph);
        graph
            .files
            .check(&graph.nodes, options.recovery.is_some())?;
    }
    let control = Control::new(options.workers, options.release.clone());
    let control = Arc::new(control.rehearsing(options.rehearsal.clone()));
    let shared = Arc::clone(&control);
    let settings = options.clone();
    let name = lock(&flow.graph).name.clone();
    let operators = plan.roots.len() * options.workers;
    let replaying = match &options.rehearsal {
        Some(rehearsal) => rehearsal.begin(&name, &plan.nodes, operators)?,
        None => None,
    };
    let (clock, replaying): (Arc<dyn Clock>, _) = match (replaying, &options.clock) {
        (Some((clock, told)), _) => (clock, Some(told)),
        (None, Some(clock)) => (Arc::clone(clock), None),
        (None, None) => (Arc::new(WallClock::default()), None),
    };
    let mut running = Running {
        name,
        started: now_ns(),
        control,
        threads: None,
        committer: None,
        signals: None,
        options,
    };
    let (kept, committer) = keep(&running, &plan, &clock, replaying)?;
    if kept.as_ref().is_some_and(|(resume, _)| resume.ends_here) {
        (0..running.options.workers).for_each(|_| shared.worker_ended());
        return Ok((running, None));
    }
    running.committer = committer;
    let life = move |worker: &mut Worker| {
        let mut life = || guarded(worker, &plan, &shared, &settings, &clock, &kept);
        match &settings.around {
            Some(around) => around(&mut life),
            None => life(),
        }
        if let Some((_, told)) = &kept {
            // A committer that has gone has failed the flow.
            let _ = lock(told).send(Told::Ended);
        }
        shared.worker_ended();
    };
    Ok((running, Some(life)))
}

/// Opens the state directory, if the run has one, and starts the thread that commits epochs.
fn keep(
    running: &Running,
    plan: &Plan,
    clock: &Arc<dyn Clock>,
    replaying: Option<Sender<Told>>,
) -> Result<(Kept, Option<JoinHandle<()>>), FlowError> {
    if let Some(told) = replaying {
        if running.options.recovery.is_some() {
            return Err(FlowError::Usage("a replay keeps no state".to_owned()));
        }
        let resume = Arc::new(Resume::nothing(plan.codecs.clone()));
        return Ok((Some((resume, Mutex::new(told))), None));
    }
    let Some(recovery) = &running.options.recovery else {
        begin_without(plan, running.options.workers, clock)?;
        return Ok((None, None));
    };
    running.control.keep_state();
    let workers = running.options.workers;
    let parts = Parts {
        nodes: &plan.nodes,
        sources: &plan.sources,
        sinks: &plan.sinks,
        codecs: &plan.codecs,
    };
    let time_ns = clock.time_ns();
    let begun = checkpoint::resume(&running.name, &parts, recovery, workers, time_ns)?;
    let Begun { resume, commit, .. } = begun;
    let (teller, told) = channel();
    if resume.ends_here {
        return Ok((Some((Arc::new(resume), Mutex::new(teller))), None));
    }
    let committer = Committer {
        store: begun.store,
        base: commit.epoch,
        commit,
        flow: running.name.clone(),
        nodes: plan.nodes.clone(),
        sinks: plan.sinks.clone(),
        recordings: begun.recordings,
        options: recovery.clone(),
        control: Arc::clone(&running.control),
        clock: Arc::clone(clock),
        workers,
        roots: plan.roots.len(),
    };
    let thread = std::thread::Builder::new()
        .name("millstream-epochs".to_owned())
        .spawn(move || committer.run(&told))
        .map_err(|cause| FlowError::State {
            path: recovery.dir.clone(),
            cause: cause.into(),
        })?;
    Ok((Some((Arc::new(resume), Mutex::new(teller))), Some(thread)))
}

/// Tells the sources that a run without a state directory begins.
fn begin_without(plan: &Plan, workers: usize, clock: &Arc<dyn Clock>) -> Result<(), FlowError> {
    for (node, source) in &plan.sources {
        let this = &plan.nodes[*node];
        let run = Beginning {
            source: &this.name,
            recovery: None,
            committed: &[],
            recorded: &[],
            workers,
            had_ended: false,
            forget: false,
            time_ns: clock.time_ns(),
        };
        // How it is run is a mistake, not the place that it is opened at.
        source
            .begin(&run)
            .map_err(|cause| FlowError::Usage(open_error(this, cause).to_string()))?;
    }
    Ok(())
}

/// Runs a worker and turns a panic of a step into the flow's failure.
fn guarded(
    worker: &mut Worker,
    plan: &Plan,
    control: &Arc<Control>,
    options: &Options,
    clock: &Arc<dyn Clock>,
    kept: &Kept,
) {
    let metrics: Vec<StepMetrics> = plan
        .nodes
        .iter()
        .map(|node| StepMetrics::new(&node.name, node.kind))
        .collect();
    let place = (worker.index(), worker.peers());
    let mut context = Context::new(place, metrics, Arc::clone(clock), Arc::clone(control));
    if let Some((resume, told)) = kept {
        context.now = resume.processing_ns;
        context.keeping = Some(Keeping {
            part: Part::default(),
            resume: Arc::clone(resume),
            told: lock(told).clone(),
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
    context: &Rc<RefCell<Context>>,
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
            edges: HashMap::new(),
            sources: Rc::clone(&sources),
            alarm: Rc::clone(&alarm),
            deadlines: Rc::clone(&deadlines),
            worker: index,
            workers: peers,
            hold: options.hold.clone(),
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
            .then(|| control.rehearsal()?.conductor())
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
    context: &'a Rc<RefCell<Context>>,
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

impl Running {
    /// Asks the flow to end; [`wait`](Running::wait) tells when it has. Its sources read no more, and what is in its steps is
    /// finished. What is not finished within a second is abandoned: each worker finishes the item in hand. With a state
    /// directory the next start takes the rest up from the last commit; without one it is dropped, and its number is said on
    /// standard error and by [`Control::unfinished`].
    pub fn stop(&self) {
        self.control.stop();
    }

    /// A handle with which another thread can stop the flow.
    #[must_use]
    pub fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control)
    }

    /// True once all workers have ended; waits for that `limit` at most.
    #[must_use]
    pub fn ended_within(&self, limit: Duration) -> bool {
        self.control.wait_ended(limit)
    }

    /// The metrics as last published; at the end they are complete.
    #[must_use]
    pub fn report(&self) -> Report {
        Report {
            flow: self.name.clone(),
            elapsed: Duration::from_nanos(now_ns().saturating_sub(self.started)),
            workers: self.control.snapshots(),
        }
    }

    /// Waits for the end of the flow.
    ///
    /// # Errors
    /// The failure that ended the flow.
    pub fn wait(mut self) -> Result<Report, FlowError> {
        let interval = match &self.options.on_metrics {
            Some((interval, _)) => *interval,
            None => Duration::from_secs(3600),
        };
        let signals = self.signals.take();
        let tick = match &signals {
            Some(_) => Duration::from_millis(50),
            None => interval,
        };
        let mut next_report = now_ns() + interval.as_nanos() as u64;
        while !self.ended_within(tick.min(interval)) {
            if signals
                .as_ref()
                .is_some_and(|signals| signals.noted.load(Ordering::Relaxed))
            {
                self.control.stop();
            }
            if now_ns() >= next_report {
                next_report += interval.as_nanos() as u64;
                self.call_back();
            }
        }
        drop(signals);
        let threads = self.threads.take();
        self.tell_of_the_unfinished();
        // A panic was caught inside the worker and stands in `control`.
        let _ = threads.map(|threads| threads.join());
        // The last epoch is committed by then, or its failure stands in `control`.
        let _ = self.committer.take().map(|committer| committer.join());
        match self.control.take_failure() {
            Some(error) => Err(error),
            None => {
                self.call_back();
                Ok(self.report())
            }
        }
    }

    /// Says what an abandoned run has left.
    fn tell_of_the_unfinished(&self) {
        let left = self.control.unfinished();
        if !self.control.abandoned() || left == 0 {
            return;
        }
        let (name, what) = (
            &self.name,
            match self.control.keeps_state() {
                true => "the next start takes them up from the last commit",
                false => "they are dropped",
            },
        );
        tracing::warn!(
            flow = name.as_str(),
            "flow \"{name}\": stopped with {left} items in its steps: {what}"
        );
    }

    /// Ends the flow without waiting for the items that its workers have in hand, and says how many items it leaves. A worker
    /// that is inside a step ends behind that item.
    pub fn abandon(mut self) {
        self.control.abandon();
        self.tell_of_the_unfinished();
        // The threads end by themselves; to drop their guards would be to wait for them.
        std::mem::forget(self.threads.take());
        std::mem::forget(self.committer.take());
    }

    fn call_back(&self) {
        if let Some((_, call)) = &self.options.on_metrics {
            call(&self.report());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.threads.is_some() {
            self.control.stop();
        }
    }
}

/// SIGINT and SIGTERM, heeded for as long as this exists: the first is noted, a second ends the process.
struct Signals {
    noted: Arc<AtomicBool>,
    hooks: Vec<signal_hook::SigId>,
}

impl Signals {
    fn hook() -> Self {
        let (noted, mut hooks) = (Arc::new(AtomicBool::new(false)), Vec::new());
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // In this order: the shutdown looks at the flag before this signal has raised it.
            let at_once = signal_hook::flag::register_conditional_shutdown(
                signal,
                128 + signal,
                Arc::clone(&noted),
            );
            // Registering fails only for signals that may not be caught.
            hooks.extend(at_once.ok());
            hooks.extend(signal_hook::flag::register(signal, Arc::clone(&noted)).ok());
        }
        Signals { noted, hooks }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for hook in self.hooks.drain(..) {
            signal_hook::low_level::unregister(hook);
        }
    }
}
