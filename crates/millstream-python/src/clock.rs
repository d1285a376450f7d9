//! A clock that a test moves by hand.

use std::time::Duration;

use millstream_flow::testing::VirtualClock as Engine;
use pyo3::prelude::*;

use crate::time::{seconds, to_nanos};
use millstream_flow::clock::Clock;

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

    /// Seconds since 1970.
    fn time(&self) -> f64 {
        seconds(self.clock.time_ns())
    }

    /// Moves the clock on.
    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Sets the clock, forward or back.
    fn set(&self, to: &Bound<'_, PyAny>) -> PyResult<()> {
        self.clock.set(to_nanos(to)?);
        Ok(())
    }
}
