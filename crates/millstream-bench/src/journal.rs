//! Journals measured, and beside them, in the same run, what one would use instead.
//!
//! Every figure is the median of several runs. In each run every row is measured once, one after the other, so that all meet the same
//! moods of the machine. What takes two processes is measured with two processes.

mod bare;
mod compare;
mod durable;
mod growing;
mod latency;
mod process;
mod python;
mod recovery;
mod replication;
mod scratch;
mod speed;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

pub use compare::{Peer, Work};
pub use process::{Role, play};
pub use scratch::Scratch;

use super::figures::median_index;

/// The body of each record, unless it says something.
pub(crate) const BODY: [u8; 64] = [b'x'; 64];

/// What can be measured on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Appending and reading in one process.
    Speed,
    /// Two and more processes: rate, latency, several writers.
    Processes,
    /// Segments that grow, beside segments of one size.
    Growing,
    /// A sync for every append.
    Durable,
    /// Verifying, reopening, replaying.
    Recovery,
    /// The Python package.
    Python,
    /// A copy on another machine.
    Replication,
    /// The same work by others.
    Compare,
}

/// What to measure.
pub struct Plan {
    /// How many runs.
    pub runs: u32,
    /// These parts.
    pub parts: Vec<Part>,
    /// Where journals are made, and removed again.
    pub folder: PathBuf,
    /// The size of the journal that is reopened, in GiB.
    pub large_gib: u64,
    /// Raised when somebody wants no more: what is being measured is the last.
    pub stop: Arc<AtomicBool>,
    /// With what to compare, beside what is always there.
    pub peers: Vec<Box<dyn Peer>>,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// The median of the runs.
    pub median: f64,
    /// Its unit.
    pub unit: &'static str,
    /// What we want to reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aim: Option<&'static str>,
    /// Every run.
    pub runs: Vec<f64>,
}

/// All figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// In the order in which they were measured.
    pub rows: Vec<Row>,
    /// What could not be measured, and why.
    pub missing: Vec<String>,
}

impl Figures {
    /// Add what one run gave for a row.
    pub(crate) fn add(
        &mut self,
        name: &str,
        value: f64,
        unit: &'static str,
        aim: Option<&'static str>,
    ) {
        let known = self.rows.iter_mut().find(|row| row.name == name);
        match known {
            Some(row) => row.runs.push(value),
            None => self.rows.push(Row {
                name: name.to_owned(),
                median: value,
                unit,
                aim,
                runs: vec![value],
            }),
        }
    }

    fn miss(&mut self, why: String) {
        if !self.missing.contains(&why) {
            self.missing.push(why);
        }
    }
}

/// Why a benchmark could not be run.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;

/// Measure.
///
/// # Errors
/// A journal or a process that fails.
pub fn run(plan: &Plan) -> Result<Figures, Fault> {
    let mut figures = Figures::default();
    let has = |part| {
        let wanted = plan.parts.is_empty() || plan.parts.contains(&part);
        wanted && !plan.stop.load(Ordering::Relaxed)
    };
    let large = match has(Part::Recovery) {
        true => Some(recovery::Large::make(&plan.folder, plan.large_gib)?),
        false => None,
    };
    for number in 0..plan.runs {
        if has(Part::Speed) {
            speed::run(&plan.folder, &mut figures)?;
        }
        if has(Part::Processes) {
            bare::run(&mut figures)?;
            process::run(&plan.folder, &mut figures)?;
            latency::run(&plan.folder, &mut figures)?;
        }
        if has(Part::Growing) {
            growing::run(&plan.folder, number, &mut figures)?;
        }
        if has(Part::Durable) {
            durable::run(&plan.folder, &mut figures)?;
        }
        if let Some(large) = &large {
            recovery::run(&plan.folder, large, &mut figures)?;
        }
        if has(Part::Replication) {
            replication::run(&plan.folder, &mut figures)?;
        }
        if has(Part::Python) {
            python::run(&plan.folder, &mut figures)?;
        }
        if has(Part::Compare) {
            compare::run(&plan.folder, &plan.peers, &mut figures)?;
        }
    }
    for row in &mut figures.rows {
        row.median = row.runs[median_index(&row.runs)];
    }
    Ok(figures)
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<66} {:>10}   aim", "", "median")?;
        for row in &self.rows {
            let value = match row.median {
                value if value >= 1e4 => format!("{value:.0}"),
                value if value >= 10.0 => format!("{value:.1}"),
                value => format!("{value:.3}"),
            };
            let aim = row.aim.unwrap_or("");
            write!(f, "\n{:<58} {value:>12} {:<9} {aim}", row.name, row.unit)?;
        }
        for why in &self.missing {
            write!(f, "\nnot measured: {why}")?;
        }
        Ok(())
    }
}
