//! `millstream state get`: the state of a key.

use std::path::PathBuf;

use super::saved::SavedState;
use super::shown;
use super::shown::ShowState;
use crate::journal::output::Output;
use crate::outcome::Outcome;

/// The options of `millstream state get`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "KEY is written as `millstream state keys` shows it; the quotes of text may be left out.\n\nExamples:\n  \
                  millstream state get state/ count the\n  millstream state get state/ count '(\"IBM\", 7)' --json"
)]
pub(super) struct Args {
    /// The state directory of a flow.
    dir: PathBuf,
    /// The name of the step.
    step: String,
    /// The key.
    #[arg(allow_hyphen_values = true)]
    key: String,
    /// A line of JSON.
    #[arg(long)]
    json: bool,
}

/// Show it.
pub(super) fn run(args: &Args, show: ShowState) -> Outcome {
    let mut state = SavedState::open(&args.dir)?;
    state.steps(Some(&args.step))?;
    state.expect(1, false);
    let keys = state.keys(&args.step)?;
    let layout = state.layout(&args.step);
    state.progress = None;
    let mut out = Output::stdout();
    let mut found = false;
    for saved in &keys {
        let key = shown::key(saved);
        // Text and a number may state alike: then both are shown.
        if shown::plain(&key) != args.key && key.to_string() != args.key {
            continue;
        }
        found = true;
        if args.json {
            out.line(shown::line(&args.step, saved, &layout, show))?
        } else {
            out.line(format_args!(
                "{key}: {}",
                shown::state(saved, &layout, show)
            ))?
        }
    }
    if !found {
        let step = &args.step;
        let key = &args.key;
        let dir = args.dir.display();
        return Err(format!("state in {dir}: step \"{step}\" has no state of key {key}").into());
    }
    out.flush()
}
