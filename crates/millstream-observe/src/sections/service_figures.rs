//! Services at one moment, as the page, the JSON and the metrics show them.

use serde::Serialize;

/// The number of inputs and methods of a service that are reported.
pub const INPUTS_MAX: usize = 32;

/// The services of this process. Rates are those between the last two looks at them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServicesSnapshot {
    /// One sentence about what needs attention.
    pub attention: Option<String>,
    /// The services.
    pub services: Vec<ServiceSnapshot>,
}

/// One service. Counts are those since it was started, the rebuilding of its state included.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServiceSnapshot {
    /// Its name.
    pub name: String,
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
    /// Calls by records a second.
    pub call_rate: f64,
    /// Its inputs, at most 32.
    pub inputs: Vec<InputSnapshot>,
    /// The calls of the last second by method, at most 32.
    pub methods: Vec<MethodSnapshot>,
    /// Its output journal.
    pub output: Option<String>,
    /// The number that the next record of the output gets.
    pub output_next: u64,
    /// Records that the output got a second.
    pub output_rate: f64,
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

/// What is wrong with a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceState {
    /// Nothing.
    #[default]
    Good,
    /// It waits for a journal, or has not restored its state.
    Starting,
    /// It has set records aside, or skipped them.
    Skipping,
    /// It does not keep up with an input.
    Lagging,
}

/// An input of a service.
#[derive(Clone, Debug, Default, Serialize)]
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
#[derive(Clone, Debug, Default, Serialize)]
pub struct MethodSnapshot {
    /// Its name.
    pub name: String,
    /// Calls a second.
    pub rate: f64,
    /// Calls since the page was opened for the service.
    pub calls: u64,
}

/// The latency of a hop.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HopSnapshot {
    /// The last part of the path of the journal that it begins in.
    pub from: String,
    /// The one that it ends in.
    pub to: String,
    /// The part of the hop.
    pub part: &'static str,
    /// Half are faster.
    pub p50_seconds: f64,
    /// One in 100 is slower.
    pub p99_seconds: f64,
    /// The slowest.
    pub max_seconds: f64,
}
