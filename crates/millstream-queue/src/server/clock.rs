//! The one place of this crate where clocks are read.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::moment::Moment;

/// The time now, on both clocks.
#[inline]
#[expect(
    clippy::disallowed_methods,
    reason = "this is where the time that is handed in comes from"
)]
pub(crate) fn now() -> Moment {
    let wall = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Moment {
        wall_ms: wall.as_millis() as u64,
        steady_us: steady_us(),
    }
}

/// The time on the steady clock alone.
#[inline]
#[expect(
    clippy::disallowed_methods,
    reason = "this is where the time that is handed in comes from"
)]
pub(crate) fn steady_us() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_micros() as u64
}
