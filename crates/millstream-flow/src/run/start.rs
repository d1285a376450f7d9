//! Starts a run: state directory, committer, worker threads.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use timely::WorkerConfig;
use timely::communication::Config as Threads;
use timely::execute::Config;
use timely::worker::Worker;

use crate::checkpoint::{self, CommitNotice, Committer, FlowParts, Resume, ResumedRun};
use crate::clock::{Clock, WallClock, now_ns};
use crate::describe::node::open_error;
use crate::error::FlowError;
use crate::run::control::{Control, lock};
use crate::run::metrics::Report;
use crate::run::options::{Options, Packets};
use crate::run::plan::Plan;
use crate::run::running::Running;
use crate::run::signals::Signals;
use crate::run::worker::{Checkpoints, guarded};
use crate::source::Beginning;

/// Starts a flow on threads of its own, after `plan` has described it for these options.
pub(crate) fn start(
    options: Options,
    plan: impl FnOnce(&Options) -> Result<Plan, FlowError>,
) -> Result<Running, FlowError> {
    options.check_workers()?;
    let plan = plan(&options)?;
    let (mut running, life) = prepare(plan, options)?;
    let config = Config {
        communication: match running.options.workers {
            1 => Threads::Thread,
            n => Threads::Process(n),
        },
        worker: WorkerConfig::default(),
    };
    if let Some(life) = life {
        // Before the first item, so that an early signal is handled.
        running.signals = running.options.signals.then(Signals::hook);
        let threads = timely::execute(config, life);
        running.threads = Some(threads.map_err(|error| {
            running.control.abandon();
            FlowError::Usage(error)
        })?);
    }
    Ok(running)
}

/// Runs a flow on the calling thread, after `plan` has described it for these options.
pub(crate) fn run_here(
    options: Options,
    plan: impl FnOnce(&Options) -> Result<Plan, FlowError>,
) -> Result<Report, FlowError> {
    options.check_single()?;
    let plan = plan(&options)?;
    let (running, life) = prepare(plan, options)?;
    if let Some(life) = life {
        timely::execute_directly(life);
    }
    running.wait()
}

/// Prepares a run: returns it with the function of each of its workers, if the flow has operators.
fn prepare(
    plan: Plan,
    mut options: Options,
) -> Result<
    (
        Running,
        Option<impl Fn(&mut Worker) + Send + Sync + 'static>,
    ),
    FlowError,
> {
    let packets = options.packets.map_or_else(Packets::of_environment, Ok)?;
    // The workers see what was checked here.
    options.packets = Some(packets);
    if packets == Packets::Bytes {
        plan.check_codecs()?;
    }
    let control = Control::new(options.workers, options.release.clone());
    let control = Arc::new(match options.rehearsal {
        Some(_) => control.without_late_warnings(),
        None => control,
    });
    let shared = Arc::clone(&control);
    let settings = options.clone();
    let name = plan.name.clone();
    let operators = plan.roots.len() * options.workers;
    let replaying = match &options.rehearsal {
        Some(rehearsal) => rehearsal.begin(&name, &plan.nodes, operators)?,
        None => None,
    };
    let (clock, replaying): (Arc<dyn Clock>, _) = match (replaying, &options.clock) {
        (Some((clock, conductor)), _) => (clock, Some(conductor)),
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
    let begun = begin_checkpoints(&running, &plan, &clock, replaying);
    // Forwarders that have started must not continue.
    let (checkpoints, committer) = begun.inspect_err(|_| shared.abandon())?;
    if checkpoints
        .as_ref()
        .is_some_and(|(resume, _)| resume.ends_here)
    {
        (0..running.options.workers).for_each(|_| shared.worker_ended());
        return Ok((running, None));
    }
    running.committer = committer;
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
        shared.worker_ended();
    };
    Ok((running, Some(life)))
}

/// Opens the state directory, if the run has one, and starts the thread that commits epochs.
fn begin_checkpoints(
    running: &Running,
    plan: &Plan,
    clock: &Arc<dyn Clock>,
    replaying: Option<Sender<CommitNotice>>,
) -> Result<(Checkpoints, Option<JoinHandle<()>>), FlowError> {
    if let Some(conductor) = replaying {
        if running.options.recovery.is_some() {
            return Err(FlowError::Usage(
                "a replay cannot have a state directory".to_owned(),
            ));
        }
        let resume = Arc::new(Resume::nothing(plan.codecs.clone()));
        return Ok((Some((resume, Mutex::new(conductor))), None));
    }
    let Some(recovery) = &running.options.recovery else {
        begin_without(plan, running.options.workers, clock)?;
        let (name, control) = (&running.name, &running.control);
        plan.sinks.begin(name, &plan.nodes, None, control)?;
        return Ok((None, None));
    };
    let recovery = &recovery.of_process(None)?;
    running.control.keep_state();
    let workers = running.options.workers;
    let parts = FlowParts {
        nodes: &plan.nodes,
        sources: &plan.sources,
        sinks: &plan.sinks,
        codecs: &plan.codecs,
    };
    let time_ns = clock.time_ns();
    let (name, control) = (&running.name, &running.control);
    plan.sinks
        .begin(name, &plan.nodes, Some(recovery), control)?;
    let resumed = checkpoint::resume(&running.name, &parts, recovery, workers, time_ns, None);
    let resumed = resumed.inspect_err(|_| plan.sinks.finish())?;
    let ResumedRun { resume, commit, .. } = resumed;
    let (sender, notices) = channel();
    let started = plan.sinks.start(&plan.nodes);
    started.inspect_err(|_| plan.sinks.finish())?;
    if resume.ends_here {
        plan.sinks.finish();
        return Ok((Some((Arc::new(resume), Mutex::new(sender))), None));
    }
    let committer = Committer {
        store: resumed.store,
        base: resumed.base,
        commit,
        shared: None,
        flow: running.name.clone(),
        nodes: plan.nodes.clone(),
        sinks: plan.sinks.clone(),
        recordings: resumed.recordings,
        options: recovery.clone(),
        control: Arc::clone(&running.control),
        clock: Arc::clone(clock),
        workers,
        roots: plan.roots.len(),
    };
    let thread = std::thread::Builder::new()
        .name("millstream-epochs".to_owned())
        .spawn(move || committer.run(&notices))
        .inspect_err(|_| plan.sinks.finish())
        .map_err(|cause| FlowError::State {
            path: recovery.dir.clone(),
            cause: cause.into(),
        })?;
    Ok((Some((Arc::new(resume), Mutex::new(sender))), Some(thread)))
}

/// Notifies the sources that a run without a state directory begins.
fn begin_without(plan: &Plan, workers: usize, clock: &Arc<dyn Clock>) -> Result<(), FlowError> {
    for (node, source) in &plan.sources {
        let this = &plan.nodes[*node];
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
            .map_err(|cause| FlowError::Usage(open_error(this, cause).to_string()))?;
    }
    Ok(())
}
