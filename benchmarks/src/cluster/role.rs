//! One process of a measurement: its part on the command line, and what it reports.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::figures::Latency;

pub(super) type Fault = Box<dyn std::error::Error + Send + Sync>;

/// The rate of items of which each waits for nothing: both processes sleep between two.
pub(super) const HOPS_PER_SECOND: f64 = 400.0;

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// A keyed step of about a microsecond.
    Step,
    /// Keyed sums of small items, in batches of 1,000.
    Exchange,
    /// Keyed sums of 1,000 keys.
    #[value(name = "keys-1000")]
    Keys1000,
    /// Keyed sums of 1,000,000 keys.
    #[value(name = "keys-1000000")]
    Keys1000000,
    /// An item at a time to the other process.
    Hop,
    /// No input after the first item.
    Idle,
    /// The exchange of `timely` without a flow.
    Timely,
    /// An item at a time over `timely` without a flow.
    TimelyHop,
    /// An item at a time over a socket.
    SocketHop,
}

/// One process of a measurement.
#[derive(clap::Args, Debug)]
pub struct Role {
    /// What is run.
    pub case: Case,
    /// The number of this process.
    pub process: usize,
    /// The number of processes.
    pub processes: usize,
    /// The directory of the sockets and of the state.
    pub folder: PathBuf,
    /// The items of all processes.
    pub items: u64,
    /// Whether state is saved.
    #[arg(long)]
    pub saves: bool,
}

/// What a process has measured; moments are those of the monotonic clock of the machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// When its first item was made; the end of time, if it made none.
    pub began_ns: u64,
    /// When its part of the run had ended.
    pub ended_ns: u64,
    /// The items that its sources have emitted.
    pub sent: u64,
    /// The items that its workers have processed.
    pub handled: u64,
    /// The time of the items that it received from the other process.
    pub latency: Option<Latency>,
    /// Percent of a core, of a process without input.
    pub cpu_percent: f64,
}

impl Role {
    /// The words of the command line that name this role.
    pub fn words(&self) -> Vec<String> {
        let case = self.case.to_possible_value();
        let mut words = vec![
            "cluster-peer".to_owned(),
            case.map_or_else(String::new, |value| value.get_name().to_owned()),
            self.process.to_string(),
            self.processes.to_string(),
            self.folder.display().to_string(),
            self.items.to_string(),
        ];
        words.extend(self.saves.then(|| "--saves".to_owned()));
        words
    }
}
