//! The order of a supervisor to a process: one line of JSON.

use std::time::Duration;

use millstream_journal::{Options, Retention, Wait};
use serde::Deserialize;

use crate::settings::OnDifference;

/// The services of one process.
#[derive(Debug, Deserialize)]
pub(super) struct Order {
    /// The directory for what `service status` shows.
    pub state: String,
    /// Seconds that a service has to end when it is asked to.
    pub stop_s: f64,
    pub services: Vec<ServiceOrder>,
}

/// One service.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ServiceOrder {
    pub name: String,
    pub component: String,
    pub inputs: Vec<String>,
    pub out: Option<String>,
    pub wait: WaitOrder,
    pub cores: Vec<usize>,
    pub rebuild: Rebuild,
    pub snapshot_every: u64,
    pub on_error: OnErrorOrder,
    pub on_difference: OnDifferenceOrder,
    pub accept_differences: u64,
    pub dead_letters: Option<String>,
    pub sync: String,
    pub wait_follower: usize,
    pub retain_bytes: Option<u64>,
    pub retain_age_s: Option<f64>,
    pub retain_for_cursors: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WaitOrder {
    Block,
    BackOff,
    Spin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Rebuild {
    Inputs,
    Outputs,
    Snapshot,
    Nothing,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnErrorOrder {
    Fail,
    Skip,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnDifferenceOrder {
    Fail,
    Warn,
    Recorded,
}

impl ServiceOrder {
    /// How the output journal is opened.
    pub fn output_options(&self) -> Result<Options, String> {
        let age = self.retain_age_s.map(Duration::try_from_secs_f64);
        let retention = Retention {
            bytes: self.retain_bytes,
            age: age.transpose().map_err(|error| error.to_string())?,
            keep_for_cursors: self.retain_for_cursors,
        };
        Ok(self.options()?.with_retention(retention))
    }

    /// How a journal is opened that is as durable as the output.
    pub fn options(&self) -> Result<Options, String> {
        Ok(Options::default().with_sync(self.sync.parse()?))
    }
}

impl From<OnDifferenceOrder> for OnDifference {
    fn from(on_difference: OnDifferenceOrder) -> Self {
        match on_difference {
            OnDifferenceOrder::Fail => OnDifference::Fail,
            OnDifferenceOrder::Warn => OnDifference::Warn,
            OnDifferenceOrder::Recorded => OnDifference::Recorded,
        }
    }
}

impl From<WaitOrder> for Wait {
    fn from(wait: WaitOrder) -> Self {
        match wait {
            WaitOrder::Block => Wait::Block,
            WaitOrder::BackOff => Wait::BackOff,
            WaitOrder::Spin => Wait::Spin,
        }
    }
}
