//! Counters and latency of each step on each worker.
//!
//! Recorded once for a batch: one clock read provides both the time that the batch spent in the step and its
//! age since the source completed it. Histograms are HDR with three significant digits (Gil Tene,
//! hdrhistogram.org). Every item of a batch counts with the age of the batch at the end of the step, which is
//! never less than its own age.

pub(crate) mod current;
pub(crate) mod edge_counts;
pub(crate) mod failures;
pub(crate) mod figures;
pub(crate) mod lag;
pub(crate) mod progress;

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

pub use edge_counts::EdgeLoad;
pub use failures::{FailureNote, Outcome};
use lag::summaries;
pub use lag::{Lag, LagGauge, PartitionLag};
pub use progress::{CommitTimes, EpochMetrics, PartitionWatermark};

/// The largest latency of a histogram, four hours. A longer one counts as this.
const LONGEST_NS: u64 = 4 * 3600 * 1_000_000_000;

/// An empty latency histogram, in nanoseconds.
#[must_use]
#[expect(
    clippy::expect_used,
    reason = "the bounds are constants that the crate accepts"
)]
#[doc(hidden)] // For the other crates of Millstream.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("constant bounds are valid")
}

/// The size of the state of a step on one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct StateSize {
    /// The number of keys.
    pub keys: u64,
    /// The bytes of keys and states as the state directory has them since the last epoch; `None` without one.
    pub bytes: Option<u64>,
    /// Whether a key waits for event time: it has an open window, a timer, or items in the order of their times.
    pub waits_for_time: bool,
}

/// The metrics of one step on one worker, or on all of them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StepMetrics {
    /// The step's name.
    pub name: String,
    /// The step's kind: `map`, `stateful`, `source`, ...
    pub kind: &'static str,
    /// Items that went in.
    pub items_in: u64,
    /// Items that came out.
    pub items_out: u64,
    /// Batches that went in.
    pub batches: u64,
    /// Items skipped by the error policies skip and dead letter.
    pub skipped: u64,
    /// Of these, the items that were passed on as dead letters.
    pub dead_letters: u64,
    /// Items that were too late for their windows.
    pub late: u64,
    /// Of these, the items that no step reads.
    #[doc(hidden)] // For the other crates of Millstream.
    pub late_dropped: u64,
    /// Connections or inputs that were closed because of invalid data.
    pub faults: u64,
    /// Time spent in the step itself.
    pub busy_ns: u64,
    /// The size of its state, where it has one and knows it; as it was about a second ago.
    pub state: Option<StateSize>,
    /// Age of the items at the end of the step, since they were complete at the source; nanoseconds.
    pub latency_ns: Histogram<u64>,
}

impl StepMetrics {
    pub(crate) fn new(name: &str, kind: &'static str) -> Self {
        StepMetrics {
            name: name.to_owned(),
            kind,
            items_in: 0,
            items_out: 0,
            batches: 0,
            skipped: 0,
            dead_letters: 0,
            late: 0,
            late_dropped: 0,
            faults: 0,
            busy_ns: 0,
            state: None,
            latency_ns: latency_histogram(),
        }
    }

    fn absorb(&mut self, other: &StepMetrics) {
        self.items_in += other.items_in;
        self.items_out += other.items_out;
        self.batches += other.batches;
        self.skipped += other.skipped;
        self.dead_letters += other.dead_letters;
        self.state = sum(self.state, other.state);
        self.late += other.late;
        self.late_dropped += other.late_dropped;
        self.faults += other.faults;
        self.busy_ns += other.busy_ns;
        // Both histograms have the same constant bounds, so that adding cannot fail.
        let _ = self.latency_ns.add(&other.latency_ns);
    }

    fn to_json(&self) -> Value {
        let us = |q: f64| self.latency_ns.value_at_quantile(q) as f64 / 1000.0;
        json!({
            "name": self.name, "kind": self.kind, "items_in": self.items_in,
            "items_out": self.items_out, "batches": self.batches, "skipped": self.skipped,
            "dead_letters": self.dead_letters,
            "keys": self.state.map(|state| state.keys),
            "state_bytes": self.state.and_then(|state| state.bytes),
            "late": self.late, "faults": self.faults, "busy_ms": self.busy_ns as f64 / 1e6,
            "latency_us": {"p50": us(0.5), "p90": us(0.9), "p99": us(0.99), "p99.9": us(0.999),
                "p99.99": us(0.9999), "max": self.latency_ns.max() as f64 / 1000.0},
        })
    }
}

/// The sum of two sizes of which one may not be known.
fn sum(one: Option<StateSize>, other: Option<StateSize>) -> Option<StateSize> {
    let (Some(one), Some(other)) = (one, other) else {
        return one.or(other);
    };
    Some(StateSize {
        keys: one.keys + other.keys,
        bytes: one.bytes.zip(other.bytes).map(|(one, other)| one + other),
        waits_for_time: one.waits_for_time || other.waits_for_time,
    })
}

/// The metrics of one worker as it published them last.
#[derive(Clone, Debug, Default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct WorkerMetrics {
    /// When it published them: nanoseconds of the [clock of the engine](crate::clock::now_ns), or 0 if it has not yet.
    pub published_ns: u64,
    /// Its steps, in the order of the flow.
    pub steps: Arc<Vec<StepMetrics>>,
    /// The number of items on their way to it.
    pub in_flight_items: usize,
    /// The step in which it is, or was last: its number in the order of the flow.
    pub current: usize,
    /// The number of the turn of an operator that it is in, if it is in one.
    pub turn: Option<u64>,
    /// The number of its thread in the operating system.
    pub thread: Option<u32>,
}

/// The metrics of an [outbox](crate::outbox).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OutboxMetrics {
    /// The name of the sink.
    pub sink: String,
    /// The destination, for people.
    pub address: String,
    /// The number of records that are not delivered, committed or not.
    pub waiting_records: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// The age of the oldest of them.
    pub waiting: Duration,
    /// The number of records that this run has delivered.
    pub delivered_records: u64,
    /// The number of deliveries of this run that succeeded.
    pub deliveries: u64,
    /// The number of attempts of this run that failed.
    pub retries: u64,
    /// The number of attempts that have failed since the last one that succeeded.
    pub failures_in_a_row: u64,
    /// The number of records that the destination has refused in this run, and the flow skipped.
    pub refused_records: u64,
    /// How long a delivery that is not full waits for more records.
    pub batch_age: Duration,
    /// The time since the last delivery of this run.
    pub since_delivery: Option<Duration>,
}

impl OutboxMetrics {
    pub(crate) fn new(sink: &str, address: &str) -> Self {
        OutboxMetrics {
            sink: sink.to_owned(),
            address: address.to_owned(),
            waiting_records: 0,
            waiting_bytes: 0,
            waiting: Duration::ZERO,
            delivered_records: 0,
            deliveries: 0,
            retries: 0,
            failures_in_a_row: 0,
            refused_records: 0,
            batch_age: Duration::ZERO,
            since_delivery: None,
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "sink": self.sink, "address": self.address,
            "waiting_records": self.waiting_records, "waiting_bytes": self.waiting_bytes,
            "waiting_seconds": self.waiting.as_secs_f64(),
            "delivered_records": self.delivered_records, "deliveries": self.deliveries,
            "retries": self.retries, "failures_in_a_row": self.failures_in_a_row, "refused_records": self.refused_records,
            "seconds_since_delivery": self.since_delivery.map(|since| since.as_secs_f64()),
        })
    }
}

/// The connection for data between this process and another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct LinkMetrics {
    /// The number of the other process.
    pub process: usize,
    /// The bytes sent to it.
    pub sent_bytes: u64,
    /// The bytes received from it.
    pub received_bytes: u64,
}

impl LinkMetrics {
    fn to_json(self) -> Value {
        json!({
            "process": self.process, "sent_bytes": self.sent_bytes,
            "received_bytes": self.received_bytes,
        })
    }
}

/// The metrics of a flow, at its end or during the run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The flow's name.
    pub flow: String,
    /// Time since the start.
    pub elapsed: Duration,
    /// One list of steps for each worker of this process, in the order of the flow.
    pub workers: Vec<Vec<StepMetrics>>,
    /// The outboxes of the sinks that have one.
    pub outboxes: Vec<OutboxMetrics>,
    /// The lag of partitions whose source reports one.
    pub lags: Vec<PartitionLag>,
    /// The connections to the other processes of the run, if it has several.
    #[doc(hidden)] // For the other crates of Millstream.
    pub links: Vec<LinkMetrics>,
    /// At the end of process 0 of several: the numbers of the other processes with their reports, as
    /// [`to_json`](Self::to_json) returns them. One that ends more than 5 s later is missing.
    #[doc(hidden)] // For the other crates of Millstream.
    pub others: Vec<(usize, Value)>,
}

impl Report {
    /// Returns the metrics of the outbox of the sink of this name.
    #[must_use]
    pub fn outbox(&self, sink: &str) -> Option<&OutboxMetrics> {
        self.outboxes.iter().find(|outbox| outbox.sink == sink)
    }

    /// Returns the steps summed over all workers, in the order of the flow.
    #[must_use]
    pub fn steps(&self) -> Vec<StepMetrics> {
        let mut total: Vec<StepMetrics> = Vec::new();
        for steps in &self.workers {
            for (index, step) in steps.iter().enumerate() {
                match total.get_mut(index) {
                    Some(sum) => sum.absorb(step),
                    None => total.push(step.clone()),
                }
            }
        }
        total
    }

    /// Returns one step summed over all workers, by its name.
    #[must_use]
    pub fn step(&self, name: &str) -> Option<StepMetrics> {
        self.steps().into_iter().find(|step| step.name == name)
    }

    /// Returns the report as JSON: `{flow, seconds, steps: [...], workers: [[...], ...], outboxes: [...], lags: [...],
    /// links: [...]}`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let list =
            |steps: &[StepMetrics]| steps.iter().map(StepMetrics::to_json).collect::<Vec<_>>();
        json!({
            "flow": self.flow,
            "seconds": self.elapsed.as_secs_f64(),
            "steps": list(&self.steps()),
            "workers": self.workers.iter().map(|steps| list(steps)).collect::<Vec<_>>(),
            "outboxes": self.outboxes.iter().map(OutboxMetrics::to_json).collect::<Vec<_>>(),
            "lags": self.lags.iter().map(PartitionLag::to_json).collect::<Vec<_>>(),
            "links": self.links.iter().map(|link| link.to_json()).collect::<Vec<_>>(),
        })
    }
}

/// The least width of the column of names, so that most flows have the same layout.
const NAME_WIDTH: usize = 22;

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "flow {} ran {:.3} s",
            self.flow,
            self.elapsed.as_secs_f64()
        )?;
        let steps = self.steps();
        let names = steps.iter().map(|step| step.name.chars().count());
        let width = names.max().unwrap_or(0).max(NAME_WIDTH);
        writeln!(
            f,
            "{:<width$} {:>12} {:>12} {:>9} {:>8} {:>9} {:>9} {:>9}",
            "step", "in", "out", "busy ms", "skipped", "p50 us", "p99 us", "max us"
        )?;
        for step in steps {
            let us = |ns: u64| ns as f64 / 1000.0;
            writeln!(
                f,
                "{:<width$} {:>12} {:>12} {:>9.1} {:>8} {:>9.1} {:>9.1} {:>9.1}",
                step.name,
                step.items_in,
                step.items_out,
                step.busy_ns as f64 / 1e6,
                step.skipped,
                us(step.latency_ns.value_at_quantile(0.5)),
                us(step.latency_ns.value_at_quantile(0.99)),
                us(step.latency_ns.max()),
            )?;
        }
        for outbox in &self.outboxes {
            writeln!(
                f,
                "outbox of {}: {} records delivered in {} deliveries, {} retries; {} records ({} bytes) wait",
                outbox.sink,
                outbox.delivered_records,
                outbox.deliveries,
                outbox.retries,
                outbox.waiting_records,
                outbox.waiting_bytes,
            )?;
        }
        for line in summaries(&self.lags) {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}
