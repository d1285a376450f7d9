//! `millstream state`: looking into the state that a flow has saved, without the flow, and copies of it on other
//! machines.
//!
//! A verb per file. All see the state as of the last commit when they began; a flow that is at work on the
//! directory is not disturbed. How keys and states look is in [`shown`].

mod copy;
mod export;
mod follow;
mod get;
mod info;
mod keys;
mod promote;
mod saved;
pub(crate) mod shown;

use clap::Subcommand;

use self::shown::ShowState;
use crate::failure::Failure;
use crate::outcome;
use crate::stop::Stop;

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
    /// Copy the state as of one commit, also while the flow runs.
    Copy(copy::Args),
    /// Keep a live copy of the state of a flow on another machine.
    Follow(follow::Args),
    /// Make a copy the state, after its machine was lost.
    Promote(promote::Args),
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
        Verb::Copy(args) => ("state copy", copy::run(&args)),
        Verb::Follow(args) => ("state follow", follow::run(args, &stop)),
        Verb::Promote(args) => ("state promote", promote::run(&args)),
    };
    (name, outcome::finish(outcome))
}
