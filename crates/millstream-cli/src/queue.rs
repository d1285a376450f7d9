//! `millstream queue`: a server of durable queues, and verbs that talk to one.
//!
//! A verb per file. All but `serve`, `follow`, `promote`, `rejoin`, `import` and `salvage` are clients, by the protocol
//! that any memcache client speaks, so that they work with other servers of queues too.

mod client;
mod follow;
mod get;
mod group;
mod import;
mod line;
mod list;
mod manage;
mod promote;
mod put;
mod salvage;
mod secure;
mod serve;
mod signals;
mod stats;
mod systemd;

use clap::Subcommand;

use crate::failure::Failure;
use crate::outcome;

/// The options of `millstream queue`.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Serve the queues in a folder to any memcache client.
    Serve(Box<serve::Args>),
    /// List the queues of a server: items, bytes, waiting clients.
    List(list::Args),
    /// Tell the numbers of a server or of one queue.
    Stats(stats::Args),
    /// Print the next item of a queue, which stays.
    Peek(get::PeekArgs),
    /// Take items from a queue and print them; each is confirmed when it is printed.
    Get(get::Args),
    /// Take all items from a queue and print them.
    Drain(get::DrainArgs),
    /// Put items into a queue: an argument, or each line of standard input.
    Put(put::Args),
    /// Remove a queue with all its items, also a damaged one.
    Delete(manage::DeleteArgs),
    /// Remove all items of a queue.
    Flush(manage::FlushArgs),
    /// Take the oldest items of a queue away for good, without printing them.
    Confirm(manage::ConfirmArgs),
    /// Tell or change what a server does: everything, no sets, no sets and gets.
    Status(manage::StatusArgs),
    /// Let a server read its configuration, passwords and certificates again.
    Reload(manage::ReloadArgs),
    /// Move items from one queue to another: dead letters back.
    Redrive(manage::RedriveArgs),
    /// Read what can be read of a damaged queue, into a new one.
    Salvage(salvage::Args),
    /// Keep a live copy of the queues of a server on another machine.
    Follow(follow::Args),
    /// Make a copy the queues, after their machine was lost.
    Promote(promote::Args),
    /// Make the queues of an old server a copy of those of the new one.
    Rejoin(promote::RejoinArgs),
    /// Take over the queues of a Starling or Kestrel server from its files.
    Import(import::Args),
}

/// Do it. Gives the verb's name as well, for the message of a failure.
pub(super) fn run(args: Args) -> (&'static str, Result<(), Failure>) {
    match args.verb {
        Verb::Serve(args) => ("queue serve", serve::run(*args)),
        Verb::List(args) => ("queue list", list::run(&args)),
        Verb::Stats(args) => ("queue stats", stats::run(&args)),
        Verb::Peek(args) => ("queue peek", get::peek(&args)),
        Verb::Get(args) => ("queue get", get::run(&args)),
        Verb::Drain(args) => ("queue drain", get::drain(&args)),
        Verb::Put(args) => ("queue put", put::run(&args)),
        Verb::Delete(args) => ("queue delete", manage::delete(&args)),
        Verb::Flush(args) => ("queue flush", manage::flush(&args)),
        Verb::Confirm(args) => ("queue confirm", manage::confirm(&args)),
        Verb::Status(args) => ("queue status", manage::status(&args)),
        Verb::Reload(args) => ("queue reload", manage::reload(&args)),
        Verb::Redrive(args) => ("queue redrive", manage::redrive(&args)),
        Verb::Salvage(args) => ("queue salvage", salvage::run(&args)),
        Verb::Follow(args) => ("queue follow", outcome::finish(follow::run(args))),
        Verb::Promote(args) => ("queue promote", outcome::finish(promote::promote(args))),
        Verb::Rejoin(args) => ("queue rejoin", outcome::finish(promote::rejoin(args))),
        Verb::Import(args) => ("queue import", import::run(&args)),
    }
}
