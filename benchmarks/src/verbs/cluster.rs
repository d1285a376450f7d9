//! `millstream-bench cluster`.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use clap::ValueEnum;
use millstream_cli::failure::Failure;
use millstream_cli::report;

use crate::cluster::{self, Part, Plan, Role};
use crate::programs;

/// The options of `millstream-bench cluster`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  millstream-bench cluster --only exchange --only hop\n  millstream-bench cluster --python --only kill"
)]
pub struct Args {
    /// How many runs of each; every figure is their median.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Measure this part only; may be given several times.
    #[arg(long, value_name = "PART", value_enum)]
    only: Vec<Part>,
    /// Seconds that each run takes, about.
    #[arg(long, value_name = "T", default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// Where state and sockets are kept, and removed again [default: the system's folder for temporary files].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Measure flows in Python: a step, a kill, another number of processes; needs the Python package.
    #[arg(long)]
    python: bool,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// Measures.
pub fn run(args: Args) -> Result<(), Failure> {
    for part in &args.only {
        if part.is_of_python() && !args.python {
            let name = name_of(*part);
            return Err(Failure::usage(format!("--only {name} needs --python")));
        }
    }
    if args.python {
        return Err(exec_python(&args));
    }
    let plan = Plan {
        runs: args.runs,
        seconds: args.seconds,
        parts: args.only,
        folder: args.folder.unwrap_or_else(std::env::temp_dir),
    };
    let figures = cluster::run(&plan).map_err(Failure::failed)?;
    report::print(&figures, figures.to_string().trim_end(), args.json)
}

/// Runs one process of a measurement.
pub fn peer(role: &Role) -> Result<(), Failure> {
    let outcome = cluster::play(role).map_err(Failure::failed)?;
    report::print(&outcome, "", true)
}

fn name_of(part: Part) -> String {
    let value = part.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Becomes the benchmark in Python; returns only if that fails.
fn exec_python(args: &Args) -> Failure {
    let mut words = vec!["--runs".to_owned(), args.runs.to_string()];
    for part in &args.only {
        words.extend(["--only".to_owned(), name_of(*part)]);
    }
    words.extend(args.json.then(|| "--json".to_owned()));
    let error = programs::python_module("cluster").command(&words).exec();
    Failure::failed(format!("cannot start Python: {error}"))
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds, from 0.01 to 60".to_owned()),
    }
}
