//! What limits a flow: the step that is the cause, and the steps that wait for it.
//!
//! A worker that spends nearly all its time in steps limits the flow; the cause is the step that takes most of it. Steps before the cause could
//! do more, and wait. A full outbox limits the flow although no worker is busy: its destination is the cause.

use millstream_flow::graph::Description;
use millstream_flow::watch::Moment;

use crate::snapshot::{Bottleneck, Mark, StepSnapshot, WorkerSnapshot};

/// The share of its time in steps from which a worker limits the flow. The rest is polling and the exchange.
const BUSY_MIN: f64 = 0.85;
/// The seconds without news from which a worker is inside one call.
const SILENT_SECONDS: f64 = 4.0;

/// Finds what limits the flow and marks the steps. `busy` has the busy share of each step on each worker.
pub(crate) fn judge(
    graph: &Description,
    moment: &Moment,
    steps: &mut [StepSnapshot],
    workers: &[WorkerSnapshot],
    busy: &[Vec<f64>],
) -> Option<Bottleneck> {
    let (cause, words) = full_outbox(graph, moment)
        .or_else(|| silent(workers))
        .or_else(|| busiest(steps, workers, busy))?;
    if let Some(cause) = cause {
        for step in before(graph, cause) {
            steps[step].mark = Mark::Waiting;
        }
        steps[cause].mark = Mark::Cause;
    }
    let step = cause.map(|cause| steps[cause].name.clone());
    Some(Bottleneck { step, words })
}

type Finding = (Option<usize>, String);

fn full_outbox(graph: &Description, moment: &Moment) -> Option<Finding> {
    let outboxes = moment.outboxes.iter().filter(|_| moment.outbox_full);
    let oldest = outboxes.max_by_key(|outbox| outbox.waiting)?;
    let node = graph
        .nodes
        .iter()
        .position(|node| node.name == oldest.sink)?;
    let words = format!(
        "The outbox of {} is full: {} does not accept what the flow produces.",
        oldest.sink, oldest.address
    );
    Some((Some(node), words))
}

fn silent(workers: &[WorkerSnapshot]) -> Option<Finding> {
    let silent = workers
        .iter()
        .filter(|worker| worker.silent_seconds >= SILENT_SECONDS);
    let longest = silent.max_by(|a, b| a.silent_seconds.total_cmp(&b.silent_seconds))?;
    let words = format!(
        "Worker {} has been inside one call of a step for {:.0} s.",
        longest.worker, longest.silent_seconds
    );
    Some((None, words))
}

fn busiest(
    steps: &[StepSnapshot],
    workers: &[WorkerSnapshot],
    busy: &[Vec<f64>],
) -> Option<Finding> {
    let limits = workers.iter().filter(|worker| worker.busy >= BUSY_MIN);
    let worker = limits.max_by(|a, b| a.busy.total_cmp(&b.busy))?.worker;
    let shares = busy.get(worker)?.iter().enumerate();
    let (cause, share) = shares.max_by(|a, b| a.1.total_cmp(b.1))?;
    let step = steps.get(cause)?;
    let whose = match workers.len() {
        1 => "the worker".to_owned(),
        count => format!("worker {worker} of {count}"),
    };
    let skew = match step.skew >= 1.5 && workers.len() > 1 {
        true => format!(
            "; that worker has {:.1} times the load of the mean",
            step.skew
        ),
        false => String::new(),
    };
    let words = format!(
        "{} limits the flow: it takes {:.0}% of the time of {whose}{skew}.",
        step.name,
        share * 100.0
    );
    Some((Some(cause), words))
}

/// The steps whose output reaches `node`.
fn before(graph: &Description, node: usize) -> Vec<usize> {
    let (mut found, mut open) = (vec![false; graph.nodes.len()], vec![node]);
    while let Some(node) = open.pop() {
        for &input in &graph.nodes[node].inputs {
            if !std::mem::replace(&mut found[input], true) {
                open.push(input);
            }
        }
    }
    (0..found.len()).filter(|node| found[*node]).collect()
}
