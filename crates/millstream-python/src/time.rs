//! Times between Python and the engine: seconds there, nanoseconds here.
//!
//! A time is a number of seconds since an epoch of the user's choice, or a `datetime` with a time zone.
//! A number with a fraction counts to the microsecond: a float resolves that in this
//! century, so that a time survives the conversion both ways.

use std::time::Duration;

use millstream_flow::Timed;
use millstream_flow::time::{BEFORE_ALL, NEVER};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDateTime, PyDelta, PyFloat, PyInt, PyTzInfo};

use crate::datetime::Moments;
use crate::show::show;

/// The times of an item without time.
pub(crate) const TIMELESS: Timed<()> = Timed {
    time: BEFORE_ALL,
    watermark: BEFORE_ALL,
    value: (),
};

/// Beyond this, in 1678 and 2261 if times are since 1970, nanoseconds do not fit.
const MICROS_MAX: i64 = 9_200_000_000_000_000;

/// Nanoseconds of a time of the user.
pub(crate) fn to_nanos(time: &Bound<'_, PyAny>) -> PyResult<i64> {
    to_nanos_with(&mut Moments::default(), time)
}

/// As `to_nanos`, for many times one after the other.
pub(crate) fn to_nanos_with(moments: &mut Moments, time: &Bound<'_, PyAny>) -> PyResult<i64> {
    if let Ok(seconds) = time.cast::<PyFloat>() {
        return from_seconds(seconds.value()).ok_or_else(|| no_time(time));
    }
    if time.is_instance_of::<PyInt>() {
        let seconds = time.extract::<i64>().ok();
        return seconds
            .and_then(|seconds| seconds.checked_mul(1_000_000_000))
            .ok_or_else(|| no_time(time));
    }
    if let Ok(datetime) = time.cast::<PyDateTime>() {
        return from_micros(moments.micros_since_1970(datetime)?).ok_or_else(|| {
            PyValueError::new_err(format!(
                "{} is out of range: as a time a datetime is one from 1678-06-19 to 2261-07-15",
                show(time)
            ))
        });
    }
    Err(PyTypeError::new_err(format!(
        "a time is a number of seconds or a datetime, not {}",
        show(time)
    )))
}

/// A duration as Python's half reads it: from `least` nanoseconds on; its errors are of the class `error`.
pub(crate) fn duration(
    name: &str,
    given: &Bound<'_, PyAny>,
    least: u64,
    error: &str,
) -> PyResult<Duration> {
    let py = given.py();
    let read = py
        .import("millstream._values.durations")?
        .getattr("nanos")?;
    let error = py.import("millstream")?.getattr(error)?;
    let nanos = read.call1((name, given, least, error))?;
    Ok(Duration::from_nanos(nanos.extract()?))
}

/// The error of a number that is no time. Most such numbers are milliseconds.
fn no_time(time: &Bound<'_, PyAny>) -> PyErr {
    let message = match time.extract::<f64>() {
        Ok(number) if number.is_nan() => format!("{} is no time", show(time)),
        _ => format!(
            "{} s is out of range: a time is in seconds since 1970, so divide milliseconds by 1000",
            show(time)
        ),
    };
    PyValueError::new_err(message)
}

fn from_seconds(seconds: f64) -> Option<i64> {
    let micros = (seconds * 1e6).round();
    // It is false for NaN, too.
    (micros.abs() < MICROS_MAX as f64).then(|| micros as i64 * 1000)
}

fn from_micros(micros: i64) -> Option<i64> {
    (micros.abs() < MICROS_MAX).then(|| micros * 1000)
}

/// Seconds of nanoseconds.
pub(crate) fn seconds(nanos: i64) -> f64 {
    if nanos % 1000 == 0 {
        // As exact as the input.
        (nanos / 1000) as f64 / 1e6
    } else {
        nanos as f64 / 1e9
    }
}

/// As `seconds`; none before and after all times.
pub(crate) fn seconds_or_none(nanos: i64) -> Option<f64> {
    (nanos != BEFORE_ALL && nanos != NEVER).then(|| seconds(nanos))
}

/// As `seconds_or_none`, or as a datetime in UTC, to the microsecond.
pub(crate) fn moment_or_none(
    py: Python<'_>,
    nanos: i64,
    datetime: bool,
) -> PyResult<Bound<'_, PyAny>> {
    static EPOCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if !datetime || nanos == BEFORE_ALL || nanos == NEVER {
        return Ok(seconds_or_none(nanos).into_pyobject(py)?.into_any());
    }
    let epoch = EPOCH.get_or_try_init(py, || {
        let utc = PyTzInfo::utc(py)?;
        let epoch = PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, Some(&utc))?;
        PyResult::Ok(epoch.into_any().unbind())
    })?;
    let micros = nanos.div_euclid(1000);
    let seconds = micros.div_euclid(1_000_000);
    let rest = micros.rem_euclid(1_000_000);
    let days = seconds.div_euclid(86_400);
    let seconds = seconds.rem_euclid(86_400);
    // Nanoseconds in 64 bits are less than 110,000 days.
    let since = PyDelta::new(py, days as i32, seconds as i32, rest as i32, false)?;
    epoch.bind(py).add(since)
}
