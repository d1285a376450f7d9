//! The times of messages as event times, without a call of Python for each.

use millstream_flow::assign::{Assign, PartitionTime};
use millstream_flow::step::Context;
use millstream_flow::stream::Making;
use millstream_flow::{Failure, FlowError, Timed};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::message::KafkaMessage;
use crate::assign::MaxAhead;
use crate::batch::{PyBatch, Times};
use crate::error::cause;
use crate::gil::locked;
use crate::policy::{ErrorHandler, OnErrorOption};
use crate::show::show;

/// The largest time in milliseconds that fits into nanoseconds.
const MILLIS_MAX: i64 = i64::MAX / 1_000_000;

/// Returns the time of a message in nanoseconds.
fn time_of(item: &Bound<'_, PyAny>) -> PyResult<i64> {
    let message = item.cast::<KafkaMessage>().map_err(|_| {
        let shown = show(item);
        PyTypeError::new_err(format!("message_time is for messages, not for {shown}"))
    })?;
    match message.get().time_ms()? {
        Some(millis) if millis.abs() <= MILLIS_MAX => Ok(millis * 1_000_000),
        Some(millis) => Err(PyValueError::new_err(format!(
            "the time {millis} ms of a message is out of range"
        ))),
        None => Err(PyValueError::new_err("a message has no time")),
    }
}

/// Returns the time of a message in seconds since 1970.
///
/// Args:
///     message: the message.
///
/// Returns:
///     The time.
///
/// Raises:
///     TypeError: it is no message.
///     ValueError: the message has no time.
///
/// Example:
///     >>> import millstream as ms
///     >>> ms.kafka.message_time(ms.kafka.Message("a", time=1.5))
///     1.5
#[pyfunction]
pub(crate) fn kafka_message_time(message: &Bound<'_, PyAny>) -> PyResult<f64> {
    Ok(time_of(message)? as f64 / 1e9)
}

/// Times of messages.
pub(crate) struct ByMessageTime {
    max_ahead: MaxAhead,
    policy: ErrorHandler,
}

impl ByMessageTime {
    pub(crate) fn make(
        max_ahead: MaxAhead,
        on_error: &OnErrorOption,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        let policy = on_error.open(making)?;
        Ok(ByMessageTime { max_ahead, policy })
    }

    fn work(
        &mut self,
        py: Python<'_>,
        input: &mut PyBatch,
        partition: &mut PartitionTime,
        cx: &mut Context,
    ) -> Result<PyBatch, Failure> {
        let wrong = |error: PyErr| Failure::new("event_time", cause(error));
        let values = input.take_values(py);
        let mut stamps = Vec::with_capacity(values.len());
        let mut failed = Vec::new();
        for (at, item) in values.iter().enumerate() {
            let read = time_of(&item);
            match read.and_then(|time| self.max_ahead.checked(py, time, cx)) {
                Ok(time) => stamps.push(Timed {
                    time,
                    watermark: partition.pass(time),
                    value: (),
                }),
                Err(error) => {
                    self.policy.handle(None, Some(&item), error, cx, py)?;
                    failed.push(at);
                }
            }
        }
        for at in failed.into_iter().rev() {
            values.del_item(at).map_err(wrong)?;
        }
        Ok(PyBatch::of(values).at(Some(Times {
            stamps,
            datetimes: false,
            ..Times::default()
        })))
    }
}

impl Assign<PyBatch, PyBatch> for ByMessageTime {
    fn assign(
        &mut self,
        input: &mut PyBatch,
        output: &mut PyBatch,
        partition: &mut PartitionTime,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        *output = locked(|py| self.work(py, input, partition, cx))?;
        Ok(())
    }
}
