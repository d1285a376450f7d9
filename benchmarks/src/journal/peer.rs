//! A store of records that is compared with journals, and the work that all of them do.

use std::path::Path;

use super::figures::Fault;

/// Work that all can do. Bodies have 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// One by one, without a sync.
    Append,
    /// In batches of 1,000, without a sync.
    Batches,
    /// One by one, each synced before the next.
    Durable,
    /// Read all, of as many as [`count`](Self::count).
    Read,
}

impl Work {
    pub const ALL: [Self; 4] = [Self::Append, Self::Batches, Self::Durable, Self::Read];

    /// How many records.
    pub const fn count(self) -> u64 {
        match self {
            Self::Append => 200_000,
            Self::Batches | Self::Read => 500_000,
            Self::Durable => 2_000,
        }
    }

    /// A word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Batches => "batches",
            Self::Durable => "durable",
            Self::Read => "read",
        }
    }

    /// The work in words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Append => "append 64 B one by one, no sync",
            Self::Batches => "append 64 B in batches of 1,000, no sync",
            Self::Durable => "append 64 B one by one, each synced",
            Self::Read => "read 64 B records",
        }
    }
}

/// A store of records.
pub trait Peer {
    /// What it is.
    fn name(&self) -> &str;
    /// Does the work in an empty directory; returns records per second.
    fn measure(&self, work: Work, folder: &Path) -> Result<f64, Fault>;
}
