//! Queues that could not be opened.
//!
//! A damaged queue stays closed, with its files unchanged, until it is deleted or the server restarts. A queue that the
//! system refused to open, for lack of disk space or files, is opened again at a later request.

use std::collections::BTreeMap;

use millstream_journal::Error as Fault;
use millstream_journal::chain;
use tracing::warn;

use crate::error::QueueError;
use crate::moment::Moment;

/// The time between two attempts to open a queue that the system refused to open.
const RETRY_US: u64 = 1_000_000;
/// The number of queues that are tried together, so that no request waits long for it.
const RETRIES: usize = 64;

/// All closed queues, by name.
#[derive(Debug, Default)]
pub(super) struct ClosedQueues(BTreeMap<String, Closed>);

#[derive(Debug)]
struct Closed {
    reason: String,
    /// When the queue may be opened again, on the steady clock; `None` if it is damaged.
    retry_us: Option<u64>,
    /// Whether the directory holds something that is not a queue.
    foreign: bool,
    /// The number of items of which the queue got no copy since it is closed, as `on_closed` says.
    skipped: u64,
}

impl ClosedQueues {
    /// Each closed queue: name, and reason.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, closed)| (name.as_str(), closed.reason.as_str()))
    }

    /// Note that a queue cannot be opened.
    pub(super) fn insert(&mut self, name: String, error: &QueueError, now: Moment) {
        let retry_us = (!is_damage(error)).then(|| now.steady_us.saturating_add(RETRY_US));
        let closed = Closed {
            reason: chain(error).to_string(),
            retry_us,
            foreign: is_foreign(error),
            skipped: self.0.get(&name).map_or(0, |closed| closed.skipped),
        };
        self.0.insert(name, closed);
    }

    /// Note that a fan-out queue gets no copy of an item.
    pub(super) fn skip(&mut self, name: &str) {
        if let Some(closed) = self.0.get_mut(name) {
            if closed.skipped == 0 {
                warn!(
                    "queue \"{name}\" is closed and gets no copies, as its on_closed says: {}",
                    closed.reason
                );
            }
            closed.skipped += 1;
        }
    }

    /// Note that a queue was opened or deleted. Returns the number of items of which it got no copy.
    pub(super) fn remove(&mut self, name: &str) -> u64 {
        self.0.remove(name).map_or(0, |closed| closed.skipped)
    }

    /// Whether a queue is closed for a reason that may no longer hold.
    pub(super) fn may_reopen(&self, name: &str, now: Moment) -> bool {
        let closed = self.0.get(name);
        closed.is_some_and(|closed| closed.retry_us.is_some_and(|at| at <= now.steady_us))
    }

    /// The time of the next attempt to open a queue, on the steady clock.
    pub(super) fn next_retry(&self) -> Option<u64> {
        self.0.values().filter_map(|closed| closed.retry_us).min()
    }

    /// Some queues that may be opened again.
    pub(super) fn due(&self, now: Moment) -> Vec<String> {
        let due = self.0.keys().filter(|name| self.may_reopen(name, now));
        due.take(RETRIES).cloned().collect()
    }

    /// The fan-out queues of `parent` that are closed.
    pub(super) fn children_of(&self, parent: &str) -> Vec<String> {
        let children = self
            .0
            .keys()
            .filter(|name| crate::name::parent(name) == Some(parent));
        children.cloned().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a queue is closed and its files may be deleted.
    ///
    /// # Errors
    /// The directory never was a queue: it is not deleted.
    pub(super) fn may_delete(&self, name: &str) -> Result<bool, QueueError> {
        match self.0.get(name) {
            None => Ok(false),
            Some(closed) if closed.foreign => self.check_not_closed(name).map(|()| false),
            Some(_) => Ok(true),
        }
    }

    /// A closed queue must not pass for an empty one.
    ///
    /// # Errors
    /// The queue is closed.
    #[cold]
    pub(super) fn check_not_closed(&self, name: &str) -> Result<(), QueueError> {
        match self.0.get(name) {
            None => Ok(()),
            Some(closed) => Err(QueueError::Closed {
                queue: name.to_owned(),
                reason: closed.reason.clone(),
            }),
        }
    }
}

/// Whether another attempt to open the queue cannot succeed.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(cause: impl Into<crate::Cause>) -> QueueError {
        QueueError::Storage {
            queue: "q".to_owned(),
            cause: cause.into(),
        }
    }

    #[test]
    fn only_a_refusal_of_the_system_is_tried_again_and_a_foreign_directory_is_never_deleted() {
        let mut closed = ClosedQueues::default();
        let at = |steady_us| Moment {
            wall_ms: 0,
            steady_us,
        };
        closed.insert("refused".to_owned(), &storage("no files left"), at(5));
        let damaged = QueueError::Record {
            queue: "damaged".to_owned(),
            position: 3,
            what: "bad".into(),
        };
        closed.insert("damaged".to_owned(), &damaged, at(5));
        let foreign = Fault::NotAJournal {
            path: "photos".into(),
            why: "no segment".to_owned(),
        };
        closed.insert("photos".to_owned(), &storage(foreign), at(5));

        assert!(!closed.may_reopen("refused", at(RETRY_US)));
        assert!(closed.may_reopen("refused", at(RETRY_US + 5)));
        assert!(!closed.may_reopen("damaged", at(u64::MAX)));
        assert!(!closed.may_reopen("photos", at(u64::MAX)));
        assert!(!closed.may_reopen("other", at(u64::MAX)));
        assert!(matches!(closed.may_delete("damaged"), Ok(true)));
        assert!(matches!(closed.may_delete("other"), Ok(false)));
        assert!(closed.may_delete("photos").is_err());
        assert!(closed.check_not_closed("refused").is_err());
        closed.remove("refused");
        assert!(closed.check_not_closed("refused").is_ok());
        let names: Vec<_> = closed.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["damaged", "photos"]);
    }
}
