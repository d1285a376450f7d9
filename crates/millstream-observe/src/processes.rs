//! The page of process 0 shows all processes of a run: each sends its snapshot and its metrics to process 0 once a
//! second.
//!
//! Invariant: what a process has sent changes what is shown and nothing else. A process that is silent is shown as
//! lost; what it has sent last stays in the sums, so that they do not fall.

use std::cmp::Reverse;
use std::ops::Add;
use std::sync::Arc;

use millstream_flow::watch::{ProcessStatus, Watch};
use serde::Deserialize;

use crate::ages::Ages;
use crate::list::PARTITIONS_MAX;
use crate::snapshot::{
    Bottleneck, ConditionSnapshot, FailureSnapshot, ProcessSnapshot, SinkSnapshot, Snapshot,
    SourceSnapshot, State, StepSnapshot, WorkerSnapshot, sort_conditions,
};
use crate::user;

/// The seconds without news after which a process is shown as lost: three publications.
const LOST_SECONDS: f64 = 3.0;
/// The metric whose label `process` is not the process that reports it.
const OF_OTHERS: &str = "millstream_flow_processes_missing{";
/// The condition that process 0 evaluates for all processes.
const WATERMARK: &str = "MillstreamWatermarkHeldBack";
/// The number of failures of all processes that are shown.
const FAILURES_MAX: usize = 50;

/// What a process sends: its snapshot, and its metrics as text.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Sent {
    snapshot: Snapshot,
    metrics: String,
}

/// What the other processes have sent to process 0; nothing elsewhere.
pub(crate) struct News {
    statuses: Vec<ProcessStatus>,
    sent: Vec<Option<Sent>>,
}

impl News {
    pub(crate) fn of(watch: &Watch) -> Self {
        let statuses = watch.statuses();
        let read = |status: &ProcessStatus| {
            let bytes = status.sent.as_ref()?;
            serde_json::from_slice::<Sent>(bytes).ok()
        };
        let sent = statuses.iter().map(read).collect();
        News { statuses, sent }
    }

    /// Adds to the snapshot of process 0 what it judges for all: by when the others have sent something last, and the
    /// event time of their partitions.
    pub(crate) fn add_to(&self, own: &mut Snapshot) {
        let known = self.statuses.iter().filter(|status| status.sent.is_some());
        let other = |status: &ProcessStatus| ProcessSnapshot {
            process: status.process,
            state: state(status, State::Running).to_owned(),
            silent_seconds: status.age.as_secs_f64(),
            ..ProcessSnapshot::default()
        };
        own.processes = known.map(other).collect();
        let mut sources = own.sources.clone();
        for (status, sent) in self.statuses.iter().zip(&self.sent) {
            let sent = sent.as_ref().filter(|_| is_live(status));
            let others = sent.map_or(&[][..], |sent| &sent.snapshot.sources);
            for (source, other) in sources.iter_mut().zip(others) {
                add_source(source, other);
            }
        }
        own.sources_of_all = (!self.statuses.is_empty()).then_some(sources);
    }
}

fn is_live(status: &ProcessStatus) -> bool {
    !status.ended && status.age.as_secs_f64() <= LOST_SECONDS
}

/// What is shown of a run.
pub(crate) struct Shown {
    /// The snapshot of this process.
    pub(crate) own: Arc<Snapshot>,
    /// The snapshot of all processes.
    pub(crate) all: Arc<Snapshot>,
    /// The number of this process, in a run of several.
    pub(crate) process: Option<usize>,
    /// The numbers of the other processes, with their metrics.
    pub(crate) others: Vec<(usize, String)>,
}

impl Shown {
    /// A run of one process.
    pub(crate) fn alone(snapshot: Snapshot) -> Self {
        let own = Arc::new(snapshot);
        Shown {
            all: Arc::clone(&own),
            own,
            process: None,
            others: Vec::new(),
        }
    }

    /// A run as `watch` shows it. A process other than process 0 sends its snapshot to that, with the `metrics` of it.
    pub(crate) fn of(
        snapshot: Snapshot,
        watch: &Watch,
        news: News,
        metrics: impl Fn(&Arc<Snapshot>) -> String,
    ) -> Self {
        let Some(membership) = watch.membership() else {
            return Shown::alone(snapshot);
        };
        if membership.process > 0 {
            let shown = Shown::alone(snapshot);
            let sent = serde_json::json!({"snapshot": &*shown.own, "metrics": metrics(&shown.own)});
            watch.send_status(sent.to_string().into_bytes());
            return Shown {
                process: Some(membership.process),
                ..shown
            };
        }
        let News { statuses, mut sent } = news;
        let all = merged(&snapshot, &statuses, &sent);
        let metrics = sent.iter_mut().zip(&statuses).filter_map(|(sent, status)| {
            let text = std::mem::take(&mut sent.as_mut()?.metrics);
            Some((status.process, text))
        });
        Shown {
            all: Arc::new(all),
            own: Arc::new(snapshot),
            process: Some(0),
            others: metrics.collect(),
        }
    }
}

/// The snapshot of all processes: that of process 0 with what the others have sent.
fn merged(own: &Snapshot, statuses: &[ProcessStatus], sent: &[Option<Sent>]) -> Snapshot {
    let mut all = own.clone();
    let count = own.workers.len();
    for worker in &mut all.workers {
        worker.process = Some(0);
    }
    all.processes = vec![process(0, own.state.name(), 0.0, own)];
    let mut means: Vec<f64> = own.steps.iter().map(mean).collect();
    for (status, sent) in statuses.iter().zip(sent) {
        let number = status.process;
        let silent = status.age.as_secs_f64();
        let Some(Sent { snapshot, .. }) = sent else {
            let state = if status.ended { "ended" } else { "unknown" };
            all.processes.push(ProcessSnapshot {
                process: number,
                state: state.to_owned(),
                ..ProcessSnapshot::default()
            });
            all.workers.extend(workers(number, count, &[]));
            continue;
        };
        let is_live = is_live(status);
        let shown = workers(number, count, &snapshot.workers);
        all.processes.push(ProcessSnapshot {
            process: number,
            state: state(status, snapshot.state).to_owned(),
            silent_seconds: silent,
            busy: shown.iter().map(|worker| worker.busy).fold(0.0, f64::max),
            read_rate: read_rate(own, snapshot),
            in_flight_items: shown.iter().map(|worker| worker.in_flight_items).sum(),
        });
        all.workers.extend(shown);
        all.sources_paused |= is_live && snapshot.sources_paused;
        for ((step, mean), other) in all.steps.iter_mut().zip(&mut means).zip(&snapshot.steps) {
            *mean += add_step(step, other, is_live);
        }
        for (source, other) in all.sources.iter_mut().zip(&snapshot.sources) {
            add_source(source, other);
        }
        for other in &snapshot.sinks {
            add_sink(&mut all, other, own);
        }
        user::add(&mut all.user, &snapshot.user);
        add_notes(&mut all, number, snapshot);
        if let (None, Some(found), true) = (&all.bottleneck, &snapshot.bottleneck, is_live) {
            all.bottleneck = Some(Bottleneck {
                words: format!("Process {number}: {}", found.words),
                ..found.clone()
            });
            for (step, other) in all.steps.iter_mut().zip(&snapshot.steps) {
                step.mark = other.mark;
            }
        }
        if is_live {
            add_conditions(&mut all, number, snapshot);
        }
    }
    sort_conditions(&mut all.conditions);
    let processes = all.processes.len() as f64;
    for (step, mean) in all.steps.iter_mut().zip(means) {
        if mean > 0.0 {
            step.skew = step.busy * processes / mean;
        }
    }
    all
}

/// The mean busy share of the workers of a process in a step.
fn mean(step: &StepSnapshot) -> f64 {
    step.busy / step.skew.max(1.0)
}

/// The state of another process; `sent` is the one that it has sent last.
fn state(status: &ProcessStatus, sent: State) -> &'static str {
    match (status.ended, status.age.as_secs_f64() > LOST_SECONDS) {
        (true, _) => "ended",
        (false, true) => "lost",
        (false, false) => sent.name(),
    }
}

fn process(number: usize, state: &str, silent: f64, snapshot: &Snapshot) -> ProcessSnapshot {
    let workers = &snapshot.workers;
    let sources = snapshot.steps.iter().filter(|step| step.kind == "source");
    ProcessSnapshot {
        process: number,
        state: state.to_owned(),
        silent_seconds: silent,
        busy: workers.iter().map(|worker| worker.busy).fold(0.0, f64::max),
        read_rate: sources.filter_map(|step| step.out_rate).sum(),
        in_flight_items: workers.iter().map(|worker| worker.in_flight_items).sum(),
    }
}

/// Items per second that the sources of another process have read: its steps are those of this one.
fn read_rate(own: &Snapshot, other: &Snapshot) -> f64 {
    let steps = own.steps.iter().zip(&other.steps);
    let sources = steps.filter(|(step, _)| step.kind == "source");
    sources.filter_map(|(_, sent)| sent.out_rate).sum()
}

/// The `count` workers of another process, numbered over all processes.
fn workers(process: usize, count: usize, sent: &[WorkerSnapshot]) -> Vec<WorkerSnapshot> {
    let worker = |index: usize| WorkerSnapshot {
        process: Some(process),
        worker: process * count + index,
        ..sent.get(index).cloned().unwrap_or_default()
    };
    (0..count).map(worker).collect()
}

/// Adds a step of another process; returns the mean busy share of its workers. Of a process that is silent only sums
/// are added.
fn add_step(step: &mut StepSnapshot, other: &StepSnapshot, is_live: bool) -> f64 {
    step.items_in += other.items_in;
    step.items_out += other.items_out;
    step.busy_seconds += other.busy_seconds;
    step.skipped += other.skipped;
    step.dead_letters += other.dead_letters;
    step.keys = sum(step.keys, other.keys);
    step.state_bytes = sum(step.state_bytes, other.state_bytes);
    step.late += other.late;
    step.late_dropped += other.late_dropped;
    step.faults += other.faults;
    if !is_live {
        return 0.0;
    }
    step.in_rate = sum(step.in_rate, other.in_rate);
    step.out_rate = sum(step.out_rate, other.out_rate);
    step.busy = step.busy.max(other.busy);
    if let Some(ages) = other.ages {
        // The quantiles of several processes cannot be added: the oldest is shown.
        let own = step
            .ages
            .map_or([0.0; 3], |own| [own.p50, own.p99, own.p999]);
        step.ages = Some(Ages {
            p50: own[0].max(ages.p50),
            p99: own[1].max(ages.p99),
            p999: own[2].max(ages.p999),
        });
    }
    other.busy / other.skew.max(1.0)
}

fn sum<T: Default + Add<Output = T>>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (None, None) => None,
        (one, other) => Some(one.unwrap_or_default() + other.unwrap_or_default()),
    }
}

fn larger(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.max(other)),
        _ => one.or(other),
    }
}

fn add_source(source: &mut SourceSnapshot, other: &SourceSnapshot) {
    source.lag_records = sum(source.lag_records, other.lag_records);
    source.lag_bytes = sum(source.lag_bytes, other.lag_bytes);
    source.withheld_records = sum(source.withheld_records, other.withheld_records);
    source.lag_seconds = larger(source.lag_seconds, other.lag_seconds);
    if other.watermark_lag_seconds > source.watermark_lag_seconds {
        source.watermark_lag_seconds = other.watermark_lag_seconds;
        source.held_by.clone_from(&other.held_by);
    }
    let without_items = source.without_items.take();
    source.without_items = without_items.or_else(|| other.without_items.clone());
    source.joined_with.extend(other.joined_with.iter().cloned());
    source.partitions.extend(other.partitions.iter().cloned());
    if source.partitions.len() > PARTITIONS_MAX {
        source.partitions.clear();
    }
}

/// Adds the items on their way and the failures of another process.
fn add_notes(all: &mut Snapshot, process: usize, sent: &Snapshot) {
    for (edge, other) in all.edges.iter_mut().zip(&sent.edges) {
        edge.in_flight_items += other.in_flight_items;
    }
    let failures = sent.failures.iter().cloned();
    all.failures.extend(failures.map(|one| FailureSnapshot {
        process: Some(process),
        ..one
    }));
    all.failures.sort_by_key(|failure| Reverse(failure.time_ms));
    all.failures.truncate(FAILURES_MAX);
}

/// Adds what needs attention of another process.
fn add_conditions(all: &mut Snapshot, process: usize, sent: &Snapshot) {
    // Every process has the restarts of the supervisor, and process 0 compares the watermarks of all.
    let is_own = |one: &&ConditionSnapshot| one.kind != "flow" && one.name != WATERMARK;
    let own = sent.conditions.iter().filter(is_own);
    let conditions = own.cloned();
    all.conditions
        .extend(conditions.map(|one| ConditionSnapshot {
            process: Some(process),
            ..one
        }));
}

/// Adds the outbox of another process to that of this one, which has the same name; the address is that of `own`.
fn add_sink(all: &mut Snapshot, other: &SinkSnapshot, own: &Snapshot) {
    let known = own.sinks.iter().any(|sink| sink.name == other.name);
    let mut sinks = all.sinks.iter_mut();
    let Some(sink) = sinks.find(|sink| known && sink.name == other.name) else {
        return;
    };
    sink.waiting_records += other.waiting_records;
    sink.waiting_bytes += other.waiting_bytes;
    sink.waiting_seconds = sink.waiting_seconds.max(other.waiting_seconds);
    sink.delivered_records += other.delivered_records;
    sink.deliveries += other.deliveries;
    sink.retries += other.retries;
    sink.failures_in_a_row = sink.failures_in_a_row.max(other.failures_in_a_row);
    sink.refused_records += other.refused_records;
    sink.since_delivery_seconds = match (sink.since_delivery_seconds, other.since_delivery_seconds)
    {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
}

/// The metrics of several processes as one text in OpenMetrics, each with the label `process`.
pub(crate) fn labelled(texts: &[(usize, &str)]) -> String {
    // Each family has one place, where it came first: its descriptions, and its samples of all processes.
    let mut families: Vec<(&str, Vec<&str>, Vec<String>)> = Vec::new();
    for (process, text) in texts {
        let mut current = 0;
        for line in text.lines().filter(|line| *line != "# EOF") {
            let Some(described) = line.strip_prefix("# ") else {
                if let Some((.., samples)) = families.get_mut(current) {
                    samples.push(with_process(line, *process));
                }
                continue;
            };
            let name = described.split(' ').nth(1).unwrap_or_default();
            let known = families.iter().position(|(family, ..)| *family == name);
            current = known.unwrap_or_else(|| {
                families.push((name, Vec::new(), Vec::new()));
                families.len() - 1
            });
            let head = &mut families[current].1;
            if !head.contains(&line) {
                head.push(line);
            }
        }
    }
    let mut all = String::new();
    for (_, head, samples) in &families {
        let samples = samples.iter().map(String::as_str);
        for line in head.iter().copied().chain(samples) {
            all += line;
            all.push('\n');
        }
    }
    all + "# EOF\n"
}

/// A sample with the label `process`. One that is about another process has the label already.
fn with_process(sample: &str, process: usize) -> String {
    if sample.starts_with(OF_OTHERS) {
        return sample.to_owned();
    }
    let end = sample.find(['{', ' ']).unwrap_or(sample.len());
    let (name, rest) = sample.split_at(end);
    match rest.strip_prefix('{') {
        Some(labels) => format!("{name}{{process=\"{process}\",{labels}"),
        None => format!("{name}{{process=\"{process}\"}}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::snapshot::Mark;

    fn status(process: usize, age: f64, ended: bool) -> ProcessStatus {
        ProcessStatus {
            process,
            sent: None,
            age: Duration::from_secs_f64(age),
            ended,
        }
    }

    fn own() -> Snapshot {
        Snapshot {
            state: State::Running,
            steps: vec![StepSnapshot {
                name: "in".to_owned(),
                kind: "source".into(),
                items_out: 5,
                out_rate: Some(10.0),
                busy: 0.2,
                skew: 1.0,
                ..StepSnapshot::default()
            }],
            workers: vec![WorkerSnapshot::default()],
            ..Snapshot::default()
        }
    }

    fn sent() -> Sent {
        serde_json::from_str(
            r#"{"snapshot": {"state": "running", "steps": [{"items_out": 7, "out_rate": 30, "busy": 0.6, "skew": 1, "mark": "cause"}],
                "bottleneck": {"step": "in", "words": "in limits the flow."}, "workers": [{"busy": 0.6, "in_flight_items": 3}],
                "conditions": [{"name": "N", "severity": "critical", "kind": "step", "subject": "in", "words": "bad"}]},
                "metrics": "text"}"#,
        )
        .unwrap()
    }

    #[test]
    fn processes_are_added_and_the_silent_ones_are_lost() {
        let statuses = [
            status(1, 0.5, false),
            status(2, 9.0, false),
            status(3, 0.0, false),
            status(4, 9.0, true),
        ];
        let all = merged(
            &own(),
            &statuses,
            &[Some(sent()), Some(sent()), None, Some(sent())],
        );
        let states: Vec<&str> = all.processes.iter().map(|one| &*one.state).collect();
        assert_eq!(states, ["running", "running", "lost", "unknown", "ended"]);
        let step = &all.steps[0];
        assert_eq!((step.items_out, step.out_rate), (5 + 3 * 7, Some(40.0)));
        assert_eq!((step.busy, step.mark), (0.6, Mark::Cause));
        assert_eq!(all.workers.len(), 5);
        assert_eq!(
            (all.workers[2].worker, all.workers[2].process),
            (2, Some(2))
        );
        // Those of a process that is lost or has ended are of the past.
        let conditions: Vec<_> = all.conditions.iter().map(|one| one.process).collect();
        assert_eq!(conditions, [Some(1)]);
        let words = all.bottleneck.unwrap().words;
        assert_eq!(words, "Process 1: in limits the flow.");
    }

    #[test]
    fn event_time_is_that_of_all_processes_with_news() {
        let source = |name: &str, lag: Option<f64>| SourceSnapshot {
            name: name.to_owned(),
            watermark_lag_seconds: lag,
            held_by: lag.map(|_| format!("{name} of another")),
            without_items: Some("empty".to_owned()).filter(|_| lag.is_none()),
            joined_with: vec!["b".to_owned()],
            ..SourceSnapshot::default()
        };
        let sent = |lag| {
            let mut sent = sent();
            sent.snapshot.sources = vec![SourceSnapshot::default(), source("b", lag)];
            Some(sent)
        };
        let news = News {
            statuses: vec![
                status(1, 0.5, false),
                status(2, 0.5, false),
                status(3, 9.0, false),
            ],
            sent: vec![sent(None), sent(Some(5.0)), sent(Some(99.0))],
        };
        let mut own = own();
        own.sources = vec![SourceSnapshot::default(), source("b", Some(3.0))];
        news.add_to(&mut own);
        let all = &own.sources_of_all.as_ref().unwrap()[1];
        assert_eq!(all.watermark_lag_seconds, Some(5.0));
        assert_eq!(all.without_items.as_deref(), Some("empty"));
        assert!(all.joined_with.contains(&"b".to_owned()));
        let alone = News {
            statuses: Vec::new(),
            sent: Vec::new(),
        };
        alone.add_to(&mut own);
        assert!(own.sources_of_all.is_none());
    }

    #[test]
    fn metrics_of_all_processes_are_one_text() {
        let text = "# HELP a A.\n# TYPE a counter\na_total{flow=\"f\"} 1\n# HELP b B.\n# TYPE b gauge\nb 2\n# EOF\n";
        let more = "# HELP b B.\n# TYPE b gauge\nb 3\n# HELP c C.\n# TYPE c gauge\nc 4\n# EOF\n";
        let expected = "# HELP a A.\n# TYPE a counter\na_total{process=\"0\",flow=\"f\"} 1\n# HELP b B.\n# TYPE b gauge\n\
            b{process=\"0\"} 2\nb{process=\"1\"} 3\n# HELP c C.\n# TYPE c gauge\nc{process=\"1\"} 4\n# EOF\n";
        assert_eq!(labelled(&[(0, text), (1, more)]), expected);
    }
}
