//! Commits, as a source written in Python is notified of them.
//!
//! The notice lives until the last commit of the run, which comes after the partitions are closed.

use std::sync::Arc;

use millstream_flow::error::Cause;
use millstream_flow::source::{Beginning, Position, Recording, Resumable};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::object::{ObjectSource, call_if_present, load};
use crate::error::cause;
use crate::gil::locked;

/// Calls `commit(positions)` of a source after each commit, and `_end()` after the last one.
struct Commits(Arc<Py<PyAny>>);

impl Resumable for ObjectSource {
    fn begin(&self, run: &Beginning<'_>) -> Result<Option<Arc<dyn Recording>>, Cause> {
        let begun = locked(|py| {
            let source = self.source.bind(py);
            if source.hasattr(intern!(py, "_begin"))? {
                source.call_method1(intern!(py, "_begin"), (run.source,))?;
            }
            Ok::<_, PyErr>(())
        });
        begun.map_err(cause)?;
        Ok(Some(Arc::new(Commits(Arc::clone(&self.source)))))
    }
}

impl Recording for Commits {
    fn commit(&self, positions: &[(&str, Position)]) -> Result<(), Cause> {
        let loaded = positions.iter().map(|(name, at)| Ok((*name, load(at)?)));
        let loaded = loaded.collect::<Result<Vec<_>, Cause>>()?;
        let notified = locked(|py| {
            let positions = PyDict::new(py);
            for (name, position) in loaded {
                positions.set_item(name, position)?;
            }
            let source = self.0.bind(py);
            source.call_method1(intern!(py, "commit"), (positions,))?;
            Ok::<_, PyErr>(())
        });
        notified.map_err(cause)
    }
}

impl Drop for Commits {
    fn drop(&mut self) {
        call_if_present(&self.0, "_end");
    }
}
