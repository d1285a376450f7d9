//! Clocks of the user: objects in Python that define the event time of a partition.

use std::collections::HashMap;

use millstream_flow::assign::{Assign, PartitionTime};
use millstream_flow::step::Context;
use millstream_flow::stream::Making;
use millstream_flow::time::BEFORE_ALL;
use millstream_flow::{Failure, FlowError, Timed};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::{PyBatch, Times};
use crate::datetime::Moments;
use crate::error::cause;
use crate::gil::locked;
use crate::policy::{ErrorHandler, OnErrorOption};
use crate::time::{seconds, to_nanos, to_nanos_with};

/// A clock, and whether it advances without items.
struct Clock {
    object: Py<PyAny>,
    goes_on: bool,
}

impl Clock {
    /// A clock for a partition, which receives its watermark if the run resumes.
    fn make(py: Python<'_>, make: &Py<PyAny>, partition: &PartitionTime) -> PyResult<Self> {
        let object = make.bind(py).call1((partition.name(),))?;
        let resumes = partition.watermark() != BEFORE_ALL;
        if resumes && object.hasattr(intern!(py, "resume"))? {
            let reached = seconds(partition.watermark());
            object.call_method1(intern!(py, "resume"), (reached,))?;
        }
        Ok(Clock {
            goes_on: object.hasattr(intern!(py, "on_pause"))?,
            object: object.unbind(),
        })
    }

    /// The time of an item, and the watermark after it.
    fn read(
        &self,
        item: &Bound<'_, PyAny>,
        now: i64,
        moments: &mut Moments,
    ) -> PyResult<(i64, i64)> {
        let asked = intern!(item.py(), "on_item");
        let made = self
            .object
            .bind(item.py())
            .call_method1(asked, (item, seconds(now)))?;
        let (time, reached): (Bound<'_, PyAny>, Option<Bound<'_, PyAny>>) = made.extract()?;
        let reached = reached.as_ref().map_or(Ok(BEFORE_ALL), to_nanos)?;
        Ok((to_nanos_with(moments, &time)?, reached))
    }
}

/// Times by clocks of the user.
pub(crate) struct ByClocks {
    make: Py<PyAny>,
    clocks: HashMap<usize, Clock>,
    moments: Moments,
    policy: ErrorHandler,
}

impl ByClocks {
    pub(crate) fn make(
        make: &Py<PyAny>,
        on_error: &OnErrorOption,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        Ok(ByClocks {
            make: locked(|py| make.clone_ref(py)),
            clocks: HashMap::new(),
            moments: Moments::default(),
            policy: on_error.open(making)?,
        })
    }

    fn wrong(error: PyErr) -> Failure {
        Failure::new("event_clock", cause(error))
    }

    fn open(&mut self, py: Python<'_>, partition: &PartitionTime) -> Result<(), Failure> {
        let number = partition.number();
        if !self.clocks.contains_key(&number) {
            let clock = Clock::make(py, &self.make, partition).map_err(Self::wrong)?;
            self.clocks.insert(number, clock);
        }
        Ok(())
    }

    fn work(
        &mut self,
        py: Python<'_>,
        input: &mut PyBatch,
        partition: &mut PartitionTime,
        cx: &mut Context,
    ) -> Result<PyBatch, Failure> {
        self.open(py, partition)?;
        let values = input.take_values(py);
        let mut kept = Vec::with_capacity(values.len());
        let mut times = Vec::new();
        for item in values.iter() {
            let Some(clock) = self.clocks.get(&partition.number()) else {
                break;
            };
            match clock.read(&item, cx.now(), &mut self.moments) {
                Ok((time, reached)) => {
                    times.push(Timed {
                        time,
                        watermark: partition.pass_item(time, reached),
                        value: (),
                    });
                    kept.push(item);
                }
                Err(error) => self.policy.handle(None, Some(&item), error, cx, py)?,
            }
        }
        let values = PyList::new(py, kept).map_err(Self::wrong)?;
        Ok(PyBatch::of(values).at(Some(Times {
            stamps: times,
            datetimes: self.moments.has_read(),
            ..Times::default()
        })))
    }
}

impl Assign<PyBatch, PyBatch> for ByClocks {
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
    fn pause(&mut self, partition: &mut PartitionTime, cx: &mut Context) -> Result<(), Failure> {
        locked(|py| {
            self.open(py, partition)?;
            let clock = self.clocks.get(&partition.number());
            let Some(clock) = clock.filter(|clock| clock.goes_on) else {
                return Ok(());
            };
            let asked = (intern!(py, "on_pause"), (seconds(cx.now()),));
            let reached = clock.object.bind(py).call_method1(asked.0, asked.1);
            let reached = reached.and_then(|at| {
                if at.is_none() {
                    Ok(BEFORE_ALL)
                } else {
                    to_nanos(&at)
                }
            });
            partition.pass_to(reached.map_err(Self::wrong)?);
            Ok(())
        })
    }
}
