//! Counters and gauges of the user's program.

use millstream_flow::error::chain;
use millstream_observe::ObserveError;
use millstream_observe::user::{UserMetric, counter, gauge};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::usage;

/// A number that only grows, which any function of a step may change. :func:`millstream.counter` makes it.
///
/// Example:
///     >>> import millstream as ms
///     >>> rejected = ms.counter("example_rejected")
///     >>> rejected.inc()
///     >>> rejected.value
///     1.0
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct Counter(UserMetric);

/// A number that is set, which any function of a step may change. :func:`millstream.gauge` makes it.
///
/// Example:
///     >>> import millstream as ms
///     >>> depth = ms.gauge("example_depth")
///     >>> depth.set(3)
///     >>> depth.value
///     3.0
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct Gauge(UserMetric);

#[pymethods]
impl Counter {
    /// Adds to the counter.
    ///
    /// Args:
    ///     by: how much, 0 or more.
    ///
    /// Raises:
    ///     ValueError: it is below 0, or no number.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> bytes_read = ms.counter("example_bytes_read")
    ///     >>> bytes_read.inc(512)
    ///     >>> bytes_read.value
    ///     512.0
    #[pyo3(signature = (by=1.0))]
    fn inc(&self, by: f64) -> PyResult<()> {
        if !by.is_finite() || by < 0.0 {
            let message = format!("a counter grows by 0 or more, not by {by}");
            return Err(PyValueError::new_err(message));
        }
        self.0.add(by);
        Ok(())
    }

    /// Its value in this process.
    #[getter]
    fn value(&self) -> f64 {
        self.0.value()
    }
}

#[pymethods]
impl Gauge {
    /// Sets the gauge.
    ///
    /// Args:
    ///     to: the value.
    ///
    /// Raises:
    ///     TypeError: it is no number.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> load = ms.gauge("example_load")
    ///     >>> load.set(0.5)
    ///     >>> load.value
    ///     0.5
    fn set(&self, to: f64) {
        self.0.set(to);
    }

    /// Adds to the gauge; a negative number takes away.
    ///
    /// Args:
    ///     by: how much.
    ///
    /// Raises:
    ///     TypeError: it is no number.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> open_orders = ms.gauge("example_open_orders")
    ///     >>> open_orders.inc(3)
    ///     >>> open_orders.inc(-1)
    ///     >>> open_orders.value
    ///     2.0
    #[pyo3(signature = (by=1.0))]
    fn inc(&self, by: f64) {
        self.0.add(by);
    }

    /// Its value in this process.
    #[getter]
    fn value(&self) -> f64 {
        self.0.value()
    }
}

fn named(py: Python<'_>, found: Result<UserMetric, ObserveError>) -> PyResult<UserMetric> {
    found.map_err(|error| usage(py, &chain(&error).to_string()))
}

/// The counter of this name.
#[pyfunction]
pub(crate) fn user_counter(py: Python<'_>, name: &str, help: &str) -> PyResult<Counter> {
    named(py, counter(name, help)).map(Counter)
}

/// The gauge of this name.
#[pyfunction]
pub(crate) fn user_gauge(py: Python<'_>, name: &str, help: &str) -> PyResult<Gauge> {
    named(py, gauge(name, help)).map(Gauge)
}
