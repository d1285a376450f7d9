//! User-defined state for each key, with timers.

use std::marker::PhantomData;

use super::{Due, KeyLogic, Moment, Outputs, Timer, Timers, Ttl, WithTimers, WithTimersCodec};
use crate::batch::Data;
use crate::checkpoint::{BoxedCodec, Codecs};
use crate::error::Cause;
use crate::time::Timed;

/// The behaviour of one key; one value of this type is the state of one key.
///
/// `V` is the type of the values. In a stream with times, of [`Timed<V>`](Timed), the logic gets the value, and
/// [`KeyContext::time`] is its time:
///
/// ```compile_fail,E0277
/// # use millstream_flow::{EventTime, Flow, KeyContext, Logic, Timed, testing};
/// struct Last;
/// impl Logic<u32, Timed<i64>> for Last {
///     type Out = i64;
///     fn on_item(&mut self, _: &u32, _: Timed<i64>, _: &mut KeyContext<'_, i64>) {}
/// }
/// # let flow = Flow::new("refused");
/// let times = flow.source("in", testing::items([1i64])).event_time(|time| *time, EventTime::default());
/// times.key_by(|_| 0u32).stateful_with("last", None, |_| Last);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `Logic` for values of the type `{V}` with keys of the type `{K}`",
    note = "it needs `impl Logic<{K}, {V}>`; after `event_time` a logic gets the value without `Timed`, and its time from `KeyContext::time`"
)]
pub trait Logic<K, V>: Send + 'static {
    /// The type of the outputs.
    type Out: Data;
    /// Processes an item of this key.
    fn on_item(&mut self, key: &K, value: V, cx: &mut KeyContext<'_, Self::Out>);
    /// Called at the moment of a timer.
    fn on_timer(&mut self, _key: &K, _timer: Timer, _cx: &mut KeyContext<'_, Self::Out>) {}
    /// Called after all input has ended. Timers that are still set do not fire any more.
    fn on_end(&mut self, _key: &K, _cx: &mut KeyContext<'_, Self::Out>) {}
}

/// The context of a call: outputs, times, timers.
pub struct KeyContext<'a, O> {
    out: &'a mut Vec<O>,
    timers: &'a mut Option<Box<Timers>>,
    discarded: &'a mut bool,
    fires: Option<Timer>,
    timed: bool,
    fault: Option<&'static str>,
    time: i64,
    at: Moment,
}

impl<O> KeyContext<'_, O> {
    /// Emits an output.
    pub fn emit(&mut self, output: O) {
        self.out.push(output);
    }

    /// Returns the time of the item or the timer; nanoseconds. `i64::MIN` in a stream without times.
    #[must_use]
    pub fn time(&self) -> i64 {
        self.time
    }

    /// Returns the watermark; nanoseconds. `i64::MIN` before the first, and in a stream without times.
    #[must_use]
    pub fn watermark(&self) -> i64 {
        self.at.event
    }

    /// Returns the processing time: nanoseconds since 1970 by the clock of the run.
    #[must_use]
    pub fn now(&self) -> i64 {
        self.at.processing
    }

    /// Sets a timer for a call of `on_timer`. A timer in the past fires before the next item. A timer that is
    /// set while another of its kind fires must be later than that one, or the flow fails. It
    /// fails also with a timer in event time in a stream without times.
    pub fn set_timer(&mut self, timer: Timer) {
        if !may_follow(self.fires, timer) {
            self.fault =
                Some("a timer that is set in on_timer must be later than the one that fires");
        }
        if !self.timed && matches!(timer, Timer::Event(_)) {
            self.fault = Some("a timer in event time needs event_time before key_by");
        }
        self.timers.get_or_insert_default().set(timer);
    }

    /// Cancels a timer; false if it is not set.
    pub fn cancel_timer(&mut self, timer: Timer) -> bool {
        self.timers.as_mut().is_some_and(|t| t.cancel(timer))
    }

    /// Removes this key with its timers. Its next item creates it again.
    pub fn discard(&mut self) {
        *self.discarded = true;
    }
}

/// Whether `timer` may be set while `fires` fires: timers must not fire forever at one moment.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn may_follow(fires: Option<Timer>, timer: Timer) -> bool {
    match (fires, timer) {
        (Some(Timer::Event(before)), Timer::Event(at))
        | (Some(Timer::Processing(before)), Timer::Processing(at)) => at > before,
        _ => true,
    }
}

/// A [`Logic`] for each key.
pub(crate) struct ByLogic<K, V, L: Logic<K, V>, M> {
    make: M,
    ttl: Option<Ttl>,
    /// Whether the items have times.
    timed: bool,
    out: Vec<L::Out>,
    types: PhantomData<fn(K, V) -> L>,
}

impl<K, V, L: Logic<K, V>, M: Fn(&K) -> L> ByLogic<K, V, L, M> {
    pub(crate) fn new(make: M, ttl: Option<Ttl>, timed: bool) -> Self {
        ByLogic {
            make,
            ttl,
            timed,
            out: Vec::new(),
            types: PhantomData,
        }
    }

    /// Calls a key and passes its outputs on.
    fn call(
        &mut self,
        key: &K,
        held: &mut WithTimers<L>,
        (fires, time, at): (Option<Timer>, i64, Moment),
        watermark: i64,
        out: &mut impl Outputs<K, L::Out, V>,
        call: impl FnOnce(&mut L, &mut KeyContext<'_, L::Out>),
    ) -> Result<(), Cause> {
        let (logic, timers, discarded) = held.parts();
        let mut cx = KeyContext {
            out: &mut self.out,
            timers,
            discarded,
            fires,
            timed: self.timed,
            fault: None,
            time,
            at,
        };
        call(logic, &mut cx);
        let fault = cx.fault;
        for value in self.out.drain(..) {
            let output = Timed {
                time,
                watermark,
                value,
            };
            out.result(key, output);
        }
        fault.map_or(Ok(()), |fault| Err(fault.into()))
    }
}

impl<K, V, L, M> KeyLogic<K> for ByLogic<K, V, L, M>
where
    K: 'static,
    V: 'static,
    L: Logic<K, V>,
    M: Fn(&K) -> L + 'static,
{
    type State = WithTimers<L>;
    type In = V;
    type Out = L::Out;
    type Error = Cause;

    fn open(&mut self, key: &K) -> Result<WithTimers<L>, Cause> {
        Ok(WithTimers::new((self.make)(key)))
    }

    fn on_item(
        &mut self,
        key: &K,
        held: &mut WithTimers<L>,
        item: Timed<V>,
        at: Moment,
        out: &mut impl Outputs<K, L::Out, V>,
    ) -> Result<(), Cause> {
        held.touch(self.ttl, item.time, at.processing);
        let when = (None, item.time, at);
        self.call(key, held, when, item.watermark, out, |logic, cx| {
            logic.on_item(key, item.value, cx);
        })
    }

    fn on_due(
        &mut self,
        key: &K,
        held: &mut WithTimers<L>,
        until: Moment,
        out: &mut impl Outputs<K, L::Out, V>,
    ) -> Result<(), Cause> {
        while let Some(Due::Timer(timer)) = held.take_due(until) {
            let (time, watermark) = times_of(timer, until);
            let when = (Some(timer), time, until);
            self.call(key, held, when, watermark, out, |logic, cx| {
                logic.on_timer(key, timer, cx);
            })?;
        }
        Ok(())
    }

    fn on_end(
        &mut self,
        key: &K,
        held: &mut WithTimers<L>,
        at: Moment,
        out: &mut impl Outputs<K, L::Out, V>,
    ) -> Result<(), Cause> {
        // A key ends once, whether or not the call fails.
        held.discarded = true;
        let when = (None, at.event, at);
        self.call(key, held, when, at.event, out, |logic, cx| {
            logic.on_end(key, cx);
        })
    }

    fn next(&self, held: &WithTimers<L>) -> Moment {
        held.next()
    }

    fn is_empty(&self, held: &WithTimers<L>) -> bool {
        held.discarded
    }

    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<WithTimers<L>>, Cause> {
        Ok(Box::new(WithTimersCodec(codecs.get::<L>()?)))
    }
}

/// Returns the time and the watermark of outputs of a timer: output of a timer in event time has the time of
/// the timer, and the watermark just before it.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn times_of(timer: Timer, until: Moment) -> (i64, i64) {
    match timer {
        Timer::Event(at) => (at, at.saturating_sub(1).min(until.event)),
        Timer::Processing(_) => (until.event, until.event),
    }
}
