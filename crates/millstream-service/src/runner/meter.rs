//! The progress of a service, for observers on other threads.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use millstream_journal::clock::monotonic_ns;
use rustix::thread::gettid;
use serde::{Deserialize, Serialize};

use super::state::{Runner, STOP_CHECK};
use crate::error::ServiceError;
use crate::inputs::inlet::Outcome;
use crate::outputs::current::Current;
use crate::settings::{Report, Stop};

/// The seconds from which a call is long.
const LONG_S: u64 = 2;
/// The time over which rates and shares are measured, in ns.
const WINDOW_NS: u64 = 3_000_000_000;

/// The progress of a service at one moment.
#[derive(Debug, Clone, Default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Reading {
    /// The counts.
    pub report: Report,
    /// For each input, in the order in which they were added, the number of the next record; none before the start.
    pub positions: Option<Vec<u64>>,
    /// The call that the component is in, if it has been in it for seconds.
    pub call: Option<LongCall>,
    /// The share of the last seconds in which it did not wait for an input, from 0 to 1; none at the first look.
    pub busy: Option<f64>,
    /// The input that does not exist yet, for which it waits.
    pub waits_for: Option<String>,
}

/// A call that the component has been in for seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct LongCall {
    /// The place of its input among the inputs; a larger number is a timer.
    pub input: usize,
    /// The record that it is called with.
    pub record: u64,
    /// For how many seconds it has been seen in this call.
    pub seconds: u64,
    /// The number of the thread in the operating system.
    pub thread: u32,
    /// The end of the stack of that thread, where the program knows it.
    pub stack: Option<String>,
}

/// The counts of a runner and the next record of each input. The runner's thread writes it, any other reads it.
///
/// ```
/// let meter = millstream_service::Meter::default();
/// assert_eq!(meter.read().positions, None); // the service has not started yet
/// assert_eq!(meter.read().report.calls, 0);
/// ```
#[derive(Default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Meter {
    calls: AtomicU64,
    ticks: AtomicU64,
    skipped: AtomicU64,
    dead_letters: AtomicU64,
    running: OnceLock<Running>,
    /// The call that was seen last, and when it was seen first.
    seen: Mutex<Option<((u32, u64), u64)>>,
    /// The time that it has waited for inputs.
    idle: Mutex<Window>,
    waits_for: Mutex<Option<String>>,
}

/// The values of a counter over the last seconds, with their times.
#[derive(Debug, Default)]
pub(crate) struct Window(VecDeque<(u64, u64)>);

/// What is known from the start of a runner on.
struct Running {
    positions: Vec<AtomicU64>,
    current: Arc<Current>,
    /// The number of its thread in the operating system.
    thread: u32,
}

impl Window {
    /// Adds the value of now. Returns the time since the oldest value in ns, and by how much the counter has grown.
    pub(crate) fn add(&mut self, now_ns: u64, value: u64) -> (u64, u64) {
        let Window(kept) = self;
        let is_old = |first: &(u64, u64)| now_ns - first.0 > WINDOW_NS;
        while kept.len() > 1 && kept.front().is_some_and(is_old) {
            kept.pop_front();
        }
        kept.push_back((now_ns, value));
        let (since_ns, before) = kept.front().copied().unwrap_or_default();
        (now_ns - since_ns, value.saturating_sub(before))
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meter({:?})", self.report())
    }
}

impl Meter {
    /// Returns the progress. For how long a call lasts is known from the first look at it on.
    #[must_use]
    pub fn read(&self) -> Reading {
        let running = self.running.get();
        Reading {
            report: self.report(),
            positions: running.map(|running| {
                let positions = running.positions.iter();
                positions.map(|at| at.load(Relaxed)).collect()
            }),
            call: running.and_then(|running| self.long_call(running)),
            busy: running.and_then(|running| self.busy(running)),
            waits_for: lock(&self.waits_for).clone(),
        }
    }

    /// Notes the input that does not exist yet.
    pub fn wait_for(&self, path: Option<String>) {
        *lock(&self.waits_for) = path;
    }

    fn busy(&self, running: &Running) -> Option<f64> {
        let now_ns = monotonic_ns();
        let idle_ns = running.current.idle_ns(now_ns);
        let (time_ns, idle_ns) = lock(&self.idle).add(now_ns, idle_ns);
        (time_ns > 0).then(|| (1.0 - idle_ns as f64 / time_ns as f64).clamp(0.0, 1.0))
    }

    fn report(&self) -> Report {
        Report {
            calls: self.calls.load(Relaxed),
            ticks: self.ticks.load(Relaxed),
            skipped: self.skipped.load(Relaxed),
            dead_letters: self.dead_letters.load(Relaxed),
        }
    }

    fn long_call(&self, running: &Running) -> Option<LongCall> {
        let mut seen = lock(&self.seen);
        let Some(call) = running.current.call() else {
            *seen = None;
            return None;
        };
        let now_ns = monotonic_ns();
        let since = seen.filter(|(of, _)| *of == call);
        let (_, since_ns) = *seen.insert(since.unwrap_or((call, now_ns)));
        let seconds = (now_ns - since_ns) / 1_000_000_000;
        let (input, record) = call;
        (seconds >= LONG_S).then_some(LongCall {
            input: input as usize,
            record,
            seconds,
            thread: running.thread,
            stack: None,
        })
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<C> Runner<C> {
    /// As [`run`](Self::run), and publishes the progress of the service after each turn.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub fn run_with(&mut self, stop: &Stop, meter: &Meter) -> Result<Report, ServiceError> {
        self.write_to(meter);
        self.follow(stop)?;
        while !stop.is_set() {
            let taken = self.turn()?;
            self.write_to(meter);
            while (taken == Outcome::Nothing || self.is_ahead())
                && !self.wait_followed(STOP_CHECK)?
                && !stop.is_set()
            {}
            if taken == Outcome::Nothing {
                self.wait_for_input()?;
            }
        }
        let ended = self.run(stop);
        self.write_to(meter);
        ended
    }

    /// Publishes the progress of the service: some stores, so that it is done after each call.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn write_to(&self, meter: &Meter) {
        let Report {
            calls,
            ticks,
            skipped,
            dead_letters,
        } = self.report();
        meter.calls.store(calls, Relaxed);
        meter.ticks.store(ticks, Relaxed);
        meter.skipped.store(skipped, Relaxed);
        meter.dead_letters.store(dead_letters, Relaxed);
        let running = meter.running.get_or_init(|| Running {
            positions: self.inlets.iter().map(|_| AtomicU64::new(0)).collect(),
            current: Arc::clone(&self.progress.current),
            thread: gettid().as_raw_pid().unsigned_abs(),
        });
        for (inlet, at) in self.inlets.iter().zip(&running.positions) {
            at.store(inlet.position(), Relaxed);
        }
    }
}
