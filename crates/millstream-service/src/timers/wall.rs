//! The clock of the machine, and whether it was set.

use millstream_journal::Host;

/// A difference from the monotonic clock that counts as a step, in ns. The two clocks are slewed together.
const STEP_NS: i64 = 20_000_000;

/// Reads the clock of the machine beside the monotonic clock, so that it notices when that clock is set.
pub(crate) struct Wall {
    /// The time at a monotonic time of 0.
    offset_ns: i64,
}

impl Wall {
    pub fn new(host: &Host) -> Self {
        let monotonic_ns = host.monotonic().as_nanos() as i64;
        Self {
            offset_ns: (host.time_ns() as i64).saturating_sub(monotonic_ns),
        }
    }

    /// The time in ns since 1970, and by how much the clock was set since the last reading.
    pub fn read(&mut self, host: &Host) -> (i64, i64) {
        let before_ns = host.monotonic().as_nanos() as i64;
        let now_ns = host.time_ns() as i64;
        let after_ns = host.monotonic().as_nanos() as i64;
        // The thread may have waited between two readings: the offset is between these.
        let least = now_ns
            .saturating_sub(after_ns)
            .saturating_sub(self.offset_ns);
        let most = now_ns
            .saturating_sub(before_ns)
            .saturating_sub(self.offset_ns);
        let step_ns = match () {
            () if least > STEP_NS => least,
            () if most < -STEP_NS => most,
            () => 0,
        };
        self.offset_ns = self.offset_ns.saturating_add(step_ns);
        (now_ns, step_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[test]
    fn a_step_is_noticed_once_and_the_passing_of_time_is_none() {
        let clocks = Arc::new((AtomicU64::new(1 << 60), AtomicU64::new(5)));
        let wall = Arc::clone(&clocks);
        let steady = Arc::clone(&clocks);
        let host = Host::simulated(move || wall.0.load(Relaxed), || 0)
            .with_monotonic(move || steady.1.load(Relaxed));
        let mut read = Wall::new(&host);
        let mut after = |wall_ns: i64, steady_ns: u64| {
            clocks.0.fetch_add(wall_ns as u64, Relaxed);
            clocks.1.fetch_add(steady_ns, Relaxed);
            read.read(&host).1
        };
        const HOUR: i64 = 3_600_000_000_000;
        assert_eq!(after(HOUR, HOUR as u64), 0);
        assert_eq!(after(HOUR, 0), HOUR);
        assert_eq!(after(7, 7), 0);
        assert_eq!(after(-2 * HOUR, 0), -2 * HOUR);
        assert_eq!(after(STEP_NS, 0), 0);
        assert_eq!(after(STEP_NS, 0), 2 * STEP_NS);
    }
}
