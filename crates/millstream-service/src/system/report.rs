//! The report of a service while it runs: a small file of JSON in the state directory.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use millstream_journal::clock::monotonic_ns;
use serde::{Deserialize, Serialize};

use crate::{LongCall, Meter, Reading, Report, Stop};

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
    /// Notes the input that does not exist yet.
    pub fn wait_for(&self, path: Option<&str>) {
        let mut waits_for = self
            .waits_for
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *waits_for = path.map(str::to_owned);
    }

    pub fn waits_for(&self) -> Option<String> {
        let waits_for = self.waits_for.lock();
        waits_for.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The contents of `SERVICE.json`: what the process of a service writes, and the page and `service status` read.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Status {
    pub pid: u32,
    pub state: String,
    pub calls: u64,
    pub ticks: u64,
    pub skipped: u64,
    pub dead_letters: u64,
    pub calls_per_s: f64,
    /// For each input the next record; none before the start.
    pub positions: BTreeMap<String, u64>,
    /// The call that the component has been in for seconds.
    #[serde(default)]
    pub call: Option<LongCall>,
}

/// Writes the file of one service.
#[derive(Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Reporter {
    name: String,
    inputs: Vec<String>,
    /// Times, and the number of calls until then.
    calls: VecDeque<(u64, u64)>,
    written: String,
    /// The stack of the long call.
    stack: Option<String>,
}

impl Reporter {
    /// The reporter of the service `name`, which has these inputs.
    #[must_use]
    pub fn new(name: String, inputs: Vec<String>) -> Self {
        Self {
            name,
            inputs,
            calls: VecDeque::new(),
            written: String::new(),
            stack: None,
        }
    }

    /// The name of the service.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes the file, if its contents have changed. `waits_for` is the input that does not exist yet; `stack_of` is
    /// asked once for the stack of the thread of each long call.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(
        &mut self,
        folder: &str,
        meter: &Meter,
        waits_for: Option<String>,
        stack_of: impl Fn(u32) -> Option<String>,
    ) -> io::Result<()> {
        let text = serde_json::to_string(&self.status(meter.read(), waits_for, stack_of))?;
        if text != self.written {
            let path = Path::new(folder).join(format!("{}.json", self.name));
            let unfinished = path.with_extension("json.new");
            fs::write(&unfinished, &text)?;
            fs::rename(&unfinished, &path)?;
            self.written = text;
        }
        Ok(())
    }

    fn status(
        &mut self,
        reading: Reading,
        waits_for: Option<String>,
        stack_of: impl Fn(u32) -> Option<String>,
    ) -> Status {
        let Reading {
            report,
            positions,
            call,
        } = reading;
        let Report {
            calls,
            ticks,
            skipped,
            dead_letters,
        } = report;
        let call = match call {
            Some(call) => {
                let stack = self.stack.take().or_else(|| stack_of(call.thread));
                self.stack.clone_from(&stack);
                Some(LongCall { stack, ..call })
            }
            None => {
                self.stack = None;
                None
            }
        };
        Status {
            pid: std::process::id(),
            state: match (waits_for, &positions, &call) {
                (Some(path), ..) => format!("waiting for {path}"),
                (None, None, _) => "starting".to_owned(),
                (None, Some(_), Some(call)) => format!("in one call for {} s", call.seconds),
                (None, Some(_), None) => "running".to_owned(),
            },
            calls,
            ticks,
            skipped,
            dead_letters,
            calls_per_s: self.rate(calls + ticks),
            positions: self
                .inputs
                .iter()
                .cloned()
                .zip(positions.unwrap_or_default())
                .collect(),
            call,
        }
    }

    /// The calls of a second, of which there are so many until now.
    fn rate(&mut self, calls: u64) -> f64 {
        let now = monotonic_ns();
        let old = |calls: &VecDeque<(u64, u64)>| {
            calls.len() > 1 && calls.front().is_some_and(|(at, _)| now - at > RATE_NS)
        };
        while old(&self.calls) {
            self.calls.pop_front();
        }
        self.calls.push_back((now, calls));
        let (since, before) = self.calls.front().copied().unwrap_or_default();
        let seconds = (now - since) as f64 / 1e9;
        let rate = (calls - before) as f64 / seconds.max(1e-9);
        (rate * 10.0).round() / 10.0
    }
}
