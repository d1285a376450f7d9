//! Starts a run: other processes, state directory, committer, worker threads.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use timely::WorkerConfig;
use timely::communication::allocator::ProcessBuilder;
use timely::communication::allocator::zero_copy::initialize::initialize_networking_from_sockets;
use timely::communication::{AllocatorBuilder, Config as Threads, Hooks, WorkerGuards};
use timely::execute::Config;
use timely::worker::Worker;

use crate::checkpoint::{
    self, ClusterStart, CommitNotice, Committer, FlowParts, Recovery, Resume, ResumedRun,
    SharedCommits,
};
use crate::clock::{Clock, WallClock, now_ns};
use crate::cluster::{JoinStopped, Joined, Membership};
use crate::control::Control;
use crate::control::remote::Others;
use crate::dataflow::edge::Packets;
use crate::dataflow::plan::Plan;
use crate::error::{FlowError, chain};
use crate::metrics::Report;
use crate::metrics::figures::Figures;
use crate::metrics::progress::CommitTimer;
use crate::mutex::lock;
use crate::node::open_error;
use crate::panics::{caught, in_step};
use crate::run::members;
use crate::run::options::Options;
use crate::run::running::{Links, Running};
use crate::run::signals::Signals;
use crate::run::wire::Wire;
use crate::run::worker::{Checkpoints, guarded};
use crate::source::Beginning;
use crate::starting::StartStopped;

/// Starts a flow on threads of its own, after `plan` has described it for these options.
pub(crate) fn start(
    mut options: Options,
    plan: impl FnOnce(&Options) -> Result<Plan, FlowError>,
) -> Result<Running, FlowError> {
    options.check_workers()?;
    options.check_cluster()?;
    let plan = caught(beginning, || plan(&options))??;
    if options.cluster.is_some() {
        plan.check_codecs()?;
    }
    // The wait for other processes and for servers may be long.
    let signals = options.signals.then(Signals::hook);
    let stopping = || signals.as_ref().is_some_and(Signals::noted);
    if let Some(signals) = &signals {
        options.starting = options.starting.until(signals.notes());
    }
    let name = plan.name.clone();
    let asked = options.clone();
    let prepared = caught(beginning, || prepare(plan, options, &stopping));
    let (mut running, life) = match prepared.and_then(|prepared| prepared) {
        Err(error) if is_stop(&error) => return Ok(Running::stopped(name, asked)),
        prepared => prepared?,
    };
    running.signals = signals;
    let Some(life) = life else {
        return Ok(running);
    };
    let threads = match running.links.take() {
        Some(links) => execute_linked(&running, links, life),
        None => execute(&running, life),
    };
    let threads = threads.inspect_err(|error| end_start(&running.control, error))?;
    running.threads = Mutex::new(Some(threads));
    Ok(running)
}

/// The name in the error of a panic before a worker has begun, in none of the parts of a step.
fn beginning() -> String {
    "start".to_owned()
}

/// Whether the wait for other processes, or for the server of a source, was stopped.
fn is_stop(error: &FlowError) -> bool {
    match error {
        FlowError::Cluster { cause, .. } => cause.is::<JoinStopped>(),
        FlowError::Open { cause, .. } => cause.is::<StartStopped>(),
        _ => false,
    }
}

/// Waits until the servers of all sources answer. A rehearsal reads none of them.
fn await_servers(plan: &Plan, options: &Options) -> Result<(), FlowError> {
    if options.rehearsal.is_some() {
        return Ok(());
    }
    for (node, source) in &plan.sources {
        let this = &plan.nodes[*node];
        let _called = in_step(&this.name);
        let ready = source.await_server(&options.starting);
        ready.map_err(|cause| open_error(this, cause))?;
    }
    options.starting.go();
    Ok(())
}

/// Starts the workers of a run of one process.
fn execute(
    running: &Running,
    life: impl Fn(&mut Worker) + Send + Sync + 'static,
) -> Result<WorkerGuards<()>, FlowError> {
    let config = Config {
        communication: match running.options.workers {
            1 => Threads::Thread,
            n => Threads::Process(n),
        },
        worker: WorkerConfig::default(),
    };
    timely::execute(config, life).map_err(FlowError::Usage)
}

/// Starts the workers of this process, and the threads of its connections to the others.
fn execute_linked(
    running: &Running,
    links: Links,
    life: impl Fn(&mut Worker) + Send + Sync + 'static,
) -> Result<WorkerGuards<()>, FlowError> {
    let control = &running.control;
    let workers = running.options.workers;
    let process = control.load.local().start / workers;
    let unusable = |cause: std::io::Error| FlowError::Cluster {
        process,
        cause: cause.into(),
    };
    let links = links.into_iter().enumerate().map(|(other, link)| {
        let wire = link.map(|link| Wire::begin(link, other, control));
        wire.transpose().map_err(|cause| FlowError::Lost {
            process: other,
            cause: cause.to_string(),
        })
    });
    let links: Vec<Option<Wire>> = links.collect::<Result<_, _>>()?;
    control.ends.links_begin(links.iter().flatten().count());
    let hooks = Hooks::default();
    let local = ProcessBuilder::new_typed_vector(workers, hooks.refill.clone(), None);
    let network = initialize_networking_from_sockets(local, links, process, workers, hooks);
    let (builders, threads) = network.map_err(unusable)?;
    let builders = builders.into_iter().map(AllocatorBuilder::Tcp);
    timely::execute::execute_from(
        builders.collect(),
        Box::new(threads),
        WorkerConfig::default(),
        life,
    )
    .map_err(FlowError::Usage)
}

/// Runs a flow on the calling thread, after `plan` has described it for these options.
pub(crate) fn run_here(
    options: Options,
    plan: impl FnOnce(&Options) -> Result<Plan, FlowError>,
) -> Result<Report, FlowError> {
    options.check_single()?;
    let plan = caught(beginning, || plan(&options))??;
    let (running, life) = caught(beginning, || prepare(plan, options, &|| false))??;
    if let Some(life) = life {
        timely::execute_directly(life);
    }
    running.wait()
}

/// Prepares a run: returns it with the function of each of its workers, if the flow has operators.
fn prepare(
    mut plan: Plan,
    mut options: Options,
    stopping: &dyn Fn() -> bool,
) -> Result<
    (
        Running,
        Option<impl Fn(&mut Worker) + Send + Sync + 'static>,
    ),
    FlowError,
> {
    let packets = packets(&options)?;
    // The workers see what was checked here.
    options.packets = Some(packets);
    if packets == Packets::Bytes {
        plan.check_codecs()?;
    }
    let control = Arc::new(control(&options, &plan));
    let shared = Arc::clone(&control);
    let settings = options.clone();
    let name = plan.name.clone();
    let operators = plan.roots.len() * options.workers;
    let replaying = match &options.rehearsal {
        Some(rehearsal) => rehearsal.begin(&name, &plan.nodes, operators)?,
        None => None,
    };
    let (clock, replaying) = match replaying {
        Some((clock, conductor)) => (clock, Some(conductor)),
        None => (clock(&options), None),
    };
    let mut running = Running {
        name,
        started: now_ns(),
        control,
        threads: Mutex::default(),
        committer: None,
        signals: None,
        links: None,
        options,
    };
    let begun = begin_checkpoints(&running, &mut plan, &clock, replaying, stopping);
    let begun = begun.and_then(|begun| attend(&shared, begun));
    // Forwarders that have started must not continue.
    let (checkpoints, committer, links) = begun.inspect_err(|error| end_start(&shared, error))?;
    running.meet(links);
    running.committer = committer;
    if checkpoints
        .as_ref()
        .is_some_and(|(resume, _)| resume.ends_here)
    {
        (0..running.options.workers).for_each(|_| shared.ends.worker_ended());
        return Ok((running, None));
    }
    let life = move |worker: &mut Worker| {
        let mut life = || guarded(worker, &plan, &shared, &settings, &clock, &checkpoints);
        match &settings.around {
            Some(around) => around(&mut life),
            None => life(),
        }
        if let Some((_, committer)) = &checkpoints {
            // A committer that has ended has failed the flow.
            let _ = lock(committer).send(CommitNotice::WorkerEnded);
        }
        shared.ends.worker_ended();
    };
    Ok((running, Some(life)))
}

/// Returns the form of batches between operators.
fn packets(options: &Options) -> Result<Packets, FlowError> {
    match &options.rehearsal {
        Some(rehearsal) if rehearsal.makes_copies() => Ok(Packets::Bytes),
        _ => options.packets.map_or_else(Packets::of_environment, Ok),
    }
}

/// Returns the clock of processing time of a run that is no replay.
fn clock(options: &Options) -> Arc<dyn Clock> {
    match &options.clock {
        Some(clock) => Arc::clone(clock),
        None => Arc::new(WallClock::default()),
    }
}

/// Attends to the events of a run that this process has joined; returns the connections to the other processes.
fn attend(control: &Arc<Control>, begun: Begun) -> Result<Attended, FlowError> {
    let checkpoints = begun.checkpoints;
    let committer = begun.committer;
    let Some(joined) = begun.joined else {
        return Ok((checkpoints, committer, None));
    };
    let notices = checkpoints.as_ref();
    let notices = notices.map(|(_, committer)| lock(committer).clone());
    members::attend(control, joined.events, notices)?;
    Ok((checkpoints, committer, Some(joined.links)))
}

/// The checkpoints of a run, the thread that commits them, and the connections to other processes.
type Attended = (Checkpoints, Option<JoinHandle<()>>, Option<Links>);

/// Creates the state that the workers of this process share.
fn control(options: &Options, plan: &Plan) -> Control {
    let cluster = options.cluster.as_ref();
    let others = cluster.map(|cluster| Others::new(cluster.membership(), options.workers));
    let first = others.as_ref().map_or(0, Others::first);
    let mut figures = Figures::new(first..first + options.workers);
    figures.steps = plan.nodes.iter().map(|node| node.name.clone()).collect();
    if options.rehearsal.is_some() {
        figures = figures.without_late_warnings();
    }
    if options.publish_interval().is_some() {
        let edges = plan.edges.iter().map(|edge| (edge.from, edge.to));
        figures = figures.watched(options.traceback.clone(), edges);
    }
    Control::of(figures, others, options.release.clone())
}

/// Ends a run that could not start.
fn end_start(control: &Control, error: &FlowError) {
    if let Some(member) = control.life.member() {
        member.failed(&chain(error).to_string());
    }
    if let Some(others) = control.load.others() {
        others.end();
    }
    control.life.abandon();
}

/// What a run has begun before its workers start.
struct Begun {
    checkpoints: Checkpoints,
    committer: Option<JoinHandle<()>>,
    /// The run of several processes that this one has joined.
    joined: Option<Joined>,
}

impl Begun {
    /// A run without a thread that commits epochs.
    fn without(checkpoints: Checkpoints, joined: Option<Joined>) -> Self {
        Begun {
            checkpoints,
            committer: None,
            joined,
        }
    }
}

/// Opens the state directory, if the run has one, meets the other processes, and starts the thread that commits epochs.
fn begin_checkpoints(
    running: &Running,
    plan: &mut Plan,
    clock: &Arc<dyn Clock>,
    replaying: Option<Sender<CommitNotice>>,
    stopping: &dyn Fn() -> bool,
) -> Result<Begun, FlowError> {
    if let Some(conductor) = replaying {
        if running.options.recovery.is_some() {
            return Err(FlowError::Usage(
                "a replay cannot have a state directory".to_owned(),
            ));
        }
        let resume = Arc::new(Resume::nothing(plan.codecs.clone()));
        return Ok(Begun::without(Some((resume, Mutex::new(conductor))), None));
    }
    await_servers(plan, &running.options)?;
    let cluster = running.options.cluster.as_ref();
    let membership = cluster.map(|cluster| cluster.membership());
    plan.sinks.join(&plan.nodes, membership);
    let name = &running.name;
    let control = &running.control;
    let Some(recovery) = &running.options.recovery else {
        return begin_unsaved(running, plan, clock, stopping);
    };
    let recovery = &recovery.of_process(membership)?;
    control.epochs.keep_state();
    plan.sinks
        .begin(name, &plan.nodes, Some(recovery), control)?;
    let resumed = resume(running, plan, recovery, clock, stopping);
    let resumed = resumed.inspect_err(|_| plan.sinks.finish(&plan.nodes))?;
    let ResumedRun {
        resume,
        commit,
        joined,
        ..
    } = resumed;
    let (sender, notices) = channel();
    let started = plan.sinks.start(&plan.nodes);
    started.inspect_err(|_| plan.sinks.finish(&plan.nodes))?;
    let committer = Committer {
        store: resumed.store,
        base: resumed.base,
        commit,
        timer: CommitTimer::default(),
        replicated: resumed.replicated,
        shared: shared_commits(joined.as_ref(), membership),
        flow: running.name.clone(),
        nodes: plan.nodes.clone(),
        sinks: plan.sinks.clone(),
        letters: plan.letters.clone(),
        recordings: resumed.recordings,
        local: resumed.local,
        options: recovery.clone(),
        control: Arc::clone(&running.control),
        clock: Arc::clone(clock),
        // Of a flow that has ended only the deliveries are left.
        workers: if resume.ends_here {
            0
        } else {
            running.options.workers
        },
        roots: plan.roots.len(),
    };
    let thread = start_committer(committer, notices, recovery);
    let thread = thread.inspect_err(|_| plan.sinks.finish(&plan.nodes))?;
    Ok(Begun {
        checkpoints: Some((Arc::new(resume), Mutex::new(sender))),
        committer: Some(thread),
        joined,
    })
}

/// The same for a run without a state directory.
fn begin_unsaved(
    running: &Running,
    plan: &Plan,
    clock: &Arc<dyn Clock>,
    stopping: &dyn Fn() -> bool,
) -> Result<Begun, FlowError> {
    let shards = running.options.check_shards()?;
    begin_without(plan, running.options.all_workers(), clock)?;
    let name = &running.name;
    let control = &running.control;
    plan.sinks.begin(name, &plan.nodes, None, control)?;
    let joined = members::join(running, plan, (None, shards), stopping)?;
    Ok(Begun::without(None, joined))
}

/// Starts the thread that commits epochs.
fn start_committer(
    committer: Committer,
    notices: Receiver<CommitNotice>,
    recovery: &Recovery,
) -> Result<JoinHandle<()>, FlowError> {
    let thread = std::thread::Builder::new().name("millstream-epochs".to_owned());
    let started = thread.spawn(move || committer.run(&notices));
    started.map_err(|cause| FlowError::State {
        path: recovery.dir.clone(),
        cause: cause.into(),
    })
}

/// Resumes from the state directory `recovery`, which is that of this process; meets the other processes then.
fn resume(
    running: &Running,
    plan: &Plan,
    recovery: &Recovery,
    clock: &Arc<dyn Clock>,
    stopping: &dyn Fn() -> bool,
) -> Result<ResumedRun, FlowError> {
    let parts = FlowParts {
        nodes: &plan.nodes,
        sources: &plan.sources,
        sinks: &plan.sinks,
        codecs: &plan.codecs,
        shards: running.options.shards,
    };
    let join = |offer, shards| members::join(running, plan, (Some(offer), shards), stopping);
    let stop = || running.control.life.stop_here();
    let cluster = running.options.cluster.as_ref();
    let cluster = cluster.map(|cluster| ClusterStart {
        membership: cluster.membership(),
        join: &join,
        stop: &stop,
    });
    let workers = running.options.workers;
    let time_ns = clock.time_ns();
    let cluster = cluster.as_ref();
    checkpoint::resume(&running.name, &parts, recovery, workers, time_ns, cluster)
}

/// The commits with other processes, in a run of several.
fn shared_commits(
    joined: Option<&Joined>,
    membership: Option<Membership>,
) -> Option<SharedCommits> {
    let joined = joined?;
    let membership = membership?;
    let member = Arc::clone(&joined.member);
    Some(SharedCommits::new(member, membership.process))
}

/// Notifies the sources that a run without a state directory begins.
fn begin_without(plan: &Plan, workers: usize, clock: &Arc<dyn Clock>) -> Result<(), FlowError> {
    for (node, source) in &plan.sources {
        let this = &plan.nodes[*node];
        let _called = in_step(&this.name);
        let run = Beginning {
            source: &this.name,
            state_dir: None,
            sync: false,
            committed: &[],
            recorded: &[],
            partitions: &|| source.partitions(workers),
            had_ended: false,
            forget: false,
            time_ns: clock.time_ns(),
        };
        // The error concerns the options of the run, not the address of the source.
        source
            .begin(&run)
            .map_err(|cause| FlowError::Usage(chain(&open_error(this, cause)).to_string()))?;
    }
    Ok(())
}
