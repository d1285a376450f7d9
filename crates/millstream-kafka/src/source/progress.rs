//! How far a partition has been read, for its lag, and whether a transaction that does not end keeps it from being
//! read.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millstream_flow::clock::now_ns;
use millstream_flow::metrics::{Lag, LagGauge};

use crate::client::{Consumer, Ends};

/// A transaction that is open for longer is reported: the longest that brokers allow by default is 15 minutes, that of
/// producers a minute.
const OPEN_NS: u64 = 60_000_000_000;

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
    open: Mutex<OpenTransaction>,
}

/// A transaction at the end of what may be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OpenTransaction {
    /// The offset of its first message, and since when it is known; `None` without one.
    since: Option<(i64, u64)>,
    is_reported: bool,
}

impl OpenTransaction {
    /// Notes where the partition ends. Returns the offset of the first message of a transaction that is open for too
    /// long, once.
    fn note(&mut self, ends: Ends, now_ns: u64) -> Option<i64> {
        if ends.high <= ends.stable {
            *self = OpenTransaction::default();
            return None;
        }
        match self.since {
            Some((first, since_ns)) if first == ends.stable => {
                let is_due = !self.is_reported && now_ns.saturating_sub(since_ns) >= OPEN_NS;
                self.is_reported |= is_due;
                is_due.then_some(first)
            }
            _ => {
                *self = OpenTransaction {
                    since: Some((ends.stable, now_ns)),
                    is_reported: false,
                };
                None
            }
        }
    }
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
            open: Mutex::default(),
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
        let ends = consumer.and_then(|consumer| consumer.end_of((&self.topic, self.number)));
        let Some(ends) = ends else {
            return;
        };
        let next = self.next.load(Ordering::Relaxed);
        let time_ms = self.time_ms.load(Ordering::Relaxed);
        self.gauge.set(lag((next, ends), time_ms, wall_ms()));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = open.note(ends, now_ns()) {
            tracing::warn!(
                "topic \"{}\", partition {}: {} messages from offset {first} on cannot be read: a transaction there has not ended for a \
                 minute, and read_committed readers wait for it. kafka-transactions.sh find-hanging and abort end one that its \
                 producer has left",
                self.topic,
                self.number,
                ends.high - first,
            );
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

/// Returns the lag of a partition that ends at `ends`, and of which `next` is read next.
fn lag((next, ends): (i64, Ends), time_ms: i64, now_ms: i64) -> Lag {
    let records = ends.stable.saturating_sub(next).max(0) as u64;
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
        withheld: Some(ends.high.saturating_sub(ends.stable).max(0) as u64),
        ..Lag::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(end: i64) -> Ends {
        Ends {
            stable: end,
            high: end,
        }
    }

    #[test]
    fn a_transaction_that_does_not_end_is_reported_once_with_its_offset() {
        let ends = |stable, high| Ends { stable, high };
        let mut open = OpenTransaction::default();
        assert_eq!(open.note(ends(5, 5), 0), None);
        assert_eq!(open.note(ends(5, 7), 10), None);
        // The messages after it grow in number; it is the same transaction.
        assert_eq!(open.note(ends(5, 900), 9 + OPEN_NS), None);
        assert_eq!(open.note(ends(5, 900), 10 + OPEN_NS), Some(5));
        assert_eq!(open.note(ends(5, 900), 11 + OPEN_NS), None);
        // The next one is another.
        assert_eq!(open.note(ends(8, 900), 12 + OPEN_NS), None);
        assert_eq!(open.note(ends(8, 900), 12 + 2 * OPEN_NS), Some(8));
        assert_eq!(open.note(ends(900, 900), 13 + 2 * OPEN_NS), None);
        assert_eq!(open, OpenTransaction::default());
        assert_eq!(lag((5, ends(8, 20)), NO_TIME, 0).withheld, Some(12));
    }

    #[test]
    fn the_lag_is_in_offsets_and_in_the_age_of_the_last_message() {
        let none = lag((5, at(5)), 1_000, 9_000);
        assert_eq!((none.records, none.age), (Some(0), Some(Duration::ZERO)));
        let some = lag((5, at(8)), 1_000, 9_000);
        assert_eq!(
            (some.records, some.age),
            (Some(3), Some(Duration::from_secs(8)))
        );
        let unread = lag((0, at(8)), NO_TIME, 9_000);
        assert_eq!((unread.records, unread.age), (Some(8), None));
        // Statistics may be older than what was read, and clocks differ.
        let ahead = lag((9, at(8)), 1_000, 9_000);
        assert_eq!(ahead.records, Some(0));
        assert_eq!(lag((5, at(8)), 9_500, 9_000).age, Some(Duration::ZERO));
    }
}
