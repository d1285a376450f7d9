//! The `millstream` program: a verb per file.
//!
//! Every verb exits 0 on success, 2 on bad usage, 1 on failure with one line `millstream VERB: ...` on stderr. Reports
//! go to stdout, as JSON where `--json` is given. Ctrl-C is no failure: what was done is reported.
//!
//! A verb is a file with `Args` (its help is the user's manual) and `run(Args) -> Result<(), Failure>`, one variant of
//! `Verb` and one arm of `Verb::run`.

#![deny(clippy::print_stdout)]

mod address;
#[expect(
    clippy::print_stdout,
    reason = "benchmarks belong to the program: their processes talk to each other over standard output"
)]
pub mod bench;
mod bench_verb;
pub mod data;
mod diff;
mod generate;
mod journal;
mod log;
pub mod market_spread;
mod queue;
pub mod random;
mod receive;
mod report;
mod run;
mod send;
mod service;
mod state;
mod stop;

use std::ffi::OsString;
use std::fmt::Display;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Durable, microsecond event processing.
#[derive(Parser)]
#[command(name = "millstream", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Market Spread, from generated data to a report.
    Demo(bench_verb::DemoArgs),
    /// Measure, with the figures that others published beside.
    Bench(bench_verb::Args),
    /// Run a flow that is written in Python.
    Run(run::Args),
    /// Compare what two flows make of the same recorded input.
    Diff(diff::Args),
    /// Run, test and replay services that are written in Python.
    Service(service::Args),
    /// Send messages to a socket on a schedule that never waits for the receiver.
    Send(send::Args),
    /// Receive messages from sockets: count them, check them, write them to a file.
    Receive(receive::Args),
    /// Write a file of test data.
    Generate(generate::Args),
    /// Look into the state that a flow has saved.
    State(state::Args),
    /// Look into journals, append to them, move their records.
    Journal(journal::Args),
    /// Durable queues for any memcache client: serve them, look into them, use them.
    Queue(queue::Args),
}

impl Verb {
    fn run(self, show: ShowState) -> (&'static str, Result<(), Failure>) {
        match self {
            Self::Demo(args) => ("demo", bench_verb::demo(&args)),
            Self::Bench(args) => ("bench", bench_verb::run(args)),
            Self::Run(args) => ("run", run::run(&args)),
            Self::Diff(args) => ("diff", diff::run(&args)),
            Self::Service(args) => ("service", service::run(&args)),
            Self::Send(args) => ("send", send::run(args)),
            Self::Receive(args) => ("receive", receive::run(args)),
            Self::Generate(args) => ("generate", generate::run(&args)),
            Self::State(args) => state::run(args, show),
            Self::Journal(args) => journal::run(args),
            Self::Queue(args) => queue::run(args),
        }
    }
}

/// Why a verb did not do what it was told.
#[derive(Debug)]
enum Failure {
    /// The options contradict each other: exit 2.
    Usage(String),
    /// It was tried, and failed: exit 1.
    Failed(String),
}

impl Failure {
    fn usage(message: impl Display) -> Self {
        Self::Usage(message.to_string())
    }

    fn failed(message: impl Display) -> Self {
        Self::Failed(message.to_string())
    }
}

/// Shows a state that another language wrote, given how it is written and its bytes; nothing when that is
/// none of its own.
pub type ShowState = fn(u8, &[u8]) -> Option<String>;

/// Run the program with these arguments, the first of which is its name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    main_showing(args, |_, _| None)
}

/// As [`main`], in a program that can show states of another language.
pub fn main_showing(args: impl IntoIterator<Item = OsString>, show: ShowState) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come here too, with exit code 0. A closed stdout is not worth an error.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let (verb, outcome) = cli.verb.run(show);
    let (message, code) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => (message, 2),
        Err(Failure::Failed(message)) => (message, 1),
    };
    eprintln!("millstream {verb}: {message}");
    ExitCode::from(code)
}
