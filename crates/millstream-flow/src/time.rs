//! Event time: items that know when they happened, and watermarks that say how far time has come.
//!
//! [`event_time`](crate::Stream::event_time) makes `Stream<Timed<T>>` of `Stream<T>`. Behind each
//! partition of a source its *watermark* follows the latest time seen, by the lateness that is
//! allowed: no item before it is expected any more. The watermarks of partitions, workers and merged
//! streams are joined by their minimum and travel among the items, in order.
//!
//! Invariant: an item carries the watermark that its own partition had just before it. Whether it is
//! late is judged by that, and not by how far other partitions happen to be. So the answer does not
//! depend on the size of batches, on the number of workers or on who was faster; and since the joined
//! watermark is never ahead of a partition's own, what is not late always arrives in time. (The
//! exception is a partition that was left out because it was idle.) The idea of watermarks is that of
//! MillWheel (Akidau et al., VLDB 2013).

pub mod assign;
pub mod join;
pub mod window;

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Before all times: the watermark of a partition that has said nothing yet.
pub const BEFORE_ALL: i64 = i64::MIN;
/// After all times: the deadline of what waits for nothing.
pub const NEVER: i64 = i64::MAX;

/// A value with its time. It can be used like the value itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Timed<T> {
    /// When it happened: nanoseconds since an epoch of the flow's own choice.
    pub time: i64,
    /// The watermark of its partition just before it.
    pub watermark: i64,
    /// The value.
    pub value: T,
}

impl<T> Timed<T> {
    /// Another value at the same time.
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

/// How event time follows the times of the items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventTime {
    pub(crate) lateness: i64,
    pub(crate) idle: Option<i64>,
}

impl EventTime {
    /// How far behind the latest item of its partition an item may be; nothing unless told otherwise.
    #[must_use]
    pub fn lateness(mut self, lateness: Duration) -> Self {
        self.lateness = nanos(lateness);
        self
    }

    /// After how long without items a partition no longer holds back the others. Unless told
    /// otherwise they wait for it.
    #[must_use]
    pub fn idle(mut self, idle: Duration) -> Self {
        self.idle = Some(nanos(idle));
        self
    }
}

/// A duration in nanoseconds.
#[must_use]
pub fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// What somebody who sends items says about the times of those to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// No item before this is expected.
    pub at: i64,
    /// Whether to wait for the sender.
    pub sender: Sender,
}

/// What a sender of watermarks is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// It is waited for.
    Live,
    /// It has been silent for too long and holds nobody back.
    Idle,
    /// It has sent everything.
    Ended,
}

impl Watermark {
    /// The watermark of a sender that has said nothing yet.
    pub const UNKNOWN: Watermark = Watermark {
        at: BEFORE_ALL,
        sender: Sender::Live,
    };

    /// The watermark of a sender that has nothing to send.
    pub(crate) const NOTHING: Watermark = Watermark {
        at: BEFORE_ALL,
        sender: Sender::Ended,
    };

    /// The watermark of all senders together: the least of those that are live. When all have ended
    /// nothing is held back, and time has come as far as it did anywhere.
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
                at: BEFORE_ALL,
                sender: Sender::Idle,
            },
            (None, false) => Watermark {
                at: furthest,
                sender: Sender::Ended,
            },
        }
    }

    /// How far the others let time come: an item of one sender meets timers up to this.
    pub(crate) fn floor(others: impl Iterator<Item = Watermark>) -> i64 {
        others
            .filter(|mark| mark.sender == Sender::Live)
            .map(|mark| mark.at)
            .min()
            .unwrap_or(NEVER)
    }
}

/// The watermarks of several senders, joined.
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

    /// Takes in what one sender says; gives the joined watermark if that changes it.
    pub(crate) fn hear(&mut self, sender: usize, mark: Watermark) -> Option<Watermark> {
        self.senders[sender] = mark;
        let mut joined = Watermark::join(self.senders.iter().copied());
        // Who comes back from being idle may be behind; time does not go back for it.
        joined.at = joined.at.max(self.joined.at);
        let changed = joined != self.joined;
        self.joined = joined;
        changed.then_some(joined)
    }

    /// How far all senders but one let time come.
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
    fn the_slowest_live_sender_decides_and_time_never_goes_back() {
        let mut marks = Watermarks::new(vec![Watermark::UNKNOWN; 3]);
        assert_eq!(marks.hear(0, mark(10, Sender::Live)), None);
        assert_eq!(marks.hear(1, mark(5, Sender::Live)), None);
        assert_eq!(
            marks.hear(2, mark(7, Sender::Live)),
            Some(mark(5, Sender::Live))
        );
        assert_eq!(marks.floor(1), 7);
        assert_eq!(
            marks.hear(1, mark(5, Sender::Idle)),
            Some(mark(7, Sender::Live))
        );
        assert_eq!(marks.hear(1, mark(6, Sender::Live)), None);
        assert_eq!(
            marks.hear(2, mark(8, Sender::Ended)),
            None,
            "sender 1 is at 6, which time has passed"
        );
        assert_eq!(
            marks.hear(1, mark(20, Sender::Ended)),
            Some(mark(10, Sender::Live))
        );
        assert_eq!(
            marks.hear(0, mark(11, Sender::Ended)),
            Some(mark(20, Sender::Ended))
        );
        assert_eq!(marks.floor(0), NEVER);
    }
}
