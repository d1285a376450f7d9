//! What is measured, and the moments of a run.

use std::path::PathBuf;

use super::order::What;

/// A measurement.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is called.
    pub what: What,
    /// Both ends are Python; orders only.
    pub python: bool,
    /// Calls per second; 0 for as many as go.
    pub rate: f64,
    /// Seconds that are measured.
    pub seconds: f64,
    /// Seconds before that.
    pub warm_up: f64,
    /// Take turns with Chronicle Queue; orders only.
    pub chronicle: bool,
    /// The folder in which the journal is made and removed again.
    pub folder: PathBuf,
}

impl Plan {
    pub(super) fn name(&self) -> String {
        let what = match (self.what, self.python) {
            (What::Orders, false) => "orders of 28 fields",
            (_, true) => "orders, Python",
            (What::Ticks, false) => "one integer",
        };
        match self.rate {
            0.0 => format!("{what}, flat out"),
            rate => format!("{what}, {rate}/s"),
        }
    }
}

/// The moments of one run, in ns of the monotonic clock.
pub(super) struct Times {
    pub(super) from: u64,
    pub(super) measured_from: u64,
    pub(super) until: u64,
}

impl Times {
    pub(super) fn after(from: u64, plan: &Plan) -> Self {
        let measured_from = from + (plan.warm_up * 1e9) as u64;
        let until = measured_from + (plan.seconds * 1e9) as u64;
        Times {
            from,
            measured_from,
            until,
        }
    }
}
