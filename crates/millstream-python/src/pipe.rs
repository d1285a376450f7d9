//! A stream of batches under construction: the basic verbs, from which all others are built.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millstream_flow::assign::{Assign, TimeSource};
use millstream_flow::collect::Collecting;
use millstream_flow::join::JoinLogic;
use millstream_flow::limits::{Limit, Limiting};
use millstream_flow::sink::Sink as _;
use millstream_flow::state::InTurn;
use millstream_flow::step::Context;
use millstream_flow::stream::Making;
use millstream_flow::window::{Aggregate, ByKey as ByOwnWatermark, InOrder, WindowLogic};
use millstream_flow::{EventTime, Failure, FlowError, Pipe as Engine, Window};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::assign::{ByClock, ByKernel, MaxAhead};
use crate::batch::PyBatch;
use crate::calls::AsyncCalls;
use crate::debug::Debug;
use crate::divide::Divide;
use crate::error::{cause, to_python};
use crate::event_clock::ByClocks;
use crate::gather::Gather;
use crate::gil::locked;
use crate::join::{JoinOptions, ToTheRight, Tuples, join};
use crate::join_keys::OfRun;
use crate::keyed::{PyKeyed, Traits};
use crate::logic::PyLogic;
use crate::policy::OnErrorOption;
use crate::route::ByKey;
use crate::sink::{AnySink, EncodeStep, NamedSink, parted};
use crate::step::{Kernel, Shape};
use crate::window::{PyAggregate, WindowOptions, choosing, copy, window};

/// When a logic receives the values of its key.
#[derive(Clone, Copy)]
enum Turns {
    AsTheyCome,
    /// After the timers that are due before a value.
    AfterTimers,
    /// In the order of their times, those of one time by this rank.
    ByTime(fn(&Py<PyAny>) -> i64),
}

/// How many values of a key pass, and the length of a period in nanoseconds.
type PerPeriod = (u64, Option<i64>);

/// A stream, wrapped by `millstream.Stream` and `millstream.KeyedStream`.
#[pyclass(frozen, module = "millstream._millstream")]
#[derive(Clone)]
pub(crate) struct Pipe {
    pub(crate) pipe: Engine<PyBatch>,
}

impl Pipe {
    /// Adds a step that gives each item a time, with a policy for items that have none.
    fn timed<A: Assign<PyBatch, PyBatch>>(
        &self,
        py: Python<'_>,
        name: &str,
        source: TimeSource,
        on_error: &Bound<'_, PyAny>,
        make: impl Fn(&OnErrorOption, &Making<'_>) -> Result<A, FlowError> + Send + Sync + 'static,
    ) -> PyResult<Pipe> {
        let on_error = OnErrorOption::read(on_error)?;
        let handling = on_error.clone();
        let assign = move |making: &Making<'_>| make(&on_error, making);
        let pipe = handling.of(self.pipe.assigned(name, source, assign));
        checked(py, pipe)
    }

    /// Adds a step that calls the logic of each key with its values in their turns.
    fn by_logic(
        &self,
        (kind, name): (&'static str, &str),
        logic: impl Fn(&Making<'_>) -> Result<PyLogic, FlowError> + Send + Sync + 'static,
        turns: Turns,
        traits: Traits,
        on_error: OnErrorOption,
    ) -> Engine<(PyBatch, PyBatch)> {
        let rank = match turns {
            Turns::AsTheyCome => {
                let step = self.pipe.step(kind, name, move |making| {
                    PyKeyed::make(logic(making)?, traits, &on_error, making)
                });
                return step.in_order();
            }
            Turns::AfterTimers => None,
            Turns::ByTime(rank) => Some(rank),
        };
        let step = self.pipe.step(kind, name, move |making| {
            let logic = match rank {
                Some(rank) => InTurn::by_time(logic(making)?, copy, rank),
                None => InTurn::after_timers(logic(making)?, copy),
            };
            PyKeyed::make(logic, traits, &on_error, making)
        });
        let step = step.timed();
        match rank {
            Some(_) => step.by_time(),
            None => step.in_order(),
        }
    }

    /// Adds a step that aggregates each window.
    fn windows<G>(
        &self,
        name: &str,
        (window, windower): (Window, Option<Py<PyAny>>),
        make: impl Fn(&Rc<Cell<bool>>) -> PyResult<G> + Send + Sync + 'static,
        (timed, joins): (bool, bool),
        on_error: OnErrorOption,
    ) -> Engine<(PyBatch, PyBatch)>
    where
        G: Aggregate<In = Py<PyAny>, Out = Py<PyAny>, Error = PyErr>,
    {
        let traits = Traits::keyed(false, timed, None);
        let logic = move |making: &Making<'_>,
                          datetimes: &Rc<Cell<bool>>|
              -> Result<WindowLogic<G>, FlowError> {
            let wrong = |error| Failure::new(making.info.name.clone(), cause(error));
            let aggregate = make(datetimes).map_err(wrong)?;
            Ok(match &windower {
                None => WindowLogic::new(window, aggregate, copy),
                Some(windower) => {
                    let choose = choosing(locked(|py| windower.clone_ref(py)));
                    WindowLogic::chosen(window, aggregate, copy, choose)
                }
            })
        };
        let keys = joins.then(OfRun::default);
        let keys = move |making: &Making<'_>| keys.as_ref().map(|keys| keys.get(making));
        match window.by_key() {
            None => self.pipe.step("window", name, move |making| {
                let datetimes = Rc::default();
                let logic = logic(making, &datetimes)?;
                let step = PyKeyed::make(logic, traits, &on_error, making)?;
                Ok(step.noting(datetimes).joining(keys(making)))
            }),
            Some(how) => self.pipe.step("window", name, move |making| {
                let datetimes = Rc::default();
                let logic = ByOwnWatermark::new(logic(making, &datetimes)?, how);
                let step = PyKeyed::make(logic, traits, &on_error, making)?;
                Ok(step.noting(datetimes).joining(keys(making)))
            }),
        }
    }
}

/// A stream of a flow that has no mistake so far.
fn checked(py: Python<'_>, pipe: Engine<PyBatch>) -> PyResult<Pipe> {
    let checked = pipe.flow().check();
    checked.map_err(|error| to_python(py, error))?;
    Ok(Pipe { pipe })
}

/// The results of a step and its late values.
fn both(py: Python<'_>, step: &Engine<(PyBatch, PyBatch)>) -> PyResult<(Pipe, Pipe)> {
    let (results, late) = step.halves();
    Ok((checked(py, results)?, Pipe { pipe: late }))
}

/// Lateness, how long a partition may be silent, and how far a time may be ahead of the clock; nanoseconds.
type TimeLimits = (u64, Option<u64>, Option<i64>);

/// The event time of items.
fn event_times((lateness, idle, max_ahead): TimeLimits) -> EventTime {
    let how = EventTime::default().lateness(Duration::from_nanos(lateness));
    let how = match idle {
        Some(idle) => how.idle(Duration::from_nanos(idle)),
        None => how,
    };
    match max_ahead {
        Some(_) => how.clocked(),
        None => how,
    }
}

#[pymethods]
impl Pipe {
    /// Adds a step; `make` is called once on each worker, `by_clock` with the clock of the run, and returns its kernel.
    /// Its output may depend on the order in which the items of a key arrive: `in_order`.
    #[pyo3(signature = (kind, name, shape, make, on_error, by_clock=false, in_order=false))]
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a word of the description"
    )]
    fn step(
        &self,
        kind: &str,
        name: &str,
        shape: &str,
        make: Py<PyAny>,
        on_error: &Bound<'_, PyAny>,
        by_clock: bool,
        in_order: bool,
    ) -> PyResult<Pipe> {
        let py = on_error.py();
        let on_error = OnErrorOption::read(on_error)?;
        let shape = Shape::read(shape)?;
        let handling = on_error.clone();
        let said = Arc::default();
        let pipe = self.pipe.step(static_name(kind), name, move |making| {
            let kernel = if by_clock {
                Kernel::make_by_clock(&make, shape, &on_error, making)?
            } else {
                Kernel::make(&make, shape, &on_error, making)?
            };
            Ok::<_, FlowError>(kernel.saying(Arc::clone(&said)))
        });
        let pipe = handling.of(if in_order { pipe.in_order() } else { pipe });
        checked(py, pipe)
    }

    /// Divides the stream in two.
    fn divide(
        &self,
        py: Python<'_>,
        name: &str,
        make: Py<PyAny>,
        on_error: &Bound<'_, PyAny>,
    ) -> PyResult<(Pipe, Pipe)> {
        let on_error = OnErrorOption::read(on_error)?;
        let handling = on_error.clone();
        let (yes, no) = self
            .pipe
            .divide(name, move |making| -> Result<_, FlowError> {
                let mut divide = Divide::make(&make, &on_error, making)?;
                Ok(
                    move |input: &mut PyBatch,
                          yes: &mut PyBatch,
                          no: &mut PyBatch,
                          cx: &mut Context|
                          -> Result<(), Failure> {
                        divide.apply(input, yes, no, cx)
                    },
                )
            });
        let pipe = handling.of(yes);
        let yes = checked(py, pipe)?;
        Ok((yes, Pipe { pipe: no }))
    }

    /// Gives each item the time that the kernel returns for it.
    fn event_time(
        &self,
        py: Python<'_>,
        name: &str,
        make: Py<PyAny>,
        limits: TimeLimits,
        on_error: &Bound<'_, PyAny>,
    ) -> PyResult<Pipe> {
        let source = TimeSource::Event(event_times(limits));
        self.timed(py, name, source, on_error, move |on_error, making| {
            ByKernel::make(&make, MaxAhead(limits.2), on_error, making)
        })
    }

    /// As `event_time`, with the times of messages of Kafka.
    #[cfg(feature = "kafka")]
    fn message_time(
        &self,
        py: Python<'_>,
        name: &str,
        limits: TimeLimits,
        on_error: &Bound<'_, PyAny>,
    ) -> PyResult<Pipe> {
        let source = TimeSource::Event(event_times(limits));
        self.timed(py, name, source, on_error, move |on_error, making| {
            crate::kafka::ByMessageTime::make(MaxAhead(limits.2), on_error, making)
        })
    }

    /// Gives each item the time that a clock of the user returns: `make` makes one for each partition, by its name.
    fn event_clock(
        &self,
        py: Python<'_>,
        name: &str,
        make: Py<PyAny>,
        on_error: &Bound<'_, PyAny>,
    ) -> PyResult<Pipe> {
        let source = TimeSource::Clock;
        self.timed(py, name, source, on_error, move |on_error, making| {
            ByClocks::make(&make, on_error, making)
        })
    }

    /// Gives each item the time at which it is read.
    fn processing_time(&self, py: Python<'_>, name: &str) -> PyResult<Pipe> {
        let pipe = self
            .pipe
            .assigned(name, TimeSource::Processing, |_| Ok(ByClock));
        checked(py, pipe)
    }

    /// State for each key, of `stateful` or of another verb of this `kind`: objects that `make` returns, or states that
    /// it returns for `function`, which changes them or, if it `returns` it, return the next one. `ttl` in nanoseconds.
    /// Returns the outputs and, if items are `ordered` by their times, those that are late.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a word of the description"
    )]
    fn stateful(
        &self,
        kind: &str,
        name: &str,
        make: Py<PyAny>,
        function: Option<Py<PyAny>>,
        returns: bool,
        times: (bool, bool),
        ttl: Option<i64>,
        on_error: &Bound<'_, PyAny>,
    ) -> PyResult<(Pipe, Pipe)> {
        let py = on_error.py();
        let on_error = OnErrorOption::read(on_error)?;
        let handling = on_error.clone();
        let (timed, ordered) = times;
        let traits = Traits::keyed(true, timed, ttl.filter(|_| timed));
        let logic = move |making: &Making<'_>| {
            let function = function.as_ref().map(|function| (function, returns));
            PyLogic::make(&make, function, timed, ttl, making)
        };
        let turns = match (timed, ordered) {
            (false, _) => Turns::AsTheyCome,
            (true, false) => Turns::AfterTimers,
            (true, true) => Turns::ByTime(|_| 0),
        };
        let step = self.by_logic((static_name(kind), name), logic, turns, traits, on_error);
        // Without both, another verb keeps its state in another form.
        let step = if kind != "stateful" && ttl.is_some() && !timed {
            step.detailed("ttl")
        } else {
            step
        };
        both(py, &handling.of(step))
    }

    /// Joins merged streams whose values are pairs of the number of the stream and the value: `made` is how many streams
    /// there are, whether all values count, and makes the object that has the values of a key. With times values are processed in the order of
    /// their times, and then of these numbers. Returns results and late values.
    fn join_all(
        &self,
        py: Python<'_>,
        name: &str,
        made: (usize, bool, Py<PyAny>),
        timed: bool,
        ttl: Option<i64>,
    ) -> PyResult<(Pipe, Pipe)> {
        let (streams, product, make) = made;
        let traits = Traits::keyed(!timed, timed, None);
        let number: fn(&Py<PyAny>) -> i64 = |pair| {
            let number = locked(|py| pair.bind(py).get_item(0)?.extract::<i64>());
            number.unwrap_or_default()
        };
        let logic = move |making: &Making<'_>| PyLogic::make(&make, None, timed, ttl, making);
        let turns = if timed {
            Turns::ByTime(number)
        } else {
            Turns::AsTheyCome
        };
        let fails = OnErrorOption::Fail;
        let step = self.by_logic(("join_all", name), logic, turns, traits, fails);
        let insert = if product { ", product" } else { "" };
        both(py, &step.detailed(&format!("{streams} streams{insert}")))
    }

    /// Notes the field that the step of this stream reads, if `f` is the name of one.
    fn reads(&self, f: &Bound<'_, PyAny>) {
        if let Ok(field) = f.extract::<String>() {
            self.pipe.reads(&field);
        }
    }

    /// Notes the streams that the step of this stream joins, each of them in parts.
    fn joins(&self, sides: Vec<Vec<Bound<'_, Pipe>>>) {
        let nodes =
            |side: Vec<Bound<'_, Pipe>>| side.iter().map(|part| part.get().pipe.node()).collect();
        self.pipe.joins(sides.into_iter().map(nodes).collect());
    }

    /// Calls `show` with the epoch, the worker, the keys and the values of each batch.
    fn debug(&self, py: Python<'_>, show: Py<PyAny>) -> PyResult<Pipe> {
        let show = Arc::new(show);
        let pipe = self.pipe.step("inspect_debug", "", move |_| {
            let show = Arc::clone(&show);
            Ok(Debug { show, ended: 0 })
        });
        checked(py, pipe)
    }

    /// All values of each key in a batch as one list.
    fn batches(&self, py: Python<'_>, name: &str) -> PyResult<Pipe> {
        let pipe = self.pipe.step("batches", name, |_| Ok(Gather));
        checked(py, pipe)
    }

    /// State of the user for each key: objects that `make` returns and whose `on_batch` is called.
    fn stateful_batch(
        &self,
        name: &str,
        make: Py<PyAny>,
        timed: bool,
        ttl: Option<i64>,
        on_error: &Bound<'_, PyAny>,
    ) -> PyResult<Pipe> {
        let py = on_error.py();
        let on_error = OnErrorOption::read(on_error)?;
        let handling = on_error.clone();
        let traits = Traits::keyed(true, timed, ttl.filter(|_| timed));
        let step = self.pipe.step("stateful_batch", name, move |making| {
            let logic = PyLogic::make(&make, None, timed, ttl, making)?;
            PyKeyed::make(logic.by_batch(), traits, &on_error, making)
        });
        let step = if timed { step.timed() } else { step };
        checked(py, handling.of(step.in_order()).halves().0)
    }

    /// Values of a key that pass: at most so many, in each period or until the key is forgotten `ttl` nanoseconds after
    /// its last value.
    fn limit(
        &self,
        py: Python<'_>,
        kind: &str,
        name: &str,
        per_period: PerPeriod,
        ttl: Option<i64>,
        timed: bool,
    ) -> PyResult<Pipe> {
        let ((most, every), fails) = (per_period, OnErrorOption::Fail);
        let limit = Limit { most, every };
        let traits = Traits::keyed(true, timed, ttl.filter(|_| timed));
        let logic = move || Limiting::<Py<PyAny>, _, PyErr>::new(limit, ttl, timed);
        let kind = static_name(kind);
        let step = if timed {
            let step = self.pipe.step(kind, name, move |making| {
                PyKeyed::make(InTurn::after_timers(logic(), copy), traits, &fails, making)
            });
            step.timed()
        } else {
            let step = self.pipe.step(kind, name, move |making| {
                PyKeyed::make(logic(), traits, &fails, making)
            });
            // Without both, Python keeps the state in another form.
            if every.is_none() {
                step.detailed("ttl")
            } else {
                step
            }
        };
        checked(py, step.in_order().halves().0)
    }

    /// Windows of the values of each key, described as `window` reads it, and their results. Returns the results and
    /// the late items. A `windower` says which windows contain a value.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a word of the description"
    )]
    fn window(
        &self,
        name: &str,
        described: WindowOptions,
        windower: Option<Py<PyAny>>,
        kind: String,
        functions: Vec<Option<Py<PyAny>>>,
        timed: bool,
        on_error: &Bound<'_, PyAny>,
    ) -> PyResult<(Pipe, Pipe)> {
        let py = on_error.py();
        let on_error = OnErrorOption::read(on_error)?;
        let window = window(&described)?;
        let class = windower.as_ref();
        let class =
            class.map(|windower| Ok::<_, PyErr>(windower.bind(py).get_type().name()?.to_string()));
        let detail = window.describe(class.transpose()?.as_deref(), &kind);
        let handling = on_error.clone();
        let overlaps = described.overlaps();
        let traits = (timed, described.joins);
        let make = move |datetimes: &Rc<Cell<bool>>| {
            PyAggregate::new(&kind, &functions, overlaps, datetimes)
        };
        let step = if described.ordered {
            let make = move |datetimes: &Rc<Cell<bool>>| Ok(InOrder::new(make(datetimes)?, copy));
            self.windows(name, (window, windower), make, traits, on_error)
        } else {
            self.windows(name, (window, windower), make, traits, on_error)
        };
        let step = if timed { step.timed() } else { step };
        both(py, &handling.of(step.detailed(&detail)))
    }

    /// A step that is an object from `make` and is called by processing time.
    fn ticking(
        &self,
        py: Python<'_>,
        kind: &str,
        name: &str,
        make: Py<PyAny>,
        on_error: &Bound<'_, PyAny>,
    ) -> PyResult<Pipe> {
        let on_error = OnErrorOption::read(on_error)?;
        let handling = on_error.clone();
        let pipe = self.pipe.step(static_name(kind), name, move |making| {
            AsyncCalls::make(&make, &on_error, making)
        });
        let pipe = handling.of(pipe);
        checked(py, pipe)
    }

    /// Lists of at most `most` values, of each key where there are keys; after `wait` nanoseconds of
    /// processing time a shorter list is emitted.
    fn collect(
        &self,
        py: Python<'_>,
        name: &str,
        most: usize,
        wait: Option<i64>,
        keyed: bool,
    ) -> PyResult<Pipe> {
        let traits = Traits {
            waits: true,
            timed: false,
            keyed,
            life: None,
        };
        let step = self.pipe.step("collect", name, move |making| {
            let make = |values: Vec<Py<PyAny>>| {
                locked(|py| PyResult::Ok(PyList::new(py, values)?.into_any().unbind()))
            };
            let logic = Collecting::new(most, wait, make);
            PyKeyed::make(logic, traits, &OnErrorOption::Fail, making)
        });
        checked(py, step.in_order().halves().0)
    }

    /// Marks this stream as the right one of a join.
    fn to_the_right(&self, py: Python<'_>) -> PyResult<Pipe> {
        let pipe = self.pipe.step("right", "", |_| Ok(ToTheRight));
        checked(py, pipe)
    }

    /// Joins the two merged streams, of which one is marked as the right one.
    /// Returns pairs and late items.
    fn join(
        &self,
        name: &str,
        described: JoinOptions,
        timed: bool,
        on_error: &Bound<'_, PyAny>,
    ) -> PyResult<(Pipe, Pipe)> {
        let py = on_error.py();
        let on_error = OnErrorOption::read(on_error)?;
        let join = join(described)?;
        let traits = Traits::keyed(false, timed, None);
        let logic = move || JoinLogic::new(join, timed, Tuples);
        let keys = OfRun::default();
        let step = match join.by_key() {
            None => self.pipe.step("join", name, move |making| {
                let step = PyKeyed::make(logic(), traits, &on_error, making)?;
                Ok(step.joining(Some(keys.get(making))))
            }),
            Some(how) => self.pipe.step("join", name, move |making| {
                let logic = ByOwnWatermark::new(logic(), how);
                let step = PyKeyed::make(logic, traits, &on_error, making)?;
                Ok(step.joining(Some(keys.get(making))))
            }),
        };
        let step = if timed {
            step.by_time().timed()
        } else {
            step.in_order()
        };
        both(py, &step.detailed(&join.describe()))
    }

    /// Merges streams; with `by_key`, each item on the worker of its key.
    #[staticmethod]
    fn gather(
        py: Python<'_>,
        kind: &str,
        name: &str,
        streams: Vec<Bound<'_, Pipe>>,
        by_key: bool,
    ) -> PyResult<Pipe> {
        let streams: Vec<_> = streams
            .iter()
            .map(|stream| stream.get().pipe.clone())
            .collect();
        let pipe = if by_key {
            let route: Arc<dyn Fn() -> Box<dyn millstream_flow::Route<PyBatch>> + Send + Sync> =
                Arc::new(|| Box::new(ByKey));
            Engine::gather(static_name(kind), name, &streams, Some(route))
        } else {
            Engine::gather(static_name(kind), name, &streams, None)
        };
        checked(py, pipe)
    }

    fn redistribute(&self, py: Python<'_>) -> PyResult<Pipe> {
        checked(py, self.pipe.redistribute())
    }

    /// Checks the arguments of `sink`, before any step is added.
    #[staticmethod]
    fn check_sink(sink: &Bound<'_, PyAny>, on_error: &Bound<'_, PyAny>) -> PyResult<()> {
        OnErrorOption::read(on_error)?;
        AnySink::read(sink).map(drop)
    }

    fn sink(
        &self,
        py: Python<'_>,
        name: &str,
        sink: &Bound<'_, PyAny>,
        gather: bool,
        on_error: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let on_error = OnErrorOption::read(on_error)?;
        let mut pipe = self.pipe.clone();
        let mut named = NamedSink {
            name: name.to_owned(),
            sink: AnySink::read(sink)?,
        };
        let mut letters = None;
        if on_error.tolerant() {
            let (encoding, sink) = parted(py, named.sink)?;
            named.sink = sink;
            if named.skip_refused(false) {
                letters = on_error.refused_to(&named);
            }
            if let Some(encoding) = encoding {
                let own = name.to_owned();
                let handling = on_error.clone();
                let step = pipe.step("encode", &format!("{name}.encode"), move |making| {
                    EncodeStep::make(&encoding, &on_error, &own, making)
                });
                pipe = handling.of(step);
            }
        }
        match (letters, gather) {
            (Some(letters), gather) => pipe.sink_with_letters(name, named, gather, &letters),
            (None, true) => pipe.sink_gathered(name, named),
            (None, false) => pipe.sink(name, named),
        }
        checked(py, self.pipe.clone()).map(drop)
    }
}

/// The kind of a step as the engine wants it, with a static lifetime. There are as many as verbs: each is kept once.
fn static_name(kind: &str) -> &'static str {
    static KINDS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kinds.get(kind) {
        return known;
    }
    let kept: &'static str = String::from(kind).leak();
    kinds.insert(kept);
    kept
}
