//! Services at one moment, as the page, the JSON and the metrics show them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The number of inputs and methods of a service that are reported.
pub const INPUTS_MAX: usize = 32;

/// The services of this process. Rates are those between the last two looks at them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServicesSnapshot {
    /// Why the files of the supervisor of a system cannot be read.
    pub error: Option<String>,
    /// The services.
    pub services: Vec<ServiceSnapshot>,
    /// The processes of a system of services; none for a service of this process.
    pub processes: Vec<PartSnapshot>,
}

/// A process of a system of services, as its supervisor reports it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct PartSnapshot {
    /// Its name; empty where the supervisor writes it beside.
    #[serde(default)]
    pub name: String,
    /// `running`, `restarting`, `failed`, `stopping` or `stopped`.
    pub state: String,
    /// Its number in the operating system, while it runs.
    pub pid: Option<u32>,
    /// How often the supervisor has started it again.
    pub restarts: u64,
    /// Why it has died last, or cannot be started.
    pub error: Option<String>,
    /// Why its last stop was not a clean one, such as a call that did not end.
    #[serde(default)]
    pub broken_off: Option<String>,
}

impl PartSnapshot {
    /// Whether it runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state == "running"
    }
}

/// One service. Counts are those since it was started, the rebuilding of its state included.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceSnapshot {
    /// Its name.
    pub name: String,
    /// The process of the system that runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// What is wrong with it.
    pub state: ServiceState,
    /// Calls of the component by records.
    pub calls: u64,
    /// Calls of the component by timers.
    pub ticks: u64,
    /// Records that were skipped.
    pub skipped: u64,
    /// Records that were set aside as dead letters.
    pub dead_letters: u64,
    /// Calls by records a second; none while it is inside a long call.
    pub call_rate: Option<f64>,
    /// The share of the last seconds in which it did not wait for an input, from 0 to 1: the call that it is in counts.
    pub busy: Option<f64>,
    /// The call that it has been in for seconds.
    pub call: Option<CallSnapshot>,
    /// Its inputs, at most 32.
    pub inputs: Vec<InputSnapshot>,
    /// The calls of the last second by method, at most 32.
    pub methods: Vec<MethodSnapshot>,
    /// Its output journal.
    pub output: Option<String>,
    /// The number that the next record of the output gets.
    pub output_next: u64,
    /// Records that the output got a second; none while it is inside a long call.
    pub output_rate: Option<f64>,
    /// The latencies of the newest calls of the output, by hop.
    pub hops: Vec<HopSnapshot>,
    /// The newest calls of its inputs that it has taken, as text, the newest last.
    pub last_calls: Vec<String>,
    /// The newest records of its output.
    pub last_outputs: Vec<String>,
    /// The newest dead letters of its journal for them.
    pub last_dead_letters: Vec<String>,
    /// Why a journal of it cannot be read.
    pub error: Option<String>,
}

/// A call that a service has been in for seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallSnapshot {
    /// The method; none for a timer, and where the record cannot be read.
    pub method: Option<String>,
    /// The last part of the path of its input, or `timers`.
    pub input: String,
    /// The record that it is called with.
    pub record: u64,
    /// For how many seconds it has been in it.
    pub seconds: u64,
    /// The end of the stack of its thread, if the program has a language that knows it.
    pub stack: Option<String>,
}

impl std::fmt::Display for CallSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let method = self.method.as_deref();
        let method = method.map_or_else(|| "a call".to_owned(), |name| format!("{name}()"));
        write!(
            f,
            "{method} with record {} of {} for {} s",
            self.record, self.input, self.seconds
        )
    }
}

/// What is wrong with a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceState {
    /// Nothing.
    #[default]
    Good,
    /// It waits for a journal, or has not restored its state.
    Starting,
    /// It does not keep up with an input.
    Lagging,
    /// It has been inside one call for seconds.
    Stuck,
    /// Its process does not run.
    Down,
}

impl ServiceState {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ServiceState::Good => "good",
            ServiceState::Starting => "starting",
            ServiceState::Lagging => "lagging",
            ServiceState::Stuck => "stuck",
            ServiceState::Down => "down",
        }
    }
}

/// An input of a service.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct InputSnapshot {
    /// The last part of its path.
    pub name: String,
    /// The record that the service takes next.
    pub position: u64,
    /// Records that it has not taken.
    pub lag_records: u64,
    /// Age of the first of them.
    pub lag_seconds: f64,
}

/// The calls of a method.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MethodSnapshot {
    /// Its name.
    pub name: String,
    /// Calls a second.
    pub rate: f64,
    /// Calls since the page was opened for the service.
    pub calls: u64,
}

/// The latency of a hop.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HopSnapshot {
    /// The last part of the path of the journal that it begins in.
    pub from: String,
    /// The one that it ends in.
    pub to: String,
    /// The part of the hop.
    pub part: Cow<'static, str>,
    /// Half are faster.
    pub p50_seconds: f64,
    /// One in 100 is slower.
    pub p99_seconds: f64,
    /// The slowest.
    pub max_seconds: f64,
}

/// A call of a service that was sampled, from the history: when it was published, taken and answered, in ns since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTrace {
    /// The name of the service.
    pub service: String,
    /// The method; empty where the record cannot be read.
    pub method: String,
    /// The last part of the path of the input.
    pub input: String,
    /// The record of the call in its input.
    pub record: u64,
    /// When the call was written to the input.
    pub published_ns: u64,
    /// When the service took it.
    pub taken_ns: u64,
    /// When its last output was written.
    pub output_ns: u64,
}
