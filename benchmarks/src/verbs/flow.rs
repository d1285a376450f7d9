//! `millstream-bench flow`.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use clap::ValueEnum;
use millstream_cli::failure::Failure;
use millstream_cli::report;
use serde::Serialize;

use crate::flow::{self, Part, Plan};
use crate::idle::{self, Idle};
use crate::programs;

/// The options of `millstream-bench flow`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  millstream-bench flow --only recovery --only resume\n  millstream-bench flow --python --only steps"
)]
pub struct Args {
    /// How many runs; every figure is their median.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Measure this part only; may be given several times.
    #[arg(long, value_name = "PART", value_enum)]
    only: Vec<Part>,
    /// Where state is kept, and removed again [default: the system's folder for temporary files].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Measure flows in Python, beside plain loops that do the same; needs the Python package.
    #[arg(long, conflicts_with_all = ["runs", "folder"])]
    python: bool,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// All figures.
#[derive(Serialize)]
struct Figures {
    #[serde(flatten)]
    steps: flow::Figures,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle: Option<Idle>,
}

/// Measures.
pub fn run(args: Args) -> Result<(), Failure> {
    if args.python {
        return Err(exec_python(&args));
    }
    for (part, name) in [(Part::Wake, "wake"), (Part::Adapter, "adapter")] {
        if args.only.contains(&part) {
            return Err(Failure::usage(format!("--only {name} needs --python")));
        }
    }
    let plan = Plan {
        runs: args.runs,
        folder: args.folder.unwrap_or_else(std::env::temp_dir),
        parts: args.only,
    };
    let steps = flow::run(&plan).map_err(Failure::failed)?;
    let idle = if plan.has(Part::Idle) {
        Some(idle::run(idle::WATCHED, idle::SAMPLES).map_err(Failure::failed)?)
    } else {
        None
    };
    let of_idle = idle.as_ref().map(ToString::to_string).unwrap_or_default();
    let text = format!("{steps}{}", of_idle.trim_end());
    report::print(&Figures { steps, idle }, text.trim_end(), args.json)
}

/// Becomes the benchmark in Python; returns only if that fails.
fn exec_python(args: &Args) -> Failure {
    let mut words = Vec::new();
    for part in &args.only {
        let name = part
            .to_possible_value()
            .map(|value| value.get_name().to_owned());
        words.extend(["--only".to_owned(), name.unwrap_or_default()]);
    }
    words.extend(args.json.then(|| "--json".to_owned()));
    let error = programs::python_module("flow").command(&words).exec();
    Failure::failed(format!("cannot start Python: {error}"))
}
