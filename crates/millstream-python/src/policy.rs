//! The handling of items on which the user's code fails: the Python side of `on_error`.

use std::sync::Arc;

use millstream_flow::batch::Batch;
use millstream_flow::error::Failure;
use millstream_flow::policy::{DeadLetters, Policy};
use millstream_flow::sink::{Refused, Sink};
use millstream_flow::step::Context;
use millstream_flow::stream::{Making, RefusedLetters};
use millstream_flow::{FlowError, OnError, Pipe as Engine};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::PyBatch;
use crate::error::{cause, is_usage, usage};
use crate::gil::locked;
use crate::show::show;
use crate::sink::{AnySink, NamedSink};

/// The value of `on_error`.
#[derive(Clone)]
pub(crate) enum OnErrorOption {
    Fail,
    Skip,
    DeadLetter(AnySink),
}

impl OnErrorOption {
    /// Reads `"fail"`, `"skip"` or a `millstream.dead_letter`.
    pub(crate) fn read(on_error: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = on_error.py();
        if let Ok(word) = on_error.extract::<&str>() {
            return match word {
                "fail" => Ok(OnErrorOption::Fail),
                "skip" => Ok(OnErrorOption::Skip),
                other => Err(usage(
                    py,
                    &format!(
                        "on_error is \"fail\", \"skip\" or dead_letter(sink), not \"{other}\""
                    ),
                )),
            };
        }
        match on_error.getattr("_dead_letter_sink") {
            Ok(sink) => Ok(OnErrorOption::DeadLetter(AnySink::read(&sink)?)),
            Err(_) => Err(usage(
                py,
                &format!(
                    "on_error is \"fail\", \"skip\" or dead_letter(sink), not {}",
                    show(on_error)
                ),
            )),
        }
    }

    /// True when the flow continues after a failure.
    pub(crate) fn tolerant(&self) -> bool {
        !matches!(self, OnErrorOption::Fail)
    }

    /// The policy of the step whose output is `pipe`: its dead letters take part in recovery.
    pub(crate) fn of<B: Batch>(&self, pipe: Engine<B>) -> Engine<B> {
        if let OnErrorOption::DeadLetter(sink) = self {
            let name = String::new();
            let sink = sink.clone();
            let sink: Arc<dyn Sink<PyBatch>> = Arc::new(NamedSink { name, sink });
            pipe.dead_letters_to(&sink);
        }
        pipe
    }

    /// The dead letters of what the destination of a sink refuses, if they go to a sink and the destination can refuse
    /// something.
    pub(crate) fn refused_to(&self, sink: &NamedSink) -> Option<RefusedLetters> {
        let (OnErrorOption::DeadLetter(to), AnySink::Bytes(of)) = (self, &sink.sink) else {
            return None;
        };
        let to: Arc<dyn Sink<PyBatch>> = Arc::new(NamedSink {
            name: sink.name.clone(),
            sink: to.clone(),
        });
        let step = sink.name.clone();
        let of = Arc::clone(of);
        Some(RefusedLetters::new(&to, move |refused| {
            locked(|py| {
                let letters = PyList::empty(py);
                for one in &refused {
                    let item = of.item(py, &one.record)?;
                    letters
                        .append(refused_letter(py, &step, one, item).map_err(cause)?)
                        .map_err(cause)?;
                }
                Ok(PyBatch::of(letters))
            })
        }))
    }

    /// As `open`, for a step that is a part of the source or sink `name`: failures are in its name.
    pub(crate) fn open_for(
        &self,
        name: &str,
        making: &Making<'_>,
    ) -> Result<ErrorHandler, FlowError> {
        let mut policy = self.open(making)?;
        name.clone_into(&mut policy.step);
        Ok(policy)
    }

    /// Opens the policy for a step on one worker.
    pub(crate) fn open(&self, making: &Making<'_>) -> Result<ErrorHandler, FlowError> {
        let engine = match self {
            OnErrorOption::Fail => OnError::Fail,
            _ => OnError::Skip,
        };
        let dead = match self {
            OnErrorOption::DeadLetter(sink) => {
                let name = making.info.name.clone();
                let sink = sink.clone();
                Some(making.dead_letters(&NamedSink { name, sink })?)
            }
            _ => None,
        };
        Ok(ErrorHandler {
            policy: match &dead {
                Some(_) => making.policy(&engine)?.with_own_dead_letters(),
                None => making.policy(&engine)?,
            },
            step: making.info.name.clone(),
            tolerant: self.tolerant(),
            dead,
        })
    }
}

/// The letter of a record that the destination of sink `step` has refused.
fn refused_letter<'py>(
    py: Python<'py>,
    step: &str,
    refused: &Refused,
    item: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let errors = py.import("millstream._errors.flow")?;
    let reason = refused.reason.strip_prefix("Refused: ");
    let reason = reason.unwrap_or(&refused.reason);
    let error = errors.getattr("Refused")?.call1((reason,))?;
    let place = refused.number.map(|number| format!("record {number}"));
    let letter = errors.getattr("DeadLetter")?;
    letter.call1((step, py.None(), item, error, place))
}

/// The input of a source that cannot be decoded: as it was read, and where.
pub(crate) struct Read<'a, 'py> {
    pub(crate) item: &'a Bound<'py, PyAny>,
    pub(crate) position: &'a str,
}

/// Key, item, and the item described for people.
type Found<'a, 'py> = (
    Option<&'a Bound<'py, PyAny>>,
    Option<&'a Bound<'py, PyAny>>,
    Option<String>,
);

/// The handler of failures of one step on one worker.
pub(crate) struct ErrorHandler {
    policy: Policy,
    pub(crate) step: String,
    pub(crate) tolerant: bool,
    dead: Option<DeadLetters<PyBatch>>,
}

impl ErrorHandler {
    /// Applies the policy: `Ok` when the item may be skipped.
    pub(crate) fn handle(
        &mut self,
        key: Option<&Bound<'_, PyAny>>,
        item: Option<&Bound<'_, PyAny>>,
        error: PyErr,
        cx: &mut Context,
        py: Python<'_>,
    ) -> Result<(), Failure> {
        let described = item.map(show);
        self.handle_described(key, item, described, error, cx, py)
    }

    /// As `handle`, for the input of a source as it was read.
    pub(crate) fn handle_read(
        &mut self,
        key: Option<&Bound<'_, PyAny>>,
        read: Read<'_, '_>,
        error: PyErr,
        cx: &mut Context,
        py: Python<'_>,
    ) -> Result<(), Failure> {
        let described = format!("{}: {}", read.position, show(read.item));
        let found = (key, Some(read.item), Some(described));
        self.settle(found, Some(read.position), error, cx, py)
    }

    /// As `handle`, with a description of the item by the caller.
    pub(crate) fn handle_described(
        &mut self,
        key: Option<&Bound<'_, PyAny>>,
        item: Option<&Bound<'_, PyAny>>,
        described: Option<String>,
        error: PyErr,
        cx: &mut Context,
        py: Python<'_>,
    ) -> Result<(), Failure> {
        self.settle((key, item, described), None, error, cx, py)
    }

    fn settle(
        &mut self,
        (key, item, described): Found<'_, '_>,
        position: Option<&str>,
        error: PyErr,
        cx: &mut Context,
        py: Python<'_>,
    ) -> Result<(), Failure> {
        if !error.is_instance_of::<pyo3::exceptions::PyException>(py) {
            return Err(Failure::new(self.step.clone(), cause(error)));
        }
        if is_usage(&error, py) {
            // A mistake in the flow is not the fault of an item.
            return Err(Failure {
                key: key.map(show),
                item: described,
                ..Failure::new(self.step.clone(), cause(error))
            });
        }
        let again = error.clone_ref(py);
        let settled = self
            .policy
            .apply(key.map(show), described, cause(error), cx);
        // A decoder fails in the name of its source.
        settled.map_err(|failure| Failure {
            step: self.step.clone(),
            ..failure
        })?;
        let Some(dead) = &self.dead else {
            return Ok(());
        };
        let failed = |error| Failure::new(self.step.clone(), error);
        let letter = py
            .import("millstream._errors.flow")
            .and_then(|errors| errors.getattr("DeadLetter"))
            .and_then(|class| class.call1((self.step.as_str(), key, item, again, position)))
            .and_then(|letter| PyList::new(py, [letter]))
            .map_err(|error| failed(cause(error)))?;
        dead.write(&mut PyBatch::of(letter)).map_err(failed)
    }
}
