//! The runner of a service whose component is a Python object.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use millstream::journal::{Error, Journal, Options, Wait};
use millstream::service::{self as native, OnError, Settings, Setup, Stop, Taken};
use millstream::wire::{CallError, Cause, Unpacker};
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::decode::{DecodeError, decode_fields};
use super::interface::Interface;
use super::outlet::{End, Outlet};
use crate::error::{cause, interrupts, service_cause, service_error, service_failed};
use crate::gil::{locked, unlocked};
use crate::run::Stopper;

/// How many calls are made before signals are looked at.
const CALLS: u32 = 256;

/// A service before it runs: makes the outlets and the clock of its component.
#[pyclass(module = "millstream._millstream")]
pub(crate) struct Service {
    service: Option<native::Service>,
    /// Whether its inputs are only read.
    replays: bool,
}

/// The recorded time that a component may see.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct Clock {
    pub(super) clock: native::Clock,
}

#[pymethods]
impl Clock {
    /// Nanoseconds since 1970.
    fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    /// The journal and the number of the record that the component is called with.
    fn record(&self) -> Option<(String, u64)> {
        self.clock.record()
    }
}

/// What a service is told about its inputs: the journal, the interface, and the component's methods for it.
type Input<'py> = (PathBuf, Py<Interface>, Vec<Py<PyAny>>);

/// A timer: its name, its period in ns, the component's method, and earlier names.
type Timer = (String, u64, Py<PyAny>, Vec<String>);

/// How often the state is kept, what gives it as bytes, and what takes it back.
type Snapshots = (u64, Py<PyAny>, Py<PyAny>);

pub(super) fn open(py: Python<'_>, path: &PathBuf) -> PyResult<Journal> {
    Journal::open(path, Options::default()).map_err(|error| service_error(py, &error))
}

/// Opens an input, which must be there: to keep a cursor in it, or, where that is not allowed, to read.
fn open_input(py: Python<'_>, path: &PathBuf, reads: bool) -> PyResult<Journal> {
    let options = match reads {
        true => Options::read_only(),
        false => Options {
            create: false,
            ..Options::default()
        },
    };
    let opened = match Journal::open(path, options) {
        Err(Error::Io { source, .. }) if is_read_only(&source) => {
            Journal::open(path, Options::read_only())
        }
        opened => opened,
    };
    opened.map_err(|error| service_error(py, &error))
}

fn is_read_only(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
    )
}

/// Whether there is a journal at `path`, which may be for others to make.
#[pyfunction]
pub(crate) fn service_has_input(py: Python<'_>, path: PathBuf) -> PyResult<bool> {
    match Journal::open(&path, Options::read_only()) {
        Ok(_) => Ok(true),
        Err(Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(service_error(py, &error)),
    }
}

#[pymethods]
impl Service {
    #[new]
    #[pyo3(signature = (out))]
    fn new(py: Python<'_>, out: Option<PathBuf>) -> PyResult<Self> {
        let service = match out {
            Some(out) => {
                native::Service::new(&open(py, &out)?).map_err(|error| service_error(py, &error))?
            }
            None => native::Service::without_output(),
        };
        Ok(Self {
            service: Some(service),
            replays: false,
        })
    }

    /// A service that does again what the one did that writes, or wrote, to the journal `out`.
    #[staticmethod]
    #[pyo3(signature = (out))]
    fn replaying(py: Python<'_>, out: Option<PathBuf>) -> PyResult<Self> {
        let service = native::Service::replaying(out.as_deref());
        Ok(Self {
            service: Some(service.map_err(|error| service_error(py, &error))?),
            replays: true,
        })
    }

    /// Whether it goes by a recorded order.
    #[getter]
    fn is_recorded(&self) -> PyResult<bool> {
        Ok(self.waiting()?.is_recorded())
    }

    /// A publisher's end of the output journal.
    fn outlet(&self, py: Python<'_>, interface: Py<Interface>) -> PyResult<Outlet> {
        let outlet = self
            .waiting()?
            .outlet()
            .map_err(|cause| service_cause(py, cause))?;
        Outlet::make(py, interface, End::Journal(outlet))
    }

    /// The time that the component may see.
    fn clock(&self) -> PyResult<Clock> {
        let clock = self.waiting()?.clock();
        Ok(Clock { clock })
    }

    /// `own` are interfaces of the outputs with the methods that hear them at a start.
    ///
    /// Runs: until all inputs are taken when `drain` is set, else until `stopper` is told or a `KeyboardInterrupt` comes. `until` ends it behind so many calls. Gives the numbers of
    /// calls, ticks, skipped records and dead letters.
    #[expect(
        clippy::too_many_arguments,
        reason = "called from one place in the package, by keyword"
    )]
    fn run(
        &mut self,
        py: Python<'_>,
        inputs: Vec<Input<'_>>,
        timers: Vec<Timer>,
        wait: &str,
        on_error: &str,
        dead_letters: Option<PathBuf>,
        rebuild: bool,
        snapshots: Option<Snapshots>,
        own: Vec<(Py<Interface>, Vec<Py<PyAny>>)>,
        drain: bool,
        until: Option<u64>,
        stopper: Py<Stopper>,
        skip_pruned: bool,
        old_timers: Option<Vec<String>>,
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
                .map_err(|error| service_error(py, &error))?;
        }
        for (interface, methods) in own {
            let schema = interface.get().schema.clone();
            setup = setup
                .rebuild_from_with(schema, dispatch(interface, methods))
                .map_err(|error| service_error(py, &error))?;
        }
        if let Some(snapshots) = snapshots {
            setup = keeping(setup, snapshots);
        }
        for (name, period_ns, call, aliases) in timers {
            for old in aliases {
                setup = setup.renamed_timer(&old, &name);
            }
            setup = setup.every(&name, Duration::from_nanos(period_ns), tick(call));
        }
        let settings = Settings {
            wait: match wait {
                "spin" => Wait::Spin,
                "back-off" => Wait::BackOff,
                _ => Wait::Block,
            },
            on_error: match (on_error, dead_letters) {
                (_, Some(path)) => OnError::DeadLetter(open(py, &path)?),
                ("skip", None) => OnError::Skip,
                _ => OnError::Fail,
            },
            rebuild,
            skip_pruned,
            old_timers,
        };
        let report = run(py, setup, settings, drain, until, stopper.get())?;
        Ok((
            report.calls,
            report.ticks,
            report.skipped,
            report.dead_letters,
        ))
    }
}

/// A service whose component gives its state as bytes and takes it back.
fn keeping(setup: Setup<()>, (every, save, restore): Snapshots) -> Setup<()> {
    let saved = move |(): &mut ()| {
        locked(|py| {
            let state = save.call0(py).and_then(|state| state.extract(py));
            state.map_err(cause)
        })
    };
    let restored = move |(): &mut (), state: &[u8]| {
        locked(|py| {
            let taken = restore.call1(py, (PyBytes::new(py, state),));
            taken.map(drop).map_err(cause)
        })
    };
    setup.snapshots_with(every, saved, restored)
}

impl Service {
    fn waiting(&self) -> PyResult<&native::Service> {
        let service = self.service.as_ref();
        service.ok_or_else(|| PyValueError::new_err("the service is running already"))
    }
}

fn run(
    py: Python<'_>,
    setup: Setup<()>,
    settings: Settings,
    drain: bool,
    until: Option<u64>,
    stopper: &Stopper,
) -> PyResult<native::Report> {
    let mut runner = setup
        .start(settings)
        .map_err(|error| service_failed(py, error))?;
    for input in runner.unheld_inputs() {
        let text =
            format!("{input}: may only be read, so no cursor keeps its records from being pruned");
        py.import("sys")?
            .getattr("stderr")?
            .call_method1("write", (format!("millstream service: {text}\n"),))?;
    }
    let mut calls = 0u32;
    loop {
        if until.is_some_and(|until| runner.report().calls >= until) {
            return ended(py, &mut runner);
        }
        let taken = runner.turn().map_err(|error| service_failed(py, error))?;
        calls += 1;
        if taken == Taken::Nothing && drain {
            return runner.drain().map_err(|error| service_failed(py, error));
        }
        if taken == Taken::Nothing {
            unlocked(|| runner.rest()).map_err(|error| service_failed(py, error))?;
        }
        if calls >= CALLS || taken == Taken::Nothing {
            calls = 0;
            if interrupted(py)? || stopper.is_stopped() {
                return ended(py, &mut runner);
            }
        }
    }
}

/// Ends a service: writes down how far it has come.
fn ended(py: Python<'_>, runner: &mut native::Runner<()>) -> PyResult<native::Report> {
    let stopped = Stop::default();
    stopped.stop();
    let ended = runner.run(&stopped);
    ended.map_err(|error| service_failed(py, error))
}

/// Lets Python's handlers of signals run, and gives whether one raised `KeyboardInterrupt`.
fn interrupted(py: Python<'_>) -> PyResult<bool> {
    match py.check_signals() {
        Err(signal) if signal.is_instance_of::<PyKeyboardInterrupt>(py) => Ok(true),
        other => other.map(|()| false),
    }
}

/// What calls the component's methods with the arguments of records.
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

/// What calls a method as a timer, with the time.
pub(super) fn tick(
    call: Py<PyAny>,
) -> impl FnMut(&mut (), i64) -> Result<(), Cause> + Send + 'static {
    move |(), now_ns| {
        locked(|py| {
            let called = call.call1(py, (now_ns,));
            called
                .map(drop)
                .map_err(|error| match interrupts(py, &error) {
                    true => CallError::Interrupted {
                        cause: cause(error),
                    }
                    .into(),
                    false => cause(error),
                })
        })
    }
}

/// Why a method failed.
fn failed(py: Python<'_>, method: &str, error: PyErr) -> CallError {
    match interrupts(py, &error) {
        true => CallError::Interrupted {
            cause: cause(error),
        },
        false => CallError::component(method, cause(error)),
    }
}
