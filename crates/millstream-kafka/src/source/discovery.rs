//! Looks for partitions that are added to the topics of a run.
//!
//! A run reads the partitions that there are when it begins. A partition that is added later is reported; the next start reads it,
//! from its oldest message.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::client::Consumer;
use crate::error::Error;

/// The interval between two questions.
const INTERVAL: Duration = Duration::from_secs(60);

/// The thread that looks, and what it has found.
#[derive(Default)]
pub(super) struct Discovery {
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Default)]
struct State {
    stops: bool,
    failure: Option<Error>,
}

impl Discovery {
    /// Starts to look.
    pub(super) fn start(control: &Arc<dyn Consumer>, counts: &HashMap<String, usize>) -> Arc<Self> {
        let discovery = Arc::new(Discovery::default());
        let (this, control) = (Arc::clone(&discovery), Arc::downgrade(control));
        let mut counts = counts.clone();
        let thread = std::thread::Builder::new().name("millstream-kafka".to_owned());
        let started = thread.spawn(move || {
            while this.waits() {
                let Some(failure) = look(&control, &mut counts) else {
                    continue;
                };
                this.lock().failure = Some(failure);
                return;
            }
        });
        if let Err(error) = started {
            tracing::warn!("no thread to look for new partitions: {error}");
        }
        discovery
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next question; returns false if the run is over.
    fn waits(&self) -> bool {
        let state = self.lock();
        let waited = self
            .stopped
            .wait_timeout_while(state, INTERVAL, |state| !state.stops);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.stops
    }

    /// Stops to look.
    pub(super) fn stop(&self) {
        self.lock().stops = true;
        self.stopped.notify_all();
    }

    /// Returns an error that was found: a topic with fewer partitions, or without any.
    pub(super) fn failure(&self) -> Option<Error> {
        self.lock().failure.clone()
    }
}

/// Compares the numbers of partitions with those that are known.
fn look(control: &Weak<dyn Consumer>, counts: &mut HashMap<String, usize>) -> Option<Error> {
    let control = control.upgrade()?;
    for (topic, known) in counts {
        match control.partitions(topic) {
            Ok(found) if found > *known => {
                tracing::warn!(
                    "topic \"{topic}\" has {found} partitions, and this run reads {known}: stop the flow and start it again, \
                     and it reads the new ones from their oldest message"
                );
                *known = found;
            }
            Ok(found) if found < *known => {
                return Some(Error::NoPartition {
                    topic: topic.clone(),
                    partition: *known as i32 - 1,
                    found,
                });
            }
            Err(error @ Error::NoTopic { .. }) => return Some(error),
            // Without a broker nothing is known; the partitions themselves report that.
            Ok(_) | Err(_) => {}
        }
    }
    None
}
