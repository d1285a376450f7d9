//! The figures of `millstream-bench cluster`.

use std::fmt::{Display, Formatter};

use serde::Serialize;

use crate::figures::Latency;

/// A rate beside another.
#[derive(Clone, Debug, Serialize)]
pub struct Rate {
    /// What was measured.
    pub name: String,
    /// What it was measured beside.
    pub beside: String,
    /// Items of all processes a second; the median of the runs.
    pub items_per_second: f64,
    /// The same beside.
    pub items_per_second_beside: f64,
    /// The median of the ratios of pairs.
    pub ratio: f64,
}

/// From the moment at which a process that slept emits an item until another, which slept, handles it.
#[derive(Clone, Debug, Serialize)]
pub struct Hop {
    /// A flow.
    pub flow: Latency,
    /// `timely` alone.
    pub timely: Latency,
    /// A blocking write to a Unix socket, and a blocking read.
    pub socket: Latency,
}

/// What commits cost.
#[derive(Clone, Debug, Serialize)]
pub struct Commits {
    /// The number of keys, all of which change in each epoch.
    pub keys: u64,
    /// How much slower a flow of one process is with commits each second, in percent.
    pub one_process_percent: f64,
    /// The same of two processes.
    pub two_processes_percent: f64,
    /// The median of the differences of pairs.
    pub points_more: f64,
}

/// All figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Rates.
    pub rates: Vec<Rate>,
    /// Hops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop: Option<Hop>,
    /// Commits.
    pub commits: Vec<Commits>,
    /// Percent of a core of a process without input, that of the busier of two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_percent: Option<f64>,
}

impl Display for Figures {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        for rate in &self.rates {
            let own = rate.items_per_second / 1e6;
            let beside = rate.items_per_second_beside / 1e6;
            writeln!(
                f,
                "{:<44} {own:>8.2} M items/s; {}: {beside:.2} M items/s; {:.2} times",
                rate.name, rate.beside, rate.ratio
            )?;
        }
        if let Some(hop) = &self.hop {
            writeln!(f, "{}", Latency::heading())?;
            writeln!(f, "{}", hop.flow.row("hop between two sleeping processes"))?;
            writeln!(f, "{}", hop.timely.row("the same, timely alone"))?;
            writeln!(f, "{}", hop.socket.row("the same, a Unix socket alone"))?;
        }
        for commits in &self.commits {
            let name = format!("commits each second, {} keys", commits.keys);
            writeln!(
                f,
                "{name:<44} {:>8.1} % slower; one process: {:.1} %; {:.1} points more",
                commits.two_processes_percent, commits.one_process_percent, commits.points_more
            )?;
        }
        if let Some(percent) = self.idle_percent {
            writeln!(
                f,
                "{:<44} {percent:>8.2} % of a core",
                "an idle process of two"
            )?;
        }
        Ok(())
    }
}
