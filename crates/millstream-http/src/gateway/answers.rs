//! Requests that wait for the answers of their calls: the first outputs that the calls cause.
//!
//! A request is registered before its call is recorded, under the lock that an output is delivered with, so that no output passes it. The
//! outputs of a service are read only while requests wait.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millstream_flow::error::Cause;
use millstream_journal::{Error, Journal, Options};
use millstream_service::{Effect, Effects};
use tokio::sync::oneshot;

use super::item::CallItems;
use super::state::State;
use crate::lock;

/// How long a wait for outputs lasts before a stop is noticed.
const LOOK: Duration = Duration::from_millis(200);

/// What a request receives: the output as JSON, or nothing if the call caused none.
pub(super) type Received = oneshot::Receiver<Option<String>>;

/// The outputs of a service, and the requests that wait for one of them.
pub(super) struct Output {
    path: PathBuf,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    journal: Option<Journal>,
    /// The first output that may be an answer, when the first request came.
    from: u64,
    /// By the identity of the journal of the call, and its number.
    requests: BTreeMap<(u128, u64), Arc<Waiter>>,
}

/// A request, which may wait for the outputs of several services.
struct Waiter {
    left: Mutex<(usize, Option<oneshot::Sender<Option<String>>>)>,
}

impl Waiter {
    /// The call has this answer, or none of one service.
    fn answer(&self, text: Option<String>) {
        let mut left = lock(&self.left);
        left.0 = left.0.saturating_sub(1);
        if (text.is_some() || left.0 == 0)
            && let Some(sender) = left.1.take()
        {
            // The request may have waited long enough.
            let _ = sender.send(text);
        }
    }
}

impl Waiting {
    /// The journal, if it exists yet.
    fn journal(&mut self, path: &PathBuf) -> Result<Option<Journal>, Error> {
        if self.journal.is_none() {
            self.journal = match Journal::open(path, Options::read_only()) {
                Err(Error::NotFound { .. }) => None,
                journal => Some(journal?),
            };
        }
        Ok(self.journal.clone())
    }
}

/// The outputs with which calls of one journal are answered, locked: none is delivered meanwhile.
pub(super) struct Registration<'a>(Vec<(&'a Output, MutexGuard<'a, Waiting>)>);

impl<'a> Registration<'a> {
    /// Begins before a call is recorded.
    pub(super) fn begin(outputs: &'a [Arc<Output>]) -> Result<Self, Cause> {
        let begun: Result<Vec<_>, Error> = outputs
            .iter()
            .map(|output| {
                let mut waiting = lock(&output.waiting);
                if waiting.requests.is_empty() {
                    let journal = waiting.journal(&output.path)?;
                    waiting.from = journal.map_or(Ok(0), |journal| journal.next())?;
                }
                Ok((&**output, waiting))
            })
            .collect();
        Ok(Registration(begun?))
    }

    /// Ends when the call is recorded: its answer is waited for.
    pub(super) fn end(self, journal: u128, sequence: u64) -> Received {
        let (sender, received) = oneshot::channel();
        let waiter = Arc::new(Waiter {
            left: Mutex::new((self.0.len(), Some(sender))),
        });
        for (output, mut waiting) in self.0 {
            waiting
                .requests
                .insert((journal, sequence), Arc::clone(&waiter));
            output.changed.notify_all();
        }
        received
    }
}

impl Output {
    pub(super) fn new(path: PathBuf) -> Self {
        Output {
            path,
            waiting: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A request no longer waits.
    pub(super) fn forget(&self, journal: u128, sequence: u64) {
        lock(&self.waiting).requests.remove(&(journal, sequence));
    }

    /// Delivers answers until the gateway is stopped; then the requests that wait have none.
    pub(super) fn run(&self, state: &State) -> Result<(), Cause> {
        let done = self.deliver(state);
        lock(&self.waiting).requests.clear();
        done
    }

    fn deliver(&self, state: &State) -> Result<(), Cause> {
        while !state.is_stopped() {
            let Some((journal, from)) = self.first_request()? else {
                continue;
            };
            let mut effects = Effects::of(&journal, from)?;
            let mut items = CallItems::of(&journal);
            while !state.is_stopped() && self.is_waited_for() {
                match effects.next_effect()? {
                    Some(effect) => self.take(effect, &journal, &mut items)?,
                    None => drop(effects.wait(LOOK)?),
                }
            }
        }
        Ok(())
    }

    /// Waits for a request, for a short time.
    fn first_request(&self) -> Result<Option<(Journal, u64)>, Cause> {
        let idle = |waiting: &mut Waiting| waiting.requests.is_empty();
        let waited = self
            .changed
            .wait_timeout_while(lock(&self.waiting), LOOK, idle);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if waiting.requests.is_empty() {
            return Ok(None);
        }
        let from = waiting.from;
        match waiting.journal(&self.path)? {
            Some(journal) => Ok(Some((journal, from))),
            None => {
                drop(waiting);
                std::thread::park_timeout(LOOK);
                Ok(None)
            }
        }
    }

    fn is_waited_for(&self) -> bool {
        !lock(&self.waiting).requests.is_empty()
    }

    /// An output is the answer of its cause, and earlier calls of the same journal have none: a service takes them in order.
    fn take(&self, effect: Effect, journal: &Journal, items: &mut CallItems) -> Result<(), Cause> {
        let mut waiting = lock(&self.waiting);
        if let Some(waiter) = waiting.requests.remove(&(effect.journal, effect.cause)) {
            let mut reader = journal.reader()?;
            let item = items.item(&reader.read(effect.sequence)?)?;
            waiter.answer(item.map(|item| item.text.to_string()));
        }
        let earlier = (effect.journal, 0)..(effect.journal, effect.cause);
        let passed: Vec<_> = waiting
            .requests
            .range(earlier)
            .map(|(key, _)| *key)
            .collect();
        for key in passed {
            if let Some(waiter) = waiting.requests.remove(&key) {
                waiter.answer(None);
            }
        }
        Ok(())
    }
}
