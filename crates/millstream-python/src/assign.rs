//! `event_time` and `processing_time`: steps that assign times to Python objects.

use millstream_flow::assign::{Assign, PartitionTime};
use millstream_flow::batch::Batch;
use millstream_flow::step::Context;
use millstream_flow::stream::Making;
use millstream_flow::{Failure, FlowError, Timed};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::{PyBatch, Times};
use crate::datetime::Moments;
use crate::error::{cause, future_time};
use crate::gil::locked;
use crate::policy::OnErrorOption;
use crate::step::{Kernel, Shape, Tags, is_failed};
use crate::time::{seconds, to_nanos_with};

/// How many nanoseconds a time may be ahead of the clock of the run, if there is a limit.
#[derive(Clone, Copy)]
pub(crate) struct MaxAhead(pub(crate) Option<i64>);

impl MaxAhead {
    /// The time, or the error for one that is too far ahead.
    pub(crate) fn checked(self, py: Python<'_>, time: i64, cx: &Context) -> PyResult<i64> {
        let ahead = time.saturating_sub(cx.now());
        match self.0 {
            Some(most) if ahead > most => Err(future_time(
                py,
                &format!(
                    "its time is {} s ahead of the clock of the run, and max_ahead is {} s",
                    seconds(ahead),
                    seconds(most)
                ),
            )),
            _ => Ok(time),
        }
    }
}

/// Times by a function of the user.
pub(crate) struct ByKernel {
    kernel: Kernel,
    max_ahead: MaxAhead,
    moments: Moments,
}

impl ByKernel {
    pub(crate) fn make(
        make: &Py<PyAny>,
        max_ahead: MaxAhead,
        on_error: &OnErrorOption,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        let kernel = Kernel::make(make, Shape::Values, on_error, making)?;
        Ok(ByKernel {
            kernel,
            max_ahead,
            moments: Moments::default(),
        })
    }

    fn work(
        &mut self,
        py: Python<'_>,
        input: &mut PyBatch,
        partition: &mut PartitionTime,
        cx: &mut Context,
    ) -> Result<PyBatch, Failure> {
        let values = input.take_values(py);
        let Some(result) = self.kernel.run(&Tags::plain(None), &values, cx)? else {
            return Ok(PyBatch::default());
        };
        let wrong = |error: PyErr| Failure::new("event_time", cause(error));
        let given = result.cast::<PyList>().map_err(|e| wrong(e.into()))?;
        let mut times = Vec::with_capacity(values.len());
        let mut failed = Vec::new();
        for (at, time) in given.iter().enumerate() {
            let read = to_nanos_with(&mut self.moments, &time);
            match read.and_then(|time| self.max_ahead.checked(py, time, cx)) {
                Ok(time) => times.push(Timed {
                    time,
                    watermark: partition.pass(time),
                    value: (),
                }),
                Err(error) => {
                    failed.push(at);
                    if !is_failed(&time) {
                        let item = values.get_item(at).map_err(wrong)?;
                        let policy = &mut self.kernel.policy;
                        policy.handle(None, Some(&item), error, cx, py)?;
                    }
                }
            }
        }
        for at in failed.into_iter().rev() {
            values.del_item(at).map_err(wrong)?;
        }
        Ok(PyBatch::of(values).at(Some(Times {
            stamps: times,
            datetimes: self.moments.has_read(),
            ..Times::default()
        })))
    }
}

impl Assign<PyBatch, PyBatch> for ByKernel {
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

/// Times by the clock of the run.
pub(crate) struct ByClock;

impl Assign<PyBatch, PyBatch> for ByClock {
    fn assign(
        &mut self,
        input: &mut PyBatch,
        output: &mut PyBatch,
        partition: &mut PartitionTime,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let time = cx.now();
        let values = locked(|py| input.take_values(py).unbind());
        *output = locked(|py| PyBatch::of(values.into_bound(py)));
        let stamp = |_| Timed {
            time,
            watermark: partition.pass(time),
            value: (),
        };
        let stamps = (0..Batch::len(output)).map(stamp).collect();
        output.times = Some(Times {
            stamps,
            datetimes: false,
            ..Times::default()
        });
        Ok(())
    }
}
