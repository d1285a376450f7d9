//! The report of a service while it runs: a small file of JSON in the state directory.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use millstream_journal::clock::monotonic_ns;
use serde::Serialize;

use super::order::ServiceOrder;
use crate::{Meter, Report, Stop};

/// The time over which a rate is measured, in ns.
const RATE_NS: u64 = 3_000_000_000;

/// The state that the thread of a service and its supervisor share.
#[derive(Default)]
pub(super) struct Shared {
    pub stop: Stop,
    pub meter: Meter,
    waits_for: Mutex<Option<String>>,
}

impl Shared {
    /// The input that does not exist yet.
    pub fn waits_for(&self, path: Option<&str>) {
        let mut waits_for = self
            .waits_for
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *waits_for = path.map(str::to_owned);
    }
}

/// Writes the file of one service.
pub(super) struct Reporter {
    name: String,
    inputs: Vec<String>,
    shared: Arc<Shared>,
    /// Times, and the number of calls until then.
    calls: VecDeque<(u64, u64)>,
    written: String,
}

#[derive(Serialize)]
struct Status<'a> {
    pid: u32,
    state: String,
    calls: u64,
    ticks: u64,
    skipped: u64,
    dead_letters: u64,
    calls_per_s: f64,
    positions: BTreeMap<&'a str, u64>,
}

impl Reporter {
    pub fn new(order: &ServiceOrder, shared: Arc<Shared>) -> Self {
        Self {
            name: order.name.clone(),
            inputs: order.inputs.clone(),
            shared,
            calls: VecDeque::new(),
            written: String::new(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn stop(&self) {
        self.shared.stop.stop();
    }

    /// Writes the file, if its contents have changed.
    pub fn write(&mut self, folder: &str) -> std::io::Result<()> {
        let Report {
            calls,
            ticks,
            skipped,
            dead_letters,
        } = self.shared.meter.report();
        let now = monotonic_ns();
        let old = |calls: &VecDeque<(u64, u64)>| {
            calls.len() > 1 && calls.front().is_some_and(|(at, _)| now - at > RATE_NS)
        };
        while old(&self.calls) {
            self.calls.pop_front();
        }
        self.calls.push_back((now, calls + ticks));
        let (since, before) = self.calls.front().copied().unwrap_or_default();
        let seconds = (now - since) as f64 / 1e9;
        let rate = (calls + ticks - before) as f64 / seconds.max(1e-9);
        let positions = self.shared.meter.positions();
        let waits_for = self.shared.waits_for.lock();
        let waits_for = waits_for.unwrap_or_else(PoisonError::into_inner).clone();
        let status = Status {
            pid: std::process::id(),
            state: match (waits_for, &positions) {
                (Some(path), _) => format!("waiting for {path}"),
                (None, None) => "starting".to_owned(),
                (None, Some(_)) => "running".to_owned(),
            },
            calls,
            ticks,
            skipped,
            dead_letters,
            calls_per_s: (rate * 10.0).round() / 10.0,
            positions: self
                .inputs
                .iter()
                .map(String::as_str)
                .zip(positions.unwrap_or_default())
                .collect(),
        };
        let text = serde_json::to_string(&status)?;
        if text != self.written {
            let path = Path::new(folder).join(format!("{}.json", self.name));
            let unfinished = path.with_extension("json.new");
            fs::write(&unfinished, &text)?;
            fs::rename(&unfinished, &path)?;
            self.written = text;
        }
        Ok(())
    }
}
