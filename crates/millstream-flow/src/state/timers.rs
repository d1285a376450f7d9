//! The timers of one key, and its time to live.

use std::collections::VecDeque;

use super::Moment;
use crate::checkpoint::{StateCodec, pack};
use crate::error::Cause;
use crate::time::NEVER;

/// A moment at which a key is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Fires when the watermark has reached this time.
    Event(i64),
    /// Fires when the clock of the run has reached this time, nanoseconds since 1970.
    Processing(i64),
}

/// The timers of a key, without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Timers {
    event: VecDeque<i64>,
    processing: VecDeque<i64>,
}

impl Timers {
    fn of(&mut self, timer: Timer) -> (&mut VecDeque<i64>, i64) {
        match timer {
            Timer::Event(at) => (&mut self.event, at),
            Timer::Processing(at) => (&mut self.processing, at),
        }
    }

    /// Sets a timer; has no effect if it is already set.
    pub fn set(&mut self, timer: Timer) {
        let (times, at) = self.of(timer);
        if let Err(place) = times.binary_search(&at) {
            times.insert(place, at);
        }
    }

    /// Cancels a timer; false if there is none.
    pub fn cancel(&mut self, timer: Timer) -> bool {
        let (times, at) = self.of(timer);
        let place = times.binary_search(&at);
        place.is_ok_and(|place| times.remove(place).is_some())
    }

    /// Returns the next timers of both kinds.
    #[must_use]
    pub fn next(&self) -> Moment {
        let first = |times: &VecDeque<i64>| times.front().copied().unwrap_or(NEVER);
        Moment {
            event: first(&self.event),
            processing: first(&self.processing),
        }
    }
}

/// The time after which a key without items expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Ttl {
    /// In event time, nanoseconds.
    Event(i64),
    /// In processing time, nanoseconds.
    Processing(i64),
}

/// An event of a key that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Due {
    /// A timer, which is no longer set.
    Timer(Timer),
    /// The end of its time to live.
    Expired,
}

/// The state of a key with its timers and its time to live.
#[doc(hidden)] // For the other crates of Millstream.
pub struct WithTimers<S> {
    /// The user's state.
    pub state: S,
    /// Set if the key must be removed.
    pub discarded: bool,
    // Most keys have no timers.
    timers: Option<Box<Timers>>,
    expires: Moment,
}

impl<S> WithTimers<S> {
    /// Creates a state without timers.
    pub fn new(state: S) -> Self {
        WithTimers {
            state,
            discarded: false,
            timers: None,
            expires: Moment::NEVER,
        }
    }

    /// Returns the timers for modification.
    pub fn timers(&mut self) -> &mut Timers {
        self.timers.get_or_insert_default()
    }

    /// Returns the state and the timers for modification.
    pub fn parts(&mut self) -> (&mut S, &mut Option<Box<Timers>>, &mut bool) {
        (&mut self.state, &mut self.timers, &mut self.discarded)
    }

    /// Restarts the time to live at an item. In event time the end never becomes earlier.
    pub fn touch(&mut self, ttl: Option<Ttl>, time: i64, now: i64) {
        match ttl {
            Some(Ttl::Event(ttl)) => {
                let until = time.saturating_add(ttl);
                self.expires.event = match self.expires.event {
                    NEVER => until,
                    before => before.max(until),
                };
            }
            Some(Ttl::Processing(ttl)) => self.expires.processing = now.saturating_add(ttl),
            None => {}
        }
    }

    /// Returns the timers that are set.
    pub(crate) fn set_timers(&self) -> impl Iterator<Item = Timer> {
        let timers = self.timers.iter();
        timers.flat_map(|timers| {
            let event = timers.event.iter().map(|at| Timer::Event(*at));
            event.chain(timers.processing.iter().map(|at| Timer::Processing(*at)))
        })
    }

    /// Returns the moments at which the key is removed.
    pub(crate) fn expires(&self) -> Moment {
        self.expires
    }

    /// Returns the next moments at which the key is due.
    #[must_use]
    pub fn next(&self) -> Moment {
        let timers = self.timers.as_ref().map_or(Moment::NEVER, |t| t.next());
        Moment {
            event: timers.event.min(self.expires.event),
            processing: timers.processing.min(self.expires.processing),
        }
    }

    /// Takes the first event that is due at `until`: timers in the order of their times, those in event time
    /// first; at the same time a timer before the end of life.
    pub fn take_due(&mut self, until: Moment) -> Option<Due> {
        if self.discarded {
            return None;
        }
        let next = self.next();
        if next.event <= until.event {
            let timer = Timer::Event(next.event);
            return Some(self.take(timer));
        }
        if next.processing <= until.processing {
            let timer = Timer::Processing(next.processing);
            return Some(self.take(timer));
        }
        None
    }

    fn take(&mut self, timer: Timer) -> Due {
        if self.timers.as_mut().is_some_and(|t| t.cancel(timer)) {
            Due::Timer(timer)
        } else {
            self.discarded = true;
            Due::Expired
        }
    }
}

/// Encodes a state with its timers and the end of its life, with a codec for the state itself.
#[doc(hidden)] // For the other crates of Millstream.
pub struct WithTimersCodec<C>(pub C);

impl<S, C: StateCodec<S>> StateCodec<WithTimers<S>> for WithTimersCodec<C> {
    fn save(&self, held: &WithTimers<S>, out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(5, out);
        self.0.save(&held.state, out)?;
        let none = Timers::default();
        let timers = held.timers.as_deref().unwrap_or(&none);
        for times in [&timers.event, &timers.processing] {
            pack::list(times.len(), out);
            times.iter().for_each(|at| pack::integer(*at, out));
        }
        pack::integer(held.expires.event, out);
        pack::integer(held.expires.processing, out);
        Ok(())
    }
    fn load(&self, from: &mut &[u8]) -> Result<WithTimers<S>, Cause> {
        pack::take_members(5, from)?;
        let mut held = WithTimers::new(self.0.load(from)?);
        for timer in [Timer::Event, Timer::Processing] {
            for _ in 0..pack::take_list(from)? {
                held.timers().set(timer(pack::take_integer(from)?));
            }
        }
        held.expires.event = pack::take_integer(from)?;
        held.expires.processing = pack::take_integer(from)?;
        Ok(held)
    }
    fn layout(&self, out: &mut Vec<&'static str>) {
        out.push("timers");
        self.0.layout(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_each_once_and_life_ends_after_them() {
        let mut key = WithTimers::new(());
        for at in [30, 10, 20, 10] {
            key.timers().set(Timer::Event(at));
        }
        assert!(key.timers().cancel(Timer::Event(20)));
        assert!(!key.timers().cancel(Timer::Event(20)));
        key.touch(Some(Ttl::Event(20)), 10, 0);
        key.touch(Some(Ttl::Event(20)), 5, 0);
        let until = Moment {
            event: 100,
            processing: 0,
        };
        let due: Vec<_> = std::iter::from_fn(|| key.take_due(until)).collect();
        assert_eq!(
            due,
            [
                Due::Timer(Timer::Event(10)),
                Due::Timer(Timer::Event(30)),
                Due::Expired
            ]
        );
    }
}
