//! The `millstream` program: a verb per file.
//!
//! Every verb exits 0 on success, 2 on bad usage, 1 on failure with one line `millstream VERB: ...` on stderr, which is an
//! object of JSON under `--log json`. Reports go to stdout, as JSON where `--json` is given. Ctrl-C is no failure: what
//! was done is reported. So is a reader of stdout that ends early.
//!
//! A verb is a file with `Args` (its help is the user's manual) and `run(Args) -> Result<(), Failure>`, one variant of
//! `Verb` and one arm of `Verb::run`. A verb that is Python is an entry in `external`.

#![deny(clippy::print_stdout)]

#[doc(hidden)] // For the other crates of Millstream.
pub mod address;
mod bench;
mod completions;
#[doc(hidden)] // For the other crates of Millstream.
pub mod data;
mod doctor;
mod external;
#[doc(hidden)] // For the other crates of Millstream.
pub mod failure;
mod generate;
mod journal;
mod log;
mod man;
mod moment;
mod outcome;
mod page;
mod progress;
#[doc(hidden)] // For the other crates of Millstream.
pub mod python;
mod queue;
mod receive;
#[doc(hidden)] // For the other crates of Millstream.
pub mod report;
mod scale;
mod send;
mod state;
#[doc(hidden)] // For the other crates of Millstream.
pub mod stop;
mod top;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use millstream_journal::named::{Face, name_options_of};

use self::failure::Failure;
pub use self::state::shown::ShowState;

/// Durable, microsecond event processing.
#[derive(Parser)]
#[command(name = "millstream", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show what of this machine matters: file system, syncs, limits, clock, ports, Python.
    Doctor(doctor::Args),
    /// Run a benchmark of the separate program millstream-bench.
    Bench(bench::Args),
    /// Show a running flow in the terminal.
    Top(top::Args),
    /// Show journals, state directories and queues on the disk on a page.
    Watch(watch::Args),
    /// Send messages to a socket on a schedule that never waits for the receiver.
    Send(send::Args),
    /// Receive messages from sockets: count them, check them, write them to a file.
    Receive(receive::Args),
    /// Write a file of test data.
    Generate(generate::Args),
    /// Divide the state of a flow among another number of processes.
    Scale(scale::Args),
    /// Look into the state that a flow has saved.
    State(state::Args),
    /// Look into journals, append to them, move their records.
    Journal(journal::Args),
    /// Durable queues for any memcache client: serve them, look into them, use them.
    Queue(queue::Args),
    /// Print the completions of a shell.
    Completions(completions::Args),
    /// Write the man pages.
    Man(man::Args),
}

impl Verb {
    fn run(self, show: ShowState) -> (&'static str, Result<(), Failure>) {
        match self {
            Self::Doctor(args) => ("doctor", doctor::run(&args)),
            Self::Bench(args) => ("bench", Err(bench::run(&args))),
            Self::Top(args) => ("top", top::run(&args)),
            Self::Watch(args) => ("watch", watch::run(args)),
            Self::Send(args) => ("send", send::run(args)),
            Self::Receive(args) => ("receive", receive::run(args)),
            Self::Generate(args) => ("generate", generate::run(&args)),
            Self::Scale(args) => ("scale", scale::run(&args)),
            Self::State(args) => state::run(args, show),
            Self::Journal(args) => journal::run(args),
            Self::Queue(args) => queue::run(args),
            Self::Completions(args) => ("completions", completions::run(&args, &mut described())),
            Self::Man(args) => ("man", man::run(&args, described())),
        }
    }
}

/// The whole program, with the verbs that are Python and their options.
fn described() -> clap::Command {
    external::describe(Cli::command())
}

/// Run the program with these arguments, the first of which is its name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    main_showing(args, |_, _| None)
}

/// As [`main`], in a program that can show states of another language.
pub fn main_showing(args: impl IntoIterator<Item = OsString>, show: ShowState) -> ExitCode {
    name_options_of(Face::CommandLine);
    let chosen = external::add(Cli::command()).try_get_matches_from(args);
    if let Ok(chosen) = &chosen {
        log::note_format(chosen);
    }
    let external = chosen.as_ref().ok().and_then(external::run);
    let (verb, outcome) = match (external, chosen) {
        (Some((verb, failure)), _) => (verb, Err(failure)),
        (None, chosen) => match chosen.and_then(|chosen| Cli::from_arg_matches(&chosen)) {
            Ok(cli) => cli.verb.run(show),
            Err(error) => {
                // Help and version come here too, with exit code 0. A closed stdout is not worth an error.
                let _ = error.print();
                return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
            }
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure.print("millstream", verb)),
    }
}
