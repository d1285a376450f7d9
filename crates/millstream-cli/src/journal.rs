//! `millstream journal`: looking into journals, writing to them, moving their records.
//!
//! A verb per file. All that print records share [`line`](self::line), all that take a part of a journal
//! [`range`](self::range), all that read records from outside [`input`](self::input). A reader of the output that goes
//! away ends a verb quietly, as Ctrl-C does.

mod append;
mod call;
mod cat;
mod copy;
mod export;
mod follow;
mod followers;
pub(super) mod following;
mod import;
mod info;
mod input;
pub(super) mod leader;
mod line;
mod open;
pub(super) mod output;
mod promote;
mod prune;
mod range;
pub(super) mod rejoin;
mod salvage;
mod serve;
mod tail;
mod verify;

use clap::Subcommand;

pub(crate) use self::line::decode;

use crate::failure::Failure;
use crate::outcome;
use crate::stop::Stop;

/// The options of `millstream journal`.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Tell what a journal holds: records, segments, times, cursors, writers.
    Info(info::Args),
    /// Print records: time, sequence number and body.
    Cat(cat::Args),
    /// Print the last records, and with -f those that come.
    Tail(tail::Args),
    /// Append what comes on standard input, a record for each line or frame.
    Append(append::Args),
    /// Read everything and name every damage by file and offset.
    Verify(verify::Args),
    /// Write records as lines of JSON.
    Export(export::Args),
    /// Append records from lines of JSON, as `export` writes them.
    Import(import::Args),
    /// Remove old records, whole segments at a time.
    Prune(prune::Args),
    /// Copy records into a new journal, with their numbers and times.
    Copy(copy::Args),
    /// Let followers on other machines keep live copies of journals.
    Serve(serve::Args),
    /// Keep a live copy of a journal of another machine.
    Follow(follow::Args),
    /// Tell which followers a journal has and which of them count, and let one count or forget it.
    Followers(followers::Args),
    /// Make copies leaders, in a new term, after their leader was lost.
    Promote(promote::Args),
    /// Make an old leader's journals copies of the new leader's.
    Rejoin(rejoin::Args),
}

/// Do it. Gives the verb's name as well, for the message of a failure.
pub(super) fn run(args: Args) -> (&'static str, Result<(), Failure>) {
    // Ctrl-C lets every verb come to an end of its own.
    let stop = match Stop::on_signals() {
        Ok(stop) => stop,
        Err(failure) => return ("journal", Err(failure)),
    };
    let (name, outcome) = match args.verb {
        Verb::Info(args) => ("journal info", info::run(&args)),
        Verb::Cat(args) => ("journal cat", cat::run(&args, &stop)),
        Verb::Tail(args) => ("journal tail", tail::run(&args, &stop)),
        Verb::Append(args) => ("journal append", append::run(&args, &stop)),
        Verb::Verify(args) => ("journal verify", verify::run(&args, &stop)),
        Verb::Export(args) => ("journal export", export::run(&args, &stop)),
        Verb::Import(args) => ("journal import", import::run(&args, &stop)),
        Verb::Prune(args) => ("journal prune", prune::run(&args)),
        Verb::Copy(args) => ("journal copy", copy::run(&args, &stop)),
        Verb::Serve(args) => ("journal serve", serve::run(args, &stop)),
        Verb::Follow(args) => ("journal follow", follow::run(args, &stop)),
        Verb::Followers(args) => ("journal followers", followers::run(&args)),
        Verb::Promote(args) => ("journal promote", promote::run(&args)),
        Verb::Rejoin(args) => ("journal rejoin", rejoin::run(args, &stop)),
    };
    (name, outcome::finish(outcome))
}
