//! Runs proofs for as long as one likes: `cargo run --release -p millstream-sim -- crash --seed 1 --seconds 60`.
//!
//! Each proof prints JSON lines, one for each promise, and the seed that repeats a failure; the exit status is 1 after
//! a failure.

use std::fmt::Debug;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use millstream_sim::bug::Bug;
use millstream_sim::cluster;
use millstream_sim::crash::{self, Broken, Kind, Tally};
use millstream_sim::queues;
use millstream_sim::report::{ReportLine, commit};

/// Seeded worlds that crash and damage a journal, or crash a server of queues.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    proof: Proof,
}

#[derive(Subcommand)]
enum Proof {
    /// Crashes of processes and losses of power; then the lying disk and the planted bugs, which must be found.
    Crash(Worlds),
    /// A server of queues that is killed, on a machine that loses power; then planted faults, which must be found.
    Queues(Worlds),
    /// Processes of one flow that crash and are disconnected around the commit of epochs; then planted bugs, which must
    /// be found.
    Cluster(ClusterArguments),
}

/// What is done with the processes of a flow.
#[derive(Args)]
struct ClusterArguments {
    #[command(flatten)]
    worlds: Worlds,
    /// Print how long commits of 4, 64 and 512 processes take, instead.
    #[arg(long)]
    latency: bool,
}

/// Which worlds are played.
#[derive(Args)]
struct Worlds {
    /// The seed of the first world; the next ones count up from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// For how long.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Play this many worlds, however long it takes.
    #[arg(long)]
    worlds: Option<u64>,
    /// Let syncs fail now and then.
    #[arg(long)]
    failing_syncs: bool,
}

/// Worlds in which a planted bug has to be found.
const PATIENCE: u64 = 20_000;

fn main() -> ExitCode {
    let proved = match Arguments::parse().proof {
        Proof::Crash(worlds) => {
            let sound = sound(&worlds);
            planted(worlds.seed) && sound
        }
        Proof::Queues(worlds) => {
            let sound = queues_hold(&worlds);
            queues_found_out(worlds.seed) && sound
        }
        Proof::Cluster(arguments) if arguments.latency => {
            print_latency(arguments.worlds.seed);
            true
        }
        Proof::Cluster(ClusterArguments { worlds, .. }) => {
            let sound = cluster_holds(&worlds);
            let found = |kind| cluster::first_found(worlds.seed, PATIENCE, kind);
            found_out(9, worlds.seed, &cluster::Kind::WRONG, found) && sound
        }
    };
    if proved {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The end of a manual run. Nothing in a world depends on it.
struct Deadline(Instant);

#[expect(
    clippy::disallowed_methods,
    reason = "how long to go on is asked by a person"
)]
fn deadline(time: Duration) -> Deadline {
    Deadline(Instant::now() + time)
}

impl Deadline {
    #[expect(clippy::disallowed_methods, reason = "as above")]
    fn is_over(&self) -> bool {
        Instant::now() >= self.0
    }
}

/// Play worlds until it is time, or ten have failed: the seeds of those and the promises that they have broken.
fn play(worlds: &Worlds, mut world: impl FnMut(u64) -> Option<Broken>) -> Vec<(u64, u32)> {
    let until = deadline(Duration::from_secs(worlds.seconds));
    let count = worlds.worlds.unwrap_or(u64::MAX - worlds.seed);
    let mut failed = Vec::new();
    for seed in worlds.seed..worlds.seed + count {
        if worlds.worlds.is_none() && until.is_over() || failed.len() >= 10 {
            break;
        }
        if let Some(broken) = world(seed) {
            eprintln!(
                "promise {} is broken: {}\n  repeat with: --seed {seed} --worlds 1",
                broken.promise, broken.what
            );
            failed.push((seed, broken.promise));
        }
    }
    failed
}

fn sound(worlds: &Worlds) -> bool {
    let mut total = Tally::default();
    let kind = if worlds.failing_syncs {
        Kind::FailingSyncs
    } else {
        Kind::Sound
    };
    let failed = play(worlds, |seed| {
        let tally = crash::world(seed, kind);
        total.add(&tally);
        tally.failure
    });
    let commit = commit();
    for (promise, test, runs) in [
        (1, "processes killed between two stores", total.kills),
        (2, "disks after a loss of power", total.images),
        (3, "disks after a loss of power", total.images),
    ] {
        let mut seeds = failed.iter().filter(|(_, broken)| *broken == promise);
        let line = ReportLine {
            promise,
            test,
            runs,
            failures: seeds.clone().count() as u64,
            first_seed: seeds.next().map_or(worlds.seed, |(seed, _)| *seed),
            commit: commit.clone(),
        };
        println!("{}", line.json());
    }
    failed.is_empty()
}

fn queues_hold(worlds: &Worlds) -> bool {
    let mut total = queues::Tally::default();
    let kind = if worlds.failing_syncs {
        queues::Kind::FailingSyncs
    } else {
        queues::Kind::Sound
    };
    let failed = play(worlds, |seed| {
        let tally = queues::world(seed, kind);
        total.add(&tally);
        tally.failure
    });
    let commit = commit();
    for (test, runs) in [
        ("servers killed between two stores", total.kills),
        ("disks of queues after a loss of power", total.images),
    ] {
        let line = ReportLine {
            promise: 8,
            test,
            runs,
            failures: failed.len() as u64,
            first_seed: failed.first().map_or(worlds.seed, |(seed, _)| *seed),
            commit: commit.clone(),
        };
        println!("{}", line.json());
    }
    eprintln!(
        "{} items acknowledged, {} delivered again after a loss of power",
        total.acknowledged, total.repeated
    );
    failed.is_empty()
}

fn cluster_holds(worlds: &Worlds) -> bool {
    let mut total = cluster::Tally::default();
    let failed = play(worlds, |seed| {
        let tally = cluster::world(seed, cluster::Kind::Sound);
        total.add(&tally);
        tally.failure
    });
    let line = ReportLine {
        promise: 9,
        test: "processes of a flow killed, paused and cut off",
        runs: total.kills,
        failures: failed.len() as u64,
        first_seed: failed.first().map_or(worlds.seed, |(seed, _)| *seed),
        commit: commit(),
    };
    println!("{}", line.json());
    eprintln!(
        "{} joins, {} commits; of prepared epochs {} were kept and {} aborted; {} older copies were refused",
        total.joins, total.commits, total.kept, total.aborted, total.copies_refused
    );
    failed.is_empty()
}

/// A table of the latency of commits.
fn print_latency(seed: u64) {
    println!("| processes | p50, ms | p99, ms | messages at process 0 | its processor time, us |");
    println!("|---|---|---|---|---|");
    for processes in [4, 64, 512] {
        let latency = cluster::latency::measure(seed, processes, 2_000);
        println!(
            "| {processes} | {:.1} | {:.1} | {:.0} | {:.0} |",
            latency.p50_ms, latency.p99_ms, latency.messages, latency.processor_us
        );
    }
}

/// Whether everything that is done wrong on purpose is found, and in how many worlds.
fn queues_found_out(seed: u64) -> bool {
    let found = |kind| queues::first_found(seed, PATIENCE, kind);
    found_out(8, seed, &queues::Kind::WRONG, found)
}

/// Whether every fault of the journal is found.
fn planted(seed: u64) -> bool {
    let kinds: Vec<Kind> = std::iter::once(Kind::Lying)
        .chain(Bug::ALL.map(Kind::Planted))
        .collect();
    found_out(3, seed, &kinds, |kind| {
        crash::first_found(seed, PATIENCE, kind)
    })
}

/// Look for each fault, and say in which world it was found.
fn found_out<K: Copy + Debug>(
    promise: u32,
    seed: u64,
    kinds: &[K],
    first_found: impl Fn(K) -> Option<(u64, Broken)>,
) -> bool {
    let mut missed = 0;
    for kind in kinds {
        match first_found(*kind) {
            Some((found, broken)) => eprintln!(
                "{kind:?}: found in world {}: {}",
                found - seed + 1,
                broken.what
            ),
            None => {
                missed += 1;
                eprintln!("{kind:?}: NOT found in {PATIENCE} worlds");
            }
        }
    }
    let line = ReportLine {
        promise,
        test: "planted bugs found",
        runs: kinds.len() as u64,
        failures: missed,
        first_seed: seed,
        commit: commit(),
    };
    println!("{}", line.json());
    missed == 0
}
