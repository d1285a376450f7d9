//! `inspect_debug`: calls a Python function with each batch, its epoch and its worker.

use std::sync::Arc;

use millstream_flow::checkpoint::{Changes, Restore};
use millstream_flow::step::{Context, Stateful, Step};
use millstream_flow::{Failure, FlowError};
use pyo3::prelude::*;

use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::locked;

/// A function `(epoch, worker, keys, values)`, on one worker; keys are None in a stream without, the epoch in a run
/// without.
pub(crate) struct Debug {
    pub(crate) show: Arc<Py<PyAny>>,
    /// How many epochs of this run have ended.
    pub(crate) ended: u64,
}

impl Step<PyBatch, PyBatch> for Debug {
    fn apply(
        &mut self,
        input: &mut PyBatch,
        output: &mut PyBatch,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let epoch = cx.epoch_after(self.ended);
        let shown = locked(|py| {
            // Copies, because a batch is the only owner of its lists.
            let copy = input.clone();
            let arguments = (epoch, cx.worker, copy.keys, copy.values);
            self.show.bind(py).call1(arguments).map(drop)
        });
        shown.map_err(|error| Failure::new(cx.step_name(), cause(error)))?;
        *output = std::mem::take(input);
        Ok(())
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }
}

impl Stateful for Debug {
    fn save(&mut self, _: &mut Changes, _: &mut Context) -> Result<(), Failure> {
        self.ended += 1;
        Ok(())
    }
    fn restore(&mut self, _: &Restore<'_>) -> Result<(), FlowError> {
        Ok(())
    }
}
