//! Event time: items with the times at which they happened, and watermarks: how far event time has advanced.
//!
//! [`event_time`](crate::Stream::event_time) makes a `Stream<Timed<T>>` from a `Stream<T>`. The *watermark* of
//! each partition of a source is its latest time minus the allowed lateness: no item before it is expected any
//! more. The watermark of several partitions, workers or merged streams is the minimum of theirs. Watermarks
//! are sent between the items, in order.
//!
//! Invariant: an item has the watermark of its own partition, by the items up to it and itself. What is due by then
//! (timers, the end of a life, of a window) comes before the item. Whether the item is late depends on that watermark,
//! which its own time does not pass, and not on the progress of other partitions. So the result does not depend on the
//! size of batches, the number of workers or the speed of partitions; and because the joined watermark is never ahead
//! of a partition's own, an item that is not late always arrives in time. (The exception is a partition that was
//! excluded because it was idle.) The idea of watermarks is that of MillWheel (Akidau et al., VLDB 2013).

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Before all times: the watermark of a partition that has sent none yet.
pub const BEFORE_ALL: i64 = i64::MIN;
/// After all times: the deadline of a step without timers.
pub const NEVER: i64 = i64::MAX;

/// A value with its time. It dereferences to the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Timed<T> {
    /// The time at which it happened: nanoseconds since an epoch that the flow chooses.
    pub time: i64,
    /// The watermark of its partition at it: of the items before it, and of its own time.
    pub watermark: i64,
    /// The value.
    pub value: T,
}

impl<T> Timed<T> {
    /// Replaces the value and keeps the time.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Timed<U> {
        Timed {
            time: self.time,
            watermark: self.watermark,
            value: f(self.value),
        }
    }
}

impl<T> Deref for Timed<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Timed<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// The options of event time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventTime {
    pub(crate) lateness: i64,
    pub(crate) idle: Option<i64>,
    pub(crate) clocked: bool,
}

impl EventTime {
    /// Sets how much earlier than the latest item of its partition an item may be. The default is zero.
    #[must_use]
    pub fn lateness(mut self, lateness: Duration) -> Self {
        self.lateness = nanos(lateness);
        self
    }

    /// Sets the time without items after which other partitions no longer wait for a partition. By default they
    /// always wait for it.
    #[must_use]
    pub fn idle(mut self, idle: Duration) -> Self {
        self.idle = Some(nanos(idle));
        self
    }

    /// Reads the clock in each turn, so that a step that assigns times can compare them with
    /// [`Context::now`](crate::step::Context::now).
    #[must_use]
    pub fn clocked(mut self) -> Self {
        self.clocked = true;
        self
    }
}

/// Converts a duration to nanoseconds.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// The watermark of one sender of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Watermark {
    /// No item before this is expected.
    pub at: i64,
    /// The state of the sender.
    pub sender: Sender,
}

/// The state of a sender of watermarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Sender {
    /// Receivers wait for it.
    Live,
    /// It has been silent for too long, and receivers do not wait for it.
    Idle,
    /// It has sent all its items.
    Ended,
}

impl Watermark {
    /// The watermark of a sender that has sent none yet.
    pub const UNKNOWN: Watermark = Watermark {
        at: BEFORE_ALL,
        sender: Sender::Live,
    };

    /// The watermark of a sender without items.
    pub(crate) const NOTHING: Watermark = Watermark {
        at: BEFORE_ALL,
        sender: Sender::Ended,
    };

    /// Joins the watermarks of all senders: the minimum of those that are live. If none is live, the maximum of all.
    pub(crate) fn join(all: impl Iterator<Item = Watermark>) -> Watermark {
        let mut least: Option<i64> = None;
        let mut furthest = BEFORE_ALL;
        let mut idle = false;
        for mark in all {
            furthest = furthest.max(mark.at);
            match mark.sender {
                Sender::Live => least = Some(least.map_or(mark.at, |at| at.min(mark.at))),
                Sender::Idle => idle = true,
                Sender::Ended => {}
            }
        }
        match (least, idle) {
            (Some(at), _) => Watermark {
                at,
                sender: Sender::Live,
            },
            (None, true) => Watermark {
                at: furthest,
                sender: Sender::Idle,
            },
            (None, false) => Watermark {
                at: furthest,
                sender: Sender::Ended,
            },
        }
    }

    /// Returns the event time up to which all other senders have advanced: an item of one sender fires timers
    /// up to it.
    pub(crate) fn floor(others: impl Iterator<Item = Watermark>) -> i64 {
        others
            .filter(|mark| mark.sender == Sender::Live)
            .map(|mark| mark.at)
            .min()
            .unwrap_or(NEVER)
    }
}

/// The joined watermark of several senders.
pub(crate) struct Watermarks {
    senders: Vec<Watermark>,
    joined: Watermark,
}

impl Watermarks {
    pub(crate) fn new(senders: Vec<Watermark>) -> Self {
        Watermarks {
            senders,
            joined: Watermark::UNKNOWN,
        }
    }

    /// Sets the watermark of one sender; returns the joined watermark if it changes.
    pub(crate) fn update(&mut self, sender: usize, mark: Watermark) -> Option<Watermark> {
        self.senders[sender] = mark;
        let mut joined = Watermark::join(self.senders.iter().copied());
        // A sender that was idle may have an earlier watermark; time does not decrease.
        joined.at = joined.at.max(self.joined.at);
        let changed = joined != self.joined;
        self.joined = joined;
        changed.then_some(joined)
    }

    /// Returns the event time up to which all senders but one have advanced.
    pub(crate) fn floor(&self, sender: usize) -> i64 {
        let others = self.senders.iter().enumerate();
        Watermark::floor(
            others
                .filter(|(other, _)| *other != sender)
                .map(|(_, mark)| *mark),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(at: i64, sender: Sender) -> Watermark {
        Watermark { at, sender }
    }

    #[test]
    fn the_slowest_live_sender_decides_and_time_never_decreases() {
        let mut marks = Watermarks::new(vec![Watermark::UNKNOWN; 3]);
        assert_eq!(marks.update(0, mark(10, Sender::Live)), None);
        assert_eq!(marks.update(1, mark(5, Sender::Live)), None);
        assert_eq!(
            marks.update(2, mark(7, Sender::Live)),
            Some(mark(5, Sender::Live))
        );
        assert_eq!(marks.floor(1), 7);
        assert_eq!(
            marks.update(1, mark(5, Sender::Idle)),
            Some(mark(7, Sender::Live))
        );
        assert_eq!(marks.update(1, mark(6, Sender::Live)), None);
        assert_eq!(
            marks.update(2, mark(8, Sender::Ended)),
            None,
            "sender 1 is at 6, which time has passed"
        );
        assert_eq!(
            marks.update(1, mark(20, Sender::Ended)),
            Some(mark(10, Sender::Live))
        );
        assert_eq!(
            marks.update(0, mark(11, Sender::Ended)),
            Some(mark(20, Sender::Ended))
        );
        assert_eq!(marks.floor(0), NEVER);
    }
}
