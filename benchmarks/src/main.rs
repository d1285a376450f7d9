//! The benchmarks of Millstream: `millstream-bench NAME`.
//!
//! Each benchmark has its options in [`verbs`] and its measurements in the module of its name. The shipped program
//! knows none of them: `millstream bench NAME` starts this one. Other systems at the same work (Redis, SQLite, fjall,
//! Chronicle Queue) are measured here too.
//!
//! ```text
//! cargo run --release --manifest-path benchmarks/Cargo.toml -- journal --only speed --runs 5 --json
//! ```

mod cluster;
mod embedded;
mod figures;
mod flow;
mod http;
mod idle;
mod journal;
mod market_spread;
mod program;
mod programs;
mod queue;
mod scratch;
mod service;
mod verbs;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use millstream_cli::failure::Failure;

/// Measure Millstream, and other systems at the same work.
#[derive(Parser)]
#[command(name = "millstream-bench", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Two TCP streams, state by symbol, results over TCP; internal and end-to-end latency.
    MarketSpread(verbs::market_spread::Args),
    /// Journals: rate, latency, durability, recovery, and the same work by SQLite, fjall and plain files.
    Journal(verbs::journal::Args),
    /// The other process of `journal`.
    #[command(hide = true, subcommand)]
    JournalPeer(journal::role::Role),
    /// Single steps of flows, the gain of a second worker, the cost of recovery and of an idle flow.
    Flow(verbs::flow::Args),
    /// Typed calls over a journal, from one process to another.
    Service(verbs::service::Args),
    /// The other process of `service`.
    #[command(hide = true)]
    ServiceConsumer(verbs::service::ConsumerArgs),
    /// The source `http.listen`: small POST requests over connections that stay, each answered when it is recorded.
    Http(verbs::http::Args),
    /// The flow of `http`.
    #[command(hide = true)]
    HttpServer(verbs::http::ServerArgs),
    /// Flows on two processes: a step, an exchange, a hop, commits, idle processes; in Python also a kill and a
    /// rescale.
    Cluster(verbs::cluster::Args),
    /// One process of `cluster`.
    #[command(hide = true)]
    ClusterPeer(cluster::Role),
    /// The queue server: sets and gets over sockets, memory with a backlog, restart.
    Queue(verbs::queue::Args),
}

impl Verb {
    fn run(self) -> (&'static str, Result<(), Failure>) {
        match self {
            Self::MarketSpread(args) => ("market-spread", verbs::market_spread::run(&args)),
            Self::Journal(args) => ("journal", verbs::journal::run(args)),
            Self::JournalPeer(role) => ("journal-peer", verbs::journal::peer(&role)),
            Self::Flow(args) => ("flow", verbs::flow::run(args)),
            Self::Service(args) => ("service", verbs::service::run(&args)),
            Self::ServiceConsumer(args) => ("service-consumer", verbs::service::consumer(&args)),
            Self::Http(args) => ("http", verbs::http::run(&args)),
            Self::HttpServer(args) => ("http-server", verbs::http::serve(&args)),
            Self::Cluster(args) => ("cluster", verbs::cluster::run(args)),
            Self::ClusterPeer(role) => ("cluster-peer", verbs::cluster::peer(&role)),
            Self::Queue(args) => ("queue", verbs::queue::run(args)),
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if args.get(1).is_some_and(|verb| verb == programs::MILLSTREAM) {
        // The program itself, for the other processes of a benchmark.
        return millstream_cli::main(args.into_iter().skip(1));
    }
    let (verb, outcome) = Cli::parse_from(args).verb.run();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure.print("millstream-bench", verb)),
    }
}
