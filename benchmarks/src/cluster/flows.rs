//! The flows that are measured on several processes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use millstream_cluster::{Address, Auth, Processes, Settings};
use millstream_flow::cluster::Cluster;
use millstream_flow::key::{Key, Shards};
use millstream_flow::metrics::{Report, latency_histogram};
use millstream_flow::{Flow, Options, Recovery, Running, Stream, generator};
use millstream_journal::clock::monotonic_ns;

use super::role::{Case, Fault, HOPS_PER_SECOND, Outcome, Role};
use crate::figures::{Latency, cpu_seconds};
use crate::flow::costly;

/// How long an idle process is watched.
const WATCHED: Duration = Duration::from_secs(3);
/// How long it has to become idle.
const CALM: Duration = Duration::from_millis(500);

/// What the steps note.
struct Notes {
    began_ns: AtomicU64,
    ages: Mutex<Histogram<u64>>,
}

impl Notes {
    fn new() -> Arc<Self> {
        Arc::new(Notes {
            began_ns: AtomicU64::new(u64::MAX),
            ages: Mutex::new(latency_histogram()),
        })
    }
}

/// The addresses of the processes: sockets in the directory.
fn hosts(role: &Role) -> Result<Vec<Address>, Fault> {
    let host = |process| {
        let path = role.folder.join(format!("{process}.sock"));
        Ok(path.display().to_string().parse()?)
    };
    (0..role.processes).map(host).collect()
}

fn options(role: &Role) -> Result<Options, Fault> {
    let mut options = Options::default();
    if role.processes > 1 {
        let settings = Settings::new(role.process, hosts(role)?, Auth::None);
        let cluster: Arc<dyn Cluster> = Arc::new(Processes::new(settings)?);
        options.cluster = Some(cluster);
    }
    let state = || Recovery::new(role.folder.join("state"));
    options.recovery = role.saves.then(state);
    Ok(options)
}

/// Numbers from two partitions, one for each of two processes.
fn numbers(flow: &Flow, items: u64, batch: usize, notes: &Arc<Notes>) -> Stream<u64> {
    let each = items / 2;
    let notes = Arc::clone(notes);
    let source = generator::from_fn(move |n| {
        if n == 0 {
            notes.began_ns.fetch_min(monotonic_ns(), Ordering::Relaxed);
        }
        (n < each).then_some(n)
    });
    flow.source("numbers", source.partitions(2).batch_size(batch))
}

/// Keyed sums, which emit nothing.
fn sums(numbers: &Stream<u64>, keys: u64, work: fn(u64) -> u64) {
    let step = move |sum: &mut u64, _: &u64, n| {
        *sum = sum.wrapping_add(work(n));
        None::<u8>
    };
    let sums = numbers
        .key_by(move |n| n % keys)
        .stateful("handle", |_| 0_u64, step);
    let out = millstream_flow::testing::Collected::new();
    sums.items().sink("out", out.sink());
}

/// Moments at which items were made, each for a worker of the last process.
fn hops(flow: &Flow, role: &Role, notes: &Arc<Notes>) {
    let items = role.items;
    let began = Arc::clone(notes);
    let ages = Arc::clone(notes);
    let last = role.processes - 1;
    let workers = role.processes;
    let to_last = move |key: &u64| Shards::default().worker(key.stable_hash(), workers) == last;
    let key = (0_u64..).find(to_last).unwrap_or(0);
    let source = generator::from_fn(move |n| {
        let now = monotonic_ns();
        if n == 0 {
            began.began_ns.fetch_min(now, Ordering::Relaxed);
        }
        (n < items).then_some(now)
    });
    let step = move |(): &mut (), _: &u64, made: u64| {
        let age = monotonic_ns().saturating_sub(made);
        let mut ages = ages.ages.lock().unwrap_or_else(PoisonError::into_inner);
        ages.saturating_record(age);
        None::<u8>
    };
    let handled = flow
        .source("numbers", source.rate(HOPS_PER_SECOND))
        .key_by(move |_| key)
        .stateful("handle", |_| (), step);
    let out = millstream_flow::testing::Collected::new();
    handled.items().sink("out", out.sink());
}

/// One item for each process, and no more.
fn idle(flow: &Flow, notes: &Arc<Notes>) {
    let notes = Arc::clone(notes);
    let source = generator::from_fn(move |_| {
        notes.began_ns.fetch_min(monotonic_ns(), Ordering::Relaxed);
        Some(0)
    });
    let numbers = flow.source("numbers", source.partitions(2).rate(0.0));
    sums(&numbers, 2, |n| n);
}

/// Runs the flow of a role, to its end.
pub(super) fn run(role: &Role) -> Result<Outcome, Fault> {
    let notes = Notes::new();
    let flow = Flow::new("cluster");
    match role.case {
        Case::Step => sums(&numbers(&flow, role.items, 1024, &notes), 1_000, costly),
        Case::Exchange => sums(&numbers(&flow, role.items, 1000, &notes), 1_024, |n| n),
        Case::Keys1000 => sums(&numbers(&flow, role.items, 1024, &notes), 1_000, |n| n),
        Case::Keys1000000 => sums(&numbers(&flow, role.items, 1024, &notes), 1_000_000, |n| n),
        Case::Idle => idle(&flow, &notes),
        _ => hops(&flow, role, &notes),
    }
    let running = flow.start(options(role)?)?;
    let cpu_percent = match role.case {
        Case::Idle => watch(role, &running),
        _ => 0.0,
    };
    let report = running.wait()?;
    let ended_ns = monotonic_ns();
    let ages = notes.ages.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Outcome {
        began_ns: notes.began_ns.load(Ordering::Relaxed),
        ended_ns,
        sent: count(&report, "numbers", |step| step.items_out),
        handled: count(&report, "handle", |step| step.items_in),
        latency: (!ages.is_empty()).then(|| Latency::of(&ages)),
        cpu_percent,
    })
}

fn count(
    report: &Report,
    name: &str,
    of: fn(&millstream_flow::metrics::StepMetrics) -> u64,
) -> u64 {
    let steps = report.steps();
    steps.iter().filter(|step| step.name == name).map(of).sum()
}

/// Returns percent of a core that this process uses; process 0 then stops the run.
fn watch(role: &Role, running: &Running) -> f64 {
    let ended = running.ended_within(CALM);
    let cpu = cpu_seconds();
    let start = monotonic_ns();
    let ended = ended || running.ended_within(WATCHED);
    let percent = 100.0 * (cpu_seconds() - cpu) / ((monotonic_ns() - start) as f64 / 1e9);
    if role.process == 0 && !ended {
        // The others have the same time, and are watched until they learn of the stop.
        running.stop();
    }
    percent
}
