//! State of one's own for each key, with timers.

use std::marker::PhantomData;

use super::{Attended, AttendedCodec, Due, KeyLogic, Moment, Outputs, Timer, Timers, Ttl};
use crate::batch::Data;
use crate::checkpoint::{BoxedCodec, Codecs};
use crate::error::Cause;
use crate::time::Timed;

/// What a key does with its items; one value of this type is the state of one key.
pub trait Logic<K, V>: Send + 'static {
    /// What comes out.
    type Out: Data;
    /// An item of this key.
    fn on_item(&mut self, key: &K, value: V, cx: &mut KeyContext<'_, Self::Out>);
    /// A moment has come for which a timer was set.
    fn on_timer(&mut self, _key: &K, _timer: Timer, _cx: &mut KeyContext<'_, Self::Out>) {}
    /// All input has ended. Timers that are still set do not fire any more.
    fn on_end(&mut self, _key: &K, _cx: &mut KeyContext<'_, Self::Out>) {}
}

/// What a key has in hand when it is called: outputs, times, timers.
pub struct KeyContext<'a, O> {
    out: &'a mut Vec<O>,
    timers: &'a mut Option<Box<Timers>>,
    discarded: &'a mut bool,
    fires: Option<Timer>,
    fault: bool,
    time: i64,
    at: Moment,
}

impl<O> KeyContext<'_, O> {
    /// Gives an output.
    pub fn emit(&mut self, output: O) {
        self.out.push(output);
    }

    /// The time of the item or the timer; nanoseconds. Nothing of use without event time.
    #[must_use]
    pub fn time(&self) -> i64 {
        self.time
    }

    /// How far event time has come; nanoseconds.
    #[must_use]
    pub fn watermark(&self) -> i64 {
        self.at.event
    }

    /// Processing time: nanoseconds since 1970 by the clock of the run.
    #[must_use]
    pub fn now(&self) -> i64 {
        self.at.processing
    }

    /// Asks for `on_timer` at a moment. One that has passed comes before the next item. A timer that
    /// is set when another of its kind fires has to be later than that one, or the flow fails.
    pub fn set_timer(&mut self, timer: Timer) {
        self.fault |= !may_follow(self.fires, timer);
        self.timers.get_or_insert_default().set(timer);
    }

    /// Takes a timer back; false when it is not set.
    pub fn cancel_timer(&mut self, timer: Timer) -> bool {
        self.timers.as_mut().is_some_and(|t| t.cancel(timer))
    }

    /// Forgets this key, with its timers. At its next item it is made anew.
    pub fn discard(&mut self) {
        *self.discarded = true;
    }
}

/// Whether `timer` may be set while `fires` fires: it must not fire for ever at one moment.
#[must_use]
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
    out: Vec<L::Out>,
    types: PhantomData<fn(K, V) -> L>,
}

impl<K, V, L: Logic<K, V>, M: Fn(&K) -> L> ByLogic<K, V, L, M> {
    pub(crate) fn new(make: M, ttl: Option<Ttl>) -> Self {
        ByLogic {
            make,
            ttl,
            out: Vec::new(),
            types: PhantomData,
        }
    }

    /// Calls a key and hands its outputs on.
    fn call(
        &mut self,
        key: &K,
        held: &mut Attended<L>,
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
            fault: false,
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
        if fault {
            return Err(
                "a timer that is set in on_timer must be later than the one that fires".into(),
            );
        }
        Ok(())
    }
}

impl<K, V, L, M> KeyLogic<K> for ByLogic<K, V, L, M>
where
    K: 'static,
    V: 'static,
    L: Logic<K, V>,
    M: Fn(&K) -> L + 'static,
{
    type State = Attended<L>;
    type In = V;
    type Out = L::Out;
    type Error = Cause;

    fn open(&mut self, key: &K) -> Result<Attended<L>, Cause> {
        Ok(Attended::new((self.make)(key)))
    }

    fn on_item(
        &mut self,
        key: &K,
        held: &mut Attended<L>,
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
        held: &mut Attended<L>,
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
        held: &mut Attended<L>,
        at: Moment,
        out: &mut impl Outputs<K, L::Out, V>,
    ) -> Result<(), Cause> {
        // It has its last turn once, whether or not it fails.
        held.discarded = true;
        let when = (None, at.event, at);
        self.call(key, held, when, at.event, out, |logic, cx| {
            logic.on_end(key, cx);
        })
    }

    fn next(&self, held: &Attended<L>) -> Moment {
        held.next()
    }

    fn is_empty(&self, held: &Attended<L>) -> bool {
        held.discarded
    }

    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<Attended<L>>, Cause> {
        Ok(Box::new(AttendedCodec(codecs.get::<L>()?)))
    }
}

/// The time and the watermark of what comes out when a timer fires: what a timer in event time gives
/// happens at its moment, before which time had not yet come to it.
#[must_use]
pub fn times_of(timer: Timer, until: Moment) -> (i64, i64) {
    match timer {
        Timer::Event(at) => (at, at.saturating_sub(1).min(until.event)),
        Timer::Processing(_) => (until.event, until.event),
    }
}
