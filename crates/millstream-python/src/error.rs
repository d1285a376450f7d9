//! Conversion of errors between Python and the engine.
//!
//! A Python exception travels through the engine as the cause of a failure and comes out of `run`
//! as it went in: as the `__cause__` of a `StepError`, with the traceback of the user's code.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use millstream_flow::error::{Cause, chain};
use millstream_flow::{Failure, FlowError};
use millstream_journal::Error as JournalError;
use millstream_queue::QueueError;
use millstream_service::ServiceError;
use millstream_service::testing::TestError;
use millstream_wire::CallError;
use pyo3::exceptions::{PyException, PyOSError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::gil::locked;
use crate::show::type_name;

/// A Python exception as the cause of a failure.
#[derive(Debug)]
pub(crate) struct PythonError(pub(crate) PyErr);

impl fmt::Display for PythonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        locked(|py| {
            let value = self.0.value(py);
            let name = type_name(value);
            match value.str() {
                Ok(text) if text.is_empty().unwrap_or(true) => f.write_str(&name),
                Ok(text) => write!(f, "{name}: {}", text.to_string_lossy()),
                Err(_) => write!(f, "{name} (its text cannot be shown)"),
            }
        })
    }
}

impl std::error::Error for PythonError {}

/// The cause of a failure with the number of the record that it concerns.
#[derive(Debug)]
pub(crate) struct AtRecord {
    pub(crate) number: u64,
    pub(crate) cause: Cause,
}

impl fmt::Display for AtRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} cannot be read", self.number)
    }
}

impl std::error::Error for AtRecord {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.cause.as_ref())
    }
}

/// The exception that is the cause, or the cause of the cause.
fn exception_in(py: Python<'_>, cause: &(dyn std::error::Error + 'static)) -> Option<PyErr> {
    let mut next = Some(cause);
    while let Some(cause) = next {
        if let Some(raised) = cause.downcast_ref::<PythonError>() {
            return Some(raised.0.clone_ref(py));
        }
        next = cause.source();
    }
    None
}

/// The traceback of the exception that is the cause of a failure, as Python prints it.
pub(crate) fn traceback(cause: &Cause) -> Option<String> {
    locked(|py| {
        let raised = exception_in(py, cause.as_ref())?;
        let module = py.import("traceback").ok()?;
        let lines = module
            .call_method1("format_exception", (raised.into_value(py),))
            .ok()?;
        let lines: Vec<String> = lines.extract().ok()?;
        Some(lines.concat())
    })
}

/// An exception as a cause.
pub(crate) fn cause(error: PyErr) -> Box<dyn std::error::Error + Send + Sync> {
    Box::new(PythonError(error))
}

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("millstream._errors.flow")?.getattr(name)
}

fn make(py: Python<'_>, name: &str, message: &str) -> PyErr {
    match class(py, name).and_then(|class| class.call1((message,))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// A failure of a flow, in words.
pub(crate) fn flow_error(py: Python<'_>, message: &str) -> PyErr {
    make(py, "FlowError", message)
}

/// A mistake in how the flow is described or run.
pub(crate) fn usage(py: Python<'_>, message: &str) -> PyErr {
    make(py, "FlowUsageError", message)
}

/// The exception for a time that is further ahead of the clock than `max_ahead`.
pub(crate) fn future_time(py: Python<'_>, message: &str) -> PyErr {
    make(py, "FutureTimeError", message)
}

/// True for a mistake in the description of a flow, also one that is found only while it runs.
pub(crate) fn is_usage(error: &PyErr, py: Python<'_>) -> bool {
    static USAGE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = USAGE.import(py, "millstream._errors.flow", "FlowUsageError");
    class.is_ok_and(|class| error.is_instance(py, class))
}

/// The exception for an error of the engine.
pub(crate) fn to_python(py: Python<'_>, error: FlowError) -> PyErr {
    let message = chain(&error).to_string();
    match error {
        FlowError::Failed(failure) => step_error(py, failure, &message),
        FlowError::Open { cause, .. } => open_error(py, cause, &message),
        FlowError::Lost { process, .. } => {
            let error = make(py, "MemberLostError", &message);
            // Without the number the text says it alone.
            let _ = error.value(py).setattr("missing", vec![process]);
            error
        }
        error if error.is_lost() => make(py, "MemberLostError", &message),
        FlowError::Panicked { .. }
        | FlowError::State { .. }
        | FlowError::Vanished { .. }
        | FlowError::Cluster { .. } => make(py, "FlowError", &message),
        FlowError::Crashed(_) => make(py, "SimulatedCrash", &message),
        FlowError::Unreadable { cause, .. } => {
            let error = make(py, "FlowError", &message);
            let raised = cause.downcast::<PythonError>().ok();
            error.set_cause(py, raised.map(|raised| raised.0));
            error
        }
        _ => usage(py, &message),
    }
}

/// Whether an exception reports a fault of an item, and does not end the program. A call of asyncio that was cancelled
/// is such a fault, though its class is no `Exception`.
pub(crate) fn is_fault(py: Python<'_>, error: &PyErr) -> bool {
    let was_cancelled = || {
        let class = py
            .import("asyncio")
            .and_then(|asyncio| asyncio.getattr("CancelledError"));
        class.is_ok_and(|class| error.is_instance(py, &class))
    };
    error.is_instance_of::<PyException>(py) || was_cancelled()
}

fn step_error(py: Python<'_>, failure: Failure, message: &str) -> PyErr {
    let original = match exception_in(py, failure.cause.as_ref()) {
        Some(raised) if !is_fault(py, &raised) => return raised,
        original => original,
    };
    let arguments = (message, failure.step, failure.key, failure.item);
    match class(py, "StepError").and_then(|class| class.call1(arguments)) {
        Ok(error) => {
            let error = PyErr::from_value(error);
            error.set_cause(py, original);
            error
        }
        Err(error) => error,
    }
}

fn open_error(
    py: Python<'_>,
    cause: Box<dyn std::error::Error + Send + Sync>,
    message: &str,
) -> PyErr {
    match cause.downcast::<PythonError>() {
        Ok(raised) if !raised.0.is_instance_of::<PyException>(py) => raised.0,
        Ok(raised) => {
            let error = make(py, "FlowError", message);
            error.set_cause(py, Some(raised.0));
            error
        }
        Err(cause) => match cause.downcast::<std::io::Error>() {
            Ok(error) => PyErr::from(std::io::Error::new(error.kind(), message.to_owned())),
            Err(_) => PyOSError::new_err(message.to_owned()),
        },
    }
}

/// The exception for an error of a journal.
pub(crate) fn journal(py: Python<'_>, error: JournalError) -> PyErr {
    use JournalError as E;
    let none = (None, None, None);
    let (name, (errno, path, offset)) = match &error {
        E::NotFound { path } => ("JournalNotFoundError", (None, Some(path), None)),
        E::Exists { path } => ("JournalExistsError", (None, Some(path), None)),
        E::NotAJournal { path, .. } => ("NotAJournalError", (None, Some(path), None)),
        E::Version { path, .. } => ("JournalVersionError", (None, Some(path), None)),
        E::Io { source, path, .. } => {
            let denied = source.kind() == ErrorKind::PermissionDenied;
            let name = if denied {
                "JournalPermissionError"
            } else {
                "JournalIOError"
            };
            (name, (source.raw_os_error(), Some(path), None))
        }
        E::DiskFull { source, path } => (
            "JournalFullError",
            (source.raw_os_error(), Some(path), None),
        ),
        E::Fault {
            source,
            path,
            offset,
        } => (
            "JournalIOError",
            (source.raw_os_error(), Some(path), Some(*offset)),
        ),
        E::Panicked { path, .. } => ("JournalIOError", (None, Some(path), None)),
        E::Gone { path } => ("JournalNotFoundError", (None, Some(path), None)),
        E::Damage { path, offset, .. } => ("JournalDamageError", (None, Some(path), Some(*offset))),
        E::Pruned { path, .. } => ("RecordPrunedError", (None, Some(path), None)),
        E::Lost { path, .. } => ("RecordLostError", (None, Some(path), None)),
        E::NotYet { path, .. } => ("RecordNotYetError", (None, Some(path), None)),
        E::RecordTooLarge { .. } => ("RecordTooLargeError", none),
        E::Superseded { path, .. } => ("JournalSupersededError", (None, Some(path), None)),
        E::Busy { path, .. }
        | E::Claimed { path, .. }
        | E::IsCopy { path }
        | E::Locked { path, .. }
        | E::TooManyWriters { path, .. }
        | E::CursorInUse { path, .. } => ("JournalBusyError", (None, Some(path), None)),
        E::Poisoned { path } => ("JournalPoisonedError", (None, Some(path), None)),
        E::ReadOnly { path } => ("JournalReadOnlyError", (None, Some(path), None)),
        E::Forked { path } => ("JournalForkedError", (None, Some(path), None)),
        E::Option { .. } | E::CursorName { .. } => ("JournalUsageError", none),
        _ => ("JournalError", none),
    };
    make_journal(py, name, (error.with_remedy(), errno, path, offset))
}

/// The exception for a record that no follower has acknowledged in time.
pub(crate) fn not_followed(py: Python<'_>, error: impl Into<Cause>, path: &Path) -> PyErr {
    let message = chain(&*error.into()).to_string();
    make_journal(
        py,
        "RecordNotFollowedError",
        (message, py.None(), path, py.None()),
    )
}

/// The exception for a call on a journal that was closed.
pub(crate) fn journal_closed(py: Python<'_>, path: &Path) -> PyErr {
    let message = format!("{}: the journal is closed", path.display());
    make_journal(
        py,
        "JournalClosedError",
        (message, py.None(), path, py.None()),
    )
}

fn make_journal<'py>(
    py: Python<'py>,
    name: &str,
    arguments: impl pyo3::call::PyCallArgs<'py>,
) -> PyErr {
    make_of(py, "millstream._errors.journal", name, arguments)
}

fn make_of<'py>(
    py: Python<'py>,
    package: &str,
    name: &str,
    arguments: impl pyo3::call::PyCallArgs<'py>,
) -> PyErr {
    let class = py.import(package).and_then(|package| package.getattr(name));
    match class.and_then(|class| class.call1(arguments)) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// The exception for an error of queues.
pub(crate) fn queue(py: Python<'_>, error: QueueError) -> PyErr {
    use QueueError as E;
    let message = chain(&error).to_string();
    let (stored, error) = match error {
        E::Partly { stored, cause } => (stored, *cause),
        error => (0, error),
    };
    let name = match &error {
        E::Full { .. } => "QueueFullError",
        E::TooLarge { .. } => "QueueItemTooLargeError",
        E::Busy { .. } => "QueuesBusyError",
        E::Name { .. } | E::Differs { .. } | E::Config { .. } | E::TooManyQueues(_) => {
            "QueueUsageError"
        }
        E::Closed { .. } | E::Record { .. } => "QueueDamageError",
        E::Storage { .. } | E::Listing(_) | E::Folder { .. } => "QueueIOError",
        E::Forked => "QueuesForkedError",
        _ => "QueueError",
    };
    make_queue(py, name, (message, errno_of(&error), stored))
}

/// The error number of the system, if the cause is an error of the system.
fn errno_of(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return error.raw_os_error();
        }
        cause = error.source();
    }
    None
}

/// The exception for a call on queues that were closed.
pub(crate) fn queues_closed(py: Python<'_>, path: &Path) -> PyErr {
    let message = format!("{}: the queues are closed", path.display());
    make_queue(py, "QueuesClosedError", (message,))
}

fn make_queue<'py>(
    py: Python<'py>,
    name: &str,
    arguments: impl pyo3::call::PyCallArgs<'py>,
) -> PyErr {
    make_of(py, "millstream._errors.queue", name, arguments)
}

/// An error of a service, its interfaces or its journals.
pub(crate) fn service_error(py: Python<'_>, error: impl Into<Cause>) -> PyErr {
    make(py, "ServiceError", &chain(&*error.into()).to_string())
}

/// The exception for a call that could not be published.
pub(crate) fn service_cause(
    py: Python<'_>,
    cause: Box<dyn std::error::Error + Send + Sync>,
) -> PyErr {
    service_raised(py, &chain(&*cause).to_string(), Some(cause))
}

/// The exception for the end of a service, raised from that of the component where there is one.
pub(crate) fn service_failed(py: Python<'_>, error: ServiceError) -> PyErr {
    let message = chain(&error).to_string();
    match error {
        ServiceError::Input { cause, .. }
        | ServiceError::Snapshot { cause, .. }
        | ServiceError::NotRestored { cause, .. }
        | ServiceError::Unkept { cause, .. } => service_raised(py, &message, Some(cause)),
        _ => service_raised(py, &message, None),
    }
}

/// The exception for a test that cannot be run.
pub(crate) fn service_failed_test(py: Python<'_>, error: TestError) -> PyErr {
    let message = chain(&error).to_string();
    match error {
        TestError::Component { cause, .. } => service_raised(py, &message, Some(cause)),
        _ => service_raised(py, &message, None),
    }
}

/// Whether an exception ends a program instead of reporting a fault: Ctrl-C, `sys.exit`, leaving the debugger.
pub(crate) fn interrupts(py: Python<'_>, error: &PyErr) -> bool {
    let quit = || {
        let class = py.import("bdb").and_then(|bdb| bdb.getattr("BdbQuit"));
        class.is_ok_and(|class| error.is_instance(py, &class))
    };
    !error.is_instance_of::<PyException>(py) || quit()
}

/// The exception of a component as it was raised; for anything else a `ServiceError`.
pub(crate) fn raised(py: Python<'_>, cause: Box<dyn std::error::Error + Send + Sync>) -> PyErr {
    let cause = match cause.downcast::<CallError>() {
        Ok(call) => match *call {
            CallError::Interrupted { cause } => cause,
            other => other.into(),
        },
        Err(cause) => cause,
    };
    match cause.downcast::<PythonError>() {
        Ok(raised) => raised.0,
        Err(cause) => service_error(py, cause),
    }
}

fn service_raised(
    py: Python<'_>,
    message: &str,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
) -> PyErr {
    let raised = cause.and_then(|cause| match cause.downcast::<CallError>() {
        Ok(call) => match *call {
            CallError::Component { cause, .. } | CallError::Interrupted { cause } => {
                cause.downcast::<PythonError>().ok()
            }
            _ => None,
        },
        Err(cause) => cause.downcast::<PythonError>().ok(),
    });
    let raised = raised.map(|raised| raised.0);
    match raised {
        Some(raised) if interrupts(py, &raised) => raised,
        raised => {
            let error = make(py, "ServiceError", message);
            error.set_cause(py, raised);
            error
        }
    }
}
