//! What is counted, and how `stats` and `dump_stats` say it.

use hdrhistogram::Histogram;

/// Counted for all queues since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections made.
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
    /// Broker that came to be.
    pub queue_creates: u64,
    /// Broker that were deleted by a client.
    pub queue_deletes: u64,
    /// Broker that were deleted because they were empty for too long.
    pub queue_expires: u64,
    /// Items that came in, all queues together.
    pub total_items: u64,
    /// Wrong passwords.
    pub auth_failures: u64,
    /// Requests that were refused for want of rights.
    pub denials: u64,
    /// What the buffers of all connections hold at present, in bytes. The owner of the connections tells.
    pub memory_buffers: u64,
}

/// Longer times are counted as this one: a minute, in microseconds.
const LATENCY_US_MAX: u64 = 60_000_000;
const SHOWN: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];

/// How long requests and syncs took, in microseconds: from a read to the end of the write that answers it.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    set: Option<Histogram<u64>>,
    get: Option<Histogram<u64>>,
    sync: Option<Histogram<u64>>,
}

impl Latencies {
    /// A read that brought a `set`, or none, was answered.
    #[inline]
    pub fn request_us(&mut self, set: bool, us: u64) {
        record(if set { &mut self.set } else { &mut self.get }, us);
    }

    /// A sync was done.
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

#[inline]
fn record(histogram: &mut Option<Histogram<u64>>, us: u64) {
    if histogram.is_none() {
        // Two digits over a minute: some kilobytes, made when there is something to tell.
        *histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 2).ok();
    }
    if let Some(histogram) = histogram {
        histogram.saturating_record(us.clamp(1, LATENCY_US_MAX));
    }
}
