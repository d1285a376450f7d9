//! Journals at one moment, as the page, the JSON and the metrics show them.

use serde::{Deserialize, Serialize};

/// The number of journals in a snapshot, and of those that have metrics of their own.
pub const JOURNALS_MAX: usize = 100;
/// The number of cursors of a journal that are reported: the ones with the largest lag.
pub const CURSORS_MAX: usize = 16;

/// The journals that are watched. Rates are those between the last two looks at a journal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JournalsSnapshot {
    /// The number of journals.
    pub count: usize,
    /// The number of journals that are not shown and have no metrics.
    pub unlabelled: usize,
    /// Records appended a second, to all journals.
    pub record_rate: f64,
    /// Bytes appended a second, to all journals.
    pub byte_rate: f64,
    /// What all journals take on the disk, in bytes.
    pub disk_bytes: u64,
    /// Seconds since a journal was read, or the next look was due.
    pub silent_seconds: f64,
    /// The number of journals that were read, during the first look.
    pub read: Option<usize>,
    /// The number of journals that were found.
    pub found: usize,
    /// The journals, those that need attention or are written first, at most 100, by name.
    pub journals: Vec<JournalSnapshot>,
}

/// One journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JournalSnapshot {
    /// Its name: the path below the directory that is watched.
    pub name: String,
    /// Its directory.
    pub path: String,
    /// What it is.
    pub kind: JournalKind,
    /// What is wrong with it.
    pub state: JournalState,
    /// Why it cannot be read.
    pub error: Option<String>,
    /// The number of its oldest record.
    pub first: u64,
    /// The number that the next record gets.
    pub next: u64,
    /// All records before this one survive a loss of power.
    pub durable: u64,
    /// Segments.
    pub segments: u64,
    /// What it takes on the disk, in bytes.
    pub disk_bytes: u64,
    /// Records appended a second.
    pub record_rate: f64,
    /// Bytes of records appended a second, by the records at the end of each second.
    pub byte_rate: f64,
    /// Age of the newest record.
    pub age_seconds: Option<f64>,
    /// Processes that have it open to write.
    pub writers: Vec<u32>,
    /// Raised by each promotion of a copy.
    pub term: u64,
    /// The newer term in which another copy leads.
    pub superseded_by: Option<u64>,
    /// Items of a queue.
    pub items: Option<u64>,
    /// Age of the oldest of them.
    pub oldest_seconds: Option<f64>,
    /// Its cursors, at most 16.
    pub cursors: Vec<CursorSnapshot>,
    /// The largest lag of a cursor that is not a follower's, in records.
    pub cursor_lag: Option<u64>,
    /// The largest lag of a follower, in records.
    pub follower_lag: Option<u64>,
}

/// What a journal is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JournalKind {
    /// A journal of its own.
    #[default]
    Journal,
    /// A copy, to which a follower appends.
    Copy,
    /// A part of the state of a flow.
    State,
    /// A queue.
    Queue,
}

impl JournalKind {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            JournalKind::Journal => "journal",
            JournalKind::Copy => "copy",
            JournalKind::State => "state",
            JournalKind::Queue => "queue",
        }
    }
}

/// What is wrong with a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JournalState {
    /// Nothing.
    #[default]
    Good,
    /// Another copy leads.
    Superseded,
    /// A follower does not keep up.
    Lagging,
    /// It cannot be read.
    Unreadable,
}

impl JournalState {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            JournalState::Good => "good",
            JournalState::Superseded => "superseded",
            JournalState::Lagging => "lagging",
            JournalState::Unreadable => "unreadable",
        }
    }
}

/// A named position in a journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CursorSnapshot {
    /// Its name; that of the follower, for a follower.
    pub name: String,
    /// Whether it is the position of a follower on another machine.
    pub is_follower: bool,
    /// Whether it is a follower that counts for `wait_follower`.
    pub counts: bool,
    /// The next record that it needs.
    pub position: u64,
    /// Records that it has not passed.
    pub lag_records: u64,
    /// Age of the first of them.
    pub lag_seconds: f64,
}
