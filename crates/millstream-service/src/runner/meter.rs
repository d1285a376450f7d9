//! The progress of a service, for observers on other threads.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::state::{Runner, STOP_CHECK};
use crate::error::ServiceError;
use crate::inputs::inlet::Outcome;
use crate::settings::{Report, Stop};

/// The counts of a runner and the next record of each input. The runner's thread writes it, any other reads it.
///
/// ```
/// let meter = millstream_service::Meter::default();
/// assert_eq!(meter.positions(), None); // the service has not started yet
/// assert_eq!(meter.report().calls, 0);
/// ```
#[derive(Debug, Default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Meter {
    calls: AtomicU64,
    ticks: AtomicU64,
    skipped: AtomicU64,
    dead_letters: AtomicU64,
    positions: OnceLock<Vec<AtomicU64>>,
}

impl Meter {
    /// The counts when it was last written.
    #[must_use]
    pub fn report(&self) -> Report {
        Report {
            calls: self.calls.load(Relaxed),
            ticks: self.ticks.load(Relaxed),
            skipped: self.skipped.load(Relaxed),
            dead_letters: self.dead_letters.load(Relaxed),
        }
    }

    /// For each input, in the order in which they were added, the sequence number of the next record; empty before the
    /// start.
    #[must_use]
    pub fn positions(&self) -> Option<Vec<u64>> {
        let positions = self.positions.get()?.iter();
        Some(positions.map(|at| at.load(Relaxed)).collect())
    }
}

/// After how many inputs in a row a meter is written.
const INPUTS: u32 = 256;

impl<C> Runner<C> {
    /// As [`run`](Self::run), and publishes the progress of the service after each turn.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub fn run_with(&mut self, stop: &Stop, meter: &Meter) -> Result<Report, ServiceError> {
        let mut inputs = 0;
        self.write_to(meter);
        self.follow(stop)?;
        while !stop.is_set() {
            let taken = self.turn()?;
            inputs += 1;
            if taken == Outcome::Nothing || inputs >= INPUTS {
                inputs = 0;
                self.write_to(meter);
            }
            while (taken == Outcome::Nothing || self.is_ahead())
                && !self.wait_followed(STOP_CHECK)?
                && !stop.is_set()
            {
                self.write_to(meter);
            }
            if taken == Outcome::Nothing {
                self.wait_for_input()?;
            }
        }
        let ended = self.run(stop);
        self.write_to(meter);
        ended
    }

    /// Publishes the progress of the service.
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
        let make = || self.inlets.iter().map(|_| AtomicU64::new(0)).collect();
        for (inlet, at) in self.inlets.iter().zip(meter.positions.get_or_init(make)) {
            at.store(inlet.position(), Relaxed);
        }
    }
}
