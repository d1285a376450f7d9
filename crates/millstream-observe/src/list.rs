//! The list of metrics: what `/metrics` reports, with the panels and the alerts that are made of it.
//!
//! The table of the guide, the dashboard for Grafana and the alert rules are generated from this list, and a test compares them with it. A metric
//! that is not in the list does not exist.

pub mod journals;
mod metric;
pub mod queues;
pub mod services;

use self::metric::metric;
pub use self::metric::{Alert, Kind, Metric};
pub(crate) use self::metric::{Put, Read};
use crate::ages::BUCKETS;
use crate::process;
use crate::snapshot::{EpochSnapshot, SinkSnapshot, Snapshot, SourceSnapshot, State, StepSnapshot};

/// The number of partitions of a source that have metrics of their own. Of a source with more, only the largest value is reported, as partition `max`.
pub const PARTITIONS_MAX: usize = 64;

const FLOW: &[&str] = &["flow"];
const PROCESS: &[&str] = &["flow", "process"];
const STEP: &[&str] = &["flow", "step"];
const WORKER: &[&str] = &["flow", "worker"];
const PARTITION: &[&str] = &["flow", "source", "partition"];
const EDGE: &[&str] = &["flow", "from", "to"];
const SINK: &[&str] = &["flow", "sink"];

fn each_step(snapshot: &Snapshot, put: Put<'_>, of: fn(&StepSnapshot) -> f64) {
    for step in &snapshot.steps {
        put(&[&snapshot.flow, &step.name], of(step));
    }
}

fn each_sink(snapshot: &Snapshot, put: Put<'_>, of: fn(&SinkSnapshot) -> f64) {
    for sink in &snapshot.sinks {
        put(&[&snapshot.flow, &sink.name], of(sink));
    }
}

/// The values of partitions, or only the largest: `whole` is that of a source with too many partitions.
fn each_partition(
    snapshot: &Snapshot,
    put: Put<'_>,
    of: fn(&crate::snapshot::PartitionSnapshot) -> Option<f64>,
    whole: fn(&SourceSnapshot) -> Option<f64>,
) {
    for source in &snapshot.sources {
        for partition in &source.partitions {
            if let Some(value) = of(partition) {
                put(&[&snapshot.flow, &source.name, &partition.name], value);
            }
        }
        if let (true, Some(value)) = (source.partitions.is_empty(), whole(source)) {
            put(&[&snapshot.flow, &source.name, "max"], value);
        }
    }
}

fn epochs(snapshot: &Snapshot, put: Put<'_>, of: fn(&EpochSnapshot) -> f64) {
    if let Some(epochs) = &snapshot.epochs {
        put(&[&snapshot.flow], of(epochs));
    }
}

/// All metrics, in the order of the guide.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    [
        METRICS,
        queues::QUEUES,
        journals::JOURNALS,
        services::SERVICES,
    ]
    .into_iter()
    .flatten()
}

/// The metrics of flows and processes.
pub static METRICS: &[Metric] = &[
    metric("millstream_flow_running", Kind::Gauge, FLOW, "1 while the flow reads its sources, 0 while it starts or ends", |all, put| {
        put(&[&all.flow], f64::from(all.state == State::Running));
    })
    .alert(Alert {
        name: "MillstreamFlowDown",
        expr: "max_over_time(millstream_flow_running[3m]) == 0",
        after: "2m",
        severity: "critical",
        summary: "The flow has not run for minutes: it waits for another process, or for a connector.",
        action: "`millstream_flow_processes_missing`, the page and the log of process 0 name the process that is waited for, and why one is refused. Start it, or repair its address, its certificate or its version.",
    }),
    metric("millstream_flow_processes_missing", Kind::Gauge, PROCESS, "1 for each process that the start of the flow waits for", |all, put| {
        for process in &all.missing {
            put(&[&all.flow, &process.to_string()], 1.0);
        }
    }),
    metric("millstream_flow_uptime_seconds", Kind::Gauge, FLOW, "Time since the flow was started; it begins when all processes have met", |all, put| {
        if all.missing.is_empty() {
            put(&[&all.flow], all.seconds);
        }
    })
    .alert(Alert {
        name: "MillstreamFlowRestarts",
        expr: "resets(millstream_flow_uptime_seconds[15m]) >= 3",
        after: "0m",
        severity: "critical",
        summary: "The flow has been restarted three times in 15 minutes.",
        action: "Read the last error in the log of the process: a step that fails on the same item fails again after each restart. Skip the item with `on_error`, or correct the step.",
    }),
    metric("millstream_flow_sources_paused", Kind::Gauge, FLOW, "1 while sources pause, because too much is in flight or an outbox is full", |all, put| {
        put(&[&all.flow], f64::from(all.sources_paused));
    }),
    metric("millstream_step_items_in_total", Kind::Counter, STEP, "Items that went into a step", |all, put| {
        each_step(all, put, |step| step.items_in as f64);
    }),
    metric("millstream_step_items_out_total", Kind::Counter, STEP, "Items that came out of a step", |all, put| {
        each_step(all, put, |step| step.items_out as f64);
    }),
    metric("millstream_step_busy_seconds_total", Kind::Counter, STEP, "Time that all workers spent in a step", |all, put| {
        each_step(all, put, |step| step.busy_seconds);
    }),
    metric("millstream_step_busy_ratio", Kind::Gauge, STEP, "Share of the last second that the busiest worker spent in a step, from 0 to 1", |all, put| {
        each_step(all, put, |step| step.busy);
    })
    .alert(Alert {
        name: "MillstreamStepSaturated",
        expr: "millstream_step_busy_ratio > 0.9",
        after: "10m",
        severity: "warning",
        summary: "One step takes all the time of a worker: it limits the flow.",
        action: "Open the page and look at the coloured step. Add workers if it is keyed and the load is even; otherwise make the step cheaper, or call external systems with `map_async`.",
    }),
    metric("millstream_step_skipped_items_total", Kind::Counter, STEP, "Items skipped by the error policies skip and dead letter", |all, put| {
        each_step(all, put, |step| step.skipped as f64);
    })
    .alert(Alert {
        name: "MillstreamItemsSkipped",
        expr: "increase(millstream_step_skipped_items_total[5m]) > 0",
        after: "0m",
        severity: "warning",
        summary: "A step has skipped items, or written them as dead letters.",
        action: "The page and the log have the last errors. Correct the step or the data, and send the items again.",
    }),
    metric("millstream_step_dead_letters_total", Kind::Counter, STEP, "Of the skipped items, those that were passed on as dead letters", |all, put| {
        each_step(all, put, |step| step.dead_letters as f64);
    })
    .alert(Alert {
        name: "MillstreamDeadLetters",
        expr: "increase(millstream_step_dead_letters_total[5m]) > 0",
        after: "0m",
        severity: "warning",
        summary: "A step has written items as dead letters.",
        action: "The page shows the last ones with their errors. Correct the step or the data, and send the items again.",
    }),
    metric("millstream_step_state_keys", Kind::Gauge, STEP, "Keys in the state of a step", |all, put| {
        for step in &all.steps {
            if let Some(keys) = step.keys {
                put(&[&all.flow, &step.name], keys as f64);
            }
        }
    }),
    metric("millstream_step_state_bytes", Kind::Gauge, STEP, "Bytes of keys and states of a step in the state directory", |all, put| {
        for step in &all.steps {
            if let Some(bytes) = step.state_bytes {
                put(&[&all.flow, &step.name], bytes as f64);
            }
        }
    }),
    metric("millstream_step_late_items_total", Kind::Counter, STEP, "Items that were too late for their windows", |all, put| {
        each_step(all, put, |step| step.late as f64);
    })
    .alert(Alert {
        name: "MillstreamItemsLate",
        expr: "increase(millstream_step_late_items_total[15m]) > 0.01 * increase(millstream_step_items_in_total[15m])",
        after: "0m",
        severity: "warning",
        summary: "More than one item in 100 is too late for its window.",
        action: "Raise `lateness` of `event_time`, or find out which partition sends old items.",
    }),
    metric("millstream_step_faults_total", Kind::Counter, STEP, "Connections or inputs that were closed because of invalid data", |all, put| {
        each_step(all, put, |step| step.faults as f64);
    }),
    Metric {
        name: "millstream_step_age_seconds",
        kind: Kind::Histogram,
        labels: STEP,
        help: "Age of items at the end of a step, since they were complete at the source",
        alert: None,
        read: Read::Buckets(|all, put| {
            for step in &all.steps {
                let (sum, counts) = &step.age_buckets;
                put(&[&all.flow, &step.name], *sum, counts);
            }
        }),
    },
    metric("millstream_worker_busy_seconds_total", Kind::Counter, WORKER, "Time that a worker spent in steps", |all, put| {
        for worker in &all.workers {
            put(&[&all.flow, &worker.worker.to_string()], worker.busy_seconds);
        }
    }),
    metric("millstream_worker_in_flight_items", Kind::Gauge, WORKER, "Items on their way to a worker", |all, put| {
        for worker in &all.workers {
            put(&[&all.flow, &worker.worker.to_string()], worker.in_flight_items as f64);
        }
    }),
    metric("millstream_worker_silent_seconds", Kind::Gauge, WORKER, "Time since a worker published its metrics, which it does once a second", |all, put| {
        for worker in &all.workers {
            put(&[&all.flow, &worker.worker.to_string()], worker.silent_seconds);
        }
    })
    .alert(Alert {
        name: "MillstreamWorkerStuck",
        expr: "millstream_worker_silent_seconds > 30",
        after: "1m",
        severity: "critical",
        summary: "A worker has been inside one call of a step for more than 30 s.",
        action: "Look at the stacks of the process (`py-spy dump`, `gdb`): the step waits for something without a time limit.",
    }),
    metric("millstream_edge_in_flight_items", Kind::Gauge, EDGE, "Items on their way between two steps: sent, and not begun with", |all, put| {
        for edge in &all.edges {
            if let (Some(from), Some(to)) = (all.steps.get(edge.from), all.steps.get(edge.to)) {
                put(&[&all.flow, &from.name, &to.name], edge.in_flight_items as f64);
            }
        }
    }),
    metric("millstream_source_lag_records", Kind::Gauge, PARTITION, "Records of a partition that were not read", |all, put| {
        each_partition(all, put, |partition| partition.lag_records.map(|lag| lag as f64), |source| source.lag_records.map(|lag| lag as f64));
    }),
    metric("millstream_source_lag_bytes", Kind::Gauge, PARTITION, "Bytes of a partition that were not read", |all, put| {
        each_partition(all, put, |partition| partition.lag_bytes.map(|lag| lag as f64), |source| source.lag_bytes.map(|lag| lag as f64));
    }),
    metric("millstream_source_withheld_records", Kind::Gauge, PARTITION, "Records of a partition in open transactions, which cannot be read yet", |all, put| {
        each_partition(all, put, |partition| partition.withheld_records.map(|records| records as f64), |source| source.withheld_records.map(|records| records as f64));
    }),
    metric("millstream_source_lag_seconds", Kind::Gauge, PARTITION, "Age of the input of a partition that was not read", |all, put| {
        each_partition(all, put, |partition| partition.lag_seconds, |source| source.lag_seconds);
    })
    .alert(Alert {
        name: "MillstreamSourceLagGrows",
        expr: "millstream_source_lag_seconds > 60 and deriv(millstream_source_lag_seconds[10m]) > 0",
        after: "10m",
        severity: "warning",
        summary: "A source is more than a minute after its input, and the lag grows.",
        action: "Open the page: if a step is coloured, it limits the flow. If none is, the source itself is slow or waits for its server.",
    }),
    metric("millstream_source_watermark_lag_seconds", Kind::Gauge, PARTITION, "Time from the watermark of a partition to now", |all, put| {
        each_partition(all, put, |partition| partition.watermark_lag_seconds, |source| source.watermark_lag_seconds);
    })
    .alert(Alert {
        name: "MillstreamWatermarkHeldBack",
        expr: "max by (flow, source, instance) (millstream_source_watermark_lag_seconds) - min by (flow, source, instance) (millstream_source_watermark_lag_seconds) > 300",
        after: "10m",
        severity: "warning",
        summary: "One partition holds the watermark back: windows do not close.",
        action: "The page names the partition. If it has no input, set `idle` of `event_time`; if it has, its producer is slow.",
    }),
    metric("millstream_outbox_waiting_records", Kind::Gauge, SINK, "Records of an outbox that are not delivered", |all, put| {
        each_sink(all, put, |sink| sink.waiting_records as f64);
    }),
    metric("millstream_outbox_waiting_bytes", Kind::Gauge, SINK, "Bytes of an outbox that are not delivered", |all, put| {
        each_sink(all, put, |sink| sink.waiting_bytes as f64);
    }),
    metric("millstream_outbox_waiting_seconds", Kind::Gauge, SINK, "Age of the oldest record of an outbox that is not delivered", |all, put| {
        each_sink(all, put, |sink| sink.waiting_seconds);
    })
    .alert(Alert {
        name: "MillstreamOutboxWaits",
        expr: "millstream_outbox_waiting_seconds > 60",
        after: "5m",
        severity: "critical",
        summary: "A destination has not accepted output for more than a minute.",
        action: "Check the destination. The flow keeps its output and delivers it later; when the outbox reaches its limit, the sources pause.",
    }),
    metric("millstream_outbox_delivered_records_total", Kind::Counter, SINK, "Records of an outbox that were delivered", |all, put| {
        each_sink(all, put, |sink| sink.delivered_records as f64);
    }),
    metric("millstream_outbox_last_delivery_seconds", Kind::Gauge, SINK, "Time since the last delivery of an outbox", |all, put| {
        for sink in &all.sinks {
            if let Some(since) = sink.since_delivery_seconds {
                put(&[&all.flow, &sink.name], since);
            }
        }
    }),
    metric("millstream_outbox_deliveries_total", Kind::Counter, SINK, "Deliveries of an outbox that succeeded", |all, put| {
        each_sink(all, put, |sink| sink.deliveries as f64);
    }),
    metric("millstream_outbox_retries_total", Kind::Counter, SINK, "Attempts of an outbox that failed", |all, put| {
        each_sink(all, put, |sink| sink.retries as f64);
    }),
    metric("millstream_epoch_commits_total", Kind::Counter, FLOW, "Commits of the state of a flow", |all, put| {
        epochs(all, put, |epochs| epochs.commits as f64);
    }),
    metric("millstream_epoch_bytes_total", Kind::Counter, FLOW, "Bytes of state that commits appended", |all, put| {
        epochs(all, put, |epochs| epochs.bytes as f64);
    }),
    metric("millstream_epoch_waiting_seconds_total", Kind::Counter, FLOW, "Time that commits waited for all operators to complete their epoch", |all, put| {
        epochs(all, put, |epochs| epochs.waiting_seconds);
    }),
    metric("millstream_epoch_saving_seconds_total", Kind::Counter, FLOW, "Time that commits appended changes and moved output", |all, put| {
        epochs(all, put, |epochs| epochs.saving_seconds);
    }),
    metric("millstream_epoch_syncing_seconds_total", Kind::Counter, FLOW, "Time that commits waited for the disk", |all, put| {
        epochs(all, put, |epochs| epochs.syncing_seconds);
    })
    .alert(Alert {
        name: "MillstreamDiskSlow",
        expr: "rate(millstream_epoch_syncing_seconds_total[5m]) / rate(millstream_epoch_commits_total[5m]) > 1",
        after: "5m",
        severity: "warning",
        summary: "A commit waits for the disk for more than a second.",
        action: "Check the disk of the state directory: other load, a failing device, a network file system.",
    }),
    metric("millstream_epoch_since_commit_seconds", Kind::Gauge, FLOW, "Time since the last commit of this run, which a flow without input does not make", |all, put| {
        if let Some(since) = all.epochs.and_then(|epochs| epochs.since_commit_seconds) {
            put(&[&all.flow], since);
        }
    }),
    metric("millstream_flow_restarts_total", Kind::Counter, FLOW, "Restarts of the flow by its supervisor", |all, put| {
        put(&[&all.flow], all.restart_count as f64);
    }),
    metric("millstream_epoch_age_seconds", Kind::Gauge, FLOW, "Time since the last epoch ended: committed, or found to have nothing to commit", |all, put| {
        epochs(all, put, |epochs| epochs.age_seconds);
    })
    .alert(Alert {
        name: "MillstreamNoCommit",
        expr: "millstream_epoch_age_seconds > 60",
        after: "1m",
        severity: "critical",
        summary: "The flow has not committed its state for more than a minute: a restart would repeat that time.",
        action: "Open the page: an epoch waits for the slowest operator. A step inside a long call, a full disk and a full destination are the usual causes.",
    }),
    metric("process_cpu_seconds_total", Kind::Counter, &[], "Processor time of the process", |_, put| {
        put(&[], process::cpu_seconds());
    }),
    metric("process_resident_memory_bytes", Kind::Gauge, &[], "Memory of the process that is in use", |_, put| {
        if let Some(bytes) = process::resident_bytes() {
            put(&[], bytes as f64);
        }
    }),
    metric("process_open_fds", Kind::Gauge, &[], "Open files of the process", |_, put| {
        if let Some(count) = process::open_files() {
            put(&[], count as f64);
        }
    }),
];

/// The upper bounds of the buckets of histograms, in seconds; one more bucket has no bound.
#[must_use]
pub fn buckets() -> &'static [f64] {
    &BUCKETS
}
