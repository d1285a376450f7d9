//! The timers of a component: recurring ones ([`When`]), and one-off ones that the component starts itself
//! ([`OneOffs`]).
//!
//! A running service, a start after a pause and a test follow one rule. This module reads no clock, except for
//! [`Wall`], through which a running service notices that the clock of the machine was set: an interval goes on then,
//! its next call moves with the clock.

mod one_off;
mod wall;
mod when;

use std::time::Duration;

use millstream_wire::Cause;

use crate::panics;

pub(crate) use one_off::{OneOffs, Pending};
pub(crate) use wall::Wall;
pub use when::{Missed, When};

type TimerCall<C> = Box<dyn FnMut(&mut C, &str, i64) -> Result<(), Cause> + Send>;

/// A method that is called at times.
pub(super) struct Timer<C> {
    pub name: String,
    kind: Kind,
    call: TimerCall<C>,
}

enum Kind {
    Recurring(Recurring),
    /// The component starts it; its times are in [`OneOffs`].
    OneOff,
}

/// The state of a recurring timer.
struct Recurring {
    when: When,
    /// When it is called next.
    due_ns: i64,
    /// The occurrence of its last call.
    last_ns: Option<i64>,
    /// The occurrence that a schedule says is next, until the service has started.
    recorded_ns: Option<i64>,
}

/// A timer that is due: its number, the occurrence, and the name of a one-off timer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub due_ns: i64,
    pub timer: usize,
    pub name: Option<String>,
}

impl<C> Timer<C> {
    pub fn recurring(
        name: &str,
        when: When,
        mut call: impl FnMut(&mut C, i64) -> Result<(), Cause> + Send + 'static,
    ) -> Self {
        let due_ns = when.after(0);
        Self {
            name: name.to_owned(),
            kind: Kind::Recurring(Recurring {
                when,
                due_ns,
                last_ns: None,
                recorded_ns: None,
            }),
            call: Box::new(move |component, _, at_ns| call(component, at_ns)),
        }
    }

    pub fn one_off(
        name: &str,
        call: impl FnMut(&mut C, &str, i64) -> Result<(), Cause> + Send + 'static,
    ) -> Self {
        Self {
            name: name.to_owned(),
            kind: Kind::OneOff,
            call: Box::new(call),
        }
    }

    pub fn is_one_off(&self) -> bool {
        matches!(self.kind, Kind::OneOff)
    }

    /// The next occurrence; 0 of a one-off timer.
    pub fn next_ns(&self) -> i64 {
        self.recurring_state().map_or(0, |state| state.due_ns)
    }

    fn recurring_state(&self) -> Option<&Recurring> {
        match &self.kind {
            Kind::Recurring(state) => Some(state),
            Kind::OneOff => None,
        }
    }

    fn recurring_mut(&mut self) -> Option<&mut Recurring> {
        match &mut self.kind {
            Kind::Recurring(state) => Some(state),
            Kind::OneOff => None,
        }
    }

    /// The timer begins: its first occurrence is the one after `now`.
    pub fn begin(&mut self, now_ns: i64) {
        if let Some(state) = self.recurring_mut() {
            state.due_ns = state.when.after(now_ns);
        }
    }

    /// The timer is never due any more.
    pub fn end(&mut self) {
        if let Some(state) = self.recurring_mut() {
            state.due_ns = i64::MAX;
        }
    }

    /// The schedule says which occurrence is next; `None` where it lacks the timer.
    pub fn set_recorded(&mut self, next_ns: Option<i64>) {
        if let Some(state) = self.recurring_mut() {
            state.recorded_ns = next_ns;
        }
    }

    /// The service has been down until `now`: the next occurrence is the one that the schedule has, which was missed if
    /// it has passed.
    pub fn resume(&mut self, now_ns: i64) {
        let Some(state) = self.recurring_mut() else {
            return;
        };
        let fresh = state.when.after(now_ns);
        // One beyond the next was recorded while the clock was ahead.
        let recorded = { state.recorded_ns.take() }.map_or(fresh, |next_ns| {
            state.when.after(next_ns.saturating_sub(1)).min(fresh)
        });
        state.due_ns = match state.when.missed_rule() {
            Missed::Skip => fresh,
            Missed::Once | Missed::All => recorded,
        };
    }

    /// The clock of the machine was set by `step`: it is `now` at present.
    pub fn step(&mut self, step_ns: i64, now_ns: i64) {
        let Some(state) = self.recurring_mut() else {
            return;
        };
        if state.when.is_interval() {
            state.due_ns = state.due_ns.saturating_add(step_ns);
            return;
        }
        // Of a clock that was ahead, the occurrence that was called is not called again.
        let mut next_ns = state.when.after(now_ns);
        if state.last_ns == Some(next_ns) {
            next_ns = state.when.after(next_ns);
        }
        state.due_ns = state.due_ns.min(next_ns);
    }

    /// The occurrence to call a timer that is due with, and moves on to the next one.
    pub fn take(&mut self, now_ns: i64) -> i64 {
        let Some(state) = self.recurring_mut() else {
            return now_ns;
        };
        let (due_ns, next_ns) = state.when.take(state.due_ns, now_ns);
        (state.due_ns, state.last_ns) = (next_ns, Some(due_ns));
        due_ns
    }

    /// How often it is called from its next occurrence to `end_ns`, both included.
    pub fn count_until(&self, end_ns: i64) -> u64 {
        let count = |state: &Recurring| state.when.count(state.due_ns, end_ns);
        self.recurring_state().map_or(0, count)
    }

    /// Calls the component; `name` is that of a one-off timer.
    pub fn call(&mut self, component: &mut C, name: Option<&str>, at_ns: i64) -> Result<(), Cause> {
        panics::call(component, |component| {
            (self.call)(component, name.unwrap_or_default(), at_ns)
        })
    }
}

/// The timer that is due next; the first of them where several are due at once. Of one-off timers those for whose
/// method `calls` is true.
pub(super) fn next_due<C>(
    timers: &[Timer<C>],
    one_offs: Option<&OneOffs>,
    calls: impl Fn(usize) -> bool,
) -> Option<Due> {
    let recurring = timers.iter().enumerate().filter_map(|(timer, it)| {
        let due_ns = it.recurring_state()?.due_ns;
        Some((due_ns, timer))
    });
    let recurring = recurring.min().map(|(due_ns, timer)| Due {
        due_ns,
        timer,
        name: None,
    });
    let one_off = one_offs.and_then(|one_offs| {
        let due = |(due_ns, method, name): (i64, &str, &str)| {
            let timer = timers.iter().position(|it| it.name == method)?;
            calls(timer).then(|| Due {
                due_ns,
                timer,
                name: Some(name.to_owned()),
            })
        };
        one_offs.in_order().find_map(due)
    });
    recurring.into_iter().chain(one_off).min()
}

/// A length of time in ns, at least 1.
fn length_ns(length: Duration) -> i64 {
    i64::try_from(length.as_nanos()).unwrap_or(i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(when: When) -> Timer<()> {
        Timer::recurring("beat", when, |(), _| Ok(()))
    }

    fn tens(missed: Missed) -> Timer<()> {
        timer(When::every(Duration::from_nanos(10)).missed(missed))
    }

    #[test]
    fn a_timer_is_due_at_the_multiples_of_its_period() {
        let mut timer = tens(Missed::Once);
        for (now, due, until_35) in [
            (0, 10, 3),
            (9, 10, 3),
            (10, 20, 2),
            (35, 40, 0),
            (-1, 0, 4),
            (-10, 0, 4),
        ] {
            timer.begin(now);
            assert_eq!(
                (timer.next_ns(), timer.count_until(35)),
                (due, until_35),
                "{now}"
            );
        }
        timer.begin(i64::MAX);
        assert_eq!(timer.next_ns(), i64::MAX);
    }

    #[test]
    fn missed_occurrences_follow_the_rule() {
        // The next was due at 20, and the time is 55: the calls until then, and the one after them.
        for (missed, down, busy) in [
            (Missed::Once, &[20][..], &[20][..]),
            (Missed::Skip, &[], &[50]),
            (Missed::All, &[20, 30, 40, 50], &[20, 30, 40, 50]),
        ] {
            let calls = |timer: &mut Timer<()>| {
                let mut calls = Vec::new();
                while timer.next_ns() <= 55 {
                    calls.push(timer.take(55));
                }
                assert_eq!(timer.next_ns(), 60);
                calls
            };
            let mut timer = tens(missed);
            timer.set_recorded(Some(20));
            timer.resume(55);
            assert_eq!(calls(&mut timer), down, "{missed:?}, down");
            timer.begin(15);
            assert_eq!(calls(&mut timer), busy, "{missed:?}, busy");
        }
    }

    #[test]
    fn an_interval_continues_when_the_clock_is_set() {
        let mut timer = tens(Missed::All);
        timer.begin(12);
        timer.step(1000, 1013);
        assert_eq!(timer.next_ns(), 1020);
        assert_eq!((timer.take(1021), timer.next_ns()), (1020, 1030));
        timer.step(-1000, 22);
        assert_eq!(timer.next_ns(), 30);
        // One that was recorded by a clock that was ahead does not hold it up.
        timer.set_recorded(Some(5000));
        timer.resume(44);
        assert_eq!(timer.next_ns(), 50);
    }

    #[test]
    fn an_hour_of_the_day_is_called_once_though_the_clock_is_set_back() {
        const HOUR: i64 = 3_600_000_000_000;
        let mut timer = timer(When::daily("18:00", "UTC").unwrap());
        timer.begin(12 * HOUR);
        assert_eq!(timer.take(18 * HOUR), 18 * HOUR);
        timer.step(-HOUR, 17 * HOUR);
        assert_eq!(timer.next_ns(), (24 + 18) * HOUR);
        // A month ahead, and put right.
        let ahead = 30 * 24 * HOUR + 20 * HOUR;
        timer.step(30 * 24 * HOUR, ahead);
        assert_eq!(timer.take(ahead), (24 + 18) * HOUR);
        timer.step(-30 * 24 * HOUR, 20 * HOUR);
        assert_eq!(timer.next_ns(), (48 + 18) * HOUR);
    }
}
