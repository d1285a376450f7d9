//! `millstream state keys`: the keys of a step.

use std::path::PathBuf;

use serde_json::Value;

use super::saved::SavedState;
use super::shown;
use crate::journal::output::Output;
use crate::outcome::Outcome;
use crate::stop::Stop;

/// The options of `millstream state keys`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Keys come in the order in which the step met them on each worker.\n\nExample:\n  \
                  millstream state keys state/ count --prefix th -n 20"
)]
pub(super) struct Args {
    /// The state directory of a flow.
    dir: PathBuf,
    /// The name of the step.
    step: String,
    /// Only keys that begin so.
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// At most so many.
    #[arg(long, short = 'n', value_name = "N", default_value_t = usize::MAX, hide_default_value = true)]
    limit: usize,
    /// A line of JSON for each, with its shard and the size of its state.
    #[arg(long)]
    json: bool,
}

/// List them.
pub(super) fn run(args: &Args, stop: &Stop) -> Outcome {
    let mut state = SavedState::open(&args.dir)?;
    state.steps(Some(&args.step))?;
    state.expect(1, false);
    let keys = state.keys(&args.step)?;
    state.progress = None;
    let mut out = Output::stdout();
    let wanted = keys.iter().filter(|saved| {
        let plain = shown::plain(&shown::key(saved));
        plain.starts_with(&args.prefix)
    });
    for saved in wanted.take(args.limit) {
        if stop.requested() {
            break;
        }
        if args.json {
            out.line(Value::Object(shown::head(saved)))?
        } else {
            out.line(shown::key(saved))?
        }
    }
    out.flush()
}
