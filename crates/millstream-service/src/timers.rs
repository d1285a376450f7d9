//! When timers fire: at the multiples of their periods, counted from 1970.
//!
//! A running service calls a timer at each multiple. After a pause, in which several multiples have passed, it calls it once. This module reads no clock:
//! the runner passes the time of the machine, a test its own time, so that both follow one rule.

use std::time::Duration;

use millstream_wire::Cause;

/// A method that is called periodically.
pub(super) struct Timer<C> {
    pub name: String,
    pub period_ns: i64,
    /// The multiple at which it is called next.
    due_ns: i64,
    pub call: TimerCall<C>,
}

type TimerCall<C> = Box<dyn FnMut(&mut C, i64) -> Result<(), Cause> + Send>;

impl<C> Timer<C> {
    pub fn new(
        name: &str,
        period: Duration,
        call: impl FnMut(&mut C, i64) -> Result<(), Cause> + Send + 'static,
    ) -> Self {
        Self {
            name: name.to_owned(),
            period_ns: i64::try_from(period.as_nanos()).unwrap_or(i64::MAX).max(1),
            due_ns: 0,
            call: Box::new(call),
        }
    }

    /// Sets the next call to the first multiple after `now`: when the timer begins, and when it has fired.
    pub fn pass(&mut self, now_ns: i64) {
        let multiple = now_ns.div_euclid(self.period_ns).saturating_add(1);
        self.due_ns = multiple.saturating_mul(self.period_ns);
    }

    /// How often it is called from its next multiple to `end_ns`, both included.
    pub fn count_until(&self, end_ns: i64) -> u64 {
        let left = i128::from(end_ns) - i128::from(self.due_ns);
        u64::try_from(left.div_euclid(i128::from(self.period_ns)) + 1).unwrap_or(0)
    }
}

/// When a timer is due next, and which one; the first of them where several are due at once.
pub(super) fn next_due<C>(timers: &[Timer<C>]) -> Option<(i64, usize)> {
    let due = timers.iter().enumerate();
    due.map(|(at, timer)| (timer.due_ns, at)).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_due_at_the_multiples_of_its_period() {
        let mut timer = Timer::<()>::new("beat", Duration::from_nanos(10), |(), _| Ok(()));
        for (now, due, until_35) in [
            (0, 10, 3),
            (9, 10, 3),
            (10, 20, 2),
            (35, 40, 0),
            (-1, 0, 4),
            (-10, 0, 4),
        ] {
            timer.pass(now);
            assert_eq!(
                (timer.due_ns, timer.count_until(35)),
                (due, until_35),
                "{now}"
            );
        }
        timer.pass(i64::MAX);
        assert_eq!(timer.due_ns, i64::MAX);
    }
}
