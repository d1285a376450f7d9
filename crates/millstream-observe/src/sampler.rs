//! Makes a snapshot of what the workers have published, and of what they had published before.
//!
//! A worker publishes about once a second, and so does the sampler, at other moments. Rates are therefore those between
//! two publications of the same worker; if there is no new one, the last rates remain.

use std::sync::Arc;

use millstream_flow::graph::Description;
use millstream_flow::metrics::{CommitTimes, Lag, PartitionWatermark, StepMetrics, WorkerMetrics};
use millstream_flow::metrics::{EdgeLoad, FailureNote, Outcome};
use millstream_flow::watch::Moment;

use crate::ages::Recorded;
use crate::judge::{before, judge};
use crate::list::PARTITIONS_MAX;
use crate::snapshot::{
    CommitSnapshot, Down, EdgeSnapshot, EpochSnapshot, FailureSnapshot, Mark, PartitionSnapshot,
    SinkSnapshot, Snapshot, SourceSnapshot, State, StepSnapshot, WorkerSnapshot,
};

/// The time in one turn of an operator after which the figures of a worker are of the past: it publishes them between
/// turns, once a second.
const INSIDE_NS: u64 = 1_500_000_000;

/// The number of the last commits that are shown.
const COMMITS_MAX: usize = 20;

/// What a step did on one worker between two publications.
#[derive(Clone, Default)]
struct Pace {
    in_rate: f64,
    out_rate: f64,
    busy: f64,
    /// The ages of that time, and of all time.
    recent: Recorded,
    all: Recorded,
}

/// One worker as it published last.
#[derive(Default)]
struct WorkerPace {
    published_ns: u64,
    steps: Arc<Vec<StepMetrics>>,
    paces: Vec<Pace>,
    /// The number of the turn that it is in, and when it was seen first.
    turn: Option<(u64, u64)>,
}

/// The sampler of one run.
pub(crate) struct Sampler {
    graph: Description,
    run: String,
    workers: Vec<WorkerPace>,
    epochs: Option<EpochSnapshot>,
}

impl Sampler {
    pub(crate) fn new(graph: Description, run: String) -> Self {
        Sampler {
            graph,
            run,
            workers: Vec::new(),
            epochs: None,
        }
    }

    /// Makes the snapshot of a moment, at `time_ns` since the epoch.
    pub(crate) fn sample(&mut self, moment: &Moment, time_ns: i64) -> Snapshot {
        self.workers
            .resize_with(moment.workers.len(), WorkerPace::default);
        let started_ns = moment
            .now_ns
            .saturating_sub(moment.elapsed.as_nanos() as u64);
        for (worker, published) in self.workers.iter_mut().zip(&moment.workers) {
            worker.advance(published, started_ns);
            worker.advance_turn(published, moment.now_ns);
        }
        let workers: Vec<WorkerSnapshot> = (0..self.workers.len())
            .map(|worker| self.worker(worker, moment))
            .collect();
        let inside: Vec<Option<(usize, u64)>> = (0..self.workers.len())
            .map(|worker| self.inside(worker, moment))
            .collect();
        let mut steps: Vec<StepSnapshot> = (0..self.graph.nodes.len())
            .map(|node| self.step(node, &inside))
            .collect();
        let busy: Vec<Vec<f64>> = self
            .workers
            .iter()
            .zip(&inside)
            .map(|(worker, inside)| {
                let nodes = 0..self.graph.nodes.len();
                nodes.map(|node| worker.busy(node, *inside)).collect()
            })
            .collect();
        let state = state(moment);
        let bottleneck = match state {
            State::Running => judge(&self.graph, moment, &mut steps, &workers, &busy),
            _ => None,
        };
        let epochs = self.epochs(moment);
        self.epochs = epochs;
        Snapshot {
            flow: self.graph.flow.clone(),
            run: self.run.clone(),
            time_ms: (time_ns / 1_000_000).max(0) as u64,
            seconds: moment.elapsed.as_secs_f64(),
            state,
            ending_seconds: moment
                .ending
                .filter(|_| state == State::Ending)
                .map(|time| time.as_secs_f64()),
            down: down(moment, time_ns),
            sources_paused: moment.sources_paused,
            bottleneck,
            steps,
            workers,
            processes: Vec::new(),
            sources: self.sources(moment, time_ns),
            sinks: sinks(moment),
            epochs,
            commits: commits(moment, time_ns),
            edges: moment.edges.iter().map(edge).collect(),
            failures: moment.failures.iter().rev().map(failure).collect(),
            ..Snapshot::default()
        }
    }

    /// The step that a worker is in, and for how many nanoseconds, if that is so long that its last figures are of the
    /// past.
    fn inside(&self, index: usize, moment: &Moment) -> Option<(usize, u64)> {
        let (_, since_ns) = self.workers[index].turn.filter(|_| !moment.ended)?;
        let inside_ns = moment.now_ns.saturating_sub(since_ns);
        (inside_ns > INSIDE_NS).then_some((moment.workers[index].current, inside_ns))
    }

    fn worker(&self, index: usize, moment: &Moment) -> WorkerSnapshot {
        let worker = &self.workers[index];
        let busy_ns: u64 = worker.steps.iter().map(|step| step.busy_ns).sum();
        let silent = match worker.published_ns {
            0 => 0,
            at => moment.now_ns.saturating_sub(at),
        };
        let inside = self.inside(index, moment);
        let node = inside.and_then(|(node, _)| self.graph.nodes.get(node));
        WorkerSnapshot {
            process: None,
            worker: index,
            busy: (0..self.graph.nodes.len())
                .map(|node| worker.busy(node, inside))
                .sum::<f64>()
                .min(1.0),
            busy_seconds: busy_ns as f64 / 1e9,
            in_flight_items: moment.workers[index].in_flight_items as u64,
            silent_seconds: silent as f64 / 1e9,
            step: node.map(|node| node.name.clone()),
            inside_seconds: inside.map(|(_, inside_ns)| inside_ns as f64 / 1e9),
            thread: moment.workers[index].thread,
            stack: None,
        }
    }

    fn step(&self, node: usize, inside: &[Option<(usize, u64)>]) -> StepSnapshot {
        let described = &self.graph.nodes[node];
        let mut step = StepSnapshot {
            name: described.name.clone(),
            kind: described.kind.into(),
            skew: 1.0,
            mark: Mark::None,
            ..StepSnapshot::default()
        };
        let mut recent = Recorded::default();
        let mut busy_sum = 0.0;
        for (worker, inside) in self.workers.iter().zip(inside) {
            let busy = worker.busy(node, *inside);
            step.busy = step.busy.max(busy);
            busy_sum += busy;
            let (Some(metrics), Some(pace)) = (worker.steps.get(node), worker.paces.get(node))
            else {
                continue;
            };
            step.items_in += metrics.items_in;
            step.items_out += metrics.items_out;
            step.skipped += metrics.skipped;
            step.dead_letters += metrics.dead_letters;
            if let Some(state) = metrics.state {
                *step.keys.get_or_insert(0) += state.keys;
                if let Some(bytes) = state.bytes {
                    *step.state_bytes.get_or_insert(0) += bytes;
                }
            }
            step.late += metrics.late;
            step.late_dropped += metrics.late_dropped;
            step.faults += metrics.faults;
            step.busy_seconds += metrics.busy_ns as f64 / 1e9;
            if inside.is_none() {
                *step.in_rate.get_or_insert(0.0) += pace.in_rate;
                *step.out_rate.get_or_insert(0.0) += pace.out_rate;
                recent.add(&pace.recent);
            }
            let (sum, counts) = pace.all.buckets();
            step.age_buckets.0 += sum;
            for (total, count) in step.age_buckets.1.iter_mut().zip(counts) {
                *total += count;
            }
        }
        if busy_sum > 0.0 {
            step.skew = step.busy * self.workers.len() as f64 / busy_sum;
        }
        step.ages = recent.ages();
        step
    }

    fn sources(&self, moment: &Moment, time_ns: i64) -> Vec<SourceSnapshot> {
        let nodes = &self.graph.nodes;
        let waits = |node: &usize| {
            let of_worker = |worker: &WorkerPace| worker.steps.get(*node)?.state;
            let mut states = self.workers.iter().filter_map(of_worker);
            states.any(|state| state.waits_for_time)
        };
        let waiting = (0..nodes.len()).filter(waits);
        let joined: Vec<Vec<usize>> = waiting.map(|node| before(&self.graph, node)).collect();
        let sources = || (0..nodes.len()).filter(|node| nodes[*node].kind == "source");
        let with = |one: usize, other: usize| {
            one != other
                && joined
                    .iter()
                    .any(|all| all.contains(&one) && all.contains(&other))
        };
        let source = |one: usize| SourceSnapshot {
            joined_with: sources()
                .filter(|other| with(one, *other))
                .map(|other| nodes[other].name.clone())
                .collect(),
            ..source(&nodes[one].name, moment, time_ns)
        };
        sources().map(source).collect()
    }

    fn epochs(&self, moment: &Moment) -> Option<EpochSnapshot> {
        let now = moment.epochs?;
        let before = self.epochs.unwrap_or_default();
        let mut epochs = EpochSnapshot {
            epoch: now.epoch,
            commits: now.commits,
            bytes: now.bytes,
            waiting_seconds: now.waiting.as_secs_f64(),
            saving_seconds: now.saving.as_secs_f64(),
            syncing_seconds: now.syncing.as_secs_f64(),
            since_commit_seconds: now.since_commit.map(|since| since.as_secs_f64()),
            age_seconds: now.age.as_secs_f64(),
            length_seconds: now.length.as_secs_f64(),
            last_seconds: before.last_seconds,
            last_bytes: before.last_bytes,
        };
        let commits = now.commits.saturating_sub(before.commits) as f64;
        if commits > 0.0 {
            epochs.last_seconds = [
                epochs.waiting_seconds - before.waiting_seconds,
                epochs.saving_seconds - before.saving_seconds,
                epochs.syncing_seconds - before.syncing_seconds,
            ]
            .map(|seconds| seconds / commits);
            epochs.last_bytes = now.bytes.saturating_sub(before.bytes) as f64 / commits;
        }
        Some(epochs)
    }
}

fn state(moment: &Moment) -> State {
    match moment {
        Moment {
            failure: Some(_), ..
        } => State::Failed,
        Moment { ended: true, .. } => State::Ended,
        Moment {
            ending: Some(_), ..
        } => State::Ending,
        Moment { open: true, .. } => State::Running,
        _ => State::Starting,
    }
}

/// The failure that has ended the flow.
fn down(moment: &Moment, time_ns: i64) -> Option<Down> {
    let error = moment.failure.clone()?;
    let mut notes = moment.failures.iter().rev();
    let note = notes.find(|note| note.outcome == Outcome::Failed);
    let since_ns = note.map_or(time_ns, |note| note.time_ns);
    Some(Down {
        error,
        traceback: note.and_then(|note| note.traceback.clone()),
        since_ms: (since_ns / 1_000_000).max(0).unsigned_abs(),
        is_restarted: None,
    })
}

/// The last commits, the newest first.
fn commits(moment: &Moment, time_ns: i64) -> Vec<CommitSnapshot> {
    let newest = moment.commits.iter().rev().take(COMMITS_MAX);
    let commit = |commit: &CommitTimes| {
        let age_ns = moment.now_ns.saturating_sub(commit.ended_ns);
        CommitSnapshot {
            epoch: commit.epoch,
            time_ms: (time_ns.max(0).unsigned_abs()).saturating_sub(age_ns) / 1_000_000,
            bytes: commit.bytes,
            seconds: [commit.waiting, commit.saving, commit.syncing].map(|time| time.as_secs_f64()),
        }
    };
    newest.map(commit).collect()
}

impl WorkerPace {
    /// The share of its time that it spends in a step. A call in progress, of the step `inside`, takes all of it.
    fn busy(&self, node: usize, inside: Option<(usize, u64)>) -> f64 {
        match inside {
            Some((inside, _)) => f64::from(inside == node),
            None => self.paces.get(node).map_or(0.0, |pace| pace.busy),
        }
    }

    /// Notes the turn that the worker is in, and since when it is known to be: a turn that lasts has the same number.
    fn advance_turn(&mut self, now: &WorkerMetrics, now_ns: u64) {
        self.turn = now.turn.map(|number| match self.turn {
            Some((known, since_ns)) if known == number => (known, since_ns),
            _ => (number, now_ns),
        });
    }

    /// Takes a publication, if it is a new one. The first one is compared with the start of the run.
    fn advance(&mut self, published: &WorkerMetrics, started_ns: u64) {
        if published.published_ns <= self.published_ns {
            return;
        }
        let since = match self.published_ns {
            0 => started_ns,
            before => before,
        };
        let seconds = published.published_ns.saturating_sub(since).max(1) as f64 / 1e9;
        self.paces.resize_with(published.steps.len(), Pace::default);
        for (index, (pace, now)) in self.paces.iter_mut().zip(&*published.steps).enumerate() {
            let before = self.steps.get(index);
            let since = |of: fn(&StepMetrics) -> u64| {
                of(now).saturating_sub(before.map_or(0, of)) as f64 / seconds
            };
            pace.in_rate = since(|step| step.items_in);
            pace.out_rate = since(|step| step.items_out);
            pace.busy = (since(|step| step.busy_ns) / 1e9).min(1.0);
            let same = before.is_some_and(|before| before.latency_ns.len() == now.latency_ns.len());
            if same {
                pace.recent = Recorded::default();
            } else {
                let all = Recorded::of(now);
                pace.recent = all.since(&pace.all);
                pace.all = all;
            }
        }
        self.published_ns = published.published_ns;
        self.steps = Arc::clone(&published.steps);
    }
}

fn source(name: &str, moment: &Moment, time_ns: i64) -> SourceSnapshot {
    let lags = || moment.lags.iter().filter(|lag| lag.source == name);
    let sum = |of: fn(&Lag) -> Option<u64>| {
        lags()
            .filter_map(|lag| of(&lag.lag))
            .reduce(u64::saturating_add)
    };
    let watermarks: Vec<&PartitionWatermark> = moment
        .watermarks
        .iter()
        .filter(|mark| mark.source == name)
        .collect();
    let lag_of =
        |mark: &PartitionWatermark| time_ns.saturating_sub(mark.watermark_ns).max(0) as f64 / 1e9;
    let lowest = watermarks.iter().min_by_key(|mark| mark.watermark_ns);
    let mut partitions: Vec<PartitionSnapshot> = lags()
        .map(|lag| PartitionSnapshot {
            name: lag.partition.clone(),
            lag_records: lag.lag.records,
            lag_bytes: lag.lag.bytes,
            withheld_records: lag.lag.withheld,
            lag_seconds: lag.lag.age.map(|age| age.as_secs_f64()),
            watermark_lag_seconds: None,
        })
        .collect();
    for mark in &watermarks {
        let lag = Some(lag_of(mark));
        match partitions
            .iter_mut()
            .find(|known| known.name == mark.partition)
        {
            Some(known) => known.watermark_lag_seconds = lag,
            None => partitions.push(PartitionSnapshot {
                name: mark.partition.clone(),
                watermark_lag_seconds: lag,
                ..PartitionSnapshot::default()
            }),
        }
    }
    if partitions.len() > PARTITIONS_MAX {
        partitions.clear();
    }
    let mut without_items = moment
        .without_items
        .iter()
        .filter(|(source, _)| source == name);
    let age = lags().filter_map(|lag| lag.lag.age).max();
    SourceSnapshot {
        name: name.to_owned(),
        lag_records: sum(|lag| lag.records),
        lag_bytes: sum(|lag| lag.bytes),
        withheld_records: sum(|lag| lag.withheld),
        lag_seconds: age.map(|age| age.as_secs_f64()),
        watermark_lag_seconds: lowest.map(|mark| lag_of(mark)),
        held_by: lowest.map(|mark| mark.partition.clone()),
        without_items: without_items.next().map(|(_, partition)| partition.clone()),
        partitions,
        joined_with: Vec::new(),
    }
}

fn edge(load: &EdgeLoad) -> EdgeSnapshot {
    EdgeSnapshot {
        from: load.from,
        to: load.to,
        in_flight_items: load.sent.cast_signed() - load.taken.cast_signed(),
    }
}

fn failure(note: &FailureNote) -> FailureSnapshot {
    FailureSnapshot {
        number: note.number,
        process: None,
        time_ms: (note.time_ns / 1_000_000).max(0) as u64,
        outcome: match note.outcome {
            Outcome::Skipped => "skipped",
            Outcome::DeadLetter => "dead letter",
            Outcome::Failed => "failed",
        }
        .into(),
        step: note.step.clone(),
        key: note.key.clone(),
        item: note.item.clone(),
        error: note.error.clone(),
        traceback: note.traceback.clone(),
    }
}

fn sinks(moment: &Moment) -> Vec<SinkSnapshot> {
    let sinks = moment.outboxes.iter().map(|outbox| SinkSnapshot {
        name: outbox.sink.clone(),
        address: outbox.address.clone(),
        waiting_records: outbox.waiting_records,
        waiting_bytes: outbox.waiting_bytes,
        waiting_seconds: outbox.waiting.as_secs_f64(),
        delivered_records: outbox.delivered_records,
        deliveries: outbox.deliveries,
        retries: outbox.retries,
        failures_in_a_row: outbox.failures_in_a_row,
        refused_records: outbox.refused_records,
        batch_age_seconds: outbox.batch_age.as_secs_f64(),
        since_delivery_seconds: outbox.since_delivery.map(|since| since.as_secs_f64()),
    });
    sinks.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millstream_flow::metrics::{EpochMetrics, PartitionLag};

    use super::*;

    fn moment() -> Moment {
        Moment {
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
        }
    }

    fn lag(partition: usize, records: u64) -> PartitionLag {
        PartitionLag {
            source: "in".to_owned(),
            partition: partition.to_string(),
            lag: Lag {
                records: Some(records),
                ..Lag::default()
            },
        }
    }

    #[test]
    fn the_partition_with_the_lowest_watermark_holds_it_back() {
        let mark = |partition: &str, seconds: i64| PartitionWatermark {
            source: "in".to_owned(),
            partition: partition.to_owned(),
            watermark_ns: seconds * 1_000_000_000,
        };
        let moment = Moment {
            watermarks: vec![mark("0", 90), mark("1", 40), mark("2", 100)],
            lags: vec![lag(0, 5), lag(1, 6)],
            ..moment()
        };
        let source = source("in", &moment, 100_000_000_000);
        assert_eq!(source.watermark_lag_seconds, Some(60.0));
        assert_eq!(source.held_by.as_deref(), Some("1"));
        assert_eq!(source.lag_records, Some(11));
        let lags: Vec<_> = source
            .partitions
            .iter()
            .map(|one| (one.lag_records, one.watermark_lag_seconds))
            .collect();
        let expected = [
            (Some(5), Some(10.0)),
            (Some(6), Some(60.0)),
            (None, Some(0.0)),
        ];
        assert_eq!(lags, expected);
    }

    #[test]
    fn a_source_with_too_many_partitions_has_sums_only() {
        let lags = |count: usize| Moment {
            lags: (0..count).map(|partition| lag(partition, 2)).collect(),
            ..moment()
        };
        let most = source("in", &lags(PARTITIONS_MAX), 0);
        assert_eq!(most.partitions.len(), PARTITIONS_MAX);
        let more = source("in", &lags(PARTITIONS_MAX + 1), 0);
        assert_eq!((more.partitions.len(), more.lag_records), (0, Some(130)));
    }

    #[test]
    fn the_times_of_a_commit_are_the_mean_of_those_since_the_last_moment() {
        let flow = millstream_flow::Flow::new("f");
        let mut sampler = Sampler::new(flow.describe(), "r".to_owned());
        let mut sample = |commits: u64, waiting_ms: u64| {
            let epochs = EpochMetrics {
                commits,
                waiting: Duration::from_millis(waiting_ms),
                bytes: commits * 10,
                ..EpochMetrics::default()
            };
            let moment = Moment {
                epochs: Some(epochs),
                ..moment()
            };
            let epochs = sampler.sample(&moment, 0).epochs.unwrap();
            (epochs.last_seconds[0], epochs.last_bytes)
        };
        assert_eq!(sample(0, 0), (0.0, 0.0));
        assert_eq!(sample(2, 1000), (0.5, 10.0));
        assert_eq!(sample(3, 1250), (0.25, 10.0));
        assert_eq!(sample(3, 1250), (0.25, 10.0));
    }

    #[test]
    fn a_worker_inside_a_long_turn_is_busy_with_it_and_has_no_rates() {
        let flow = millstream_flow::Flow::new("f");
        flow.source("in", millstream_flow::testing::items(0..9))
            .map(|n| n)
            .named("ask")
            .sink("out", millstream_flow::testing::Collected::new().sink());
        let report = flow.run(millstream_flow::Options::default()).unwrap();
        let steps = Arc::new(report.steps().to_vec());
        for has_published in [true, false] {
            let mut sampler = Sampler::new(flow.describe(), "r".to_owned());
            let mut at = |seconds: u64, turn: Option<u64>| {
                let mut worker = WorkerMetrics {
                    current: 1,
                    turn,
                    ..WorkerMetrics::default()
                };
                if has_published {
                    (worker.published_ns, worker.steps) = (1_000_000_000, Arc::clone(&steps));
                }
                let moment = Moment {
                    now_ns: seconds * 1_000_000_000,
                    elapsed: Duration::from_secs(seconds),
                    workers: vec![worker],
                    ..moment()
                };
                let snapshot = sampler.sample(&moment, 0);
                let ask = &snapshot.steps[1];
                let worker = &snapshot.workers[0];
                let inside = worker.step.clone().zip(worker.inside_seconds);
                (ask.in_rate.is_some(), ask.busy == 1.0, inside, ask.mark)
            };
            let quiet = (has_published, false, None, Mark::None);
            let stuck = |seconds| (false, true, Some(("ask".to_owned(), seconds)), Mark::Cause);
            assert_eq!(at(3, Some(7)), quiet);
            assert_eq!(at(4, Some(7)), quiet);
            assert_eq!(at(5, Some(7)), stuck(2.0));
            // Another turn, and none: a worker that has ended publishes nothing and is in none.
            assert_eq!(at(9, Some(8)), quiet);
            assert_eq!(at(11, Some(8)), stuck(2.0));
            assert_eq!(at(99, None), quiet);
        }
    }

    #[test]
    fn rates_are_those_between_two_publications() {
        let step = |items: u64, busy_ms: u64| {
            let flow = millstream_flow::Flow::new("f");
            flow.source("in", millstream_flow::testing::items(0..items))
                .sink("out", millstream_flow::testing::Collected::new().sink());
            let mut step = flow
                .run(millstream_flow::Options::default())
                .unwrap()
                .step("out")
                .unwrap();
            step.busy_ns = busy_ms * 1_000_000;
            Arc::new(vec![step])
        };
        let mut worker = WorkerPace::default();
        let mut publish = |published_ns: u64, steps: Arc<Vec<StepMetrics>>| {
            let metrics = WorkerMetrics {
                published_ns,
                steps,
                ..WorkerMetrics::default()
            };
            worker.advance(&metrics, 1_000_000_000);
            (worker.paces[0].in_rate, worker.paces[0].busy)
        };
        assert_eq!(publish(3_000_000_000, step(10, 1000)), (5.0, 0.5));
        assert_eq!(publish(3_500_000_000, step(40, 1250)), (60.0, 0.5));
        // The same publication again changes nothing.
        assert_eq!(publish(3_500_000_000, step(99, 9999)), (60.0, 0.5));
        assert_eq!(publish(4_500_000_000, step(40, 1250)), (0.0, 0.0));
    }
}
