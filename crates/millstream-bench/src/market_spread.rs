//! Market Spread in Python, in a process of its own, which speaks in lines of JSON.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::Ordering;

use millstream_cli::data::Kind;
use millstream_cli::figures::Latency;
use millstream_cli::market_spread::rig::{Counts, Plan, Report, Rig, Sent, Subject};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::programs::python_module;

/// The flow's process.
struct PythonFlow<'a> {
    plan: &'a Plan,
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// The last line of the flow.
#[derive(Deserialize)]
struct EndOfFlow {
    report: Value,
    end_to_end: Option<Latency>,
    cpu_seconds: f64,
    peak_memory_mib: f64,
}

impl PythonFlow<'_> {
    fn line(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line);
        match read.map_err(|error| error.to_string())? {
            0 => Err("the Python flow ended; its error is above".to_owned()),
            _ => serde_json::from_str(&line).map_err(|error| format!("{error} in {line:?}")),
        }
    }
    fn interrupt_if_asked(&self) {
        if self.plan.stop.load(Ordering::Relaxed) {
            // It fails when the process has ended, which is what was wanted.
            let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        }
    }
}

impl Subject for PythonFlow<'_> {
    fn addresses(&mut self) -> Result<(String, String), String> {
        let bound = self.line()?;
        let text = |name: &str| bound[name].as_str().unwrap_or_default().to_owned();
        Ok((text("quotes"), text("orders")))
    }
    fn await_initial(&mut self) -> Result<(), String> {
        self.interrupt_if_asked();
        self.line().map(drop)
    }
    fn schedule(&mut self, start_ns: u64, interval_ns: f64) -> Result<(), String> {
        let schedule = json!({"start_ns": start_ns, "interval_ns": interval_ns});
        writeln!(self.stdin, "{schedule}").map_err(|error| error.to_string())
    }
    fn await_end(&mut self, sent: &Sent) -> Result<(), String> {
        self.interrupt_if_asked();
        let mut groups = Vec::new();
        sent.unsent(|index, count| groups.push((index, count)));
        let unsent = json!({"end_ns": sent.end_ns, "unsent": groups});
        writeln!(self.stdin, "{unsent}").map_err(|error| error.to_string())
    }
}

impl Drop for PythonFlow<'_> {
    fn drop(&mut self) {
        // A benchmark that fails half-way must leave no process running.
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Runs the flow once; the results that the receiver got are added by the rig.
pub fn run(rig: &Rig<'_>) -> Result<(Report, Sent), String> {
    let plan = rig.plan;
    let mut args = vec![rig.results_at.to_owned()];
    args.extend(plan.spin.then(|| "--spin".to_owned()));
    let mut command = python_module("market_spread").command(&args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot start Python: {error}"))?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("the Python process has no pipes".to_owned());
    };
    let mut flow = PythonFlow {
        plan,
        child,
        stdin,
        stdout: BufReader::new(stdout),
    };
    let sent = rig.drive(&mut flow)?;
    let end: EndOfFlow = serde_json::from_value(flow.line()?).map_err(|error| error.to_string())?;
    let steps = end.report["steps"].as_array().cloned().unwrap_or_default();
    let step = |name: &str| {
        let found = steps.iter().find(|step| step["name"] == name);
        found.ok_or_else(|| format!("no step {name}"))
    };
    let number = |name: &str, what: &str| -> Result<u64, String> {
        Ok(step(name)?[what].as_u64().unwrap_or(0))
    };
    let handled = number("spread", "items_in")?;
    let messages = handled.saturating_sub(Kind::MarketSpreadInitial.default_count());
    let measured = Report {
        language: "Python",
        workers: 1,
        durable_sync: None,
        rate_ordered: plan.rate,
        rate_reached: sent.rate,
        messages,
        counts: Counts::default(),
        results: 0,
        skipped: number("quotes", "skipped")? + number("orders", "skipped")?,
        internal: latency(&step("spread")?["latency_us"], handled),
        internal_results: latency(
            &step("results")?["latency_us"],
            number("results", "items_in")?,
        ),
        end_to_end: end.end_to_end,
        sender_lag_max_us: sent.lag_max_us,
        cpu_s_per_million: end.cpu_seconds * 1e6 / messages.max(1) as f64,
        peak_memory_mib: end.peak_memory_mib,
    };
    Ok((measured, sent))
}

/// The percentiles that a report has of a step.
fn latency(us: &Value, count: u64) -> Latency {
    let at = |name: &str| us[name].as_f64().unwrap_or(0.0);
    Latency {
        count,
        p50_us: at("p50"),
        p90_us: at("p90"),
        p99_us: at("p99"),
        p999_us: at("p99.9"),
        p9999_us: at("p99.99"),
        max_us: at("max"),
    }
}
