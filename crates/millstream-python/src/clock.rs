//! A clock that a test sets.

use std::sync::Arc;

use millstream_flow::testing::VirtualClock as Engine;
use pyo3::prelude::*;

use crate::time::{duration, seconds, to_nanos};
use millstream_flow::clock::Clock;

/// The clock of a run, as a function.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct RunClock(pub(crate) Arc<dyn Clock>);

#[pymethods]
impl RunClock {
    /// Returns the time in seconds.
    fn __call__(&self) -> f64 {
        seconds(self.0.time_ns())
    }
}

/// A virtual clock; `millstream.testing.clock` makes one.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct VirtualClock {
    pub(crate) clock: Engine,
}

#[pymethods]
impl VirtualClock {
    #[new]
    fn new(start: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(VirtualClock {
            clock: Engine::starting_at(to_nanos(start)?),
        })
    }

    /// Returns the time of the clock.
    ///
    /// Returns:
    ///     Seconds since 1970.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> clock = ms.testing.clock(100)
    ///     >>> clock.time()
    ///     100.0
    fn time(&self) -> f64 {
        seconds(self.clock.time_ns())
    }

    /// Advances the clock.
    ///
    /// Args:
    ///     by: a number of seconds, a timedelta or text like ``"1m"``.
    ///
    /// Raises:
    ///     FlowUsageError: it is no duration.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> clock = ms.testing.clock(100)
    ///     >>> clock.advance(5)
    ///     >>> clock.time()
    ///     105.0
    fn advance(&self, by: &Bound<'_, PyAny>) -> PyResult<()> {
        self.clock.advance(duration("by", by, 0, "FlowUsageError")?);
        Ok(())
    }

    /// Sets the clock, forward or back.
    ///
    /// Args:
    ///     to: seconds since 1970, or a datetime with a time zone.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> clock = ms.testing.clock(100)
    ///     >>> clock.set(7)
    ///     >>> clock.time()
    ///     7.0
    fn set(&self, to: &Bound<'_, PyAny>) -> PyResult<()> {
        self.clock.set(to_nanos(to)?);
        Ok(())
    }
}
