//! Measures the latency from a record to the call of the component, for a sample of the calls.
//!
//! Reading the clock for each call would take a third of the time of a small call. An idle service can afford it, so
//! each call after a pause is measured and counts once. Of the calls that follow each other without a pause, one in
//! [`PERIOD`] is measured and counts for all of these. So percentiles are those of all calls.

use millstream_journal::Host;
use millstream_wire::Take;

/// One in this many calls without a pause is measured.
const PERIOD: u32 = 16;

pub(crate) struct Sampler {
    host: Host,
    /// Whether the service was idle before the next call.
    was_idle: bool,
    /// Calls without a pause since the last one that was measured.
    since: u32,
}

impl Sampler {
    pub fn new(host: Host) -> Self {
        Self {
            host,
            was_idle: true,
            since: 0,
        }
    }

    /// The service is idle.
    #[inline]
    pub fn idle(&mut self) {
        self.was_idle = true;
    }

    /// The component is about to be called with a record that was published at this time.
    #[inline]
    pub fn take(&mut self, published_ns: u64) -> Option<Take> {
        let calls = if std::mem::take(&mut self.was_idle) {
            1
        } else {
            self.since += 1;
            if self.since < PERIOD {
                return None;
            }
            self.since = 0;
            PERIOD
        };
        let after_ns = self.host.time_ns().saturating_sub(published_ns);
        Some(Take { after_ns, calls })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_stand_for_all_calls() {
        let mut sampler = Sampler::new(Host::real());
        let mut counted = 0;
        for call in 1..=1_000_u32 {
            if call % 10 == 0 {
                sampler.idle();
            }
            let take = sampler.take(0);
            counted += take.map_or(0, |take| take.calls);
            // After each pause, and at the beginning.
            let after_pause = call % 10 == 0 || call == 1;
            assert_eq!(take.is_some_and(|take| take.calls == 1), after_pause);
        }
        assert!((1_000 - PERIOD..=1_000).contains(&counted), "{counted}");
    }
}
