//! Runs proofs for as long as one likes: `cargo run --release -p millstream-sim -- crash --seed 1 --seconds 60`.
//!
//! Each proof prints JSON lines, one for each promise, and the seed that repeats a failure; it exits 1 when there was one.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use millstream_journal::planted::Bug;
use millstream_sim::crash::{self, Kind, Tally};
use millstream_sim::report::{Line, commit};

/// Seeded worlds that crash and damage a journal.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    proof: Proof,
}

#[derive(Subcommand)]
enum Proof {
    /// Crashes of processes and losses of power; then the lying disk and the planted bugs, which must be found.
    Crash {
        /// The seed of the first world; the next ones count up from it.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// For how long.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Play so many worlds, however long it takes.
        #[arg(long)]
        worlds: Option<u64>,
        /// Let syncs fail now and then.
        #[arg(long)]
        failing_syncs: bool,
    },
}

/// Worlds in which a planted bug has to be found.
const PATIENCE: u64 = 20_000;

fn main() -> ExitCode {
    let Proof::Crash {
        seed,
        seconds,
        worlds,
        failing_syncs,
    } = Arguments::parse().proof;
    let kind = if failing_syncs {
        Kind::FailingSyncs
    } else {
        Kind::Sound
    };
    let until = deadline(Duration::from_secs(seconds));
    let sound = sound(seed, worlds, kind, || until.is_over());
    let planted = planted(seed);
    if sound && planted {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The end of a run by hand. What a world does never depends on it.
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

fn sound(seed: u64, worlds: Option<u64>, kind: Kind, is_over: impl Fn() -> bool) -> bool {
    let mut total = Tally::default();
    let mut failed = Vec::new();
    for world in 0..worlds.unwrap_or(u64::MAX) {
        if worlds.is_none() && is_over() {
            break;
        }
        let tally = crash::world(seed + world, kind);
        if let Some(broken) = &tally.failure {
            eprintln!(
                "promise {} is broken: {}\n  repeat with: --seed {} --worlds 1",
                broken.promise,
                broken.what,
                seed + world
            );
            failed.push((seed + world, broken.promise));
        }
        total.add(&tally);
        if failed.len() >= 10 {
            break;
        }
    }
    let commit = commit();
    for (promise, test, runs) in [
        (1, "processes killed between two stores", total.kills),
        (2, "disks after a loss of power", total.images),
        (3, "disks after a loss of power", total.images),
    ] {
        let mut seeds = failed.iter().filter(|(_, broken)| *broken == promise);
        let line = Line {
            promise,
            test,
            runs,
            failures: seeds.clone().count() as u64,
            first_seed: seeds.next().map_or(seed, |(seed, _)| *seed),
            commit: commit.clone(),
        };
        println!("{}", line.json());
    }
    failed.is_empty()
}

/// Whether every fault is found, and in how many worlds.
fn planted(seed: u64) -> bool {
    let kinds: Vec<Kind> = std::iter::once(Kind::Lying)
        .chain(Bug::ALL.map(Kind::Planted))
        .collect();
    let mut missed = 0;
    for kind in &kinds {
        match crash::first_found(seed, PATIENCE, *kind) {
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
    let line = Line {
        promise: 3,
        test: "planted bugs found",
        runs: kinds.len() as u64,
        failures: missed,
        first_seed: seed,
        commit: commit(),
    };
    println!("{}", line.json());
    missed == 0
}
