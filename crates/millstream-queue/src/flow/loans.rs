//! The lent items of a source: taken from its queues and not confirmed, in one run.
//!
//! The invariant: a taken item is confirmed after its epoch is committed, or is in the queue again after the run,
//! however the run ends.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::Item;
use crate::embedded::Queue;
use millstream_flow::error::Cause;
use millstream_flow::source::{Position, Recording};

use super::ledger::{Ledger, Note};
use super::lock;

/// The lent items of one queue.
pub(super) struct LentQueue {
    pub(super) name: String,
    pub(super) queue: Queue,
    loans: Mutex<Loans>,
}

#[derive(Default)]
struct Loans {
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
pub(super) struct LentQueues {
    pub(super) queues: Vec<LentQueue>,
}

impl LentQueue {
    pub(super) fn new(name: &str, queue: Queue) -> Self {
        LentQueue {
            name: name.to_owned(),
            queue,
            loans: Mutex::default(),
        }
    }

    /// From now on batches are noted in a ledger, and confirmed at commits.
    pub(super) fn attach_ledger(&self, ledger: Arc<Ledger>, next: u64) {
        let mut loans = lock(&self.loans);
        (loans.ledger, loans.next) = (Some(ledger), next);
    }

    /// The position after the last batch.
    pub(super) fn next(&self) -> u64 {
        lock(&self.loans).next
    }

    /// Records a batch that was taken. Returns the position after it.
    pub(super) fn record(&self, items: &[Item]) -> Result<u64, Cause> {
        let note = Note::of(items);
        let bytes = items.iter().map(|item| item.body.len()).sum();
        let mut loans = lock(&self.loans);
        // A batch that cannot be noted is returned with the others.
        let position = loans.next;
        let written = loans.ledger.as_ref().map(|ledger| ledger.write(&note));
        loans.items += items.len();
        loans.bytes += bytes;
        loans.next += 1;
        loans.batches.push_back((position, note, bytes));
        match written.transpose()? {
            Some(written) if written != position => {
                Err(format!("note {position} of the ledger became number {written}").into())
            }
            _ => Ok(position + 1),
        }
    }

    /// The number of items and bytes that are not confirmed.
    pub(super) fn outstanding(&self) -> (usize, usize) {
        let loans = lock(&self.loans);
        (loans.items, loans.bytes)
    }

    /// Removes the items of all batches before this position from the queue.
    pub(super) fn confirm(&self, before: u64) -> Result<(), Cause> {
        let mut loans = lock(&self.loans);
        while let Some((position, ..)) = loans.batches.front()
            && *position < before
            && let Some((_, note, bytes)) = loans.batches.pop_front()
        {
            loans.items -= note.ids.len();
            loans.bytes -= bytes;
            self.queue.confirm_lent(note.ids, note.added_by_ms)?;
        }
        // The removals of the previous commit were synced with it, if there were any.
        if let (Some(ledger), Some(confirmed)) = (&loans.ledger, loans.confirmed) {
            ledger.prune(confirmed)?;
        }
        loans.confirmed = Some(before);
        Ok(())
    }

    /// Removes the items of all batches from the queue: the flow has processed them.
    pub(super) fn confirm_all(&self) -> Result<(), Cause> {
        let next = lock(&self.loans).next;
        self.confirm(next)
    }

    fn sync(&self) -> Result<(), Cause> {
        let ledger = lock(&self.loans).ledger.clone();
        if let Some(ledger) = ledger {
            ledger.sync()?;
            self.queue.sync()?;
        }
        Ok(())
    }
}

impl Recording for LentQueues {
    fn sync(&self) -> Result<(), Cause> {
        self.queues.iter().try_for_each(LentQueue::sync)
    }

    fn commit(&self, positions: &[(&str, Position)]) -> Result<(), Cause> {
        for (partition, position) in positions {
            // A partition that the source no longer has keeps its position, in case it returns.
            if let Some(queue) = self.queues.iter().find(|queue| queue.name == *partition) {
                queue.confirm(position.require_number()?)?;
            }
        }
        Ok(())
    }
}

impl Drop for LentQueues {
    fn drop(&mut self) {
        for queue in &self.queues {
            let batches = std::mem::take(&mut lock(&queue.loans).batches);
            let ids = batches.into_iter().flat_map(|(_, note, _)| note.ids);
            queue.queue.return_lent(ids);
        }
    }
}
