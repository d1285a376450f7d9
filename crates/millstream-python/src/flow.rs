//! The flow under construction.

use millstream_flow::Flow as Engine;
use pyo3::prelude::*;

use crate::error::{to_python, usage};
use crate::pipe::Pipe;
use crate::policy::OnErrorOption;
use crate::saving::objects;
use crate::source;

/// A flow, wrapped by `millstream.Flow`.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct Flow {
    pub(crate) engine: Engine,
}

#[pymethods]
impl Flow {
    #[new]
    fn new(name: &str) -> Self {
        let engine = Engine::new(name);
        engine.saves_by(objects());
        Flow { engine }
    }

    /// The flow of which this is a stream.
    #[staticmethod]
    fn of(stream: &Pipe) -> Self {
        Flow {
            engine: stream.pipe.flow(),
        }
    }

    /// States the version of the program: the names and digests of its parts.
    fn version(&self, parts: Vec<(String, String)>) {
        self.engine.version_parts(parts);
    }

    #[getter]
    fn name(&self) -> String {
        self.engine.name()
    }

    fn source(
        &self,
        py: Python<'_>,
        name: &str,
        source: &Bound<'_, PyAny>,
        on_error: &Bound<'_, PyAny>,
        batch_size: &Bound<'_, PyAny>,
    ) -> PyResult<Pipe> {
        let reading = source::Reading {
            name,
            batch_size: source::batch_size(name, batch_size)?,
            on_error: OnErrorOption::read(on_error)?,
        };
        let pipe = source::add(&self.engine, source, &reading)?;
        self.engine.check().map_err(|error| to_python(py, error))?;
        Ok(Pipe { pipe })
    }

    fn describe(&self, py: Python<'_>, format: &str) -> PyResult<String> {
        let description = self.engine.describe();
        match format {
            "text" => Ok(description.to_string()),
            "json" => Ok(description.to_json().to_string()),
            "mermaid" => Ok(description.to_mermaid()),
            "svg" => Ok(millstream_observe::svg(&description)),
            other => Err(usage(
                py,
                &format!("format is \"text\", \"json\", \"mermaid\" or \"svg\", not \"{other}\""),
            )),
        }
    }
}
