//! Typed calls over a journal, from one process to another: an order of 28 FIX fields, and a single integer.
//!
//! The publisher has a schedule and never waits for the consumer. Latency runs from the moment at which a call was due
//! to the moment at which the consumer's method has read every field into a digest. The consumer is this program again,
//! with a hidden verb.

mod both;
mod chronicle;
mod digest;
mod order;
mod ours;
mod plan;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use millstream_journal::chain;
use millstream_wire::Cause;
use serde::Serialize;

use self::both::Consumed;
use self::chronicle::{Chronicle, Style};
pub use self::order::What;
pub use self::ours::consume;
pub use self::plan::Plan;
use crate::figures::{Latency, median_index};

/// The runs of one of the systems that are compared.
#[derive(Debug, Clone, Serialize)]
struct Series {
    name: String,
    /// The median of each percentile.
    latency: Latency,
    /// The median of the calls per second.
    rate: f64,
    runs: Vec<Consumed>,
}

impl Series {
    fn of(name: String, runs: Vec<Consumed>) -> Self {
        let latencies: Vec<&Latency> = runs.iter().map(|run| &run.latency).collect();
        let rates: Vec<f64> = runs.iter().map(|run| run.rate).collect();
        Series {
            latency: Latency::median_of(&latencies),
            rate: rates.get(median_index(&rates)).copied().unwrap_or(0.0),
            name,
            runs,
        }
    }
}

/// What was measured: every figure the median of several runs.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    what: What,
    /// Whether both ends were Python.
    python: bool,
    /// The requested calls per second; 0 for as many as possible.
    asked: f64,
    #[serde(flatten)]
    ours: Series,
    /// What took turns with ours.
    others: Vec<Series>,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Latency::heading())?;
        for series in std::iter::once(&self.ours).chain(&self.others) {
            write!(f, "\n{}", series.latency.row(&series.name))?;
        }
        for series in std::iter::once(&self.ours).chain(&self.others) {
            write!(f, "\n{}: consumed {:.0} calls/s", series.name, series.rate)?;
        }
        Ok(())
    }
}

/// Runs a measurement several times.
pub fn run(plan: &Plan, runs: u32, stop: &AtomicBool) -> Result<Option<Figures>, String> {
    let chronicle = if plan.chronicle {
        Some(Chronicle::prepare()?)
    } else {
        None
    };
    let mut ours = Vec::new();
    let mut theirs = Style::ALL.map(|_| Vec::new());
    for _ in 0..runs {
        if stop.load(Relaxed) {
            break;
        }
        ours.push(in_folder(plan, |folder| {
            ours::publish_and_consume(plan, folder, stop)
        })?);
        let Some(chronicle) = &chronicle else {
            continue;
        };
        for (style, runs) in Style::ALL.into_iter().zip(&mut theirs) {
            runs.push(in_folder(plan, |folder| {
                chronicle.publish_and_consume(plan, style, folder, stop)
            })?);
        }
    }
    if ours.is_empty() {
        return Ok(None);
    }
    let others = Style::ALL.into_iter().zip(theirs);
    let others = others.filter(|(_, runs)| !runs.is_empty());
    Ok(Some(Figures {
        what: plan.what,
        python: plan.python,
        asked: plan.rate,
        ours: Series::of(plan.name(), ours),
        others: others
            .map(|(style, runs)| Series::of(style.name().to_owned(), runs))
            .collect(),
    }))
}

/// Measures in a folder that is removed again: a measurement of many gigabytes leaves no files.
fn in_folder(
    plan: &Plan,
    measure: impl FnOnce(&Path) -> Result<Consumed, Cause>,
) -> Result<Consumed, String> {
    let folder = plan
        .folder
        .join(format!("millstream-bench-service-{}", std::process::id()));
    let measured = measure(&folder);
    let removed = std::fs::remove_dir_all(&folder);
    let measured = measured.map_err(|cause| chain(&*cause).to_string())?;
    removed.map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(measured)
}
