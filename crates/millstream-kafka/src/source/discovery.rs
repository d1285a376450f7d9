//! The thread of a run that watches its topics: it looks for partitions that are added, and for topics that were
//! deleted or created anew, and reports the lag of partitions from the statistics of the client.
//!
//! A partition that is found is passed to the engine with the offset of its oldest message, so that no worker waits for
//! a broker.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::topics::Topics;
use crate::client::Topic;
use crate::error::Error;

/// The interval between two reports of lag, in seconds.
const TICK_SECONDS: u64 = 1;

/// A partition that was added to a topic during the run.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) topic: String,
    pub(super) number: i32,
    /// The offset of its oldest message.
    pub(super) first: i64,
}

/// What the thread has found.
#[derive(Default)]
pub(super) struct Discovery {
    state: Mutex<State>,
    stopped: Condvar,
    has_failed: AtomicBool,
    /// The engine takes in partitions that are found.
    takes_in: AtomicBool,
}

#[derive(Default)]
struct State {
    stops: bool,
    failure: Option<Error>,
    found: Vec<Found>,
}

impl Discovery {
    /// Starts to watch a run, and to look for changes at an interval.
    pub(super) fn start(self: &Arc<Self>, topics: Weak<Topics>, interval: Option<Duration>) {
        let this = Arc::clone(self);
        let thread = std::thread::Builder::new().name("millstream-kafka".to_owned());
        let started = thread.spawn(move || this.watch(&topics, interval));
        if let Err(error) = started {
            tracing::warn!("no thread to look for new partitions: {error}");
        }
    }

    fn watch(&self, topics: &Weak<Topics>, interval: Option<Duration>) {
        let ticks = interval.map(|interval| interval.as_secs().div_ceil(TICK_SECONDS).max(1));
        let mut ticked = 0;
        let mut counts = topics
            .upgrade()
            .map(|topics| topics.counts())
            .unwrap_or_default();
        while self.waits() {
            let Some(topics) = topics.upgrade() else {
                return;
            };
            topics.report_lags();
            ticked += 1;
            if ticks.is_some_and(|ticks| ticked % ticks == 0)
                && let Some(failure) = self.look(&topics, &mut counts)
            {
                self.lock().failure = Some(failure);
                self.has_failed.store(true, Ordering::Release);
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next tick; returns false if the run is over.
    fn waits(&self) -> bool {
        let state = self.lock();
        let tick = Duration::from_secs(TICK_SECONDS);
        let waited = self
            .stopped
            .wait_timeout_while(state, tick, |state| !state.stops);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.stops
    }

    /// Stops to watch.
    pub(super) fn stop(&self) {
        self.lock().stops = true;
        self.stopped.notify_all();
    }

    /// Returns an error that was found: a topic without partitions, with fewer, or another one of the same name.
    pub(super) fn failure(&self) -> Option<Error> {
        if self.has_failed.load(Ordering::Acquire) {
            self.lock().failure.clone()
        } else {
            None
        }
    }

    /// The engine takes in the partitions that are found.
    pub(super) fn engine_takes_in(&self) {
        self.takes_in.store(true, Ordering::Relaxed);
    }

    /// Returns the partitions that were found, without the first `skip`.
    pub(super) fn found(&self, skip: usize) -> Vec<Found> {
        self.lock().found.iter().skip(skip).cloned().collect()
    }

    /// Compares the topics with what is known of them.
    fn look(&self, topics: &Topics, counts: &mut HashMap<String, usize>) -> Option<Error> {
        for (name, known) in counts {
            match topics.control.topic(name) {
                Ok(topic) => {
                    if let Err(error) = topics.check_same(name, &topic) {
                        return Some(error);
                    }
                    if let Some(error) = self.compare(topics, name, &topic, known) {
                        return Some(error);
                    }
                }
                Err(error @ Error::NoTopic { .. }) => return Some(error),
                // Without a broker nothing is known; the partitions themselves report that.
                Err(_) => {}
            }
        }
        None
    }

    fn compare(
        &self,
        topics: &Topics,
        name: &str,
        topic: &Topic,
        known: &mut usize,
    ) -> Option<Error> {
        if topic.partitions < *known {
            return Some(Error::NoPartition {
                topic: name.to_owned(),
                partition: *known as i32 - 1,
                found: topic.partitions,
            });
        }
        if topic.partitions > *known && !self.takes_in.load(Ordering::Relaxed) {
            tracing::warn!(
                "topic \"{name}\" has {} partitions, and this run reads {known}: the next start reads the new ones, from their \
                 oldest message",
                topic.partitions
            );
            *known = topic.partitions;
        }
        while *known < topic.partitions {
            let number = *known as i32;
            // A partition that has no leader yet is found the next time.
            let Ok((first, _)) = topics.control.bounds((name, number)) else {
                break;
            };
            tracing::info!("topic \"{name}\" has a new partition, {number}");
            self.lock().found.push(Found {
                topic: name.to_owned(),
                number,
                first,
            });
            *known += 1;
        }
        None
    }
}
