//! The limits of an outbox, and its directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::durable::escape;
use crate::outbox::backoff::Backoff;

/// Returns the directory of the outbox of sink `name` of a flow that keeps its state in `state`.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn outbox_dir(state: impl AsRef<Path>, name: &str) -> PathBuf {
    state.as_ref().join("outputs").join(escape(name))
}

/// The cursor of an outbox at the first record that is not acknowledged.
pub(super) const DELIVERED: &str = "delivered";

/// The interval at which a wait checks whether the run stops.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// The time for which a run that was asked to stop continues to deliver.
pub(super) const STOP_NS: u64 = 1_000_000_000;

/// The limits of an outbox.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Sources pause while more bytes wait.
    pub(super) bytes_max: u64,
    /// Sources pause while an older record waits.
    pub(super) age_max: Option<Duration>,
    /// The largest number of records in a delivery, at least 1.
    pub(super) batch_records: usize,
    /// A delivery ends at the record with which it has this many bytes.
    pub(super) batch_bytes: usize,
    /// A delivery that is not full waits until its oldest record has this age.
    pub(super) batch_age: Option<Duration>,
    pub(super) backoff: Backoff,
    /// At the end of a flow the run fails if nothing was delivered for this time.
    pub(super) end_wait: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            bytes_max: 1 << 30,
            age_max: None,
            batch_records: 1000,
            batch_bytes: 1 << 20,
            batch_age: None,
            backoff: Backoff::default(),
            end_wait: Duration::from_secs(60),
        }
    }
}
