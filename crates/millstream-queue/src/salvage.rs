//! Salvage: reading the intact items of a damaged queue.
//!
//! A queue with damage in its journal stays closed, since the contents of the damaged records are unknown. With
//! salvage the operator decides: all intact records are read in order, also where the journal cannot be opened, and
//! the damage is listed. The effect of a lost record is unknown: an item may be missing, and a removed item may
//! return.
//!
//! The invariant: the files are only read.
//!
//! ```no_run
//! use millstream_queue::salvage::Salvage;
//!
//! let mut salvage = Salvage::read("queues/jobs")?;
//! while let Some(item) = salvage.next_item() {
//!     println!("{} bytes", item.item.body.len());
//! }
//! for lost in salvage.lost() {
//!     eprintln!("{lost}");
//! }
//! # Ok::<(), millstream_queue::QueueError>(())
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use millstream_journal::{Damage, Error, RecordPlace, Salvage as Journal};

use crate::error::QueueError;
use crate::item::Item;
use crate::item::history::History;
use crate::storage::operation::{Head, Operation};

/// Records that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The records, if known.
    pub records: Option<Range<u64>>,
    /// File, offset, and what is wrong there.
    pub why: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.records.as_ref().map(|range| (range.start, range.end)) {
            None => f.write_str(&self.why),
            Some((start, u64::MAX)) => write!(f, "records from {start}: {}", self.why),
            Some((start, end)) if end - start == 1 => write!(f, "record {start}: {}", self.why),
            Some((start, end)) => write!(f, "records {start} to {}: {}", end - 1, self.why),
        }
    }
}

impl From<Damage> for Lost {
    fn from(damage: Damage) -> Self {
        let Damage {
            path,
            offset,
            what,
            records,
            ..
        } = damage;
        Lost {
            records: records.filter(|records| !records.is_empty()),
            why: Error::Damage { path, offset, what }.to_string(),
        }
    }
}

/// An item that was read, and the end of its delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvaged {
    /// The item.
    pub item: Item,
    /// The time before which it was not to be served, wall clock in milliseconds; 0: no delay.
    pub due_ms: u64,
}

/// The last record of a remaining item.
#[derive(Clone, Copy)]
struct RemainingRecord {
    position: u64,
    place: RecordPlace,
    /// The number of deliveries, and the time of the first failure.
    deliveries: u32,
    first_ms: u64,
}

/// The items of a damaged queue, as far as they can be read.
pub struct Salvage {
    journal: Journal,
    /// By the item's id.
    left: BTreeMap<u64, RemainingRecord>,
    lost: Vec<Lost>,
    item_bytes_max: usize,
}

impl fmt::Debug for Salvage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Salvage({} items left)", self.left.len())
    }
}

impl Salvage {
    /// Reads the journal of a queue, in the directory `path`, and finds the remaining items.
    ///
    /// # Errors
    /// There is no journal, or the system refuses to list its files. Damage is no error, see [`lost`](Self::lost).
    pub fn read(path: impl AsRef<Path>) -> Result<Self, QueueError> {
        let path = path.as_ref();
        let fault = |error: Error| QueueError::Storage {
            queue: path
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            cause: error.into(),
        };
        let mut journal = Journal::open(path).map_err(fault)?;
        let mut state = State::default();
        while let Some((place, record)) = journal.next() {
            let position = record.sequence;
            match Operation::decode(record.body) {
                Ok(operation) => state.apply(position, place, operation),
                Err(what) => state.lost.push(Lost {
                    records: Some(position..position + 1),
                    why: what.to_string(),
                }),
            }
        }
        let damages = journal.lost().iter().cloned().map(Lost::from);
        let mut lost: Vec<Lost> = damages.chain(state.lost).collect();
        lost.sort_by_key(|lost| lost.records.as_ref().map_or(0, |records| records.start));
        Ok(Salvage {
            journal,
            left: state.left,
            lost,
            item_bytes_max: state.item_bytes_max,
        })
    }

    /// The damage, in the order of the journal.
    pub fn lost(&self) -> &[Lost] {
        &self.lost
    }

    /// The number of items that [`next_item`](Self::next_item) has not returned yet.
    pub fn items_left(&self) -> usize {
        self.left.len()
    }

    /// The length in bytes of the longest item that was read, removed items included.
    pub fn item_bytes_max(&self) -> usize {
        self.item_bytes_max
    }

    /// The next item, in the order of the queue; `None` after the last one.
    pub fn next_item(&mut self) -> Option<Salvaged> {
        while let Some((id, left)) = self.left.pop_first() {
            let record = self.journal.read(left.place);
            let found = record.map(|record| item_at(id, left.position, record.body));
            match found.unwrap_or_else(|| Err("the record cannot be read any more".to_owned())) {
                Ok(Some(mut found)) => {
                    found.item.came_back(left.deliveries, left.first_ms);
                    return Some(found);
                }
                Ok(None) => {}
                Err(why) => self.lost.push(Lost {
                    records: Some(left.position..left.position + 1),
                    why,
                }),
            }
        }
        None
    }
}

/// The state after the records so far.
#[derive(Default)]
struct State {
    left: BTreeMap<u64, RemainingRecord>,
    lost: Vec<Lost>,
    item_bytes_max: usize,
}

impl State {
    fn apply(&mut self, position: u64, place: RecordPlace, operation: Operation<'_>) {
        match operation {
            Operation::Add { body, .. }
            | Operation::From { body, .. }
            | Operation::Once { body, .. }
            | Operation::Moved { body, .. } => self.add(position, body, position, place, 0),
            Operation::Again {
                id,
                deliveries,
                body,
                ..
            } => self.add(id, body, position, place, deliveries),
            Operation::Remove { id, .. } => {
                self.left.remove(&id);
            }
            Operation::Flush { from } => self.left.retain(|_, left| left.position >= from),
            Operation::Delivered {
                id,
                count,
                first_ms,
            } => {
                if let Some(left) = self.left.get_mut(&id) {
                    (left.deliveries, left.first_ms) = (count, first_ms);
                }
            }
            Operation::Mark { .. } | Operation::Known { .. } => {}
        }
    }

    fn add(&mut self, id: u64, body: &[u8], position: u64, place: RecordPlace, deliveries: u32) {
        self.item_bytes_max = self.item_bytes_max.max(body.len());
        let left = RemainingRecord {
            position,
            place,
            deliveries,
            first_ms: 0,
        };
        self.left.insert(id, left);
    }
}

/// The item `id` in the record at `position`.
fn item_at(id: u64, position: u64, record: &[u8]) -> Result<Option<Salvaged>, String> {
    let made = |head: Head, body: &[u8], due_ms, history: Option<History<&str>>| {
        Some(Salvaged {
            item: Item::new(id, head, 0, body.into()).with_history(history),
            due_ms,
        })
    };
    let operation =
        Operation::decode(record).map_err(|what| format!("record {position}: {what}"))?;
    match operation {
        Operation::Add { head, due_ms, body }
        | Operation::Once {
            head, due_ms, body, ..
        } => Ok(made(head, body, due_ms, None)),
        Operation::From { head, body, .. } => Ok(made(head, body, 0, None)),
        Operation::Moved {
            head,
            due_ms,
            history,
            body,
        } => Ok(made(head, body, due_ms, Some(history))),
        Operation::Again {
            head,
            due_ms,
            history,
            body,
            ..
        } => Ok(made(head, body, due_ms, history)),
        _ => Ok(None),
    }
}
