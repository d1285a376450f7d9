//! The limits of an outbox, and where it is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::checkpoint::durable::escape;
use crate::outbox::backoff::Backoff;

/// The directory of the outbox of sink `name` of a flow that keeps its state in `state`.
#[must_use]
pub fn place(state: impl AsRef<Path>, name: &str) -> PathBuf {
    state.as_ref().join("outputs").join(escape(name))
}

/// The limits of an outbox.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Sources are held back while so many bytes wait.
    pub(super) bytes_max: u64,
    /// Sources are held back while a record waits that is so old.
    pub(super) age_max: Option<Duration>,
    /// The most records of a delivery, at least 1.
    pub(super) batch_records: usize,
    /// A delivery has no more records once it has so many bytes.
    pub(super) batch_bytes: usize,
    pub(super) backoff: Backoff,
    /// At the end of a flow the run fails when nothing was delivered for so long.
    pub(super) end_wait: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            bytes_max: 1 << 30,
            age_max: None,
            batch_records: 1000,
            batch_bytes: 1 << 20,
            backoff: Backoff::default(),
            end_wait: Duration::from_secs(60),
        }
    }
}
