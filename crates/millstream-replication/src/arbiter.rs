//! Which of several machines leads: a record that an arbiter keeps, and the lease on it.
//!
//! The arbiter is a place that all machines reach and that lets exactly one of several writers replace the record: a
//! directory on shared storage, etcd, a Lease of Kubernetes. It has no clock and ends nothing: a [`Candidate`] measures
//! on its own clock for how long the record has not changed. So machines need not agree on the time of day, and a lease
//! is the same wherever the record is.
//!
//! The holder counts its lease from before it asked for it, and ends it a margin earlier; another one counts from when
//! it saw the record. So two hold a lease at a time only if their clocks run at rates that differ by more than the
//! margin. The scheme is that of C. Gray and D. Cheriton, "Leases" (SOSP 1989), with the record of members in sync that
//! Kafka keeps of its partitions.
//!
//! ```
//! use std::time::Duration;
//! use millstream_replication::arbiter::{Arbiter, ArbiterAddress, ArbiterTls, LeaseRecord};
//!
//! # let folder = tempfile::tempdir()?;
//! let address: ArbiterAddress = format!("file:{}", folder.path().display()).parse()?;
//! let arbiter = address.connect(&ArbiterTls::default(), Duration::from_secs(1))?;
//! assert!(arbiter.read()?.is_none());
//! let first = arbiter.replace(None, &LeaseRecord::default())?;
//! assert!(first.is_some());
//! // Another one has been before.
//! assert!(arbiter.replace(None, &LeaseRecord::default())?.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod etcd;
mod file;
mod http;
mod kubernetes;
mod lease;
mod record;
#[cfg(test)]
mod tests;

pub use self::address::ArbiterAddress;
pub use self::http::ArbiterTls;
pub use self::lease::{Candidate, Held, LeaseTimes, Seen};
pub use self::record::LeaseRecord;

/// What a record is at one moment, for those that replace it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Version(pub(crate) String);

/// A place that keeps one record.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Arbiter: Send + Sync {
    /// The record, and its version; `None` where there is none.
    ///
    /// # Errors
    /// The arbiter cannot be reached, or has no such record.
    fn read(&self) -> Result<Option<(Version, LeaseRecord)>, ArbiterError>;

    /// Puts a record in the place of this version, or where there is none. Returns its version, or `None` if what is
    /// there is another one.
    ///
    /// # Errors
    /// As for [`read`](Self::read). The record may have been replaced all the same.
    fn replace(
        &self,
        version: Option<&Version>,
        record: &LeaseRecord,
    ) -> Result<Option<Version>, ArbiterError>;
}

/// Why an arbiter did not answer.
#[derive(Debug, thiserror::Error)]
#[error("the arbiter {address}: {text}")]
#[doc(hidden)] // For the other crates of Millstream.
pub struct ArbiterError {
    /// The arbiter.
    pub address: String,
    /// What is wrong.
    pub text: String,
}

impl ArbiterError {
    fn new(address: impl Into<String>, text: impl std::fmt::Display) -> Self {
        ArbiterError {
            address: address.into(),
            text: text.to_string(),
        }
    }
}
