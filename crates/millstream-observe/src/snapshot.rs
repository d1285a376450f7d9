//! The state of a flow at one moment, as the page, the JSON and the metrics show it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::ages::{Ages, BUCKETS};
use crate::sections::journal_figures::JournalsSnapshot;
use crate::sections::queue_figures::QueuesSnapshot;
use crate::sections::service_figures::ServicesSnapshot;
use crate::user::UserSnapshot;

/// The state of a flow at one moment. Rates, busy shares and ages are those of the last second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Snapshot {
    /// The name of the flow.
    pub flow: String,
    /// Identifies the run: another run of the same flow has another.
    pub run: String,
    /// The time of the moment, milliseconds since the epoch.
    pub time_ms: u64,
    /// Seconds since the flow was started.
    pub seconds: f64,
    /// What the flow is doing.
    pub state: State,
    /// Seconds since the flow was asked to end, while it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ending_seconds: Option<f64>,
    /// The processes that the start of the flow waits for, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Why the flow does not run: it has failed, and the other figures are its last ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<Down>,
    /// The numbers of the processes that the start of the flow waits for, or without which it has failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<usize>,
    /// Whether sources pause, because too much is in flight or an outbox is full.
    pub sources_paused: bool,
    /// What limits the flow, if anything in it does.
    pub bottleneck: Option<Bottleneck>,
    /// What needs attention, the worst first.
    pub conditions: Vec<ConditionSnapshot>,
    /// The sources, steps and sinks, in the order of the flow.
    pub steps: Vec<StepSnapshot>,
    /// The workers; on the page of process 0 those of all processes.
    pub workers: Vec<WorkerSnapshot>,
    /// On the page of process 0 of a run of several: the processes. The other values are those of all of them then,
    /// except the epochs, which are those of process 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessSnapshot>,
    /// The sources.
    pub sources: Vec<SourceSnapshot>,
    /// In process 0 of a run of several: the sources with the partitions of all processes that are not silent.
    #[serde(skip)]
    pub(crate) sources_of_all: Option<Vec<SourceSnapshot>>,
    /// The sinks that have an outbox.
    pub sinks: Vec<SinkSnapshot>,
    /// The commits of a flow with a state directory.
    pub epochs: Option<EpochSnapshot>,
    /// The last commits, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commits: Vec<CommitSnapshot>,
    /// The connections between operators.
    pub edges: Vec<EdgeSnapshot>,
    /// The last failures, the newest first.
    pub failures: Vec<FailureSnapshot>,
    /// The counters and gauges of the user's program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub user: Vec<UserSnapshot>,
    /// The last restarts of the flow by its supervisor, the newest first.
    pub restarts: Vec<Restart>,
    /// The number of all restarts by the supervisor.
    pub restart_count: u64,
    /// What the process is: its version, its command line without secrets, its options.
    pub about: Vec<(String, String)>,
    /// What a reader with the token may ask for; empty without a token.
    pub actions: Vec<Cow<'static, str>>,
    /// The queues of a server in this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<QueuesSnapshot>,
    /// Journals on the disk that are watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journals: Option<JournalsSnapshot>,
    /// The services of this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services: Option<ServicesSnapshot>,
}

/// A condition that holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct ConditionSnapshot {
    /// Its name in the list.
    pub name: Cow<'static, str>,
    /// How bad it is.
    pub severity: Severity,
    /// The part of the page that has it: `flow`, `queues`, `journals` or `services`.
    pub part: Cow<'static, str>,
    /// What it is of: `flow`, `step`, `source`, `sink`, `process`, `epochs`, `queue`, `queues`, `journal`, `journals`,
    /// `service`, `services` or `part`, which is a process of a system of services.
    pub kind: Cow<'static, str>,
    /// The name of that.
    pub subject: String,
    /// What is wrong, in one sentence.
    pub words: String,
    /// What to do.
    pub action: Cow<'static, str>,
    /// Since when it holds, milliseconds since the epoch.
    pub since_ms: u64,
    /// The number of the process, if it is another than the one that shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<usize>,
}

/// The worst first, then the oldest.
pub(crate) fn sort_conditions(held: &mut [ConditionSnapshot]) {
    held.sort_by(|one, other| {
        let by_severity = other.severity.cmp(&one.severity);
        by_severity.then(one.since_ms.cmp(&other.since_ms))
    });
}

/// How bad a condition is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Someone should look at it in the day.
    #[default]
    Warning,
    /// Someone should look at it now.
    Critical,
}

impl Severity {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// A connection between two operators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct EdgeSnapshot {
    /// The step whose output it carries: its index in the flow.
    pub from: usize,
    /// The index of the step that reads it.
    pub to: usize,
    /// Items that were sent and that the step has not begun with. In a run of several processes they are counted by the
    /// process that sent them, and subtracted by the one that took them: only the sum over all processes says how many
    /// are on their way.
    pub in_flight_items: i64,
}

/// A failure of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct FailureSnapshot {
    /// The number of failures before it, in its process.
    pub number: u64,
    /// The number of the process, if it is another than the one that shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<usize>,
    /// When it was, milliseconds since the epoch.
    pub time_ms: u64,
    /// `skipped`, `dead letter` or `failed`.
    pub outcome: Cow<'static, str>,
    /// The name of the step; empty for a failure that no step caused.
    pub step: String,
    /// The key, shortened.
    pub key: Option<String>,
    /// The item, shortened.
    pub item: Option<String>,
    /// The error, shortened.
    pub error: String,
    /// The end of its traceback.
    pub traceback: Option<String>,
}

/// A commit of a flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct CommitSnapshot {
    /// The number of its epoch.
    pub epoch: u64,
    /// When it was complete, milliseconds since the epoch of Unix.
    pub time_ms: u64,
    /// The bytes of state that it appended.
    pub bytes: u64,
    /// Seconds of waiting, saving and syncing.
    pub seconds: [f64; 3],
}

/// A restart of a flow by its supervisor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Restart {
    /// When the flow had ended, milliseconds since the epoch.
    pub time_ms: u64,
    /// Why.
    pub cause: String,
}

/// How a flow has failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Down {
    /// The error, in one line.
    pub error: String,
    /// The traceback of the user's code.
    pub traceback: Option<String>,
    /// Since when it does not run, milliseconds since the epoch.
    pub since_ms: u64,
    /// Whether a supervisor starts it again, as far as this process knows.
    pub is_restarted: Option<bool>,
}

/// What a flow is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[doc(hidden)] // For the other crates of Millstream.
pub enum State {
    /// Not every worker has opened its connectors.
    #[default]
    Starting,
    /// It reads its sources.
    Running,
    /// It was asked to end.
    Ending,
    /// It has ended.
    Ended,
    /// It has failed, and does not run.
    Failed,
}

impl State {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Running => "running",
            State::Ending => "ending",
            State::Ended => "ended",
            State::Failed => "failed",
        }
    }
}

/// What limits a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Bottleneck {
    /// The name of the step that is the cause.
    pub step: String,
    /// How it limits the flow.
    pub limit: Limit,
    /// One sentence for people.
    pub words: String,
}

/// How a step limits a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Limit {
    /// It takes all the time of a worker.
    #[default]
    Step,
    /// Its outbox is full.
    Outbox,
}

/// The part of a step in what limits the flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Mark {
    /// None.
    #[default]
    None,
    /// It limits the flow.
    Cause,
    /// It could do more, and waits for the step that limits the flow.
    Waiting,
}

/// A source, step or sink.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct StepSnapshot {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Cow<'static, str>,
    /// Items that went in since the start.
    pub items_in: u64,
    /// Items that came out since the start.
    pub items_out: u64,
    /// Items that went in, per second; none while all workers are inside a long turn.
    pub in_rate: Option<f64>,
    /// Items that came out, per second.
    pub out_rate: Option<f64>,
    /// The share of its time that the busiest worker spent in the step, from 0 to 1.
    pub busy: f64,
    /// How much busier that worker is than the mean of all: 1 if the load is even.
    pub skew: f64,
    /// Seconds that all workers spent in the step since the start.
    pub busy_seconds: f64,
    /// The ages of the items of the last second; none without items.
    pub ages: Option<Ages>,
    /// Items skipped by the error policies skip and dead letter, since the start.
    pub skipped: u64,
    /// Of these, the items that were passed on as dead letters.
    pub dead_letters: u64,
    /// The keys of its state, if it has one and knows it.
    pub keys: Option<u64>,
    /// The bytes of keys and states in the state directory, if the step knows them.
    pub state_bytes: Option<u64>,
    /// Items that were too late for their windows, since the start.
    pub late: u64,
    /// Of these, the items that no step reads.
    pub late_dropped: u64,
    /// Connections or inputs that were closed because of invalid data, since the start.
    pub faults: u64,
    /// Its part in what limits the flow.
    pub mark: Mark,
    /// The ages of all items since the start: their sum in seconds, and their number in each bucket.
    #[serde(skip)]
    pub(crate) age_buckets: (f64, [u64; BUCKETS.len() + 1]),
}

/// A worker thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct WorkerSnapshot {
    /// The number of its process, on the page of process 0 of a run of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<usize>,
    /// Its number, over all processes there.
    pub worker: usize,
    /// The share of its time that it spent in steps, from 0 to 1.
    pub busy: f64,
    /// Seconds that it spent in steps since the start.
    pub busy_seconds: f64,
    /// Items on their way to it.
    pub in_flight_items: u64,
    /// Seconds since it published its metrics: more than a few when it is inside a long call.
    pub silent_seconds: f64,
    /// The step in which it is, if it has been in one turn of it for seconds: in one call, or in a batch of slow ones.
    pub step: Option<String>,
    /// For how many seconds it has been in that turn.
    pub inside_seconds: Option<f64>,
    /// The number of its thread in the operating system.
    pub thread: Option<u32>,
    /// What the long call does: the end of the stack of its thread, if the program has a language that knows it.
    pub stack: Option<String>,
}

/// A process of a run of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct ProcessSnapshot {
    /// Its number.
    pub process: usize,
    /// `starting`, `running`, `ending`, `ended` or `failed`; `lost` after five seconds without news; `unknown` if it has no page,
    /// which would send them.
    pub state: String,
    /// Seconds since its last news.
    pub silent_seconds: f64,
    /// The share of its time that its busiest worker spent in steps, from 0 to 1.
    pub busy: f64,
    /// Items per second that its sources have read.
    pub read_rate: f64,
    /// Items on their way to its workers.
    pub in_flight_items: u64,
}

/// A source, with the input that it has not read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct SourceSnapshot {
    /// Its name.
    pub name: String,
    /// Records that were not read, over all partitions; none if the source does not know.
    pub lag_records: Option<u64>,
    /// Bytes that were not read, over all partitions.
    pub lag_bytes: Option<u64>,
    /// Records in open transactions, over all partitions: they are written, and cannot be read yet.
    pub withheld_records: Option<u64>,
    /// The largest age of input that was not read, in seconds.
    pub lag_seconds: Option<f64>,
    /// Seconds from the lowest watermark of its partitions to now; none without event time.
    pub watermark_lag_seconds: Option<f64>,
    /// The partition that holds the watermark back.
    pub held_by: Option<String>,
    /// A partition that has had no item, and for which event time waits.
    pub without_items: Option<String>,
    /// The other sources before a step that waits for the event time of this one too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub joined_with: Vec<String>,
    /// Each partition of which something is known, at most [`PARTITIONS_MAX`](crate::list::PARTITIONS_MAX); none if
    /// there are more.
    pub partitions: Vec<PartitionSnapshot>,
}

/// A partition of a source.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct PartitionSnapshot {
    /// Its name.
    pub name: String,
    /// Records that were not read.
    pub lag_records: Option<u64>,
    /// Bytes that were not read.
    pub lag_bytes: Option<u64>,
    /// Records in open transactions.
    pub withheld_records: Option<u64>,
    /// The age of input that was not read, in seconds.
    pub lag_seconds: Option<f64>,
    /// Seconds from its watermark to now.
    pub watermark_lag_seconds: Option<f64>,
}

/// The outbox of a sink.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct SinkSnapshot {
    /// The name of the sink.
    pub name: String,
    /// The destination.
    pub address: String,
    /// Records that are not delivered.
    pub waiting_records: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// The age of the oldest of them, in seconds.
    pub waiting_seconds: f64,
    /// Records that were delivered since the start.
    pub delivered_records: u64,
    /// Deliveries that succeeded since the start.
    pub deliveries: u64,
    /// Attempts that failed since the start.
    pub retries: u64,
    /// Attempts that have failed since the last one that succeeded.
    pub failures_in_a_row: u64,
    /// Records that the destination has refused, and that are skipped or dead letters, since the start.
    pub refused_records: u64,
    /// How long a delivery waits for more records, in seconds.
    pub batch_age_seconds: f64,
    /// Seconds since the last delivery.
    pub since_delivery_seconds: Option<f64>,
}

/// The commits of a flow: sums since the start, and the times of the last commit.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct EpochSnapshot {
    /// The number of the last epoch that was committed.
    pub epoch: u64,
    /// Commits since the start.
    pub commits: u64,
    /// Bytes of state that they appended since the start.
    pub bytes: u64,
    /// Seconds that commits waited for all operators since the start.
    pub waiting_seconds: f64,
    /// Seconds that they appended changes since the start.
    pub saving_seconds: f64,
    /// Seconds that they waited for the disk since the start.
    pub syncing_seconds: f64,
    /// Seconds since the last commit of this run; none before the first one.
    pub since_commit_seconds: Option<f64>,
    /// Seconds since the last epoch ended.
    pub age_seconds: f64,
    /// The configured length of an epoch, in seconds.
    pub length_seconds: f64,
    /// Of the last commits of the last second, the mean: seconds of waiting, saving, syncing.
    pub last_seconds: [f64; 3],
    /// Of the last commits of the last second, the mean of their bytes.
    pub last_bytes: f64,
}
