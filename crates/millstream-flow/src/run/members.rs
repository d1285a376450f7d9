//! Joins the run of several processes, and passes its events on.
//!
//! One thread of each process reads the events in order. Those that concern commits go to the committer; the others
//! change the state that the workers share.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::Builder;

use crate::checkpoint::CommitNotice;
use crate::cluster::{Event, Joined, Offer, OfferedSource, StateOffer, WrongOptions};
use crate::control::Control;
use crate::dataflow::plan::Plan;
use crate::error::{DiedBefore, FlowError};
use crate::key::Shards;
use crate::node::open_error;
use crate::panics::in_step;
use crate::run::options::Options;
use crate::run::reports::report_handled;
use crate::run::running::Running;
use crate::run::version::executable;

/// The number of files of a source that processes compare.
const INPUTS_MAX: usize = 1_000;

/// Returns what this process tells the others at the start.
fn offer(
    plan: &Plan,
    options: &Options,
    (state, shards): (Option<StateOffer>, Shards),
) -> Result<Offer, FlowError> {
    let workers = options.all_workers();
    let sources = plan.sources.iter().map(|(node, source)| {
        let this = &plan.nodes[*node];
        let _called = in_step(&this.name);
        let settings = source.settings();
        let names = source.partitions(workers);
        let names = names.map_err(|cause| open_error(this, cause))?;
        let inputs = settings.inputs.iter().take(INPUTS_MAX);
        let inputs = inputs.filter(|_| !settings.in_one_process);
        Ok(OfferedSource {
            name: this.name.clone(),
            local: settings.local,
            partitions: names,
            inputs: inputs
                .map(|input| (input.path().display().to_string(), input.id()))
                .collect(),
        })
    });
    let mut graph = plan.graph_lines();
    graph.push(format!("keys in {} shards", shards.count()));
    let mut version = match &plan.version {
        Some(version) => version.clone(),
        None => vec![executable()?],
    };
    version.push((
        "Millstream".to_owned(),
        env!("CARGO_PKG_VERSION").to_owned(),
    ));
    Ok(Offer {
        flow: plan.name.clone(),
        version,
        graph,
        workers: options.workers,
        sources: sources.collect::<Result<_, FlowError>>()?,
        state,
    })
}

/// Meets the other processes, if the run has several. From then on the run sends them notices.
pub(super) fn join(
    running: &Running,
    plan: &Plan,
    state: (Option<StateOffer>, Shards),
    stopping: &dyn Fn() -> bool,
) -> Result<Option<Joined>, FlowError> {
    let (Some(cluster), Some(others)) = (&running.options.cluster, running.control.load.others())
    else {
        return Ok(None);
    };
    let offer = offer(plan, &running.options, state)?;
    let joined = cluster.join(offer, stopping);
    let process = others.membership.process;
    let joined = joined.map_err(|cause| match cause.downcast::<DiedBefore>() {
        Ok(died) => FlowError::Lost {
            process: died.process,
            cause: died.cause,
        },
        Err(cause) => match cause.downcast::<WrongOptions>() {
            Ok(wrong) => FlowError::Usage(wrong.to_string()),
            Err(cause) => FlowError::Cluster { process, cause },
        },
    })?;
    others.meet(&joined.member);
    Ok(Some(joined))
}

/// Starts the threads that read the events of the run and that report what the workers have processed. Events that
/// concern commits go to `committer`.
pub(super) fn attend(
    control: &Arc<Control>,
    events: Receiver<Event>,
    committer: Option<Sender<CommitNotice>>,
) -> Result<(), FlowError> {
    let failed = |cause: std::io::Error| FlowError::Open {
        what: "a thread of the cluster".to_owned(),
        cause: cause.into(),
    };
    let reporting = Arc::clone(&control.load);
    let thread = Builder::new().name("millstream-handled".to_owned());
    let thread = thread.spawn(move || {
        if let Some(others) = reporting.others() {
            report_handled(&reporting, others);
        }
    });
    thread.map_err(failed)?;
    let control = Arc::clone(control);
    let thread = Builder::new().name("millstream-events".to_owned());
    let thread = thread.spawn(move || pass_events(&control, &events, committer.as_ref()));
    thread.map(drop).map_err(failed)
}

/// Passes on the events of the run until there are no more.
fn pass_events(
    control: &Control,
    events: &Receiver<Event>,
    committer: Option<&Sender<CommitNotice>>,
) {
    for event in events {
        match (event, committer) {
            (Event::Go, _) => control.ends.go(),
            (Event::Handled(load), _) => control.load.take_report(&load),
            (Event::Status { process, status }, _) => {
                if let Some(others) = control.load.others() {
                    others.take_status(process, status);
                }
            }
            (Event::Stop, _) => control.life.stop_here(),
            (Event::Ended, _) => control.ends.others_ended(),
            (Event::Died { process, cause }, _) => {
                control.life.fail_here(FlowError::Lost { process, cause });
            }
            // A committer that has ended has failed the flow, or has committed everything.
            (event, Some(committer)) => drop(committer.send(CommitNotice::Cluster(event))),
            // Without a state directory each source ends by itself, and there are no epochs.
            (_, None) => {}
        }
    }
    let process = control
        .load
        .others()
        .map(|others| others.membership.process);
    control.ends.events_ended(process.unwrap_or(0));
}
