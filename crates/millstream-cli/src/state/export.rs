//! `millstream state export`: all keys with their states, as lines of JSON.

use std::path::PathBuf;

use super::saved::SavedState;
use super::shown;
use super::shown::ShowState;
use crate::journal::output::Output;
use crate::outcome::Outcome;
use crate::stop::Stop;

/// The options of `millstream state export`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Each line has the step, the key, its shard, how its state is written and how long it is, and the state: as \
                  \"state\" where it is plain data; else as \"repr\", where the program runs in Python and Python wrote it; else as \
                  \"hex\".\n\nExample:\n  millstream state export state/ --step count --out count.jsonl"
)]
pub(super) struct Args {
    /// The state directory of a flow.
    dir: PathBuf,
    /// Only this step.
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
    /// The file to write [default: standard output].
    #[arg(long, short = 'o', value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Write them.
pub(super) fn run(args: &Args, show: ShowState, stop: &Stop) -> Outcome {
    let mut state = SavedState::open(&args.dir)?;
    let steps = state.steps(args.step.as_deref())?;
    state.expect(steps.len(), args.out.is_some());
    let mut out = Output::open(args.out.as_deref())?;
    for step in &steps {
        let layout = state.layout(step);
        for saved in state.keys(step)? {
            if stop.requested() {
                return out.flush();
            }
            out.line(shown::line(step, &saved, &layout, show))?;
        }
    }
    out.flush()
}
