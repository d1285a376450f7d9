//! Reading what can be read of a damaged queue.
//!
//! A queue with damage in its journal stays closed, since nobody can say what the damaged records said. Here the operator decides: all
//! records that are sound are read in their order, those that are not are listed. What a lost record said is unknown: an item may be missing,
//! and one that had been taken may be there again.
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

use millstream_journal::{Error, Journal, Options, Reader};

use crate::error::QueueError;
use crate::history::History;
use crate::item::Item;
use crate::operation::{Head, Operation};

/// So many records are tried one by one after damage, and then every second one, every third one, and so on.
const STEP_RECORDS: u64 = 4096;

/// Records that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Which.
    pub records: Range<u64>,
    /// File, offset, and what is wrong there.
    pub why: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.records;
        match end - start {
            1 => write!(f, "record {start}: {}", self.why),
            _ => write!(f, "records {start} to {}: {}", end - 1, self.why),
        }
    }
}

/// An item that was read, and until when it is delayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvaged {
    /// The item.
    pub item: Item,
    /// Nobody was to get it before; wall clock in milliseconds, 0: at once.
    pub due_ms: u64,
}

/// The items of a damaged queue, as far as they can be read.
pub struct Salvage {
    reader: Reader,
    /// Position of the last record of each item that is left, by its id, with how often it was delivered and when it first came back.
    left: BTreeMap<u64, (u64, u32, u64)>,
    lost: Vec<Lost>,
    item_bytes_max: usize,
}

impl fmt::Debug for Salvage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Salvage({} items left)", self.left.len())
    }
}

impl Salvage {
    /// Read the journal of a queue, in the directory `path`, and find out which items are left.
    ///
    /// # Errors
    /// There is no journal, or no part of it can be read: the error names file and offset.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, QueueError> {
        let path = path.as_ref();
        let fault = |error: Error| QueueError::Storage {
            queue: path
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            cause: error.into(),
        };
        let journal = Journal::open(path, Options::read_only()).map_err(fault)?;
        let mut salvage = Salvage {
            reader: journal.reader().map_err(fault)?,
            left: BTreeMap::new(),
            lost: Vec::new(),
            item_bytes_max: 0,
        };
        let next = journal.next().map_err(fault)?;
        let mut position = journal.first().map_err(fault)?;
        while position < next {
            position = match salvage.apply(position) {
                true => position + 1,
                false => salvage.skip(position, next),
            };
        }
        Ok(salvage)
    }

    /// From which record on the journal can be read again, if this one cannot; noted is what is skipped.
    fn skip(&mut self, position: u64, next: u64) -> u64 {
        let mut bad = position;
        while bad < next {
            // What follows a damaged frame closely is looked for one by one, and then in larger steps, since after a damaged header
            // nothing is found before the next segment.
            let step = ((bad - position) / STEP_RECORDS).max(1);
            let mut good = bad.saturating_add(step).min(next);
            if good == next || self.reader.read(good).is_ok() {
                while good - bad > 1 {
                    let middle = bad + (good - bad) / 2;
                    match self.reader.read(middle) {
                        Ok(_) => good = middle,
                        Err(_) => bad = middle,
                    }
                }
                self.extend_lost(position, good);
                return good;
            }
            bad = good;
        }
        next
    }

    /// What could not be read, in the order of the journal.
    pub fn lost(&self) -> &[Lost] {
        &self.lost
    }

    /// How many items are still to be returned by [`next_item`](Self::next_item).
    pub fn items_left(&self) -> usize {
        self.left.len()
    }

    /// The length in bytes of the longest item that was read, left or not.
    pub fn item_bytes_max(&self) -> usize {
        self.item_bytes_max
    }

    /// The next item, in the order of the queue; `None` after the last one.
    pub fn next_item(&mut self) -> Option<Salvaged> {
        while let Some((id, (position, count, first_ms))) = self.left.pop_first() {
            match item_at(&mut self.reader, id, position) {
                Ok(Some(mut found)) => {
                    found.item.came_back(count, first_ms);
                    return Some(found);
                }
                Ok(None) => {}
                Err(why) => self.note(position, why),
            }
        }
        None
    }

    /// Note what one record says; false if it cannot be read.
    fn apply(&mut self, position: u64) -> bool {
        let operation = match self.reader.read(position) {
            Ok(record) => Operation::decode(record.body).map_err(str::to_owned),
            Err(error) => Err(error.to_string()),
        };
        match operation {
            Ok(
                Operation::Add { body, .. }
                | Operation::From { body, .. }
                | Operation::Moved { body, .. },
            ) => {
                self.item_bytes_max = self.item_bytes_max.max(body.len());
                self.left.insert(position, (position, 0, 0));
            }
            Ok(Operation::Again {
                id,
                deliveries,
                body,
                ..
            }) => {
                self.item_bytes_max = self.item_bytes_max.max(body.len());
                self.left.insert(id, (position, deliveries, 0));
            }
            Ok(Operation::Remove { id, .. }) => {
                self.left.remove(&id);
            }
            Ok(Operation::Flush { from }) => {
                self.left.retain(|_, (position, _, _)| *position >= from);
            }
            Ok(Operation::Delivered {
                id,
                count,
                first_ms,
            }) => {
                if let Some(known) = self.left.get_mut(&id) {
                    *known = (known.0, count, first_ms);
                }
            }
            Ok(Operation::Mark { .. }) => {}
            Err(why) => {
                self.note(position, why);
                return false;
            }
        }
        true
    }

    fn note(&mut self, position: u64, why: String) {
        match self.lost.last_mut() {
            // One damage is told once, however many records it costs.
            Some(Lost { records, .. }) if records.end == position => records.end = position + 1,
            _ => self.lost.push(Lost {
                records: position..position + 1,
                why,
            }),
        }
    }

    /// The records that were noted last go on to this one.
    fn extend_lost(&mut self, position: u64, until: u64) {
        if let Some(lost) = self
            .lost
            .last_mut()
            .filter(|lost| lost.records.contains(&position))
        {
            lost.records.end = lost.records.end.max(until);
        }
    }
}

fn item_at(reader: &mut Reader, id: u64, position: u64) -> Result<Option<Salvaged>, String> {
    let record = reader.read(position).map_err(|error| error.to_string())?;
    let made = |head: Head, body: &[u8], due_ms, history: Option<History<&str>>| {
        Some(Salvaged {
            item: Item::new(id, head, 0, body.into()).with_history(history),
            due_ms,
        })
    };
    match Operation::decode(record.body)? {
        Operation::Add { head, due_ms, body } => Ok(made(head, body, due_ms, None)),
        Operation::From { head, body, .. } => Ok(made(head, body, 0, None)),
        Operation::Moved {
            head,
            history,
            body,
        } => Ok(made(head, body, 0, Some(history))),
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
