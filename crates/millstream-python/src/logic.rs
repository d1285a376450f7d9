//! State of the user for each key, in Python: objects with `on_item`, `on_timer` and `on_end`, or a
//! function with a state.

use std::sync::{Mutex, MutexGuard, PoisonError};

use millstream_flow::checkpoint::{BoxedCodec, Codecs};
use millstream_flow::error::Cause;
use millstream_flow::state::{
    Due, KeyLogic, Moment, Outputs, Timer, Ttl, WithTimers, WithTimersCodec, may_follow, times_of,
};
use millstream_flow::stream::Making;
use millstream_flow::{Failure, FlowError, Timed};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use pyo3::{PyTypeInfo, intern};

use crate::error::{cause, usage};
use crate::gil::locked;
use crate::keyed::PyKey;
use crate::ownership::copied;
use crate::saving::StateMaker;
use crate::show::show;
use crate::time::{seconds, seconds_or_none, to_nanos};

/// A request of a key during a call.
#[derive(Clone, Copy)]
enum KeyRequest {
    Set(Timer),
    Cancel(Timer),
    Discard,
}

/// The time of a call, and its requests.
struct Call {
    time: i64,
    at: Moment,
    fires: Option<Timer>,
    requests: Vec<KeyRequest>,
}

/// The context of a call of a stateful class: the time, the watermark, and the timers of the key.
///
/// Example:
///     >>> import millstream as ms
///     >>> class Logic:
///     ...     def on_item(self, key, value, ctx):
///     ...         return [(value, ctx.time)]
///     >>> flow, out = ms.Flow("example"), ms.testing.collect()
///     >>> times = flow.source("in", ms.testing.items([1, 2])).event_time(float)
///     >>> times.key_by(lambda time: "all").stateful("logic", Logic).values().sink("out", out)
///     >>> _ = ms.run(flow)
///     >>> out
///     [(1, 1.0), (2, 2.0)]
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct KeyContext {
    timed: bool,
    /// Of one worker; the user's code may pass it to another thread.
    call: Mutex<Call>,
}

impl KeyContext {
    fn new(timed: bool) -> Self {
        let call = Call {
            time: 0,
            at: Moment::NEVER,
            fires: None,
            requests: Vec::new(),
        };
        KeyContext {
            timed,
            call: Mutex::new(call),
        }
    }

    fn call(&self) -> MutexGuard<'_, Call> {
        self.call.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn timer(&self, at: &Bound<'_, PyAny>, kind: Option<&str>) -> PyResult<Timer> {
        let py = at.py();
        let time = to_nanos(at)?;
        match kind {
            Some("processing") => Ok(Timer::Processing(time)),
            None if !self.timed => Ok(Timer::Processing(time)),
            None | Some("event") if self.timed => Ok(Timer::Event(time)),
            Some("event") => Err(usage(
                py,
                "a timer in event time needs event_time before key_by",
            )),
            Some(other) => Err(usage(
                py,
                &format!("kind is \"event\" or \"processing\", not \"{other}\""),
            )),
            None => Ok(Timer::Event(time)),
        }
    }
}

#[pymethods]
impl KeyContext {
    /// The time of the item or timer, in seconds; None in a stream without times.
    #[getter]
    fn time(&self) -> Option<f64> {
        seconds_or_none(self.call().time)
    }

    /// The watermark of event time, in seconds; None before the first.
    #[getter]
    fn watermark(&self) -> Option<f64> {
        seconds_or_none(self.call().at.event)
    }

    /// Processing time: seconds since 1970 by the clock of the run.
    #[getter]
    fn now(&self) -> f64 {
        seconds(self.call().at.processing)
    }

    /// In `on_timer`: which kind of timer fires, "event" or "processing".
    #[getter]
    fn kind(&self) -> Option<&'static str> {
        self.call().fires.map(|timer| match timer {
            Timer::Event(_) => "event",
            Timer::Processing(_) => "processing",
        })
    }

    /// Requests a call ``on_timer(key, at, ctx)``.
    ///
    /// Args:
    ///     at: the time of the timer: seconds, or a datetime with a time zone.
    ///     kind: ``"event"`` or ``"processing"``. None: event time where the stream has times.
    ///
    /// Raises:
    ///     ValueError: ``kind`` is unknown, or the stream has no event time.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> class Logic:
    ///     ...     def on_item(self, key, value, ctx):
    ///     ...         ctx.set_timer(ctx.time + 10)
    ///     ...     def on_timer(self, key, at, ctx):
    ///     ...         return [at]
    ///     >>> flow, out = ms.Flow("example"), ms.testing.collect()
    ///     >>> times = flow.source("in", ms.testing.items([1, 2, 30])).event_time(float)
    ///     >>> times.key_by(lambda time: "all").stateful("logic", Logic).values().sink("out", out)
    ///     >>> _ = ms.run(flow)
    ///     >>> out
    ///     [11.0, 12.0]
    #[pyo3(signature = (at, kind=None))]
    fn set_timer(&self, at: &Bound<'_, PyAny>, kind: Option<&str>) -> PyResult<()> {
        let timer = self.timer(at, kind)?;
        let mut call = self.call();
        if !may_follow(call.fires, timer) {
            return Err(PyValueError::new_err(
                "a timer that is set in on_timer must be later than the one that fires",
            ));
        }
        call.requests.push(KeyRequest::Set(timer));
        Ok(())
    }

    /// Cancels a timer. Nothing happens if it is not set.
    ///
    /// Args:
    ///     at: the time of the timer: seconds, or a datetime with a time zone.
    ///     kind: ``"event"`` or ``"processing"``. None: event time where the stream has times.
    ///
    /// Raises:
    ///     ValueError: ``kind`` is unknown, or the stream has no event time.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> class Logic:
    ///     ...     def on_item(self, key, value, ctx):
    ///     ...         if value == 2:
    ///     ...             ctx.cancel_timer(11)
    ///     ...         else:
    ///     ...             ctx.set_timer(value + 10)
    ///     ...     def on_timer(self, key, at, ctx):
    ///     ...         return [at]
    ///     >>> flow, out = ms.Flow("example"), ms.testing.collect()
    ///     >>> times = flow.source("in", ms.testing.items([1, 2, 3, 30])).event_time(float)
    ///     >>> times.key_by(lambda time: "all").stateful("logic", Logic).values().sink("out", out)
    ///     >>> _ = ms.run(flow)
    ///     >>> out
    ///     [13.0]
    #[pyo3(signature = (at, kind=None))]
    fn cancel_timer(&self, at: &Bound<'_, PyAny>, kind: Option<&str>) -> PyResult<()> {
        let timer = self.timer(at, kind)?;
        self.call().requests.push(KeyRequest::Cancel(timer));
        Ok(())
    }

    /// Forgets this key, with its state and its timers.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> class Logic:
    ///     ...     count = 0
    ///     ...     def on_item(self, key, value, ctx):
    ///     ...         self.count += 1
    ///     ...         if self.count == 2:
    ///     ...             ctx.discard()
    ///     ...         return [self.count]
    ///     >>> flow, out = ms.Flow("example"), ms.testing.collect()
    ///     >>> times = flow.source("in", ms.testing.items([1, 2, 3])).event_time(float)
    ///     >>> times.key_by(lambda time: "all").stateful("logic", Logic).values().sink("out", out)
    ///     >>> _ = ms.run(flow)
    ///     >>> out
    ///     [1, 2, 1]
    fn discard(&self) {
        self.call().requests.push(KeyRequest::Discard);
    }
}

/// Which methods a class of logic has, and which of them take a context.
#[derive(Clone, Copy)]
struct Methods {
    item_context: bool,
    /// None: there is no such method.
    end_context: Option<bool>,
    timer: bool,
}

/// The logic of the user: objects with methods, or a function on states.
enum Calls {
    Object(Option<(Py<PyAny>, Methods)>),
    /// It changes the state.
    Function(Py<PyAny>),
    /// It returns the next state and an output.
    Returning(Py<PyAny>),
}

/// The logic of a `stateful` step.
pub(crate) struct PyLogic {
    make: Py<PyAny>,
    calls: Calls,
    context: Py<KeyContext>,
    ttl: Option<Ttl>,
    /// The method that is called with an item.
    method: &'static str,
}

impl PyLogic {
    /// Items are lists of values, which `on_batch` is called with.
    pub(crate) fn by_batch(self) -> Self {
        PyLogic {
            method: "on_batch",
            ..self
        }
    }

    /// The logic of a step, of objects that `make` returns or of a function on them that returns the next one or not.
    pub(crate) fn make(
        make: &Py<PyAny>,
        function: Option<(&Py<PyAny>, bool)>,
        timed: bool,
        ttl: Option<i64>,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        let logic = locked(|py| PyLogic::new(py, make, function, timed, ttl));
        logic.map_err(|error| Failure::new(making.info.name.clone(), cause(error)).into())
    }

    fn new(
        py: Python<'_>,
        make: &Py<PyAny>,
        function: Option<(&Py<PyAny>, bool)>,
        timed: bool,
        ttl: Option<i64>,
    ) -> PyResult<Self> {
        let calls = match function {
            Some((function, false)) => Calls::Function(function.clone_ref(py)),
            Some((function, true)) => Calls::Returning(function.clone_ref(py)),
            None => Calls::Object(None),
        };
        let ttl = ttl.map(|ttl| {
            if timed {
                Ttl::Event(ttl)
            } else {
                Ttl::Processing(ttl)
            }
        });
        Ok(PyLogic {
            make: make.clone_ref(py),
            calls,
            context: Py::new(py, KeyContext::new(timed))?,
            ttl,
            method: "on_item",
        })
    }

    /// The methods of a logic object; those of the latest class are cached.
    fn methods(&mut self, py: Python<'_>, logic: &Bound<'_, PyAny>) -> PyResult<Methods> {
        let class = logic.get_type();
        if let Calls::Object(Some((known, methods))) = &self.calls
            && class.is(known)
        {
            return Ok(*methods);
        }
        let methods = py
            .import("millstream._streams.logic")?
            .getattr("context_of")?;
        let (item_context, end_context, timer) = methods.call1((&class, self.method))?.extract()?;
        let methods = Methods {
            item_context,
            end_context,
            timer,
        };
        self.calls = Calls::Object(Some((class.into_any().unbind(), methods)));
        Ok(methods)
    }

    fn begin(&self, py: Python<'_>, time: i64, at: Moment, fires: Option<Timer>) {
        let mut call = self.context.bind(py).get().call();
        call.time = time;
        call.at = at;
        call.fires = fires;
    }

    /// Applies the requests of the call.
    fn apply_requests(&self, py: Python<'_>, held: &mut WithTimers<Py<PyAny>>) {
        let mut call = self.context.bind(py).get().call();
        for request in call.requests.drain(..) {
            match request {
                KeyRequest::Set(timer) => held.timers().set(timer),
                KeyRequest::Cancel(timer) => drop(held.timers().cancel(timer)),
                KeyRequest::Discard => held.discarded = true,
            }
        }
    }

    /// Calls a method with a context and emits its outputs.
    fn call<O: Outputs<PyKey, Py<PyAny>, Py<PyAny>>>(
        &mut self,
        key: &PyKey,
        held: &mut WithTimers<Py<PyAny>>,
        (time, watermark, at, fires): (i64, i64, Moment, Option<Timer>),
        out: &mut O,
        call: impl for<'py> FnOnce(
            &Bound<'py, PyAny>,
            &Bound<'py, KeyContext>,
            Methods,
        ) -> PyResult<Option<Bound<'py, PyAny>>>,
    ) -> PyResult<()> {
        locked(|py| {
            let logic = held.state.clone_ref(py).into_bound(py);
            let methods = self.methods(py, &logic)?;
            self.begin(py, time, at, fires);
            let context = self.context.clone_ref(py).into_bound(py);
            let made = call(&logic, &context, methods);
            self.apply_requests(py, held);
            match made? {
                Some(made) => emit(key, &made, time, watermark, out),
                None => Ok(()),
            }
        })
    }
}

/// Calls a function that returns the next state and an output.
fn next_state(
    state: &Py<PyAny>,
    function: &Bound<'_, PyAny>,
    value: &Py<PyAny>,
) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
    let made = function.call1((state, value))?;
    if let Ok(pair) = made.cast::<PyTuple>()
        && pair.len() == 2
    {
        return Ok((pair.get_item(0)?.unbind(), pair.get_item(1)?.unbind()));
    }
    Err(PyTypeError::new_err(format!(
        "the function of stateful_map returns a pair (state, output), not {}",
        show(&made)
    )))
}

/// Emits the outputs of an iterable; None has none.
fn emit(
    key: &PyKey,
    made: &Bound<'_, PyAny>,
    time: i64,
    watermark: i64,
    out: &mut impl Outputs<PyKey, Py<PyAny>, Py<PyAny>>,
) -> PyResult<()> {
    let mut push = |value: Bound<'_, PyAny>| {
        let output = Timed {
            time,
            watermark,
            value: value.unbind(),
        };
        out.result(key, output);
    };
    if made.is_none() {
        return Ok(());
    }
    if PyList::is_exact_type_of(made) {
        made.cast::<PyList>()?.iter().for_each(push);
    } else if PyTuple::is_exact_type_of(made) {
        made.cast::<PyTuple>()?.iter().for_each(push);
    } else {
        for value in made.try_iter()? {
            push(value?);
        }
    }
    Ok(())
}

impl KeyLogic<PyKey> for PyLogic {
    type State = WithTimers<Py<PyAny>>;
    type In = Py<PyAny>;
    type Out = Py<PyAny>;
    type Error = PyErr;

    fn open(&mut self, _: &PyKey) -> PyResult<Self::State> {
        locked(|py| Ok(WithTimers::new(self.make.bind(py).call0()?.unbind())))
    }

    fn on_item(
        &mut self,
        key: &PyKey,
        held: &mut Self::State,
        item: Timed<Py<PyAny>>,
        at: Moment,
        out: &mut impl Outputs<PyKey, Py<PyAny>, Py<PyAny>>,
    ) -> PyResult<()> {
        held.touch(self.ttl, item.time, at.processing);
        if let Calls::Function(function) = &self.calls {
            return locked(|py| {
                let mut made = function.bind(py).call1((&held.state, &item.value))?;
                if made.is(&held.state) {
                    made = copied(&made)?;
                }
                if !made.is_none() {
                    out.result(key, item.map(|_| made.unbind()));
                }
                Ok(())
            });
        }
        if let Calls::Returning(function) = &self.calls {
            return locked(|py| {
                let (state, mut output) = next_state(&held.state, function.bind(py), &item.value)?;
                if output.is(&state) {
                    output = copied(output.bind(py))?.unbind();
                }
                held.discarded = state.is_none(py);
                held.state = state;
                out.result(key, item.map(|_| output));
                Ok(())
            });
        }
        let when = (item.time, item.watermark, at, None);
        let value = item.value;
        let method = self.method;
        self.call(key, held, when, out, |logic, context, methods| {
            let py = logic.py();
            let name = match method {
                "on_batch" => intern!(py, "on_batch"),
                _ => intern!(py, "on_item"),
            };
            let key = key.bind(py);
            if methods.item_context {
                logic.call_method1(name, (key, value, context)).map(Some)
            } else {
                logic.call_method1(name, (key, value)).map(Some)
            }
        })
    }

    fn on_due(
        &mut self,
        key: &PyKey,
        held: &mut Self::State,
        until: Moment,
        out: &mut impl Outputs<PyKey, Py<PyAny>, Py<PyAny>>,
    ) -> PyResult<()> {
        while let Some(Due::Timer(timer)) = held.take_due(until) {
            let (time, watermark) = times_of(timer, until);
            let when = (time, watermark, until, Some(timer));
            self.call(key, held, when, out, |logic, context, methods| {
                let py = logic.py();
                let (Timer::Event(moment) | Timer::Processing(moment)) = timer;
                if !methods.timer {
                    let name = logic.get_type().name()?;
                    let message =
                        format!("{name} sets a timer and has no method on_timer(key, at, ctx)");
                    return Err(usage(py, &message));
                }
                let arguments = (key.bind(py), seconds(moment), context);
                logic
                    .call_method1(intern!(py, "on_timer"), arguments)
                    .map(Some)
            })?;
        }
        Ok(())
    }

    fn on_end(
        &mut self,
        key: &PyKey,
        held: &mut Self::State,
        at: Moment,
        out: &mut impl Outputs<PyKey, Py<PyAny>, Py<PyAny>>,
    ) -> PyResult<()> {
        if matches!(self.calls, Calls::Function(_) | Calls::Returning(_)) {
            return Ok(());
        }
        // The last call is made once, whether or not it fails.
        held.discarded = true;
        let when = (at.event, at.event, at, None);
        self.call(key, held, when, out, |logic, context, methods| {
            let py = logic.py();
            let name = intern!(py, "on_end");
            let key = key.bind(py);
            match methods.end_context {
                None => Ok(None),
                Some(false) => logic.call_method1(name, (key,)).map(Some),
                Some(true) => logic.call_method1(name, (key, context)).map(Some),
            }
        })
    }

    fn next(&self, held: &Self::State) -> Moment {
        held.next()
    }

    fn is_empty(&self, held: &Self::State) -> bool {
        held.discarded
    }

    fn codec(&self, _: &Codecs) -> Result<BoxedCodec<Self::State>, Cause> {
        let made = locked(|py| StateMaker::by(py, &self.make));
        Ok(Box::new(WithTimersCodec(made)))
    }
}
