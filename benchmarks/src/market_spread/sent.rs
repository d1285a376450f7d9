//! What the sender of a run has sent.

use serde_json::Value;

use super::counts::Stream;

/// The report of the sender over both streams.
#[derive(Default)]
pub struct Sent {
    /// Messages per second over both streams.
    pub rate: f64,
    /// The largest delay against the schedule.
    pub lag_max_us: Option<u64>,
    pub(super) quotes: Stream,
    pub(super) orders: Stream,
    pub(super) interrupted: bool,
    /// When the sender ended.
    pub end_ns: u64,
}

/// The number of groups, about, into which messages that were not sent are divided.
const UNSENT_GROUPS: u64 = 10_000;

impl Sent {
    /// Sums both streams of a report of `millstream send`.
    pub(super) fn of(report: &Value) -> Self {
        let streams = report["streams"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let stream = |index: usize| streams.get(index).map(Stream::of);
        Sent {
            quotes: stream(0).unwrap_or_default(),
            orders: stream(1).unwrap_or_default(),
            interrupted: report["interrupted"].as_bool().unwrap_or(false),
            end_ns: report["end_ns"].as_u64().unwrap_or(0),
            rate: streams
                .iter()
                .filter_map(|stream| stream["messages_per_second"].as_f64())
                .sum(),
            lag_max_us: streams
                .iter()
                .filter_map(|stream| stream["lag_us"]["max"].as_u64())
                .max(),
        }
    }

    /// Calls `book` with the first message and the length of each group of messages that were due and never sent.
    pub fn unsent(&self, mut book: impl FnMut(u64, u64)) {
        for stream in [self.quotes, self.orders] {
            let group = (stream.ordered.saturating_sub(stream.sent) / UNSENT_GROUPS).max(1);
            let mut index = stream.sent;
            while index < stream.ordered {
                let count = group.min(stream.ordered - index);
                book(index, count);
                index += count;
            }
        }
    }
}
