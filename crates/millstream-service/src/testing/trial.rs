//! A component under test: time advances as the test sets it, and timers that come due are called in between.

use std::time::Duration;

use millstream_wire::{Call, Cause, Dispatch, Record, Timestamp};

use crate::outputs::current::Clock;
use crate::timers::{Due, Timer, When, next_due};

/// How often timers may be called between one moment and the next.
const TICKS_MAX: u64 = 100_000;

/// A component outside a service, with its timers and its [`Clock`].
///
/// Timers fire as in a service that runs, before a call at the same moment. The service starts at the
/// first moment that the trial gets.
///
/// ```
/// use std::time::Duration;
/// use millstream_service::{Clock, testing::Trial};
///
/// struct Meter {
///     calls: u32,
///     rates: Vec<(i64, u32)>,
/// }
///
/// # fn main() -> Result<(), millstream_wire::Cause> {
/// let meter = Meter { calls: 0, rates: Vec::new() };
/// let mut trial = Trial::new(meter, Clock::of_test()).every(Duration::from_secs(1), |meter, now_ns| {
///     meter.rates.push((now_ns, std::mem::take(&mut meter.calls)));
///     Ok(())
/// });
/// trial.advance_to(500_000_000)?;
/// trial.component().calls = 7;
/// trial.advance(Duration::from_secs(2))?;
/// assert_eq!(trial.component().rates, [(1_000_000_000, 7), (2_000_000_000, 0)]);
/// # Ok(())
/// # }
/// ```
pub struct Trial<C> {
    component: C,
    clock: Clock,
    timers: Vec<Timer<C>>,
    started: bool,
}

impl<C> Trial<C> {
    /// A trial of this component, which has a clone of `clock`.
    #[must_use]
    pub fn new(component: C, clock: Clock) -> Self {
        let started = clock.now_ns() != 0;
        Self {
            component,
            clock,
            timers: Vec::new(),
            started,
        }
    }

    /// Calls the component every `period`, with the time in ns since 1970.
    #[must_use]
    pub fn every(
        self,
        period: Duration,
        call: impl FnMut(&mut C, i64) -> Result<(), Cause> + Send + 'static,
    ) -> Self {
        self.timer(When::every(period), call)
    }

    /// Calls the component at times, with the time in ns since 1970.
    #[must_use]
    pub fn timer(
        mut self,
        when: When,
        call: impl FnMut(&mut C, i64) -> Result<(), Cause> + Send + 'static,
    ) -> Self {
        let mut timer = Timer::recurring("", when, call);
        timer.begin(self.clock.now_ns());
        self.timers.push(timer);
        self
    }

    /// Calls the component when a one-off timer is due that it has started for the method `name` with the
    /// [`Timers`](crate::Timers) of the trial's clock.
    #[must_use]
    pub fn one_off(
        mut self,
        name: &str,
        call: impl FnMut(&mut C, &str, i64) -> Result<(), Cause> + Send + 'static,
    ) -> Self {
        self.clock.current.add_handler(name);
        self.timers.push(Timer::one_off(name, call));
        self
    }

    /// The component.
    pub fn component(&mut self) -> &mut C {
        &mut self.component
    }

    /// The time that the component sees, in ns since 1970.
    #[must_use]
    pub fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    /// Advances the time to `at_ns` (ns since 1970), and calls each timer as often as it comes due until then. Time
    /// does not go back: an earlier moment changes nothing.
    ///
    /// # Errors
    /// A timer fails, or timers would be called more than 100,000 times.
    pub fn advance_to(&mut self, at_ns: i64) -> Result<(), Cause> {
        if self.begins(at_ns) {
            return Ok(());
        }
        let ticks: u64 = self
            .timers
            .iter()
            .map(|timer| timer.count_until(at_ns))
            .fold(0, u64::saturating_add);
        self.check_ticks(ticks, at_ns)?;
        let mut ticks = 0;
        while let Some(due) = self.due_until(at_ns) {
            ticks += 1; // one-off timers may start others
            self.check_ticks(ticks, at_ns)?;
            let now_ns = due.due_ns;
            self.fire(&due, now_ns)?;
        }
        self.clock.set(self.clock.now_ns().max(at_ns));
        Ok(())
    }

    fn check_ticks(&self, ticks: u64, at_ns: i64) -> Result<(), Cause> {
        if ticks <= TICKS_MAX {
            return Ok(());
        }
        let from = Timestamp(self.clock.now_ns());
        let to = Timestamp(at_ns);
        Err(format!(
            "timers would be called {ticks} times from {from} to {to}; a test may have {TICKS_MAX}"
        )
        .into())
    }

    /// The next timer that is due at this moment.
    fn due_until(&self, at_ns: i64) -> Option<Due> {
        let one_offs = self.clock.current.one_offs();
        next_due(&self.timers, Some(&one_offs), |_| true).filter(|due| due.due_ns <= at_ns)
    }

    /// Advances the time by `by`; as [`advance_to`](Self::advance_to).
    ///
    /// # Errors
    /// As [`advance_to`](Self::advance_to).
    pub fn advance(&mut self, by: Duration) -> Result<(), Cause> {
        self.started = true;
        self.advance_to(self.after(by))
    }

    /// Advances the time by `by` while the service does not run: then each timer that has come due is called as its
    /// rule for
    /// [missed](crate::Missed) occurrences says, by default once.
    ///
    /// # Errors
    /// A timer fails, or timers would be called more than 100,000 times.
    pub fn pause(&mut self, by: Duration) -> Result<(), Cause> {
        self.started = true;
        self.pause_until(self.after(by))
    }

    /// Advances the time to `at_ns` (ns since 1970) while the service does not run; as [`pause`](Self::pause). An
    /// earlier moment changes nothing.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub fn pause_until(&mut self, at_ns: i64) -> Result<(), Cause> {
        if self.begins(at_ns) || at_ns <= self.clock.now_ns() {
            return Ok(());
        }
        for timer in &mut self.timers {
            timer.set_recorded(Some(timer.next_ns()));
            timer.resume(at_ns);
        }
        let mut ticks = 0;
        while let Some(due) = self.due_until(at_ns) {
            ticks += 1;
            self.check_ticks(ticks, at_ns)?;
            self.fire(&due, at_ns)?;
        }
        self.clock.set(at_ns);
        Ok(())
    }

    /// Makes a call of a test at its time. One with only a time advances the time.
    ///
    /// # Errors
    /// The call is none of the interface; the component or a timer fails.
    pub fn call<I: Dispatch<C> + ?Sized>(&mut self, call: &Call) -> Result<(), Cause> {
        self.pass_until(call)?;
        let call = Call {
            at: None,
            ..call.clone()
        };
        make::<I, C>(&mut self.component, &self.clock, &call)
    }

    /// Advances the time to that of a call of a test, or lets the service be down until then.
    ///
    /// # Errors
    /// A timer fails, or timers would be called more than 100,000 times.
    pub fn pass_until(&mut self, call: &Call) -> Result<(), Cause> {
        match call.at {
            Some(at_ns) if is_pause(call) => self.pause_until(at_ns),
            Some(at_ns) => self.advance_to(at_ns),
            None => Ok(()),
        }
    }

    fn after(&self, by: Duration) -> i64 {
        let by_ns = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
        self.clock.now_ns().saturating_add(by_ns)
    }

    /// Whether the service starts with this moment.
    fn begins(&mut self, at_ns: i64) -> bool {
        if std::mem::replace(&mut self.started, true) {
            return false;
        }
        self.clock.set(at_ns);
        for timer in &mut self.timers {
            timer.begin(at_ns);
        }
        true
    }

    /// Calls a timer that is due, when it is `now_ns`. It sees when it was due, as in a service.
    fn fire(&mut self, due: &Due, now_ns: i64) -> Result<(), Cause> {
        let timer = &mut self.timers[due.timer];
        let due_ns = match &due.name {
            Some(name) => {
                self.clock.current.one_offs().cancel(&timer.name, name);
                due.due_ns
            }
            None => timer.take(now_ns),
        };
        self.clock.set(self.clock.now_ns().max(due_ns));
        timer.call(
            &mut self.component,
            due.name.as_deref(),
            self.clock.now_ns(),
        )
    }
}

impl<C> std::fmt::Debug for Trial<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trial(at {})", Timestamp(self.clock.now_ns()))
    }
}

/// Whether this is no call, but advances the time while the service does not run.
fn is_pause(call: &Call) -> bool {
    call.method.is_empty() && !call.arguments.is_empty()
}

/// Makes a call of a test on a component, at the time of the test. For a component with timers use a [`Trial`].
///
/// # Errors
/// The call is none of the interface; the component fails.
#[doc(hidden)] // For the other crates of Millstream.
pub fn make<I: Dispatch<C> + ?Sized, C: ?Sized>(
    component: &mut C,
    clock: &Clock,
    call: &Call,
) -> Result<(), Cause> {
    if let Some(at) = call.at {
        clock.set(at);
    }
    if call.method.is_empty() {
        return Ok(()); // a document with only a time
    }
    let body = call.to_bytes(&I::schema()?, None)?;
    if let Record::Call(_, head, arguments) = Record::read(&body)? {
        I::dispatch(component, head.method, arguments)?;
    }
    Ok(())
}
