//! The list of metrics: what `/metrics` reports, with the panels that are made of it.
//!
//! The table of the guide and the dashboard for Grafana are generated from this list, and a test compares them with it.
//! A metric that is not in the list does not exist.

pub mod journals;
mod metric;
pub mod queues;
pub mod services;

use self::metric::metric;
pub use self::metric::{Kind, Metric};
pub(crate) use self::metric::{Put, Read};
use crate::ages::BUCKETS;
use crate::process;
use crate::snapshot::{EpochSnapshot, SinkSnapshot, Snapshot, SourceSnapshot, State, StepSnapshot};

/// The number of partitions of a source that have metrics of their own. Of a source with more, only the largest value
/// is reported, as partition `max`.
pub const PARTITIONS_MAX: usize = 64;

const FLOW: &[&str] = &["flow"];
const PROCESS: &[&str] = &["flow", "process"];
const STEP: &[&str] = &["flow", "step"];
const WORKER: &[&str] = &["flow", "worker"];
const PARTITION: &[&str] = &["flow", "source", "partition"];
const EDGE: &[&str] = &["flow", "from", "to"];
const SINK: &[&str] = &["flow", "sink"];
const CONDITION: &[&str] = &["condition", "severity", "subject", "flow"];

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
    metric(
        "millstream_condition",
        Kind::Gauge,
        CONDITION,
        "1 for each condition that needs attention and holds, see its table; of a condition at most 20 subjects",
        |all, put| {
            for one in &all.conditions {
                put(
                    &[&one.name, one.severity.name(), &one.subject, &all.flow],
                    1.0,
                );
            }
        },
    ),
    metric(
        "millstream_flow_running",
        Kind::Gauge,
        FLOW,
        "1 while the flow reads its sources, 0 while it starts or ends",
        |all, put| {
            put(&[&all.flow], f64::from(all.state == State::Running));
        },
    ),
    metric(
        "millstream_flow_processes_missing",
        Kind::Gauge,
        PROCESS,
        "1 for each process that the start of the flow waits for, or without which it has failed",
        |all, put| {
            for process in &all.missing {
                put(&[&all.flow, &process.to_string()], 1.0);
            }
        },
    ),
    metric(
        "millstream_flow_uptime_seconds",
        Kind::Gauge,
        FLOW,
        "Time since the flow was started; it begins when all processes have met",
        |all, put| {
            if all.missing.is_empty() {
                put(&[&all.flow], all.seconds);
            }
        },
    ),
    metric(
        "millstream_flow_sources_paused",
        Kind::Gauge,
        FLOW,
        "1 while sources pause, because too much is in flight or an outbox is full",
        |all, put| {
            put(&[&all.flow], f64::from(all.sources_paused));
        },
    ),
    metric(
        "millstream_step_items_in_total",
        Kind::Counter,
        STEP,
        "Items that went into a step",
        |all, put| {
            each_step(all, put, |step| step.items_in as f64);
        },
    ),
    metric(
        "millstream_step_items_out_total",
        Kind::Counter,
        STEP,
        "Items that came out of a step",
        |all, put| {
            each_step(all, put, |step| step.items_out as f64);
        },
    ),
    metric(
        "millstream_step_busy_seconds_total",
        Kind::Counter,
        STEP,
        "Time that all workers spent in a step",
        |all, put| {
            each_step(all, put, |step| step.busy_seconds);
        },
    ),
    metric(
        "millstream_step_busy_ratio",
        Kind::Gauge,
        STEP,
        "Share of the last second that the busiest worker spent in a step, from 0 to 1",
        |all, put| {
            each_step(all, put, |step| step.busy);
        },
    ),
    metric(
        "millstream_step_skipped_items_total",
        Kind::Counter,
        STEP,
        "Items skipped by the error policies skip and dead letter",
        |all, put| {
            each_step(all, put, |step| step.skipped as f64);
        },
    ),
    metric(
        "millstream_step_dead_letters_total",
        Kind::Counter,
        STEP,
        "Of the skipped items, those that were passed on as dead letters",
        |all, put| {
            each_step(all, put, |step| step.dead_letters as f64);
        },
    ),
    metric(
        "millstream_step_state_keys",
        Kind::Gauge,
        STEP,
        "Keys in the state of a step",
        |all, put| {
            for step in &all.steps {
                if let Some(keys) = step.keys {
                    put(&[&all.flow, &step.name], keys as f64);
                }
            }
        },
    ),
    metric(
        "millstream_step_state_bytes",
        Kind::Gauge,
        STEP,
        "Bytes of keys and states of a step in the state directory",
        |all, put| {
            for step in &all.steps {
                if let Some(bytes) = step.state_bytes {
                    put(&[&all.flow, &step.name], bytes as f64);
                }
            }
        },
    ),
    metric(
        "millstream_step_late_items_total",
        Kind::Counter,
        STEP,
        "Items that were too late for their windows",
        |all, put| {
            each_step(all, put, |step| step.late as f64);
        },
    ),
    metric(
        "millstream_step_faults_total",
        Kind::Counter,
        STEP,
        "Connections or inputs that were closed because of invalid data",
        |all, put| {
            each_step(all, put, |step| step.faults as f64);
        },
    ),
    Metric {
        name: "millstream_step_age_seconds",
        kind: Kind::Histogram,
        labels: STEP,
        help: "Age of items at the end of a step, since they were complete at the source",
        read: Read::Buckets(|all, put| {
            for step in &all.steps {
                let (sum, counts) = &step.age_buckets;
                put(&[&all.flow, &step.name], *sum, counts);
            }
        }),
    },
    metric(
        "millstream_worker_busy_seconds_total",
        Kind::Counter,
        WORKER,
        "Time that a worker spent in steps",
        |all, put| {
            for worker in &all.workers {
                put(
                    &[&all.flow, &worker.worker.to_string()],
                    worker.busy_seconds,
                );
            }
        },
    ),
    metric(
        "millstream_worker_in_flight_items",
        Kind::Gauge,
        WORKER,
        "Items on their way to a worker",
        |all, put| {
            for worker in &all.workers {
                put(
                    &[&all.flow, &worker.worker.to_string()],
                    worker.in_flight_items as f64,
                );
            }
        },
    ),
    metric(
        "millstream_worker_silent_seconds",
        Kind::Gauge,
        WORKER,
        "Time since a worker published its metrics, which it does once a second",
        |all, put| {
            for worker in &all.workers {
                put(
                    &[&all.flow, &worker.worker.to_string()],
                    worker.silent_seconds,
                );
            }
        },
    ),
    metric(
        "millstream_edge_in_flight_items",
        Kind::Gauge,
        EDGE,
        "Items on their way between two steps: sent, and not begun with",
        |all, put| {
            for edge in &all.edges {
                if let (Some(from), Some(to)) = (all.steps.get(edge.from), all.steps.get(edge.to)) {
                    put(
                        &[&all.flow, &from.name, &to.name],
                        edge.in_flight_items as f64,
                    );
                }
            }
        },
    ),
    metric(
        "millstream_source_lag_records",
        Kind::Gauge,
        PARTITION,
        "Records of a partition that were not read",
        |all, put| {
            each_partition(
                all,
                put,
                |partition| partition.lag_records.map(|lag| lag as f64),
                |source| source.lag_records.map(|lag| lag as f64),
            );
        },
    ),
    metric(
        "millstream_source_lag_bytes",
        Kind::Gauge,
        PARTITION,
        "Bytes of a partition that were not read",
        |all, put| {
            each_partition(
                all,
                put,
                |partition| partition.lag_bytes.map(|lag| lag as f64),
                |source| source.lag_bytes.map(|lag| lag as f64),
            );
        },
    ),
    metric(
        "millstream_source_withheld_records",
        Kind::Gauge,
        PARTITION,
        "Records of a partition in open transactions, which cannot be read yet",
        |all, put| {
            each_partition(
                all,
                put,
                |partition| partition.withheld_records.map(|records| records as f64),
                |source| source.withheld_records.map(|records| records as f64),
            );
        },
    ),
    metric(
        "millstream_source_lag_seconds",
        Kind::Gauge,
        PARTITION,
        "Age of the input of a partition that was not read",
        |all, put| {
            each_partition(
                all,
                put,
                |partition| partition.lag_seconds,
                |source| source.lag_seconds,
            );
        },
    ),
    metric(
        "millstream_source_watermark_lag_seconds",
        Kind::Gauge,
        PARTITION,
        "Time from the watermark of a partition to now",
        |all, put| {
            each_partition(
                all,
                put,
                |partition| partition.watermark_lag_seconds,
                |source| source.watermark_lag_seconds,
            );
        },
    ),
    metric(
        "millstream_outbox_waiting_records",
        Kind::Gauge,
        SINK,
        "Records of an outbox that are not delivered",
        |all, put| {
            each_sink(all, put, |sink| sink.waiting_records as f64);
        },
    ),
    metric(
        "millstream_outbox_waiting_bytes",
        Kind::Gauge,
        SINK,
        "Bytes of an outbox that are not delivered",
        |all, put| {
            each_sink(all, put, |sink| sink.waiting_bytes as f64);
        },
    ),
    metric(
        "millstream_outbox_waiting_seconds",
        Kind::Gauge,
        SINK,
        "Age of the oldest record of an outbox that is not delivered",
        |all, put| {
            each_sink(all, put, |sink| sink.waiting_seconds);
        },
    ),
    metric(
        "millstream_outbox_delivered_records_total",
        Kind::Counter,
        SINK,
        "Records of an outbox that were delivered",
        |all, put| {
            each_sink(all, put, |sink| sink.delivered_records as f64);
        },
    ),
    metric(
        "millstream_outbox_last_delivery_seconds",
        Kind::Gauge,
        SINK,
        "Time since the last delivery of an outbox",
        |all, put| {
            for sink in &all.sinks {
                if let Some(since) = sink.since_delivery_seconds {
                    put(&[&all.flow, &sink.name], since);
                }
            }
        },
    ),
    metric(
        "millstream_outbox_deliveries_total",
        Kind::Counter,
        SINK,
        "Deliveries of an outbox that succeeded",
        |all, put| {
            each_sink(all, put, |sink| sink.deliveries as f64);
        },
    ),
    metric(
        "millstream_outbox_refused_records_total",
        Kind::Counter,
        SINK,
        "Records that a destination has refused, and that are skipped or dead letters",
        |all, put| {
            each_sink(all, put, |sink| sink.refused_records as f64);
        },
    ),
    metric(
        "millstream_outbox_retries_total",
        Kind::Counter,
        SINK,
        "Attempts of an outbox that failed",
        |all, put| {
            each_sink(all, put, |sink| sink.retries as f64);
        },
    ),
    metric(
        "millstream_epoch_commits_total",
        Kind::Counter,
        FLOW,
        "Commits of the state of a flow",
        |all, put| {
            epochs(all, put, |epochs| epochs.commits as f64);
        },
    ),
    metric(
        "millstream_epoch_bytes_total",
        Kind::Counter,
        FLOW,
        "Bytes of state that commits appended",
        |all, put| {
            epochs(all, put, |epochs| epochs.bytes as f64);
        },
    ),
    metric(
        "millstream_epoch_waiting_seconds_total",
        Kind::Counter,
        FLOW,
        "Time that commits waited for all operators to complete their epoch",
        |all, put| {
            epochs(all, put, |epochs| epochs.waiting_seconds);
        },
    ),
    metric(
        "millstream_epoch_saving_seconds_total",
        Kind::Counter,
        FLOW,
        "Time that commits appended changes and moved output",
        |all, put| {
            epochs(all, put, |epochs| epochs.saving_seconds);
        },
    ),
    metric(
        "millstream_epoch_syncing_seconds_total",
        Kind::Counter,
        FLOW,
        "Time that commits waited for the disk",
        |all, put| {
            epochs(all, put, |epochs| epochs.syncing_seconds);
        },
    ),
    metric(
        "millstream_epoch_since_commit_seconds",
        Kind::Gauge,
        FLOW,
        "Time since the last commit of this run, which a flow without input does not make",
        |all, put| {
            if let Some(since) = all.epochs.and_then(|epochs| epochs.since_commit_seconds) {
                put(&[&all.flow], since);
            }
        },
    ),
    metric(
        "millstream_flow_restarts_total",
        Kind::Counter,
        FLOW,
        "Restarts of the flow by its supervisor",
        |all, put| {
            put(&[&all.flow], all.restart_count as f64);
        },
    ),
    metric(
        "millstream_epoch_age_seconds",
        Kind::Gauge,
        FLOW,
        "Time since the last epoch ended: committed, or found to have nothing to commit",
        |all, put| {
            epochs(all, put, |epochs| epochs.age_seconds);
        },
    ),
    metric(
        "process_cpu_seconds_total",
        Kind::Counter,
        &[],
        "Processor time of the process",
        |_, put| {
            put(&[], process::cpu_seconds());
        },
    ),
    metric(
        "process_resident_memory_bytes",
        Kind::Gauge,
        &[],
        "Memory of the process that is in use",
        |_, put| {
            if let Some(bytes) = process::resident_bytes() {
                put(&[], bytes as f64);
            }
        },
    ),
    metric(
        "process_open_fds",
        Kind::Gauge,
        &[],
        "Open files of the process",
        |_, put| {
            if let Some(count) = process::open_files() {
                put(&[], count as f64);
            }
        },
    ),
];

/// The upper bounds of the buckets of histograms, in seconds; one more bucket has no bound.
#[must_use]
pub fn buckets() -> &'static [f64] {
    &BUCKETS
}
