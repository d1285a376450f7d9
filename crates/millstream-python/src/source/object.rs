//! A source written in Python: an object with `partitions()` and `open(partition, position)`, which
//! gives an object with `next_batch()`, `next_awake()` and `position()`.

use std::sync::Arc;

use millstream_flow::Failure;
use millstream_flow::clock::now_ns;
use millstream_flow::error::Cause;
use millstream_flow::poller::Io;
use millstream_flow::source::{Events, Next, Partition, Position, Source};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::locked;
use crate::show::type_name;

/// How long a source that has nothing and names no moment is left alone.
const ASK_AGAIN_NS: u64 = 1_000_000;

/// A Python object as a source.
pub(crate) struct ObjectSource {
    source: Arc<Py<PyAny>>,
    name: String,
}

impl ObjectSource {
    pub(crate) fn new(name: &str, source: &Bound<'_, PyAny>) -> Self {
        ObjectSource {
            source: Arc::new(source.clone().unbind()),
            name: name.to_owned(),
        }
    }

    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.source.bind(py).call_method0("partitions")?.extract()
    }
}

impl Source<PyBatch> for ObjectSource {
    fn describe(&self) -> String {
        locked(|py| type_name(self.source.bind(py)))
    }
    fn partitions(&self) -> Result<Vec<String>, Cause> {
        locked(|py| self.names(py)).map_err(cause)
    }
    fn open(
        &self,
        partition: usize,
        resume: Option<Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<PyBatch>>, Cause> {
        let opened = locked(|py| {
            let name = self.names(py)?.into_iter().nth(partition);
            let opened = self.source.bind(py).call_method1("open", (name, resume))?;
            Ok(opened.unbind())
        });
        let partition = opened.map_err(cause)?;
        let limited = locked(|py| partition.bind(py).hasattr(intern!(py, "_limit")));
        Ok(Box::new(ObjectPartition {
            partition,
            limited: limited.map_err(cause)?,
            limit: 0,
            name: self.name.clone(),
            awake: None,
        }))
    }
}

struct ObjectPartition {
    partition: Py<PyAny>,
    name: String,
    /// Whether it is one of ours that gives no more items than its `_limit` says, and what that says.
    limited: bool,
    limit: usize,
    awake: Option<u64>,
}

impl ObjectPartition {
    fn next(&mut self, py: Python<'_>, batch: &mut PyBatch, limit: usize) -> PyResult<Next> {
        let partition = self.partition.bind(py);
        if self.limited && self.limit != limit {
            self.limit = limit;
            partition.setattr(intern!(py, "_limit"), limit)?;
        }
        let next = partition.call_method0(intern!(py, "next_batch"))?;
        if next.is_none() {
            return Ok(Next::End);
        }
        let list = next.cast::<PyList>().map_err(|_| {
            let found = type_name(&next);
            PyTypeError::new_err(format!("next_batch gave {found}, not a list or None"))
        })?;
        if !list.is_empty() {
            *batch = PyBatch::of(list.clone());
            return Ok(Next::Batch);
        }
        let wait = partition
            .call_method0(intern!(py, "next_awake"))?
            .extract::<Option<f64>>()?
            .map_or(ASK_AGAIN_NS, |seconds| (seconds.max(0.0) * 1e9) as u64);
        self.awake = Some(now_ns().saturating_add(wait));
        Ok(Next::Idle)
    }
}

impl Partition<PyBatch> for ObjectPartition {
    fn next_batch(&mut self, batch: &mut PyBatch, events: &mut Events<'_>) -> Result<Next, Cause> {
        locked(|py| self.next(py, batch, events.limit()))
            .map_err(|error| Failure::new(self.name.clone(), cause(error)).into())
    }
    fn next_awake(&self) -> Option<u64> {
        self.awake
    }
    fn position(&self) -> Position {
        locked(|py| {
            let position = self.partition.bind(py).call_method0("position");
            position
                .and_then(|position| position.extract())
                .unwrap_or(0)
        })
    }
}
