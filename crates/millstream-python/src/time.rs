//! Times between Python and the engine: seconds there, nanoseconds here.
//!
//! A time is a number of seconds since an epoch of the user's choice, or a `datetime` with a time zone.
//! A number with a fraction counts to the microsecond: that is what a float still tells apart in this
//! century, so that a time comes back as it went in.

use millstream_flow::Timed;
use millstream_flow::time::{BEFORE_ALL, NEVER};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt};

use crate::show::show;

/// The times of an item without time.
pub(crate) const TIMELESS: Timed<()> = Timed {
    time: BEFORE_ALL,
    watermark: BEFORE_ALL,
    value: (),
};

/// Nanoseconds of what a user gives as a time.
pub(crate) fn to_nanos(time: &Bound<'_, PyAny>) -> PyResult<i64> {
    let py = time.py();
    if let Ok(seconds) = time.cast::<PyFloat>() {
        return from_seconds(seconds.value())
            .ok_or_else(|| PyValueError::new_err(format!("{} is no time", show(time))));
    }
    if time.is_instance_of::<PyInt>() {
        let seconds = time.extract::<i64>().ok();
        return seconds
            .and_then(|seconds| seconds.checked_mul(1_000_000_000))
            .ok_or_else(|| PyValueError::new_err(format!("{} s is out of range", show(time))));
    }
    let datetime = py.import("datetime")?.getattr("datetime")?;
    if time.is_instance(&datetime)? {
        if time.getattr("tzinfo")?.is_none() {
            return Err(PyValueError::new_err(format!(
                "{} has no time zone",
                show(time)
            )));
        }
        return to_nanos(&time.call_method0("timestamp")?);
    }
    Err(PyTypeError::new_err(format!(
        "a time is a number of seconds or a datetime, not {}",
        show(time)
    )))
}

fn from_seconds(seconds: f64) -> Option<i64> {
    let micros = (seconds * 1e6).round();
    // Beyond this nanoseconds do not fit; it is false for what is not a number, too.
    (micros.abs() < 9.2e15).then(|| micros as i64 * 1000)
}

/// Seconds of nanoseconds.
pub(crate) fn seconds(nanos: i64) -> f64 {
    if nanos % 1000 == 0 {
        // As exact as it came in.
        (nanos / 1000) as f64 / 1e6
    } else {
        nanos as f64 / 1e9
    }
}

/// As `seconds`; none before and after all times.
pub(crate) fn seconds_or_none(nanos: i64) -> Option<f64> {
    (nanos != BEFORE_ALL && nanos != NEVER).then(|| seconds(nanos))
}
