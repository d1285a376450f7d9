//! The report of a run: the metrics of each step.

use millstream_flow::metrics::Report as Engine;
use pyo3::prelude::*;

/// The metrics of a run. ``str`` is a table for people.
///
/// Example:
///     >>> import millstream as ms
///     >>> flow = ms.Flow("count")
///     >>> flow.source("in", ms.testing.items([1, 2])).sink("out", ms.testing.discard())
///     >>> report = ms.run(flow)
///     >>> report.flow, [step["name"] for step in report.steps]
///     ('count', ['in', 'out'])
#[pyclass(frozen, module = "millstream._millstream")]
#[derive(Clone)]
pub(crate) struct Report {
    report: Engine,
}

impl Report {
    pub(crate) fn new(report: Engine) -> Self {
        Report { report }
    }
}

fn from_json<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (json,))
}

#[pymethods]
impl Report {
    /// The flow's name.
    #[getter]
    fn flow(&self) -> &str {
        &self.report.flow
    }

    /// How long the flow ran, in seconds.
    #[getter]
    fn seconds(&self) -> f64 {
        self.report.elapsed.as_secs_f64()
    }

    /// The steps, summed over all workers.
    #[getter]
    fn steps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        from_json(py, &self.to_json())?.get_item("steps")
    }

    /// The outboxes of sinks to external systems: name, address and metrics of each.
    #[getter]
    fn outboxes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        from_json(py, &self.to_json())?.get_item("outboxes")
    }

    /// The lag of the partitions whose source reports one, as dicts: ``source`` and ``partition``, and ``records``,
    /// ``bytes`` and ``seconds`` that were not read yet, None where the source does not know it.
    #[getter]
    fn lags<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        from_json(py, &self.to_json())?.get_item("lags")
    }

    /// The steps of each worker.
    #[getter]
    fn workers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        from_json(py, &self.to_json())?.get_item("workers")
    }

    /// In process 0 of several: the reports of the other processes, each a dict as [`to_json`](Self::to_json) has it,
    /// with the number of its process under ``process``. A process that ends more than 5 s later is missing.
    #[getter]
    fn others<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let reports = self.report.others.iter().map(|(process, report)| {
            let mut report = report.clone();
            report["process"] = (*process).into();
            report
        });
        let reports: Vec<serde_json::Value> = reports.collect();
        from_json(py, &serde_json::Value::from(reports).to_string())
    }

    /// Returns the metrics of a step, summed over all workers.
    ///
    /// Args:
    ///     name: the name of the step.
    ///
    /// Returns:
    ///     The metrics, as a dict.
    ///
    /// Raises:
    ///     KeyError: there is no such step.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> flow = ms.Flow("count")
    ///     >>> flow.source("in", ms.testing.items([1, 2])).sink("out", ms.testing.discard())
    ///     >>> report = ms.run(flow)
    ///     >>> report.step("out")["items_in"]
    ///     2
    fn step<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        for step in self.steps(py)?.try_iter()? {
            let step = step?;
            if step.get_item("name")?.eq(name)? {
                return Ok(step);
            }
        }
        Err(pyo3::exceptions::PyKeyError::new_err(name.to_owned()))
    }

    /// Returns the whole report as JSON.
    ///
    /// Returns:
    ///     The JSON text.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> flow = ms.Flow("count")
    ///     >>> flow.source("in", ms.testing.items([1, 2])).sink("out", ms.testing.discard())
    ///     >>> report = ms.run(flow)
    ///     >>> import json
    ///     >>> json.loads(report.to_json())["flow"]
    ///     'count'
    fn to_json(&self) -> String {
        self.report.to_json().to_string()
    }

    /// Draws the rates and the latencies of the steps as a picture, with matplotlib.
    ///
    /// Returns:
    ///     The figure of matplotlib, which a notebook shows.
    ///
    /// Raises:
    ///     ImportError: matplotlib is not installed.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> flow = ms.Flow("count")
    ///     >>> flow.source("in", ms.testing.items([1, 2])).sink("out", ms.testing.discard())
    ///     >>> figure = ms.run(flow).plot()
    ///     >>> len(figure.axes)  # the rates and the latencies
    ///     2
    fn plot<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let plot = slf.py().import("millstream._run.plot")?;
        plot.call_method1("plot", (slf,))
    }

    /// The counters of the steps as a table, for a notebook.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let plot = slf.py().import("millstream._run.plot")?;
        plot.call_method1("table", (slf,))
    }

    fn __str__(&self) -> String {
        self.report.to_string()
    }

    fn __repr__(&self) -> String {
        let flow = &self.report.flow;
        let seconds = self.report.elapsed.as_secs_f64();
        format!("<report of flow {flow:?}, {seconds:.3} s>")
    }
}
