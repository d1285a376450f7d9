//! The source `http.listen` under load: connections that stay, and a small POST request on each at a time.
//!
//! The flow is a process of its own, this program again or a module in Python. It has a state directory and appends
//! each item to a journal. When it has ended, the journal is read: it must have each item that was acknowledged, once,
//! and no other.

mod load;
mod server;
mod texts;
mod verify;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Serialize;

use self::load::{Load, Measured};
use crate::figures::{Latency, median_index};
use crate::programs::{cpu_seconds_of, python_module, this};
use crate::scratch::Scratch;

pub use self::server::serve;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many runs.
    pub runs: u32,
    /// How long the load of a run lasts.
    pub time: Duration,
    /// How many connections there are.
    pub connections: u32,
    /// How many lines of JSON a request has.
    pub lines: u32,
    /// Whether requests are synced before they are answered.
    pub sync: bool,
    /// Whether the flow is in Python.
    pub python: bool,
    /// Whether the flow has core 0 and the load core 1.
    pub pin: bool,
    /// Where state and journal are kept meanwhile.
    pub dir: PathBuf,
}

/// A run.
#[derive(Clone, Debug, Serialize)]
struct Run {
    /// Requests that were answered with 200, a second.
    per_second: f64,
    /// From the write of a request to its complete answer.
    latency: Latency,
    /// The acknowledged items, each of which was in the journal once.
    items: u64,
    /// Of one core, what the flow took.
    server_cpu: f64,
    /// Of one core, what the load took: near 1 the load is what limits the rate.
    load_cpu: f64,
}

/// All runs, and the median of their rates.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    connections: u32,
    lines: u32,
    sync: bool,
    python: bool,
    pin: bool,
    median: Run,
    runs: Vec<Run>,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates = self.runs.iter().map(|run| run.per_second);
        let least = rates.clone().fold(f64::INFINITY, f64::min);
        let most = rates.fold(0.0, f64::max);
        let Run {
            per_second,
            latency,
            items,
            server_cpu,
            load_cpu,
        } = &self.median;
        let connections = self.connections;
        let lines = self.lines;
        let sync = if self.sync { "always" } else { "never" };
        writeln!(
            f,
            "{per_second:.0} requests/s ({least:.0} to {most:.0}), {lines} items each, {connections} connections, sync {sync}"
        )?;
        writeln!(
            f,
            "p50 {:.0} us, p99 {:.0} us, max {:.0} us",
            latency.p50_us, latency.p99_us, latency.max_us
        )?;
        write!(
            f,
            "{items} items acknowledged, each in the journal once; CPU of the flow {server_cpu:.2}, of the load {load_cpu:.2}"
        )
    }
}

/// Measures.
///
/// # Errors
/// A process does not start or a request is not answered with 200; an item is not in the journal once.
pub fn measure(plan: &Plan) -> Result<Figures, String> {
    let runs: Result<Vec<Run>, String> = (0..plan.runs).map(|_| run(plan)).collect();
    let runs = runs?;
    let rates: Vec<f64> = runs.iter().map(|run| run.per_second).collect();
    let median = runs.get(median_index(&rates)).ok_or("no runs")?.clone();
    Ok(Figures {
        connections: plan.connections,
        lines: plan.lines,
        sync: plan.sync,
        python: plan.python,
        pin: plan.pin,
        median,
        runs,
    })
}

fn run(plan: &Plan) -> Result<Run, String> {
    let scratch = Scratch::new(&plan.dir).map_err(|error| error.to_string())?;
    let program = if plan.python {
        python_module("http")
    } else {
        let this = this().map_err(|error| error.to_string())?;
        this.with(&["http-server"])
    };
    let journal = scratch.path().join("out");
    let words = [
        scratch.path().join("state").display().to_string(),
        journal.display().to_string(),
        if plan.sync { "always" } else { "never" }.to_owned(),
    ];
    // A child has the cores of its parent.
    place(plan, 0)?;
    let server = program.listening(&words)?;
    place(plan, 1)?;
    let load = Load {
        connections: plan.connections,
        lines: plan.lines,
        time: plan.time,
    };
    let before = cpu_seconds_of(server.id())?;
    let measured = load.run(&server.address)?;
    let server_cpu = (cpu_seconds_of(server.id())? - before) / measured.seconds;
    server.stop().map_err(|error| error.to_string())?;
    let Measured {
        seconds,
        latency,
        load_cpu,
        acknowledged,
    } = measured;
    let items = verify::verify(&journal, &acknowledged, plan.lines)?;
    let requests: u64 = acknowledged.iter().map(|&count| u64::from(count)).sum();
    Ok(Run {
        per_second: requests as f64 / seconds,
        latency,
        items,
        server_cpu,
        load_cpu,
    })
}

/// Moves this thread, and the processes that it starts from now on, to a core.
fn place(plan: &Plan, core: usize) -> Result<(), String> {
    if !plan.pin {
        return Ok(());
    }
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).map_err(|error| format!("core {core}: {error}"))
}
