//! Journals measured, and beside them, in the same run, the usual alternatives.
//!
//! Every figure is the median of several runs. In each run every row is measured once, one after the other, so that
//! slow phases of the machine meet all rows. Rows of several processes are measured with several processes.

mod bare;
mod compare;
mod durable;
mod figures;
mod fjall;
mod growing;
mod idle;
mod latency;
mod peer;
mod player;
mod process;
mod python;
mod recovery;
mod replication;
pub mod role;
mod speed;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use self::figures::{Fault, Figures};

/// What can be measured on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Appending and reading in one process.
    Speed,
    /// Two and more processes: rate, latency, several writers.
    Processes,
    /// Segments that grow, beside segments of one size.
    Growing,
    /// Open journals to which nothing is appended.
    Idle,
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
    /// Raised to end the benchmark after what is being measured.
    pub stop: Arc<AtomicBool>,
}

/// Measures every part of the plan.
pub fn run(plan: &Plan) -> Result<Figures, Fault> {
    let mut figures = Figures::default();
    let has = |part| {
        let wanted = plan.parts.is_empty() || plan.parts.contains(&part);
        wanted && !plan.stop.load(Ordering::Relaxed)
    };
    let large = if has(Part::Recovery) {
        Some(recovery::Large::make(&plan.folder, plan.large_gib)?)
    } else {
        None
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
        if has(Part::Idle) {
            idle::run(&plan.folder, &mut figures)?;
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
            compare::run(&plan.folder, &mut figures)?;
        }
    }
    figures.take_medians();
    Ok(figures)
}
