//! Queues that could not be opened.
//!
//! A damaged queue stays closed, with its files as they are, until it is deleted or the server starts again. One that the system refused to
//! open, for want of disk space or files, is opened at a later request.

use millstream_journal::Error as Fault;

use super::Queues;
use crate::error::QueueError;
use crate::moment::Moment;
use crate::storage::Storage;

/// The time between two attempts to open a queue that the system refused to open.
const RETRY_US: u64 = 1_000_000;

/// A queue that could not be opened.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) reason: String,
    /// When it may be tried again, on the steady clock; never for a damaged one.
    retry_us: Option<u64>,
    /// Whether the directory holds something that is no queue.
    foreign: bool,
}

impl<S: Storage> Queues<S> {
    /// The queues that are kept closed: name, and why.
    pub fn closed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.closed
            .iter()
            .map(|(name, closed)| (name.as_str(), closed.reason.as_str()))
    }

    /// Note that a queue cannot be opened.
    pub(super) fn keep_closed(&mut self, name: String, error: &QueueError, now: Moment) {
        let retry_us = (!is_damage(error)).then(|| now.steady_us.saturating_add(RETRY_US));
        let closed = Closed {
            reason: error.to_string(),
            retry_us,
            foreign: is_foreign(error),
        };
        self.closed.insert(name, closed);
    }

    /// Whether a queue is closed for a reason that may have gone.
    pub(super) fn may_reopen(&self, name: &str, now: Moment) -> bool {
        let closed = self.closed.get(name);
        closed.is_some_and(|closed| closed.retry_us.is_some_and(|at| at <= now.steady_us))
    }

    /// A queue that is kept closed is not an empty one.
    #[cold]
    pub(crate) fn refuse_closed(&self, name: &str) -> Result<(), QueueError> {
        match self.closed.get(name) {
            None => Ok(()),
            Some(closed) => Err(QueueError::Closed {
                queue: name.to_owned(),
                reason: closed.reason.clone(),
            }),
        }
    }

    /// Remove a queue that is kept closed, with its files; whether there was one. What never was a queue stays.
    pub(super) fn delete_closed(&mut self, name: &str) -> Result<bool, QueueError> {
        match self.closed.get(name) {
            None => return Ok(false),
            Some(closed) if closed.foreign => self.refuse_closed(name)?,
            Some(_) => {}
        }
        self.storage
            .remove(name)
            .map_err(|cause| QueueError::Storage {
                queue: name.to_owned(),
                cause,
            })?;
        self.closed.remove(name);
        self.counters.queue_deletes += 1;
        Ok(true)
    }
}

/// Whether opening again cannot help.
fn is_damage(error: &QueueError) -> bool {
    let of_journal = matches!(
        of_journal(error),
        Some(Fault::Damage { .. } | Fault::Version { .. })
    );
    of_journal || is_foreign(error) || matches!(error, QueueError::Record { .. })
}

fn is_foreign(error: &QueueError) -> bool {
    matches!(of_journal(error), Some(Fault::NotAJournal { .. }))
}

fn of_journal(error: &QueueError) -> Option<&Fault> {
    match error {
        QueueError::Storage { cause, .. } => cause.downcast_ref(),
        _ => None,
    }
}
