//! What limits a flow: the step that is the cause, and the steps that wait for it.
//!
//! A worker that spends nearly all its time in steps limits the flow; the cause is the step that takes most of it.
//! Steps before the cause could do more, and wait. A full outbox limits the flow although no worker is busy: its
//! destination is the cause.

use millstream_flow::graph::Description;
use millstream_flow::watch::Moment;

use crate::snapshot::{Bottleneck, Limit, Mark, StepSnapshot, WorkerSnapshot};

/// The share of its time in steps from which a worker limits the flow. The rest is polling and the exchange.
const BUSY_MIN: f64 = 0.85;

/// Finds what limits the flow and marks the steps. `busy` has the busy share of each step on each worker.
pub(crate) fn judge(
    graph: &Description,
    moment: &Moment,
    steps: &mut [StepSnapshot],
    workers: &[WorkerSnapshot],
    busy: &[Vec<f64>],
) -> Option<Bottleneck> {
    let (cause, limit, words) =
        full_outbox(graph, moment).or_else(|| busiest(steps, workers, busy))?;
    for step in before(graph, cause) {
        steps[step].mark = Mark::Waiting;
    }
    steps[cause].mark = Mark::Cause;
    let step = steps[cause].name.clone();
    Some(Bottleneck { step, limit, words })
}

type Finding = (usize, Limit, String);

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
    Some((node, Limit::Outbox, words))
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
    let skew = if step.skew >= 1.5 && workers.len() > 1 {
        format!(
            "; that worker has {:.1} times the load of the mean",
            step.skew
        )
    } else {
        String::new()
    };
    let words = format!(
        "{} limits the flow: it takes {:.0}% of the time of {whose}{skew}.",
        step.name,
        share * 100.0
    );
    Some((cause, Limit::Step, words))
}

/// The steps whose output reaches `node`.
pub(crate) fn before(graph: &Description, node: usize) -> Vec<usize> {
    let mut found = vec![false; graph.nodes.len()];
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        for &input in &graph.nodes[node].inputs {
            if !std::mem::replace(&mut found[input], true) {
                open.push(input);
            }
        }
    }
    (0..found.len()).filter(|node| found[*node]).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millstream_flow::{Flow, testing};

    use super::*;

    /// Two sources, merged; a step on each, one after them, and a sink.
    fn graph() -> Description {
        let flow = Flow::new("f");
        let one = flow
            .source("one", testing::items([1]))
            .map(|n| n)
            .named("a");
        let two = flow
            .source("two", testing::items([1]))
            .map(|n| n)
            .named("b");
        one.merge(&[two])
            .map(|n| n)
            .named("after")
            .sink("out", testing::Collected::new().sink());
        flow.describe()
    }

    /// Judges busy shares by the names of steps, on each worker.
    fn marks(busy: &[&[(&str, f64)]]) -> (Vec<(String, Mark)>, Option<Bottleneck>) {
        let graph = graph();
        let moment = Moment {
            now_ns: 0,
            elapsed: Duration::ZERO,
            workers: Vec::new(),
            outboxes: Vec::new(),
            lags: Vec::new(),
            watermarks: Vec::new(),
            without_items: Vec::new(),
            epochs: None,
            failures: Vec::new(),
            edges: Vec::new(),
            commits: Vec::new(),
            sources_paused: false,
            outbox_full: false,
            open: true,
            ending: None,
            failure: None,
            ended: false,
        };
        let mut steps: Vec<StepSnapshot> = graph
            .nodes
            .iter()
            .map(|node| StepSnapshot {
                name: node.name.clone(),
                ..StepSnapshot::default()
            })
            .collect();
        let share = |worker: &&[(&str, f64)]| -> Vec<f64> {
            let of = |name: &String| {
                worker
                    .iter()
                    .find(|one| one.0 == name)
                    .map_or(0.0, |one| one.1)
            };
            graph.nodes.iter().map(|node| of(&node.name)).collect()
        };
        let busy: Vec<Vec<f64>> = busy.iter().map(share).collect();
        let workers: Vec<WorkerSnapshot> = busy
            .iter()
            .enumerate()
            .map(|(worker, shares)| WorkerSnapshot {
                worker,
                busy: shares.iter().sum(),
                ..WorkerSnapshot::default()
            })
            .collect();
        let found = judge(&graph, &moment, &mut steps, &workers, &busy);
        let marked = steps.into_iter().filter(|step| step.mark != Mark::None);
        (marked.map(|step| (step.name, step.mark)).collect(), found)
    }

    #[test]
    fn only_the_steps_before_the_cause_wait() {
        let (marks, found) = marks(&[&[("a", 0.7), ("after", 0.2)]]);
        let expected = [("one", Mark::Waiting), ("a", Mark::Cause)];
        assert_eq!(marks, expected.map(|(name, mark)| (name.to_owned(), mark)));
        assert!(
            found
                .unwrap()
                .words
                .contains("70% of the time of the worker")
        );
    }

    #[test]
    fn the_cause_is_on_the_worker_that_has_no_time_left() {
        let (marks, found) = marks(&[&[("a", 0.5)], &[("a", 0.1), ("after", 0.8)]]);
        assert_eq!(found.unwrap().step, "after");
        assert_eq!(
            marks.iter().filter(|one| one.1 == Mark::Waiting).count(),
            marks.len() - 1
        );
        assert!(marks.iter().any(|one| one.0 == "two"));
    }

    #[test]
    fn a_flow_whose_workers_have_time_has_no_cause() {
        let (marks, found) = marks(&[&[("a", 0.4), ("after", 0.4)], &[]]);
        assert_eq!((marks, found), (Vec::new(), None));
    }
}
