//! Single steps of Rust flows, measured in items per second, what a second worker brings, and what recovery
//! costs.

mod cases;
mod recovery;
mod words;

use std::path::PathBuf;

use clap::ValueEnum;
use millstream_flow::{Emit, Flow, FlowError, Options};
use serde::Serialize;

pub(crate) use self::cases::costly;
use self::cases::{CASES, median, numbers, seconds, swallow};
use self::recovery::Cost;
use self::words::WordCount;

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// The median of the runs, in items per second.
    pub items_per_second: f64,
}

/// A part of `millstream-bench flow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Single steps.
    Steps,
    /// Two workers beside one.
    Workers,
    /// Word count beside the same by hand for `timely`.
    Words,
    /// Recovery beside none.
    Recovery,
    /// The time until a flow with saved state resumes.
    Resume,
    /// An idle flow: its CPU, its wake-up.
    Idle,
    /// The wake-up of a source written in Python; only with --python.
    Wake,
    /// Generators as sources in Python; only with --python.
    Adapter,
}

/// A measurement.
pub struct Plan {
    /// How many runs; every figure is their median.
    pub runs: u32,
    /// These parts only, or all.
    pub parts: Vec<Part>,
    /// Where state is kept meanwhile.
    pub folder: PathBuf,
}

impl Plan {
    /// Whether a part is measured.
    pub fn has(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }
}

/// All figures of `millstream-bench flow`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Single steps on one worker.
    pub steps: Vec<Figure>,
    /// The rate of two workers over that of one, on a step that costs CPU; the median of the
    /// ratios of pairs of runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub two_workers_ratio: Option<f64>,
    /// Word count beside the same by hand.
    pub words: Vec<WordCount>,
    /// What recovery costs.
    pub recovery: Vec<Cost>,
    /// From the start of a flow with a million keys of 100 bytes to its first output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_seconds: Option<f64>,
}

type Fault = Box<dyn std::error::Error + Send + Sync>;

/// Measures the parts of the plan, each figure the median of its runs.
pub fn run(plan: &Plan) -> Result<Figures, Fault> {
    let mut figures = Figures::default();
    if plan.has(Part::Steps) {
        for (name, count, make) in CASES {
            let flow = make(count);
            let runs = (0..plan.runs).map(|_| seconds(&flow, Options::default()));
            let times: Result<Vec<f64>, _> = runs.collect();
            figures.steps.push(Figure {
                name: name.to_owned(),
                items_per_second: count as f64 / median(&times?),
            });
        }
    }
    if plan.has(Part::Workers) {
        figures.two_workers_ratio = Some(two_workers_ratio(plan.runs)?);
    }
    if plan.has(Part::Words) {
        figures.words = words::counts(plan.runs, &plan.folder)?;
    }
    if plan.has(Part::Recovery) {
        figures.recovery = recovery::costs(plan.runs, &plan.folder)?;
    }
    if plan.has(Part::Resume) {
        figures.resume_seconds = Some(recovery::resume(plan.runs, &plan.folder)?);
    }
    Ok(figures)
}

fn two_workers_ratio(runs: u32) -> Result<f64, FlowError> {
    let flow = Flow::new("costly");
    let sums = numbers(&flow, 2_000_000, 2, 256)
        .map(costly)
        .key_by(|n| n % 64)
        .count(Emit::End);
    swallow(&sums.items());
    let mut ratios = Vec::new();
    for _ in 0..runs {
        let one = seconds(&flow, Options::workers(1))?;
        ratios.push(one / seconds(&flow, Options::workers(2))?);
    }
    Ok(median(&ratios))
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for figure in &self.steps {
            writeln!(
                f,
                "{:<36} {:>8.2} M items/s",
                figure.name,
                figure.items_per_second / 1e6
            )?;
        }
        if let Some(ratio) = self.two_workers_ratio {
            let what = "two workers against one, costly map";
            writeln!(f, "{what:<36} {ratio:>8.2} x")?;
        }
        for words in &self.words {
            writeln!(
                f,
                "word count, {} workers: {:>8.2} M words/s, by hand {:>8.2}: {:.2} times its time",
                words.workers,
                words.flow / 1e6,
                words.timely / 1e6,
                words.ratio
            )?;
        }
        for cost in &self.recovery {
            writeln!(
                f,
                "recovery: {:<36} {:>8.2} M items/s without, {:>8.2} with: {:.1} % slower",
                cost.name,
                cost.off / 1e6,
                cost.on / 1e6,
                cost.slower_percent
            )?;
        }
        if let Some(seconds) = self.resume_seconds {
            let what = "resume, 1,000,000 keys of 100 bytes";
            writeln!(f, "{what:<36} {seconds:>8.2} s to the first output")?;
        }
        Ok(())
    }
}
