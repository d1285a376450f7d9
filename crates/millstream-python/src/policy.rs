//! What becomes of an item on which the user's code fails: the Python side of `on_error`.

use millstream_flow::error::{Cause, Failure};
use millstream_flow::policy::Policy;
use millstream_flow::push::Context;
use millstream_flow::sink::Sink;
use millstream_flow::stream::Making;
use millstream_flow::{FlowError, OnError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::PyBatch;
use crate::error::{cause, is_usage, usage};
use crate::show::show;
use crate::sink::{AnySink, Named, Opened};

/// `on_error` as it was given.
#[derive(Clone)]
pub(crate) enum Wish {
    Fail,
    Skip,
    DeadLetter(AnySink),
}

impl Wish {
    /// Reads `"fail"`, `"skip"` or what `millstream.dead_letter` made.
    pub(crate) fn read(on_error: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = on_error.py();
        if let Ok(word) = on_error.extract::<&str>() {
            return match word {
                "fail" => Ok(Wish::Fail),
                "skip" => Ok(Wish::Skip),
                other => Err(usage(
                    py,
                    &format!(
                        "on_error is \"fail\", \"skip\" or dead_letter(sink), not \"{other}\""
                    ),
                )),
            };
        }
        match on_error.getattr("_dead_letter_sink") {
            Ok(sink) => Ok(Wish::DeadLetter(AnySink::read(&sink)?)),
            Err(_) => Err(usage(
                py,
                &format!(
                    "on_error is \"fail\", \"skip\" or dead_letter(sink), not {}",
                    show(on_error)
                ),
            )),
        }
    }

    /// True when the flow goes on behind a failure.
    pub(crate) fn tolerant(&self) -> bool {
        !matches!(self, Wish::Fail)
    }

    /// Opens the policy for a step on one worker.
    pub(crate) fn open(&self, making: &Making<'_>) -> Result<Settling, FlowError> {
        let engine = match self {
            Wish::Fail => OnError::Fail,
            _ => OnError::Skip,
        };
        let dead = match self {
            Wish::DeadLetter(sink) => {
                Some(open_dead(sink, making).map_err(|cause| FlowError::Open {
                    what: format!("the dead letters of \"{}\"", making.info.name),
                    cause,
                })?)
            }
            _ => None,
        };
        Ok(Settling {
            policy: making.policy(&engine)?,
            step: making.info.name.clone(),
            tolerant: self.tolerant(),
            dead,
        })
    }
}

/// Opens where dead letters go, which is somewhere else in a rehearsal.
fn open_dead(sink: &AnySink, making: &Making<'_>) -> Result<Opened, Cause> {
    let (step, control) = (&making.info.name, &making.control);
    let own = Named {
        name: step.clone(),
        sink: sink.clone(),
    };
    match control.rehearsal() {
        Some(rehearsal) => rehearsal
            .dead_letters::<PyBatch>(step, &own)?
            .open(making.worker, control),
        None => own.open(making.worker, control),
    }
}

/// A policy at work: one step, one worker.
pub(crate) struct Settling {
    policy: Policy,
    pub(crate) step: String,
    pub(crate) tolerant: bool,
    dead: Option<Opened>,
}

impl Settling {
    /// Applies the policy: `Ok` when the item may be passed over.
    pub(crate) fn settle(
        &mut self,
        key: Option<&Bound<'_, PyAny>>,
        item: Option<&Bound<'_, PyAny>>,
        error: PyErr,
        cx: &mut Context,
        py: Python<'_>,
    ) -> Result<(), Failure> {
        let said = item.map(show);
        self.settle_said(key, item, said, error, cx, py)
    }

    /// As `settle`, with words of the caller's own for the item.
    pub(crate) fn settle_said(
        &mut self,
        key: Option<&Bound<'_, PyAny>>,
        item: Option<&Bound<'_, PyAny>>,
        said: Option<String>,
        error: PyErr,
        cx: &mut Context,
        py: Python<'_>,
    ) -> Result<(), Failure> {
        if !error.is_instance_of::<pyo3::exceptions::PyException>(py) {
            return Err(Failure::new(self.step.clone(), cause(error)));
        }
        if is_usage(&error, py) {
            // No item is to blame for a mistake in the flow.
            return Err(Failure {
                key: key.map(show),
                item: said,
                ..Failure::new(self.step.clone(), cause(error))
            });
        }
        let again = error.clone_ref(py);
        let settled = self.policy.settle(key.map(show), said, cause(error), cx);
        // A decoder fails in the name of its source.
        settled.map_err(|failure| Failure {
            step: self.step.clone(),
            ..failure
        })?;
        let Some(dead) = &mut self.dead else {
            return Ok(());
        };
        let failed = |error| Failure::new(self.step.clone(), error);
        let letter = py
            .import("millstream._errors")
            .and_then(|errors| errors.getattr("DeadLetter"))
            .and_then(|class| class.call1((self.step.as_str(), key, item, again)))
            .and_then(|letter| PyList::new(py, [letter]))
            .map_err(|error| failed(cause(error)))?;
        dead.write_batch(&mut PyBatch::of(letter))
            .and_then(|()| dead.flush())
            .map_err(failed)
    }

    /// Closes the dead-letter sink.
    pub(crate) fn close(&mut self, cx: &Context) -> Result<(), Failure> {
        self.policy.close(cx)?;
        match &mut self.dead {
            Some(dead) => dead
                .close()
                .map(drop)
                .map_err(|cause| Failure::new(self.step.clone(), cause)),
            None => Ok(()),
        }
    }
}
