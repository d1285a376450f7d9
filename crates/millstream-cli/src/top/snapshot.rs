//! The part of a snapshot of `/api/snapshot.json` that a terminal shows.

use serde::Deserialize;

use super::section::Section;
use super::sections::{Journals, Queues};

/// The state of a flow.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Snapshot {
    pub(super) flow: String,
    pub(super) state: String,
    pub(super) seconds: f64,
    /// The processes that its start waits for, in a sentence.
    #[serde(default)]
    pub(super) waiting: Option<String>,
    pub(super) bottleneck: Option<Bottleneck>,
    pub(super) steps: Vec<Step>,
    pub(super) workers: Vec<Worker>,
    /// Of a run of several processes, on the page of process 0.
    #[serde(default)]
    pub(super) processes: Vec<Process>,
    pub(super) sources: Vec<Source>,
    pub(super) sinks: Vec<Outbox>,
    pub(super) epochs: Option<Epochs>,
    pub(super) queues: Option<Queues>,
    pub(super) journals: Option<Journals>,
}

impl Snapshot {
    /// The queues and the journals of the process.
    pub(super) fn stores(&self) -> Vec<Section> {
        let queues = self.queues.iter().map(Queues::section);
        queues
            .chain(self.journals.iter().map(Journals::section))
            .collect()
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Bottleneck {
    pub(super) words: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) mark: String,
    pub(super) in_rate: f64,
    pub(super) out_rate: f64,
    pub(super) busy: f64,
    pub(super) skew: f64,
    pub(super) ages: Option<Ages>,
    pub(super) skipped: u64,
    pub(super) late: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Ages {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Worker {
    pub(super) busy: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Process {
    pub(super) process: usize,
    pub(super) state: String,
    pub(super) silent_seconds: f64,
    pub(super) busy: f64,
    pub(super) read_rate: f64,
    pub(super) in_flight_items: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) lag_records: Option<u64>,
    pub(super) lag_bytes: Option<u64>,
    pub(super) withheld_records: Option<u64>,
    pub(super) lag_seconds: Option<f64>,
    pub(super) watermark_lag_seconds: Option<f64>,
    pub(super) held_by: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Outbox {
    pub(super) name: String,
    pub(super) waiting_records: u64,
    pub(super) waiting_seconds: f64,
    pub(super) retries: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Epochs {
    pub(super) epoch: u64,
    pub(super) age_seconds: f64,
    pub(super) last_seconds: [f64; 3],
    pub(super) last_bytes: f64,
}
