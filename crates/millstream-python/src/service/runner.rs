//! The runner of a service whose component is a Python object.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millstream_journal::{Error, Journal, Options, Sync, Wait};
use millstream_observe::Stacks;
use millstream_service::{
    self as native, OnDifference, OnError, Outcome, QueryError, RestoreError, Runner, Settings,
    Setup, Stop,
};
use millstream_wire::{CallError, Cause, Unpacker};
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::decode::{DecodeError, decode_fields};
use super::interface::Interface;
use super::outlet::{Outlet, PublisherTransport};
use crate::error::{cause, interrupts, service_cause, service_error, service_failed};
use crate::gil::{locked, unlocked};
use crate::journal::{retention_of, sync_of};
use crate::stacks::stacks;
use crate::stopper::Stopper;

/// How long a wait for followers lasts before signals are handled.
const LOOK: Duration = Duration::from_millis(50);

/// A service before it runs: makes the outlets and the clock of its component.
#[pyclass(module = "millstream._millstream")]
pub(crate) struct Service {
    service: Option<native::Service>,
    sync: Sync,
    /// Whether its inputs are only read.
    replays: bool,
}

/// The progress of a service, for another thread.
#[pyclass(frozen, module = "millstream._millstream")]
#[derive(Default)]
pub(crate) struct Meter(pub(crate) Arc<native::Meter>);

#[pymethods]
impl Meter {
    #[new]
    fn new() -> Self {
        Meter::default()
    }

    /// Notes the input that does not exist yet.
    fn wait_for(&self, path: Option<String>) {
        self.0.wait_for(path);
    }
}

/// Writes the file of a service of a system, `SERVICE.json`, also while a call of it keeps the lock of the interpreter.
#[pyclass(module = "millstream._millstream")]
pub(crate) struct Reporter(native::system::Reporter);

#[pymethods]
impl Reporter {
    #[new]
    fn new(
        name: &str,
        inputs: Vec<String>,
        folder: PathBuf,
        meter: &Bound<'_, Meter>,
    ) -> PyResult<Self> {
        let mut stacks = Stacks::new(stacks());
        let stack_of = Box::new(move |thread| stacks.of(0, thread));
        let meter = Arc::clone(&meter.get().0);
        let started = native::system::Reporter::start(name, inputs, &folder, meter, stack_of);
        Ok(Reporter(started?))
    }

    /// Raises the error with which the file could not be written.
    fn check(&mut self) -> PyResult<()> {
        Ok(self.0.check()?)
    }

    /// Writes the file for the last time.
    fn end(&mut self) -> PyResult<()> {
        Ok(self.0.end()?)
    }
}

fn counts(report: native::Report) -> (u64, u64, u64, u64) {
    let native::Report {
        calls,
        ticks,
        skipped,
        dead_letters,
    } = report;
    (calls, ticks, skipped, dead_letters)
}

/// The time that a component sees.
///
/// Example:
///     >>> from typing import Protocol
///     >>> from millstream.service import Clock, Trial
///     >>> class Orders(Protocol):
///     ...     def place(self, price: float) -> None: ...
///     >>> class Desk(Orders):
///     ...     def __init__(self, clock: Clock) -> None:
///     ...         self.clock = clock
///     ...     def place(self, price: float) -> None:
///     ...         print(self.clock.now_ns())
///     >>> Trial(Desk, at=7).component.place(3.0)
///     7
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct Clock {
    pub(super) clock: native::Clock,
}

#[pymethods]
impl Clock {
    /// Returns the time that the component sees: the recorded time of its call.
    ///
    /// Returns:
    ///     Nanoseconds since 1970.
    ///
    /// Example:
    ///     >>> from typing import Protocol
    ///     >>> from millstream.service import Clock, Trial
    ///     >>> class Orders(Protocol):
    ///     ...     def place(self, price: float) -> None: ...
    ///     >>> class Desk(Orders):
    ///     ...     def __init__(self, clock: Clock) -> None:
    ///     ...         self.clock = clock
    ///     ...     def place(self, price: float) -> None:
    ///     ...         print(self.clock.now_ns(), self.clock.record())
    ///     >>> Trial(Desk, at=7).component.place(3.0)
    ///     7 None
    fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    /// Returns the record with which the component is called.
    ///
    /// Returns:
    ///     The journal and the number of the record; None in a call of a timer.
    ///
    /// Example:
    ///     >>> from typing import Protocol
    ///     >>> from millstream.service import Clock, Trial
    ///     >>> class Orders(Protocol):
    ///     ...     def place(self, price: float) -> None: ...
    ///     >>> class Desk(Orders):
    ///     ...     def __init__(self, clock: Clock) -> None:
    ///     ...         self.clock = clock
    ///     ...     def place(self, price: float) -> None:
    ///     ...         print(self.clock.now_ns(), self.clock.record())
    ///     >>> Trial(Desk, at=7).component.place(3.0)
    ///     7 None
    fn record(&self) -> Option<(String, u64)> {
        self.clock.record()
    }
}

/// The one-off timers of a component.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct OneOffs {
    timers: native::Timers,
}

#[pymethods]
impl OneOffs {
    /// Those of the component with this clock.
    #[new]
    fn new(clock: &Clock) -> Self {
        let timers = clock.clock.timers();
        Self { timers }
    }

    /// Starts one.
    fn start(&self, py: Python<'_>, timer: &str, name: &str, length_ns: u64) -> PyResult<()> {
        let started = self
            .timers
            .start(timer, name, Duration::from_nanos(length_ns));
        started.map_err(|error| service_error(py, error))
    }

    /// Cancels one.
    fn cancel(&self, py: Python<'_>, timer: &str, name: &str) -> PyResult<bool> {
        let cancelled = self.timers.cancel(timer, name);
        cancelled.map_err(|error| service_error(py, error))
    }
}

/// When a method is called.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct When {
    pub(super) when: native::When,
}

#[pymethods]
impl When {
    /// Every so many ns, or at a time of the day; `missed` is once, skip or all.
    #[new]
    fn new(
        py: Python<'_>,
        period_ns: Option<u64>,
        at: Option<&str>,
        zone: &str,
        missed: &str,
    ) -> PyResult<Self> {
        let when = match at {
            Some(at) => native::When::daily(at, zone).map_err(|error| service_error(py, error))?,
            None => native::When::every(Duration::from_nanos(period_ns.unwrap_or(1))),
        };
        let when = when.missed(match missed {
            "skip" => native::Missed::Skip,
            "all" => native::Missed::All,
            _ => native::Missed::Once,
        });
        Ok(Self { when })
    }
}

/// An input of a service: the journal, the interface, and the component's methods for it.
type Input<'py> = (PathBuf, Py<Interface>, Vec<Py<PyAny>>);

/// A timer: its name, when it is called (`None`: a one-off timer), the component's method, and its aliases.
type Timer = (String, Option<Py<When>>, Py<PyAny>, Vec<String>);

/// How often the state is saved, its version, the function that returns it as bytes, and the one that restores bytes of
/// a version: it returns why they cannot be read.
type Snapshots = (u64, u64, Py<PyAny>, Py<PyAny>);

fn opened(py: Python<'_>, path: &PathBuf, options: Options) -> PyResult<Journal> {
    Journal::open(path, options).map_err(|error| service_error(py, error))
}

/// Opens an existing input: to keep a cursor in it, or, where that is not allowed, to read.
fn open_input(py: Python<'_>, path: &PathBuf, reads: bool) -> PyResult<Journal> {
    let options = if reads {
        Options::read_only()
    } else {
        Options {
            create: false,
            ..Options::default()
        }
    };
    let opened = match Journal::open(path, options) {
        Err(Error::Io { source, .. }) if is_read_only(&source) => {
            Journal::open(path, Options::read_only())
        }
        opened => opened,
    };
    opened.map_err(|error| service_error(py, error))
}

fn is_read_only(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
    )
}

/// Whether there is a journal at `path`, which another process may create.
#[pyfunction]
pub(crate) fn service_has_input(py: Python<'_>, path: PathBuf) -> PyResult<bool> {
    match Journal::open(&path, Options::read_only()) {
        Ok(_) => Ok(true),
        Err(Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(service_error(py, error)),
    }
}

#[pymethods]
impl Service {
    /// `sync` is none for never, 0 for always, or seconds; `retain` are bytes, seconds, and whether cursors keep
    /// records.
    #[new]
    #[pyo3(signature = (out, sync=None, retain=(None, None, false)))]
    fn new(
        py: Python<'_>,
        out: Option<PathBuf>,
        sync: Option<f64>,
        retain: (Option<u64>, Option<f64>, bool),
    ) -> PyResult<Self> {
        let sync = sync_of(sync)?;
        let retention = retention_of(retain.0, retain.1, retain.2)?;
        let options = Options::default().with_sync(sync).with_retention(retention);
        let service = match out {
            Some(out) => native::Service::new(&opened(py, &out, options)?)
                .map_err(|error| service_error(py, error))?,
            None => native::Service::without_output(),
        };
        Ok(Self {
            service: Some(service),
            sync,
            replays: false,
        })
    }

    /// A service that repeats the calls of the one that writes, or wrote, to the journal `out`.
    #[staticmethod]
    #[pyo3(signature = (out))]
    fn replaying(py: Python<'_>, out: Option<PathBuf>) -> PyResult<Self> {
        let service = native::Service::replaying(out.as_deref());
        Ok(Self {
            service: Some(service.map_err(|error| service_error(py, error))?),
            sync: Sync::Never,
            replays: true,
        })
    }

    /// Whether it follows a recorded order.
    #[getter]
    fn is_recorded(&self) -> PyResult<bool> {
        Ok(self.waiting()?.is_recorded())
    }

    /// The transport of a publisher to the output journal.
    fn outlet(&self, py: Python<'_>, interface: Py<Interface>) -> PyResult<Outlet> {
        let outlet = self
            .waiting()?
            .outlet()
            .map_err(|cause| service_cause(py, cause))?;
        Outlet::make(
            py,
            interface,
            PublisherTransport::Journal(outlet),
            self.sync,
        )
    }

    /// The time that the component may see.
    fn clock(&self) -> PyResult<Clock> {
        let clock = self.waiting()?.clock();
        Ok(Clock { clock })
    }

    /// `own` are interfaces of the outputs with the methods that are called with them at a start.
    ///
    /// Runs: until all inputs are processed when `drain` is set, else until `stopper` stops it or a `KeyboardInterrupt`
    /// is raised. `until` ends it after so many calls. Returns the numbers of calls, ticks, skipped records and dead
    /// letters.
    #[pyo3(signature = (inputs, timers, stopper, *, wait="block", on_error="fail", dead_letters=None, on_difference="fail",
        accept_differences=0, rebuild=true, snapshots=None, own=Vec::new(), queries=Vec::new(), drain=false, until=None,
        skip_pruned=false, followers=0, meter=None, cores=Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn run(
        &mut self,
        py: Python<'_>,
        inputs: Vec<Input<'_>>,
        timers: Vec<Timer>,
        stopper: Py<Stopper>,
        wait: &str,
        on_error: &str,
        dead_letters: Option<PathBuf>,
        on_difference: &str,
        accept_differences: u64,
        rebuild: bool,
        snapshots: Option<Snapshots>,
        own: Vec<(Py<Interface>, Vec<Py<PyAny>>)>,
        queries: Vec<(String, Py<PyAny>)>,
        drain: bool,
        until: Option<u64>,
        skip_pruned: bool,
        followers: usize,
        meter: Option<Py<Meter>>,
        cores: Vec<usize>,
    ) -> PyResult<(u64, u64, u64, u64)> {
        let service = self
            .service
            .take()
            .ok_or_else(|| PyValueError::new_err("a service runs once"))?;
        let mut setup = service.component(());
        for (path, interface, methods) in inputs {
            let journal = open_input(py, &path, self.replays)?;
            let schema = interface.get().schema.clone();
            setup = setup
                .input_with(&journal, schema, dispatch(interface, methods))
                .map_err(|error| service_error(py, error))?;
        }
        for (interface, methods) in own {
            let schema = interface.get().schema.clone();
            setup = setup
                .rebuild_from_with(schema, dispatch(interface, methods))
                .map_err(|error| service_error(py, error))?;
        }
        if let Some(snapshots) = snapshots {
            setup = keeping(setup, snapshots);
        }
        let setup = queried(timed(setup, timers), queries);
        let settings = Settings {
            wait: wait_of(wait),
            on_error: on_error_of(py, on_error, dead_letters, self.sync)?,
            rebuild,
            skip_pruned,
            followers,
            on_difference: on_difference_of(on_difference),
            accept_differences,
        };
        let Some(runner) = start(py, setup, settings, &stopper)? else {
            return Ok(counts(native::Report::default()));
        };
        native::system::pin(&cores).map_err(|cause| service_cause(py, cause))?;
        let running = Running {
            runner,
            stopper: stopper.get(),
            meter: meter.as_ref().map(|meter| &*meter.get().0),
            waits: self.sync == Sync::Always,
        };
        running.run(py, drain, until).map(counts)
    }
}

/// A service with the timers of its component.
fn timed(mut setup: Setup<()>, timers: Vec<Timer>) -> Setup<()> {
    for (name, when, call, aliases) in timers {
        for alias in aliases {
            setup = setup.renamed_timer(&alias, &name);
        }
        setup = match when {
            Some(when) => setup.timer(&name, when.get().when.clone(), tick(call)),
            None => setup.one_off(&name, named_tick(call)),
        };
    }
    setup
}

/// Starts a runner; `None` when it is stopped before the component has its state.
fn start(
    py: Python<'_>,
    setup: Setup<()>,
    settings: Settings,
    stopper: &Py<Stopper>,
) -> PyResult<Option<Runner<()>>> {
    let asked = stopper.clone_ref(py);
    // Python calls the handlers of signals in the component, which it calls anyway.
    let setup = setup.stopped_by(move || asked.get().is_stopped());
    match setup.start(settings) {
        Ok(runner) => Ok(Some(runner)),
        Err(native::ServiceError::Stopped) => Ok(None),
        Err(error) => Err(service_failed(py, error)),
    }
}

fn wait_of(wait: &str) -> Wait {
    match wait {
        "spin" => Wait::Spin,
        "back-off" => Wait::BackOff,
        _ => Wait::Block,
    }
}

fn on_difference_of(on_difference: &str) -> OnDifference {
    match on_difference {
        "warn" => OnDifference::Warn,
        "recorded" => OnDifference::Recorded,
        _ => OnDifference::Fail,
    }
}

/// The handling of bad records; dead letters are as durable as the output.
fn on_error_of(
    py: Python<'_>,
    on_error: &str,
    dead_letters: Option<PathBuf>,
    sync: Sync,
) -> PyResult<OnError> {
    Ok(match (on_error, dead_letters) {
        (_, Some(path)) => {
            let options = Options::default().with_sync(sync);
            OnError::DeadLetter(opened(py, &path, options)?)
        }
        ("skip", None) => OnError::Skip,
        _ => OnError::Fail,
    })
}

/// A service whose component saves its state as bytes and restores it.
fn keeping(setup: Setup<()>, (every, version, save, restore): Snapshots) -> Setup<()> {
    let saved = move |(): &mut ()| {
        locked(|py| {
            let state = save.call0(py).and_then(|state| state.extract(py));
            state.map_err(cause)
        })
    };
    let restored = move |(): &mut (), state: &[u8], version: u64| {
        locked(|py| {
            let taken = restore.call1(py, (PyBytes::new(py, state), version));
            let unreadable: Option<String> = taken
                .and_then(|fault| fault.extract(py))
                .map_err(|error| RestoreError::Failed(cause(error)))?;
            unreadable.map_or(Ok(()), |fault| Err(RestoreError::Unreadable(fault.into())))
        })
    };
    setup.snapshots_with(every, version, saved, restored)
}

impl Service {
    fn waiting(&self) -> PyResult<&native::Service> {
        let service = self.service.as_ref();
        service.ok_or_else(|| PyValueError::new_err("the service is running already"))
    }
}

/// Reports the state at the start on standard error.
fn warn(py: Python<'_>, runner: &Runner<()>) -> PyResult<()> {
    for text in runner.warnings() {
        py.import("sys")?
            .getattr("stderr")?
            .call_method1("write", (format!("millstream service: {text}\n"),))?;
    }
    Ok(())
}

/// A service that runs.
struct Running<'a> {
    runner: Runner<()>,
    stopper: &'a Stopper,
    meter: Option<&'a native::Meter>,
    /// A turn may wait for a disk.
    waits: bool,
}

impl Running<'_> {
    fn run(mut self, py: Python<'_>, drain: bool, until: Option<u64>) -> PyResult<native::Report> {
        warn(py, &self.runner)?;
        let mut taken = Outcome::Nothing;
        self.write_meter();
        loop {
            if (taken == Outcome::Nothing || self.runner.is_ahead()) && !self.wait_followed(py)? {
                return self.end(py);
            }
            let runner = &mut self.runner;
            if until.is_some_and(|until| runner.report().calls >= until) {
                return self.end(py);
            }
            let turned = if self.waits {
                unlocked(|| runner.turn())
            } else {
                runner.turn()
            };
            taken = turned.map_err(|error| service_failed(py, error))?;
            self.write_meter();
            if taken == Outcome::Nothing {
                if drain && self.wait_followed(py)? {
                    return self.end(py);
                }
                let runner = &mut self.runner;
                unlocked(|| runner.wait_for_input()).map_err(|error| service_failed(py, error))?;
            }
            // After each call: one may take as long as a stop may.
            if self.is_stopped(py)? {
                return self.end(py);
            }
        }
    }

    fn is_stopped(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(interrupted(py)? || self.stopper.is_stopped())
    }

    /// Waits until the followers have all outputs; false when the service is to stop before.
    fn wait_followed(&mut self, py: Python<'_>) -> PyResult<bool> {
        let runner = &mut self.runner;
        if !runner.has_followers() {
            return Ok(true);
        }
        loop {
            let runner = &mut self.runner;
            let followed = unlocked(|| runner.wait_followed(LOOK));
            if followed.map_err(|error| service_failed(py, error))? {
                return Ok(true);
            }
            if self.is_stopped(py)? {
                return Ok(false);
            }
        }
    }

    /// Ends the service after its current input.
    fn end(mut self, py: Python<'_>) -> PyResult<native::Report> {
        let stopped = Stop::default();
        stopped.stop();
        let ended = self.runner.run(&stopped);
        self.write_meter();
        ended.map_err(|error| service_failed(py, error))
    }

    fn write_meter(&self) {
        if let Some(meter) = self.meter {
            self.runner.write_to(meter);
        }
    }
}

/// Runs Python's signal handlers, and returns whether one raised `KeyboardInterrupt`.
fn interrupted(py: Python<'_>) -> PyResult<bool> {
    match py.check_signals() {
        Err(signal) if signal.is_instance_of::<PyKeyboardInterrupt>(py) => Ok(true),
        other => other.map(|()| false),
    }
}

/// Calls the component's methods with the arguments of records.
pub(super) fn dispatch<C>(
    interface: Py<Interface>,
    methods: Vec<Py<PyAny>>,
) -> impl FnMut(&mut C, u64, Unpacker<'_>) -> Result<(), CallError> + Send + 'static {
    move |_, number, mut arguments| {
        locked(|py| {
            let interface = interface.get();
            let at = usize::try_from(number)
                .unwrap_or(usize::MAX)
                .wrapping_sub(1);
            let (Some(method), Some(call)) = (interface.methods.get(at), methods.get(at)) else {
                return Err(CallError::unknown_method(
                    interface.schema.interface(),
                    number,
                ));
            };
            let values = &mut arguments;
            let read = decode_fields(
                py,
                values,
                &method.arguments,
                &interface.named,
                &interface.schema,
            );
            let read = read.and_then(|read| Ok(values.end().map(|()| read)?));
            let given = read.map_err(|error| match error {
                DecodeError::Record(error) => CallError::Record(error.within(&method.name)),
                DecodeError::Python(error) => failed(py, &method.name, error),
            })?;
            let called = call.bind(py).call1(given);
            called
                .map(drop)
                .map_err(|error| failed(py, &method.name, error))
        })
    }
}

/// A service whose component answers queries.
fn queried(setup: Setup<()>, queries: Vec<(String, Py<PyAny>)>) -> Setup<()> {
    let with = |setup: Setup<()>, (name, answer): (String, _)| setup.query(&name, answered(answer));
    queries.into_iter().fold(setup, with)
}

/// Answers a query by a function of its arguments as JSON, which returns the kind of the outcome and its JSON or its
/// reason.
fn answered(
    answer: Py<PyAny>,
) -> impl FnMut(&mut (), &native::Arguments) -> Result<native::json::Value, QueryError> + Send + 'static
{
    move |(), arguments| {
        let given = serde_json::to_string(arguments).map_err(reason)?;
        let (kind, text): (String, String) = locked(|py| {
            let answered = answer.call1(py, (given,));
            answered.and_then(|answered| answered.extract(py))
        })
        .map_err(reason)?;
        match kind.as_str() {
            "result" => serde_json::from_str(&text).map_err(reason),
            "arguments" => Err(QueryError::arguments(text)),
            _ => Err(QueryError::failed(text)),
        }
    }
}

fn reason(error: impl std::fmt::Display) -> QueryError {
    QueryError::failed(error.to_string())
}

/// Asks the service that writes to `output`; arguments and answer are JSON.
#[pyfunction]
pub(crate) fn service_ask(
    py: Python<'_>,
    output: PathBuf,
    query: &str,
    arguments: &str,
    timeout: f64,
) -> PyResult<String> {
    let arguments: native::Arguments =
        serde_json::from_str(arguments).map_err(|error| service_error(py, error))?;
    let limit = Duration::try_from_secs_f64(timeout)?;
    let asked = unlocked(|| native::ask(&output, query, arguments, limit));
    let asked = asked.map_err(|error| service_error(py, error))?;
    Ok(asked.to_string())
}

/// Calls a method as a timer, with the time.
pub(super) fn tick(
    call: Py<PyAny>,
) -> impl FnMut(&mut (), i64) -> Result<(), Cause> + Send + 'static {
    move |(), now_ns| locked(|py| ticked(py, call.call1(py, (now_ns,))))
}

/// Calls a method as a one-off timer, with its name and the time.
pub(super) fn named_tick(
    call: Py<PyAny>,
) -> impl FnMut(&mut (), &str, i64) -> Result<(), Cause> + Send + 'static {
    move |(), name, now_ns| locked(|py| ticked(py, call.call1(py, (name, now_ns))))
}

fn ticked(py: Python<'_>, called: PyResult<Py<PyAny>>) -> Result<(), Cause> {
    called.map(drop).map_err(|error| {
        if interrupts(py, &error) {
            CallError::Interrupted {
                cause: cause(error),
            }
            .into()
        } else {
            cause(error)
        }
    })
}

/// Why a method failed.
fn failed(py: Python<'_>, method: &str, error: PyErr) -> CallError {
    if interrupts(py, &error) {
        CallError::Interrupted {
            cause: cause(error),
        }
    } else {
        CallError::component(method, cause(error))
    }
}
