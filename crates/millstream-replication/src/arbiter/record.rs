//! The record.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_link::Address;
use serde::{Deserialize, Serialize};

/// The machine that leads, and those that may.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct LeaseRecord {
    /// The group of machines, by a number that its first leader has chosen.
    pub group: u64,
    /// The name of the one that leads.
    pub holder: String,
    /// The number of its process, so that another one of the same name is not taken for it.
    pub process: u64,
    /// The term in which it leads: one more for each take-over.
    pub term: u64,
    /// How often the lease was renewed.
    pub beat: u64,
    /// The length of the lease, in milliseconds from when the record is seen; 0: it was given back.
    pub lease_ms: u64,
    /// Where followers connect.
    pub address: String,
    /// Those that have all that was answered, by name: the [own number](millstream_journal::Identity::own) of the copy
    /// of each.
    pub in_sync: BTreeMap<String, u64>,
    /// All of these had the records before this one when the lease was renewed.
    pub at: u64,
}

impl LeaseRecord {
    /// The length of the lease.
    #[must_use]
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// Whether this copy has all that was answered.
    #[must_use]
    pub fn is_in_sync(&self, name: &str, copy: u64) -> bool {
        self.in_sync.get(name) == Some(&copy)
    }

    /// Where followers connect: host and port.
    ///
    /// # Errors
    /// The address is none of TCP.
    pub fn leader(&self) -> Result<(String, u16), String> {
        match self.address.parse() {
            Ok(Address::Tcp { host, port }) => Ok((host, port)),
            _ => Err(format!("{:?} is no address of a leader", self.address)),
        }
    }

    pub(super) fn to_json(&self) -> String {
        // A record of numbers and texts has a text.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn from_json(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("no record of a lease: {error}"))
    }
}
