//! Where a sink writes to.

use crate::client::settings::Settings;
use crate::message::FIXED_BYTES;

/// The topic of a sink, and how it is reached.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) servers: String,
    pub(super) topic: String,
    pub(super) settings: Settings,
}

impl Target {
    /// The destination, for people.
    pub(super) fn describe(&self) -> String {
        format!("kafka {} at {}", self.topic, self.servers)
    }

    /// The largest message as bytes: what the producer takes for key, value and headers, and what they take beside that
    /// here.
    pub(super) fn record_bytes_max(&self) -> usize {
        self.settings.message_bytes_max() + FIXED_BYTES
    }
}
