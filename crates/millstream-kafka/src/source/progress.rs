//! How far a partition has been read, for its lag.

use std::sync::Weak;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millstream_flow::metrics::{Lag, LagGauge};

use crate::client::Consumer;

/// The time of a message that has none, or that was not read.
const NO_TIME: i64 = i64::MIN;

/// The progress of a partition, which the worker updates and the watcher compares with the end of the partition.
pub(super) struct Progress {
    topic: String,
    number: i32,
    gauge: LagGauge,
    consumer: Weak<dyn Consumer>,
    /// The offset of the next message.
    next: AtomicI64,
    /// The time of the last message that was read, in milliseconds since 1970.
    time_ms: AtomicI64,
}

impl Progress {
    pub(super) fn new(
        (topic, number): (&str, i32),
        consumer: Weak<dyn Consumer>,
        gauge: LagGauge,
        next: i64,
    ) -> Self {
        Progress {
            topic: topic.to_owned(),
            number,
            gauge,
            consumer,
            next: AtomicI64::new(next),
            time_ms: AtomicI64::new(NO_TIME),
        }
    }

    /// Messages up to this offset were read; the last one has this time.
    pub(super) fn advance(&self, next: i64, time_ms: Option<i64>) {
        self.next.store(next, Ordering::Relaxed);
        if let Some(time_ms) = time_ms {
            self.time_ms.store(time_ms, Ordering::Relaxed);
        }
    }

    /// Reports the lag, if the client has reported the end of the partition.
    pub(super) fn report(&self) {
        let consumer = self.consumer.upgrade();
        let end = consumer.and_then(|consumer| consumer.end_of((&self.topic, self.number)));
        if let Some(end) = end {
            let next = self.next.load(Ordering::Relaxed);
            let time_ms = self.time_ms.load(Ordering::Relaxed);
            self.gauge.set(lag((next, end), time_ms, wall_ms()));
        }
    }
}

/// Milliseconds since 1970.
fn wall_ms() -> i64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "a metric for people; no step of a flow sees it"
    )]
    let now = SystemTime::now();
    let since = now.duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_millis() as i64
}

/// Returns the lag of a partition that ends at `end`, and of which `next` is read next.
fn lag((next, end): (i64, i64), time_ms: i64, now_ms: i64) -> Lag {
    let records = end.saturating_sub(next).max(0) as u64;
    let age = match (records, time_ms) {
        (0, _) => Some(Duration::ZERO),
        (_, NO_TIME) => None,
        (_, time_ms) => {
            let age = now_ms.saturating_sub(time_ms).max(0);
            Some(Duration::from_millis(age as u64))
        }
    };
    Lag {
        records: Some(records),
        age,
        ..Lag::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_in_offsets_and_in_the_age_of_the_last_message() {
        let none = lag((5, 5), 1_000, 9_000);
        assert_eq!((none.records, none.age), (Some(0), Some(Duration::ZERO)));
        let some = lag((5, 8), 1_000, 9_000);
        assert_eq!(
            (some.records, some.age),
            (Some(3), Some(Duration::from_secs(8)))
        );
        let unread = lag((0, 8), NO_TIME, 9_000);
        assert_eq!((unread.records, unread.age), (Some(8), None));
        // Statistics may be older than what was read, and clocks differ.
        let ahead = lag((9, 8), 1_000, 9_000);
        assert_eq!(ahead.records, Some(0));
        assert_eq!(lag((5, 8), 9_500, 9_000).age, Some(Duration::ZERO));
    }
}
