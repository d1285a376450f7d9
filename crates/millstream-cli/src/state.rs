//! `millstream state`: looking into the state that a flow has saved, without the flow.
//!
//! A verb per file. All see the state as of the last commit when they began; a flow that is at work on the
//! directory is not disturbed. How keys and states look is in [`shown`].

mod export;
mod get;
mod info;
mod keys;
mod shown;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use millstream_flow::FlowError;
use millstream_flow::checkpoint::{Saved, SavedKey};

use super::journal::progress::Progress;
use super::journal::{End, Outcome};
use super::stop::Stop;
use super::{Failure, ShowState};

/// The options of `millstream state`.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Tell what was saved: the last commit, steps with their keys, sources, sinks.
    Info(info::Args),
    /// List the keys of a step.
    Keys(keys::Args),
    /// Show the state of a key.
    Get(get::Args),
    /// Write all keys with their states as lines of JSON.
    Export(export::Args),
}

/// Do it. Gives the verb's name as well, for the message of a failure.
pub(super) fn run(args: Args, show: ShowState) -> (&'static str, Result<(), Failure>) {
    let stop = match Stop::on_signals() {
        Ok(stop) => stop,
        Err(failure) => return ("state", Err(failure)),
    };
    let (name, outcome) = match args.verb {
        Verb::Info(args) => ("state info", info::run(&args)),
        Verb::Keys(args) => ("state keys", keys::run(&args, &stop)),
        Verb::Get(args) => ("state get", get::run(&args, show)),
        Verb::Export(args) => ("state export", export::run(&args, show, &stop)),
    };
    match outcome {
        Ok(()) | Err(End::ReaderGone) => (name, Ok(())),
        Err(End::Failed(failure)) => (name, Err(failure)),
    }
}

impl From<FlowError> for End {
    fn from(error: FlowError) -> Self {
        End::Failed(Failure::failed(error))
    }
}

/// A state directory that is looked into.
struct Look {
    dir: PathBuf,
    saved: Saved,
    progress: Option<Progress>,
}

impl Look {
    fn open(dir: &Path) -> Outcome<Self> {
        Ok(Look {
            dir: dir.to_owned(),
            saved: Saved::open(dir)?,
            progress: None,
        })
    }

    /// Shows on a terminal how far the reading of so many steps is, unless lines go there.
    fn expect(&mut self, steps: usize, lines_to_file: bool) {
        if lines_to_file || !std::io::stdout().is_terminal() {
            let parts = steps * Saved::PARTS;
            self.progress = Some(Progress::new(parts as u64, "parts"));
        }
    }

    /// The names of the steps that have state, or of the one that is asked for.
    fn steps(&self, only: Option<&str>) -> Outcome<Vec<String>> {
        let all: Vec<String> = self.saved.steps().map(str::to_owned).collect();
        let Some(only) = only else {
            return Ok(all);
        };
        if all.iter().any(|step| step == only) {
            return Ok(vec![only.to_owned()]);
        }
        let others = match &all[..] {
            [] => "no step has any".to_owned(),
            steps => format!("those that have are \"{}\"", steps.join("\", \"")),
        };
        let dir = self.dir.display();
        Err(format!("state in {dir}: no step \"{only}\" has state; {others}").into())
    }

    /// All keys of a step, in the order in which the step met them.
    fn keys(&mut self, step: &str) -> Outcome<Vec<SavedKey>> {
        let mut keys = Vec::new();
        for part in 0..Saved::PARTS {
            keys.extend(self.saved.part(step, part, |_| true)?);
            self.progress.iter_mut().for_each(Progress::next);
        }
        keys.sort_by(|a: &SavedKey, b| (a.born, &a.key).cmp(&(b.born, &b.key)));
        Ok(keys)
    }
}
