//! What a source has taken from its queues and not confirmed, in one run.
//!
//! The invariant: an item that is taken is confirmed once its epoch counts, or is back in its place when the run is over, however
//! it ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::Item;
use crate::embedded::Queue;
use millstream_flow::error::Cause;
use millstream_flow::source::{Position, Recording};

use super::ledger::{Ledger, Note};
use super::lock;

/// The items of one queue.
pub(super) struct Desk {
    pub(super) name: String,
    pub(super) queue: Queue,
    lent: Mutex<Lent>,
}

#[derive(Default)]
struct Lent {
    ledger: Option<Arc<Ledger>>,
    /// Position, ids and bytes of each batch that is not confirmed.
    batches: VecDeque<(u64, Note, usize)>,
    items: usize,
    bytes: usize,
    next: u64,
    /// The position of the last commit whose items were confirmed.
    confirmed: Option<u64>,
}

/// All queues of a source.
pub(super) struct Lending {
    pub(super) desks: Vec<Desk>,
}

impl Desk {
    pub(super) fn new(name: &str, queue: Queue) -> Self {
        Desk {
            name: name.to_owned(),
            queue,
            lent: Mutex::default(),
        }
    }

    /// Takes are noted in a ledger from now on, and confirmed at commits.
    pub(super) fn keep(&self, ledger: Arc<Ledger>, next: u64) {
        let mut lent = lock(&self.lent);
        (lent.ledger, lent.next) = (Some(ledger), next);
    }

    /// The position behind the last batch.
    pub(super) fn next(&self) -> Position {
        lock(&self.lent).next
    }

    /// Notes a batch that was taken; gives the position behind it.
    pub(super) fn note(&self, items: &[Item]) -> Result<Position, Cause> {
        let note = Note::of(items);
        let bytes = items.iter().map(|item| item.body.len()).sum();
        let mut lent = lock(&self.lent);
        // What cannot be noted is given back with the rest.
        let position = lent.next;
        let written = lent.ledger.as_ref().map(|ledger| ledger.write(&note));
        lent.items += items.len();
        lent.bytes += bytes;
        lent.next += 1;
        lent.batches.push_back((position, note, bytes));
        match written.transpose()? {
            Some(written) if written != position => {
                Err(format!("note {position} of the ledger became number {written}").into())
            }
            _ => Ok(position + 1),
        }
    }

    /// Items and bytes that are not confirmed.
    pub(super) fn lent(&self) -> (usize, usize) {
        let lent = lock(&self.lent);
        (lent.items, lent.bytes)
    }

    /// The items of all batches before this position leave the queue.
    pub(super) fn confirm(&self, before: Position) -> Result<(), Cause> {
        let mut lent = lock(&self.lent);
        while let Some((position, ..)) = lent.batches.front()
            && *position < before
            && let Some((_, note, bytes)) = lent.batches.pop_front()
        {
            lent.items -= note.ids.len();
            lent.bytes -= bytes;
            self.queue.confirm_lent(note.ids, note.added_by_ms)?;
        }
        // The removals of the commit before this one were synced with it, if anything was.
        if let (Some(ledger), Some(settled)) = (&lent.ledger, lent.confirmed) {
            ledger.settle(settled)?;
        }
        lent.confirmed = Some(before);
        Ok(())
    }

    /// The items of all batches leave the queue: nothing of them is on its way any more.
    pub(super) fn confirm_all(&self) -> Result<(), Cause> {
        let next = lock(&self.lent).next;
        self.confirm(next)
    }

    fn sync(&self) -> Result<(), Cause> {
        let ledger = lock(&self.lent).ledger.clone();
        if let Some(ledger) = ledger {
            ledger.sync()?;
            self.queue.sync()?;
        }
        Ok(())
    }
}

impl Recording for Lending {
    fn sync(&self) -> Result<(), Cause> {
        self.desks.iter().try_for_each(Desk::sync)
    }

    fn commit(&self, positions: &[(&str, Position)]) -> Result<(), Cause> {
        for (partition, position) in positions {
            // A partition that the source no longer has keeps its position for the day on which it has it again.
            if let Some(desk) = self.desks.iter().find(|desk| desk.name == *partition) {
                desk.confirm(*position)?;
            }
        }
        Ok(())
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        for desk in &self.desks {
            let batches = std::mem::take(&mut lock(&desk.lent).batches);
            let ids = batches.into_iter().flat_map(|(_, note, _)| note.ids);
            desk.queue.take_back(ids);
        }
    }
}
