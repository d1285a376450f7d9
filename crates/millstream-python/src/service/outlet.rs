//! The transports of a Python publisher: a journal, or a list for tests.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use millstream_journal::{Host, Journal, Options, Sync};
use millstream_replication::Followers;
use millstream_service::{self as native, testing::REFUSAL};
use millstream_wire::{self, Call, Cause, Head, NamedValues, Packer, Transport};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::encode::{EncodeError, encode, packed};
use super::interface::Interface;
use crate::error::{service_cause, service_error};
use crate::gil::unlocked;
use crate::journal::{sync_of, wait_followed};

/// How long a wait for an answer lasts before signals are handled.
const LOOK: Duration = Duration::from_millis(50);

/// The transports that a Python publisher can have.
pub(super) enum PublisherTransport {
    Journal(native::Outlet),
    /// The thread on which the component of a test is called, if the recorder is for one.
    Recorder(millstream_wire::Recorder, Option<Arc<Gate>>),
}

/// When the component of a test may publish: after its constructor, on the thread that has called that.
#[derive(Default)]
pub(super) struct Gate {
    open_on: OnceLock<ThreadId>,
    has_refused: AtomicBool,
}

impl Gate {
    fn check(&self) -> Result<(), Cause> {
        if self.open_on.get() == Some(&thread::current().id()) {
            return Ok(());
        }
        self.has_refused.store(true, Relaxed);
        Err(REFUSAL.into())
    }
}

/// A transport to a journal or a recorder, for the calls of one interface.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct Outlet {
    interface: Py<Interface>,
    end: Mutex<PublisherTransport>,
    /// A call may wait for a disk.
    waits: bool,
    followed: Option<Followed>,
}

/// Which followers must have a call before it returns.
struct Followed {
    journal: Journal,
    count: usize,
    limit: Duration,
}

impl Outlet {
    pub(super) fn make(
        py: Python<'_>,
        interface: Py<Interface>,
        mut end: PublisherTransport,
        sync: Sync,
    ) -> PyResult<Self> {
        let schema = Arc::new(interface.get().schema.clone());
        let announced = match &mut end {
            PublisherTransport::Journal(outlet) => outlet.announce(&schema),
            PublisherTransport::Recorder(recorder, _) => recorder.announce(&schema),
        };
        announced.map_err(|cause| service_cause(py, cause))?;
        let end = Mutex::new(end);
        Ok(Self {
            interface,
            end,
            waits: sync == Sync::Always,
            followed: None,
        })
    }
}

impl Outlet {
    /// Publishes the bytes of a call; returns the number of its record, where there is one.
    fn publish(&self, body: &[u8]) -> Result<Option<u64>, Cause> {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let write = |out: &mut Packer<'_>| out.raw(body);
        match &mut *end {
            PublisherTransport::Journal(outlet) => {
                outlet.publish(body.len(), write)?;
                Ok(outlet.last())
            }
            PublisherTransport::Recorder(recorder, gate) => {
                gate.as_ref().map_or(Ok(()), |gate| gate.check())?;
                recorder.publish(body.len(), write).map(|()| None)
            }
        }
    }
}

#[pymethods]
impl Outlet {
    /// Opens the journal at `path` for calls from outside a service. `sync` is none for never, 0 for always, or
    /// seconds.
    #[new]
    fn new(
        py: Python<'_>,
        interface: Py<Interface>,
        path: PathBuf,
        sync: Option<f64>,
        followers: usize,
        timeout: f64,
    ) -> PyResult<Self> {
        let sync = sync_of(sync)?;
        let options = Options::default().with_sync(sync);
        let journal = Journal::open(&path, options).map_err(|error| service_error(py, error))?;
        let outlet = native::Outlet::outside(&journal).map_err(|error| service_error(py, error))?;
        let mut made = Self::make(py, interface, PublisherTransport::Journal(outlet), sync)?;
        let limit = Duration::try_from_secs_f64(timeout)?;
        made.followed = (followers > 0).then_some(Followed {
            journal,
            count: followers,
            limit,
        });
        Ok(made)
    }

    /// Publishes a call of the method of this number, from 1.
    fn call(&self, py: Python<'_>, number: usize, arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.record(py, number, arguments).map(drop)
    }

    /// As `call`, and waits until the service that writes to the journal `out` has answered, for so many seconds at
    /// most. Returns the journal and the number of the call, whether there was an answer in time, and the answer as
    /// JSON, if the call caused one.
    fn call_answered(
        &self,
        py: Python<'_>,
        number: usize,
        arguments: &Bound<'_, PyTuple>,
        out: PathBuf,
        timeout: f64,
    ) -> PyResult<(PathBuf, u64, bool, Option<String>)> {
        let failed = |error: native::ServiceError| service_error(py, error);
        let Some(input) = self.journal() else {
            return Err(service_error(py, "a recorder has no service that answers"));
        };
        let opened = Journal::open(&out, Options::read_only());
        let output = opened.map_err(|error| service_error(py, error))?;
        let next = output.next().map_err(|error| service_error(py, error))?;
        let mut effects = native::Effects::of(&output, next).map_err(failed)?;
        let recorded = self.record(py, number, arguments)?;
        let cause = recorded.ok_or_else(|| service_error(py, "the call has no record"))?;
        let host = Host::real();
        let begun = host.monotonic();
        let limit = Duration::try_from_secs_f64(timeout)?;
        loop {
            let left = limit.saturating_sub(host.monotonic().saturating_sub(begun));
            let waited = unlocked(|| effects.answer(&input, cause, left.min(LOOK)));
            match waited.map_err(failed)? {
                native::Answered::Call { sequence, call } => {
                    let answer = answer_json(sequence, &call);
                    let answer = answer.map_err(|error| service_error(py, error))?;
                    return Ok((input.path(), cause, true, Some(answer)));
                }
                native::Answered::Nothing => return Ok((input.path(), cause, true, None)),
                native::Answered::Late if left.is_zero() => {
                    return Ok((input.path(), cause, false, None));
                }
                native::Answered::Late => py.check_signals()?,
            }
        }
    }
}

/// An output as JSON.
fn answer_json(sequence: u64, call: &Call) -> serde_json::Result<String> {
    let arguments = serde_json::to_string(&NamedValues(&call.arguments))?;
    let method = serde_json::to_string(&call.method)?;
    Ok(format!(
        "{{\"sequence\":{sequence},\"method\":{method},\"arguments\":{arguments}}}"
    ))
}

impl Outlet {
    /// The journal of the calls, unless they are kept for tests.
    fn journal(&self) -> Option<Journal> {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        match &*end {
            PublisherTransport::Journal(outlet) => Some(outlet.journal().clone()),
            PublisherTransport::Recorder(..) => None,
        }
    }

    /// Publishes a call; returns the number of its record.
    fn record(
        &self,
        py: Python<'_>,
        number: usize,
        arguments: &Bound<'_, PyTuple>,
    ) -> PyResult<Option<u64>> {
        let interface = self.interface.get();
        let method = &interface.methods[number - 1];
        let head = Head {
            schema: interface.schema.id(),
            method: number as u64,
            arguments: method.arguments.len(),
        };
        let body = packed(|out: &mut Packer<'_>| {
            head.pack(out)?;
            for (field, value) in method.arguments.iter().zip(arguments.iter_borrowed()) {
                let encoded = encode(&value, &field.ty, &interface.named, &interface.schema, out);
                encoded.map_err(|error| match error {
                    EncodeError::Full => error,
                    error => error.into_python(py, &field.name.to_string()).into(),
                })?;
            }
            Ok(())
        });
        let body = body.map_err(|error| error.into_python(py, &method.name))?;
        // The lock of this outlet is never waited for, nor held while one waits for a disk, with the interpreter's
        // lock.
        let published = if self.waits {
            unlocked(|| self.publish(&body))
        } else {
            self.publish(&body)
        };
        let recorded = published.map_err(|cause| service_cause(py, cause))?;
        match (&self.followed, recorded) {
            (Some(followed), Some(sequence)) => {
                let mut followers = Followers::of(&followed.journal);
                let limit = Some(followed.limit);
                let count = followed.count;
                wait_followed(
                    py,
                    &mut followers,
                    sequence,
                    count,
                    limit,
                    &followed.journal.path(),
                )
                .map(|()| recorded)
            }
            _ => Ok(recorded),
        }
    }
}

/// Keeps the calls of publishers, for tests.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct Recorder {
    pub(super) recorder: millstream_wire::Recorder,
    gate: Option<Arc<Gate>>,
}

impl Recorder {
    /// Keeps the calls of a component that is about to be made.
    pub(super) fn of_component() -> Self {
        Self {
            recorder: millstream_wire::Recorder::default(),
            gate: Some(Arc::default()),
        }
    }
}

#[pymethods]
impl Recorder {
    #[new]
    fn new() -> Self {
        Self {
            recorder: millstream_wire::Recorder::default(),
            gate: None,
        }
    }

    /// One whose publishers are those of a component that is about to be made: they refuse calls until
    /// [`open`](Self::open).
    #[staticmethod]
    fn closed() -> Self {
        Self::of_component()
    }

    /// The component is made, and may publish on this thread from now on. Raises if it has published before.
    fn open(&self, py: Python<'_>) -> PyResult<()> {
        let Some(gate) = &self.gate else {
            return Ok(());
        };
        if gate.has_refused.load(Relaxed) {
            return Err(service_error(py, REFUSAL));
        }
        gate.open_on.get_or_init(|| thread::current().id());
        Ok(())
    }

    /// A transport that keeps the calls of an interface here.
    fn outlet(&self, py: Python<'_>, interface: Py<Interface>) -> PyResult<Outlet> {
        let end = PublisherTransport::Recorder(self.recorder.clone(), self.gate.clone());
        Outlet::make(py, interface, end, Sync::Never)
    }

    /// The calls since the last call of this method, each as YAML.
    fn take(&self) -> Vec<String> {
        self.recorder.take().iter().map(Call::to_text).collect()
    }
}
