//! What is known of the topics of a run, and the clients that know it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::progress::Progress;
use crate::client::{Consumer, Topic};
use crate::error::Error;

/// The topics of a run.
pub(super) struct Topics {
    /// A client for questions; it fetches nothing.
    pub(super) control: Arc<dyn Consumer>,
    /// What was known of each topic at the start of the run.
    known: HashMap<String, Topic>,
    /// The consumer of each worker.
    consumers: Mutex<HashMap<usize, Arc<dyn Consumer>>>,
    /// The progress of the open partitions.
    progress: Mutex<Vec<Weak<Progress>>>,
}

impl Topics {
    pub(super) fn new(control: Arc<dyn Consumer>, known: HashMap<String, Topic>) -> Self {
        Topics {
            control,
            known,
            consumers: Mutex::default(),
            progress: Mutex::default(),
        }
    }

    /// The number of partitions of each topic at the start of the run.
    pub(super) fn counts(&self) -> HashMap<String, usize> {
        let known = self.known.iter();
        known
            .map(|(name, topic)| (name.clone(), topic.partitions))
            .collect()
    }

    /// The number of partitions of a topic at the start of the run.
    pub(super) fn count(&self, name: &str) -> Option<usize> {
        Some(self.known.get(name)?.partitions)
    }

    /// Returns a partition that had no leader at the start of the run.
    pub(super) fn leaderless(&self) -> Option<(&str, i32)> {
        let mut known = self.known.iter();
        known.find_map(|(name, topic)| Some((name.as_str(), topic.leaderless?)))
    }

    /// Returns the identity of a topic, if it is known.
    pub(super) fn topic_id(&self, name: &str) -> Option<&str> {
        self.known.get(name)?.id.as_deref()
    }

    /// Checks that a topic has the identity that was saved with a position.
    pub(super) fn check_id(&self, name: &str, saved: Option<&str>) -> Result<(), Error> {
        check_ids(name, saved, self.topic_id(name))
    }

    /// Checks that a topic is the one that it was at the start of the run.
    pub(super) fn check_same(&self, name: &str, found: &Topic) -> Result<(), Error> {
        check_ids(name, self.topic_id(name), found.id.as_deref())
    }

    /// Reports the lag of a partition from now on, while it is open.
    pub(super) fn watch(&self, progress: &Arc<Progress>) {
        self.lock_progress().push(Arc::downgrade(progress));
    }

    /// Reports the lag of all open partitions.
    pub(super) fn report_lags(&self) {
        let consumers = self.lock_consumers();
        let consumers: Vec<_> = { consumers }.values().cloned().collect();
        for consumer in consumers {
            consumer.serve();
        }
        self.lock_progress().retain(|progress| {
            let progress = progress.upgrade();
            progress.inspect(|progress| progress.report()).is_some()
        });
    }

    fn lock_progress(&self) -> MutexGuard<'_, Vec<Weak<Progress>>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The consumer of each worker.
    pub(super) fn lock_consumers(&self) -> MutexGuard<'_, HashMap<usize, Arc<dyn Consumer>>> {
        self.consumers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks that two identities of a topic are the same, if both are known.
fn check_ids(name: &str, known: Option<&str>, found: Option<&str>) -> Result<(), Error> {
    match (known, found) {
        (Some(known), Some(found)) if known != found => Err(Error::Recreated {
            topic: name.to_owned(),
            known: known.to_owned(),
            found: found.to_owned(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_that_is_not_known_is_no_other_topic() {
        for (known, found) in [
            (None, None),
            (None, Some("b")),
            (Some("a"), None),
            (Some("a"), Some("a")),
        ] {
            assert_eq!(check_ids("t", known, found), Ok(()));
        }
        let error = check_ids("t", Some("a"), Some("b")).unwrap_err();
        assert!(matches!(error, Error::Recreated { .. }), "{error}");
    }
}
