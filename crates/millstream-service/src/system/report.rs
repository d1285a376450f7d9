//! The report of a service while it runs: a small file of JSON in the state directory.
//!
//! A thread of its own writes it: a component in Python may keep the lock of the interpreter in a call, and then no
//! thread of Python runs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use millstream_journal::clock::monotonic_ns;
use serde::{Deserialize, Serialize};

use crate::runner::Window;
use crate::{LongCall, Meter, Reading, Report, Stop};

/// The time between two looks at a service.
const EVERY: Duration = Duration::from_millis(200);

/// The state that the thread of a service and its supervisor share.
#[derive(Default)]
pub(super) struct Shared {
    pub stop: Stop,
    pub meter: Arc<Meter>,
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
    /// The share of the last seconds in which it did not wait for an input; none before the start.
    #[serde(default)]
    pub busy: Option<f64>,
    /// For each input the next record; none before the start.
    pub positions: BTreeMap<String, u64>,
    /// The call that the component has been in for seconds.
    #[serde(default)]
    pub call: Option<LongCall>,
}

/// Returns the end of the stack of the thread of a long call, as soon as it is known; none of no call. It does not wait.
#[doc(hidden)] // For the other crates of Millstream.
pub type StackOfCall = Box<dyn FnMut(Option<u32>) -> Option<String> + Send>;

/// The file of a service, which is written while it changes, until this ends.
#[derive(Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Reporter {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// What the thread writes.
struct Written {
    inputs: Vec<String>,
    meter: Arc<Meter>,
    stack_of: StackOfCall,
    calls: Window,
    text: String,
}

impl Drop for Reporter {
    fn drop(&mut self) {
        // A service that has failed already has another error.
        let _ = self.end();
    }
}

impl Reporter {
    /// Starts to write the file of the service `name`, which has these inputs, into `folder`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        name: &str,
        inputs: Vec<String>,
        folder: &Path,
        meter: Arc<Meter>,
        stack_of: StackOfCall,
    ) -> io::Result<Self> {
        let path = folder.join(format!("{name}.json"));
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let mut written = Written {
            inputs,
            meter,
            stack_of,
            calls: Window::default(),
            text: String::new(),
        };
        let thread = Builder::new().name("report".to_owned()).spawn(move || {
            loop {
                let is_last = ended.load(Relaxed);
                written.write(&path)?;
                if is_last {
                    return Ok(());
                }
                std::thread::park_timeout(EVERY);
            }
        })?;
        Ok(Self {
            ends,
            thread: Some(thread),
        })
    }

    /// Checks that the file is written.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn check(&mut self) -> io::Result<()> {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            return self.end();
        }
        Ok(())
    }

    /// Writes the file for the last time.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end(&mut self) -> io::Result<()> {
        self.ends.store(true, Relaxed);
        self.thread.take().map_or(Ok(()), |thread| {
            thread.thread().unpark();
            let joined = thread.join();
            joined.unwrap_or_else(|_| Err(io::Error::other("the report of a service panicked")))
        })
    }
}

impl Written {
    /// Writes the file, if its contents have changed.
    fn write(&mut self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_string(&self.status())?;
        if text != self.text {
            let unfinished = path.with_extension("json.new");
            fs::write(&unfinished, &text)?;
            fs::rename(&unfinished, path)?;
            self.text = text;
        }
        Ok(())
    }

    fn status(&mut self) -> Status {
        let Reading {
            report,
            positions,
            call,
            busy,
            waits_for,
        } = self.meter.read();
        let Report {
            calls,
            ticks,
            skipped,
            dead_letters,
        } = report;
        let stack = (self.stack_of)(call.as_ref().map(|call| call.thread));
        let call = call.map(|call| LongCall { stack, ..call });
        let (time_ns, grown) = self.calls.add(monotonic_ns(), calls + ticks);
        let calls_per_s = grown as f64 / (time_ns as f64 / 1e9).max(1e-9);
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
            calls_per_s: (calls_per_s * 10.0).round() / 10.0,
            busy: busy.map(|busy| (busy * 100.0).round() / 100.0),
            positions: self
                .inputs
                .iter()
                .cloned()
                .zip(positions.unwrap_or_default())
                .collect(),
            call,
        }
    }
}
