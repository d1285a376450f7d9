//! Counters and latencies of all queues.

use hdrhistogram::Histogram;

/// What was counted for all queues since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Counters {
    /// Connections accepted.
    pub total_connections: u64,
    /// Keys of `get` and `gets`, peeks not counted.
    pub cmd_get: u64,
    /// `set`s.
    pub cmd_set: u64,
    /// Peeks.
    pub cmd_peek: u64,
    /// Keys for which there was an item.
    pub get_hits: u64,
    /// Keys for which there was none.
    pub get_misses: u64,
    /// Bytes that clients sent.
    pub bytes_read: u64,
    /// Bytes that were sent to clients.
    pub bytes_written: u64,
    /// Queues created.
    pub queue_creates: u64,
    /// Queues deleted by a client.
    pub queue_deletes: u64,
    /// Queues deleted because they were empty for too long.
    pub queue_expires: u64,
    /// Items added, in all queues together.
    pub total_items: u64,
    /// Wrong passwords.
    pub auth_failures: u64,
    /// Requests denied for lack of rights.
    pub denials: u64,
    /// The memory of the buffers of all connections, in bytes. The owner of the connections updates it.
    pub memory_buffers: u64,
}

/// Longer times are counted as one minute, in microseconds.
const LATENCY_US_MAX: u64 = 60_000_000;
const SHOWN: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];

/// How long requests and syncs took, in microseconds. A request takes from the read to the end of the write that
/// answers it.
#[derive(Clone, Debug, Default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Latencies {
    set: Option<Histogram<u64>>,
    get: Option<Histogram<u64>>,
    sync: Option<Histogram<u64>>,
}

impl Latencies {
    /// Records a read that was answered, and whether it had a `set`.
    #[inline]
    pub fn request_us(&mut self, set: bool, us: u64) {
        record(if set { &mut self.set } else { &mut self.get }, us);
    }

    /// Records a sync.
    pub fn sync_us(&mut self, us: u64) {
        record(&mut self.sync, us);
    }

    pub(crate) fn emit(&self, mut emit: impl FnMut(&str, u64)) {
        for (name, histogram) in [("set", &self.set), ("get", &self.get), ("sync", &self.sync)] {
            let Some(histogram) = histogram else { continue };
            for (shown, quantile) in SHOWN {
                emit(
                    &format!("{name}_{shown}_us"),
                    histogram.value_at_quantile(quantile),
                );
            }
        }
    }
}

impl Latencies {
    /// Each histogram that has values: `set`, `get` or `sync`, in microseconds.
    pub fn histograms(&self) -> impl Iterator<Item = (&'static str, &Histogram<u64>)> {
        let all = [("set", &self.set), ("get", &self.get), ("sync", &self.sync)];
        all.into_iter()
            .filter_map(|(name, histogram)| Some((name, histogram.as_ref()?)))
    }
}

#[inline]
fn record(histogram: &mut Option<Histogram<u64>>, us: u64) {
    if histogram.is_none() {
        // Two digits over a minute: some kilobytes, allocated with the first value.
        *histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 2).ok();
    }
    if let Some(histogram) = histogram {
        histogram.saturating_record(us.clamp(1, LATENCY_US_MAX));
    }
}
