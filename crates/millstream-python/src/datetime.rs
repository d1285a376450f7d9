//! The moment that a Python `datetime` names, as whole microseconds since 1970.
//!
//! The fields are read as integers and the offset of the time zone is subtracted, without
//! floats: the result is `(time - datetime(1970, 1, 1, tzinfo=utc)) // timedelta(microseconds=1)`
//! of Python, exactly. A `datetime` itself is read where it is stored. The attributes of an object of a
//! subclass are read: a subclass may redefine them (`pandas.Timestamp` does). Digits below the
//! microsecond are ignored.

use jiff::civil;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyDateAccess, PyDateTime, PyDelta, PyDeltaAccess, PyTimeAccess, PyType, PyTzInfo,
    PyTzInfoAccess,
};

use crate::show::show;

const EPOCH: civil::DateTime = civil::DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
const MICROS_PER_SECOND: i64 = 1_000_000;

/// Reads datetimes in order, and calls a time zone only once for those of one second.
#[derive(Default)]
pub(crate) struct Moments {
    has_read: bool,
    latest: Option<KnownOffset>,
}

/// The latest offset of a time zone.
struct KnownOffset {
    zone: Py<PyTzInfo>,
    /// For which second by its own clock, and whether it was the second one of that name; none for a zone whose
    /// offset is always the same.
    when: Option<(i64, bool)>,
    offset: i64,
}

impl Moments {
    /// Whether it was given a datetime.
    pub(crate) fn has_read(&self) -> bool {
        self.has_read
    }

    /// Microseconds from 1970-01-01T00:00:00Z to `time`.
    ///
    /// # Errors
    /// `ValueError` for a time without a time zone, and for one whose fields are not those of a calendar, as
    /// of `pandas.NaT`; whatever the time zone raises.
    pub(crate) fn micros_since_1970(&mut self, time: &Bound<'_, PyDateTime>) -> PyResult<i64> {
        self.has_read = true;
        let plain = time.is_exact_instance_of::<PyDateTime>();
        let civil = if plain {
            stored_fields(time)
        } else {
            computed_fields(time)
        };
        let no_time = || PyValueError::new_err(format!("{} is no time", show(time)));
        let clock = civil.ok_or_else(no_time)?.duration_since(EPOCH);
        let clock = clock.as_secs() * MICROS_PER_SECOND + i64::from(clock.subsec_micros());
        let offset = if plain {
            self.offset_of(time, clock.div_euclid(MICROS_PER_SECOND))?
        } else {
            offset_of(time)?
        };
        match offset {
            Some(offset) => Ok(clock - offset),
            None => Err(PyValueError::new_err(format!(
                "{} has no time zone: say which, as replace(tzinfo=timezone.utc) does",
                show(time)
            ))),
        }
    }

    /// The offset of a plain `datetime` from UTC, in microseconds; `None` without a time zone. `second` is its
    /// local time.
    fn offset_of(&mut self, time: &Bound<'_, PyDateTime>, second: i64) -> PyResult<Option<i64>> {
        let py = time.py();
        let Some(zone) = time.get_tzinfo() else {
            return Ok(None);
        };
        if zone.is(PyTzInfo::utc(py)?) {
            return Ok(Some(0));
        }
        let when = (second, time.get_fold());
        if let Some(asked) = &self.latest
            && zone.is(&asked.zone)
            && asked.when.is_none_or(|asked| asked == when)
        {
            return Ok(Some(asked.offset));
        }
        let offset = offset_of(time)?;
        // A zone of the user's own may go by anything, and is asked each time.
        static FIXED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        static NAMED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let when = match zone.get_type() {
            of if of.is(FIXED.import(py, "datetime", "timezone")?) => None,
            of if of.is(NAMED.import(py, "zoneinfo", "ZoneInfo")?) => Some(when),
            _ => return Ok(offset),
        };
        self.latest = offset.map(|offset| KnownOffset {
            zone: zone.unbind(),
            when,
            offset,
        });
        Ok(offset)
    }
}

/// The fields of a plain `datetime`.
fn stored_fields(time: &Bound<'_, PyDateTime>) -> Option<civil::DateTime> {
    civil::DateTime::new(
        time.get_year().try_into().ok()?,
        time.get_month().try_into().ok()?,
        time.get_day().try_into().ok()?,
        time.get_hour().try_into().ok()?,
        time.get_minute().try_into().ok()?,
        time.get_second().try_into().ok()?,
        nanos(time.get_microsecond())?,
    )
    .ok()
}

/// The fields that an object of a subclass reports.
fn computed_fields(time: &Bound<'_, PyDateTime>) -> Option<civil::DateTime> {
    let py = time.py();
    civil::DateTime::new(
        time.getattr(intern!(py, "year")).ok()?.extract().ok()?,
        time.getattr(intern!(py, "month")).ok()?.extract().ok()?,
        time.getattr(intern!(py, "day")).ok()?.extract().ok()?,
        time.getattr(intern!(py, "hour")).ok()?.extract().ok()?,
        time.getattr(intern!(py, "minute")).ok()?.extract().ok()?,
        time.getattr(intern!(py, "second")).ok()?.extract().ok()?,
        nanos(
            time.getattr(intern!(py, "microsecond"))
                .ok()?
                .extract()
                .ok()?,
        )?,
    )
    .ok()
}

fn nanos(micros: u32) -> Option<i32> {
    i32::try_from(micros).ok()?.checked_mul(1000)
}

/// The result of `utcoffset()`, in microseconds. It takes `fold` into account, for the hour that a clock repeats.
fn offset_of(time: &Bound<'_, PyDateTime>) -> PyResult<Option<i64>> {
    let offset = time.call_method0(intern!(time.py(), "utcoffset"))?;
    if offset.is_none() {
        return Ok(None);
    }
    let delta = offset.cast::<PyDelta>()?;
    let seconds = i64::from(delta.get_days()) * 86_400 + i64::from(delta.get_seconds());
    Ok(Some(
        seconds * MICROS_PER_SECOND + i64::from(delta.get_microseconds()),
    ))
}
