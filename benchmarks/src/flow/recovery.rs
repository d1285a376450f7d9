//! What recovery costs: the same flow with epochs of a second and without, in turns; and how soon a flow that
//! has a million keys emits its first output.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_flow::{Flow, Options, Recovery};
use millstream_journal::clock::monotonic_ns;
use serde::Serialize;

use super::cases::{Make, joined, median, numbers, seconds, stateful, swallow, windows};
use crate::scratch::Scratch;

/// How long a run with recovery is to take: several epochs.
const RUN_SECONDS: f64 = 3.5;
/// Items of the run that finds out how many that takes.
const TRIAL: u64 = 1_000_000;
/// Keys of the flow that resumes.
const KEYS: u64 = 1_000_000;
/// The length of each of its states.
const STATE_BYTES: usize = 100;

type Fault = Box<dyn std::error::Error + Send + Sync>;

/// A flow with recovery beside the same without.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// What was measured.
    pub name: String,
    /// Items per second without; the median of the runs.
    pub off: f64,
    /// Items per second with epochs of a second; the median of the runs.
    pub on: f64,
    /// How much slower that is, in percent.
    pub slower_percent: f64,
}

const CASES: [(&str, Make); 4] = [
    ("stateful, 1,000 keys", |count| stateful(count, 1_000)),
    ("stateful, 1,000,000 keys", |count| {
        stateful(count, 1_000_000)
    }),
    ("tumbling window, count, 1,000 keys", |count| {
        windows(count, 1_000)
    }),
    ("join with the latest, 1,000 keys", joined),
];

/// A run on one worker that saves its state.
fn saving(recovery: Recovery) -> Options {
    Options {
        recovery: Some(recovery),
        ..Options::default()
    }
}

/// Measures what recovery costs, case by case.
pub(super) fn costs(runs: u32, folder: &Path) -> Result<Vec<Cost>, Fault> {
    let mut costs = Vec::new();
    for (name, make) in CASES {
        let trial = seconds(&make(TRIAL), Options::default())?;
        let count = (TRIAL as f64 / trial * RUN_SECONDS) as u64;
        let flow = make(count);
        let mut off = Vec::new();
        let mut on = Vec::new();
        for _ in 0..runs {
            off.push(count as f64 / seconds(&flow, Options::default())?);
            let state = Scratch::new(folder)?;
            on.push(count as f64 / seconds(&flow, saving(Recovery::new(state.path())))?);
        }
        let off = median(&off);
        let on = median(&on);
        costs.push(Cost {
            name: name.to_owned(),
            off,
            on,
            slower_percent: 100.0 * (1.0 - on / off),
        });
    }
    Ok(costs)
}

/// Seconds from the start of a flow that has a million keys to its first output; the median of the runs.
pub(super) fn resume(runs: u32, folder: &Path) -> Result<f64, Fault> {
    let state = Scratch::new(folder)?;
    let seen = Arc::new(AtomicU64::new(0));
    let first = Arc::new(AtomicU64::new(0));
    let flow = Flow::new("resume");
    let counts = Arc::clone(&seen);
    let stamps = Arc::clone(&first);
    let states = numbers(&flow, u64::MAX, 1, 1024)
        .key_by(|n| n % KEYS)
        .stateful(
            "text",
            |_| "x".repeat(STATE_BYTES),
            |state: &mut String, key, n| {
                state.replace_range(..1, if n % 2 == 0 { "y" } else { "z" });
                Some(*key)
            },
        );
    swallow(&states.items().inspect(move |_| {
        if counts.fetch_add(1, Ordering::Relaxed) == 0 {
            stamps.store(monotonic_ns(), Ordering::Relaxed);
        }
    }));
    let mut until = KEYS;
    let mut times = Vec::new();
    for _ in 0..=runs {
        let recovery = Recovery::new(state.path()).epoch(Duration::from_millis(200));
        seen.store(0, Ordering::Relaxed);
        let start = monotonic_ns();
        let running = flow.start(saving(recovery))?;
        while seen.load(Ordering::Relaxed) < until {
            if running.ended_within(Duration::from_millis(1)) {
                break;
            }
        }
        running.stop();
        running.wait()?;
        times.push((first.load(Ordering::Relaxed).saturating_sub(start)) as f64 / 1e9);
        until = 1;
    }
    // The first run has made the state.
    Ok(median(&times[1..]))
}
