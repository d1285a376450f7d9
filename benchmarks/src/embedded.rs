//! `millstream-bench queue --in-process`: queues without a server: threads that put and take, and a flow from queue to
//! queue.

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_flow::{Flow, Options as FlowOptions, Recovery};
use millstream_journal::chain;
use millstream_journal::clock::monotonic_ns;
use millstream_queue::QueueError;
use millstream_queue::embedded::{Options, PutOptions, Queue, Queues};
use serde::Serialize;

use crate::figures::median_index;
use crate::scratch::Scratch;
use millstream_queue::flow as queues;

const ITEM: [u8; 64] = [b'x'; 64];
const MANY: usize = 256;
/// What the flow moves.
const FLOW_ITEMS: usize = 400_000;

const FLOWS: [(&str, bool); 2] = [
    ("flow, queue to queue, no state", false),
    ("flow, queue to queue, epochs of 1 s", true),
];

/// One turn of a thread; returns the number of items that it moved.
type Turn = fn(&Queue) -> Result<usize, QueueError>;

fn put(queue: &Queue) -> Result<usize, QueueError> {
    queue.put(&ITEM)?;
    Ok(1)
}

fn put_many(queue: &Queue) -> Result<usize, QueueError> {
    queue.put_many([ITEM; MANY], &PutOptions::default())?;
    Ok(MANY)
}

fn put_and_get(queue: &Queue) -> Result<usize, QueueError> {
    queue.put(&ITEM)?;
    let taken = queue.get_item(Duration::ZERO)?;
    Ok(usize::from(taken.is_some()))
}

fn put_and_close(queue: &Queue) -> Result<usize, QueueError> {
    queue.put(&ITEM)?;
    let closed = match queue.open(Duration::ZERO)? {
        Some(item) => item.close()?,
        None => false,
    };
    Ok(usize::from(closed))
}

const TURNS: [(&str, usize, Turn); 7] = [
    ("put, 1 thread", 1, put),
    ("put, 4 threads", 4, put),
    ("put_many of 256, 1 thread", 1, put_many),
    ("put + get, 1 thread", 1, put_and_get),
    ("put + get, 4 threads", 4, put_and_get),
    ("put + open + close, 1 thread", 1, put_and_close),
    ("put + open + close, 4 threads", 4, put_and_close),
];

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of each figure the median of so many runs.
    pub runs: u32,
    /// Of each run of threads.
    pub seconds: f64,
    /// Where queues are kept.
    pub dir: PathBuf,
    /// Only rows with this text in their name.
    pub only: Option<String>,
}

/// One row of the report.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was done.
    pub name: String,
    /// The queues' `sync`.
    pub sync: String,
    /// Items a second.
    pub per_second: f64,
    /// Half of the turns took so long; a flow has no turns.
    pub p50_us: Option<f64>,
    /// All but one in a hundred.
    pub p99_us: Option<f64>,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// In the order of measuring.
    pub rows: Vec<Row>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:42} {:8} {:>11} {:>9} {:>9}",
            "in process, 64 B", "sync", "items/s", "p50 us", "p99 us"
        )?;
        let us = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{us:.1}"));
        for row in &self.rows {
            writeln!(
                f,
                "{:42} {:8} {:11.0} {:>9} {:>9}",
                row.name,
                row.sync,
                row.per_second,
                us(row.p50_us),
                us(row.p99_us)
            )?;
        }
        Ok(())
    }
}

/// The figures of one run: items per second, and the p50 and p99 of the turns.
type Measured = (f64, Option<(f64, f64)>);

/// Measure everything.
///
/// # Errors
/// What the queues or the flow say.
pub fn measure(plan: &Plan) -> Result<Report, String> {
    let wanted = |name: &str| plan.only.as_deref().is_none_or(|only| name.contains(only));
    let mut rows = Vec::new();
    for sync in ["never", "always"] {
        for (name, threads, turn) in TURNS.into_iter().filter(|(name, ..)| wanted(name)) {
            let run = || threads_at_work(plan, sync, threads, turn);
            rows.push(row(plan, name, sync, run)?);
        }
        for (name, recovery) in FLOWS.into_iter().filter(|(name, _)| wanted(name)) {
            rows.push(row(plan, name, sync, || flow(plan, sync, recovery))?);
        }
    }
    Ok(Report { rows })
}

fn row(
    plan: &Plan,
    name: &str,
    sync: &str,
    run: impl Fn() -> Result<Measured, String>,
) -> Result<Row, String> {
    let mut runs = (0..plan.runs)
        .map(|_| run())
        .collect::<Result<Vec<_>, _>>()?;
    let rates: Vec<f64> = runs.iter().map(|run| run.0).collect();
    let (per_second, times) = runs.swap_remove(median_index(&rates));
    Ok(Row {
        name: name.to_owned(),
        sync: sync.to_owned(),
        per_second,
        p50_us: times.map(|(p50, _)| p50),
        p99_us: times.map(|(_, p99)| p99),
    })
}

fn open(folder: &Path, sync: &str) -> Result<Queues, String> {
    let options = Options {
        sync: sync.parse()?,
        config: None,
    };
    Queues::open(folder, &options).map_err(|error| chain(&error).to_string())
}

/// The times of all turns, in nanoseconds, and the items of one thread.
fn work(queue: &Queue, until_ns: u64, turn: Turn) -> Result<(Vec<u64>, usize), QueueError> {
    let mut times = Vec::new();
    let mut items = 0;
    let mut begin = monotonic_ns();
    while begin < until_ns {
        items += turn(queue)?;
        let end = monotonic_ns();
        times.push(end - begin);
        begin = end;
    }
    Ok((times, items))
}

fn threads_at_work(
    plan: &Plan,
    sync: &str,
    threads: usize,
    turn: Turn,
) -> Result<Measured, String> {
    let folder = Scratch::new(&plan.dir).map_err(|error| chain(&error).to_string())?;
    let queue = open(folder.path(), sync)?
        .queue("q")
        .map_err(|error| chain(&error).to_string())?;
    let begin = monotonic_ns();
    let until = begin + (plan.seconds * 1e9) as u64;
    let done: Vec<_> = std::thread::scope(|scope| {
        let workers: VecDeque<_> = (0..threads)
            .map(|_| scope.spawn(|| work(&queue, until, turn)))
            .collect();
        workers
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect()
    });
    let seconds = (monotonic_ns() - begin) as f64 / 1e9;
    let mut times = Vec::new();
    let mut items = 0;
    for one in done {
        let one = one.map_err(|_| "a thread panicked".to_owned())?;
        let (its_times, its_items) = one.map_err(|error| chain(&error).to_string())?;
        times.extend(its_times);
        items += its_items;
    }
    times.sort_unstable();
    let at = |quantile: f64| -> f64 {
        let index = (times.len() as f64 * quantile) as usize;
        times
            .get(index.min(times.len().saturating_sub(1)))
            .map_or(0.0, |ns| *ns as f64 / 1e3)
    };
    Ok((items as f64 / seconds, Some((at(0.5), at(0.99)))))
}

fn flow(plan: &Plan, sync: &str, recovery: bool) -> Result<Measured, String> {
    let folder = Scratch::new(&plan.dir).map_err(|error| chain(&error).to_string())?;
    let queues_dir = folder.path().join("queues");
    let state = folder.path().join("state");
    let opened = open(&queues_dir, sync)?;
    let input = opened
        .queue("in")
        .map_err(|error| chain(&error).to_string())?;
    let items = std::iter::repeat_n(ITEM, FLOW_ITEMS);
    input
        .put_many(items, &PutOptions::default())
        .map_err(|error| chain(&error).to_string())?;
    let flow = Flow::new("move");
    flow.source("in", queues::read(&opened, "in").until_empty())
        .sink("out", queues::write(&opened, "out"));
    let options = FlowOptions {
        recovery: recovery.then(|| Recovery::new(&state).sync(sync == "always")),
        ..FlowOptions::default()
    };
    let begin = monotonic_ns();
    flow.run(options)
        .map_err(|error| chain(&error).to_string())?;
    let seconds = (monotonic_ns() - begin) as f64 / 1e9;
    let moved = opened.queue("out").and_then(|out| out.len());
    match moved.map_err(|error| chain(&error).to_string())? {
        moved if moved == FLOW_ITEMS as u64 => Ok((FLOW_ITEMS as f64 / seconds, None)),
        moved => Err(format!("{moved} of {FLOW_ITEMS} items came through")),
    }
}
