//! What the engine does with a batch of Python objects: counts, splits and encodes it.

use millstream_flow::batch::{Batch, BatchCodec};
use millstream_flow::checkpoint::Codecs;
use millstream_flow::error::Cause;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::{PyBatch, codec};
use crate::gil::locked;

impl Batch for PyBatch {
    fn len(&self) -> usize {
        self.len
    }
    fn clear(&mut self) {
        *self = PyBatch::default();
    }
    fn codec(_: &Codecs) -> Result<Box<dyn BatchCodec<Self>>, Cause> {
        Ok(Box::new(codec::Objects))
    }
    fn take_first(&mut self, count: usize) -> Self {
        if count >= self.len {
            return std::mem::take(self);
        }
        let len = self.len;
        let keys = self.keys.take();
        let values = self.values.take();
        let mut times = self.times.take();
        let rest_times = times.as_mut().map(|times| {
            let rest = times.stamps.split_off(count);
            times.like(rest)
        });
        locked(|py| {
            let part = |list: &Option<Py<PyList>>, from: usize, to: usize| {
                let list = list.as_ref()?.bind(py);
                Some(list.get_slice(from, to).unbind())
            };
            *self = PyBatch {
                keys: part(&keys, count, len),
                values: part(&values, count, len),
                times: rest_times,
                right: self.right,
                len: len - count,
            };
            PyBatch {
                keys: part(&keys, 0, count),
                values: part(&values, 0, count),
                times,
                right: self.right,
                len: count,
            }
        })
    }
}
