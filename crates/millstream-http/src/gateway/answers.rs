//! Requests that wait for the answers of their calls: the first outputs that the calls cause.
//!
//! A request is registered before its call is recorded, under the lock that an output is delivered with, so that no
//! output passes it. The outputs of a service are read only while requests wait.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millstream_flow::error::Cause;
use millstream_journal::{Error, Journal, Options};
use millstream_service::{Effect, Effects};
use tokio::sync::oneshot;

use super::item::CallItems;
use super::search::{Answer, Found, Search, output};
use super::state::State;
use crate::lock;

/// How long a wait for outputs lasts before a stop is noticed.
const LOOK: Duration = Duration::from_millis(200);

/// The number of the next request that waits.
static TICKETS: AtomicU64 = AtomicU64::new(0);

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
    /// By the identity of the journal of the call, its number, and that of the request: a call may be posted again
    /// while its answer is waited for.
    requests: BTreeMap<(u128, u64, u64), Arc<Waiter>>,
}

/// A request, which may wait for the outputs of several services.
struct Waiter {
    left: Mutex<(usize, Option<oneshot::Sender<Answer>>)>,
}

impl Waiter {
    /// The call has this answer, or none of one service.
    fn answer(&self, answer: Answer) {
        let mut left = lock(&self.left);
        left.0 = left.0.saturating_sub(1);
        if (!matches!(answer, Answer::Nothing) || left.0 == 0)
            && let Some(sender) = left.1.take()
        {
            // The request may have waited long enough.
            let _ = sender.send(answer);
        }
    }
}

/// An answer that a request waits for. It ends the wait when it is dropped.
pub(super) struct Pending {
    pub(super) received: oneshot::Receiver<Answer>,
    outputs: Arc<[Arc<Output>]>,
    /// The identity of the journal of the call, its number, and that of the request.
    call: (u128, u64, u64),
}

impl Drop for Pending {
    fn drop(&mut self) {
        for output in self.outputs.iter() {
            lock(&output.waiting).requests.remove(&self.call);
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
pub(super) struct Registration<'a> {
    outputs: &'a Arc<[Arc<Output>]>,
    locked: Vec<MutexGuard<'a, Waiting>>,
}

impl<'a> Registration<'a> {
    /// Begins before a call is recorded.
    pub(super) fn begin(outputs: &'a Arc<[Arc<Output>]>) -> Result<Self, Cause> {
        let locked: Result<Vec<_>, Error> = outputs
            .iter()
            .map(|output| {
                let mut waiting = lock(&output.waiting);
                if waiting.requests.is_empty() {
                    let journal = waiting.journal(&output.path)?;
                    waiting.from = journal.map_or(Ok(0), |journal| journal.next())?;
                }
                Ok(waiting)
            })
            .collect();
        let locked = locked?;
        Ok(Registration { outputs, locked })
    }

    /// Ends when the call is recorded: its answer is waited for.
    pub(super) fn end(self, journal: u128, sequence: u64) -> Pending {
        self.end_at(journal, sequence, |_| true)
    }

    /// The same, with those of the outputs in which the answer may come.
    fn end_at(self, journal: u128, sequence: u64, may_find: impl Fn(usize) -> bool) -> Pending {
        let (sender, received) = oneshot::channel();
        let call = (journal, sequence, TICKETS.fetch_add(1, Ordering::Relaxed));
        let outputs = self.outputs.iter().zip(self.locked).enumerate();
        let left: Vec<_> = outputs.filter(|(at, _)| may_find(*at)).collect();
        let waiter = Arc::new(Waiter {
            left: Mutex::new((left.len(), Some(sender))),
        });
        for (_, (output, mut waiting)) in left {
            waiting.requests.insert(call, Arc::clone(&waiter));
            output.changed.notify_all();
        }
        Pending {
            received,
            outputs: Arc::clone(self.outputs),
            call,
        }
    }
}

/// What a request receives whose call was recorded before.
pub(super) enum Again {
    /// The answer was there.
    Answered(Answer),
    /// It is waited for.
    Pending(Pending),
}

/// The answer of a call that was recorded before: it may be there already, or is waited for. The outputs are searched,
/// which may read a segment of each.
pub(super) fn answer_again(
    outputs: &Arc<[Arc<Output>]>,
    calls: &Journal,
    sequence: u64,
) -> Result<Again, Cause> {
    let journal = calls.lineage()?;
    let called_ns = match calls.reader()?.read(sequence) {
        Ok(record) => Some(record.time_ns),
        Err(Error::Pruned { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let search = |_| Search::new(journal, sequence, called_ns);
    let mut searches: Vec<Search> = outputs.iter().map(search).collect();
    for (search, output) in searches.iter_mut().zip(outputs.iter()) {
        let found = lock(&output.waiting).journal(&output.path)?;
        search.look(found.as_ref())?;
    }
    // What has come meanwhile is looked at under the lock, so that no output passes the request.
    let mut registration = Registration::begin(outputs)?;
    for (at, search) in searches.iter_mut().enumerate() {
        let path = &outputs[at].path;
        let found = registration.locked[at].journal(path)?;
        search.look(found.as_ref())?;
    }
    let answers = searches.iter().filter_map(|search| match &search.found {
        Found::Answer(time_ns, answer) => Some((time_ns, answer)),
        Found::NotYet => None,
    });
    // An output comes before the statement that there is none.
    if let Some((_, answer)) = answers.min_by_key(|(time_ns, _)| **time_ns)
        && (!matches!(answer, Answer::Nothing) || !searches.iter().any(Search::may_find))
    {
        return Ok(Again::Answered(answer.clone()));
    }
    let may_find = |at: usize| searches[at].may_find();
    Ok(Again::Pending(
        registration.end_at(journal, sequence, may_find),
    ))
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

    /// An output is the answer of its cause, and earlier calls of the same journal have none: a service takes them in
    /// order.
    fn take(&self, effect: Effect, journal: &Journal, items: &mut CallItems) -> Result<(), Cause> {
        let mut waiting = lock(&self.waiting);
        let passed = (effect.journal, 0, 0)..=(effect.journal, effect.cause, u64::MAX);
        let passed: Vec<_> = { waiting.requests.range(passed) }
            .map(|(call, _)| *call)
            .collect();
        for call in passed {
            let answer = if call.1 == effect.cause {
                output(journal, effect.sequence, items)?.1
            } else {
                Answer::Nothing
            };
            if let Some(waiter) = waiting.requests.remove(&call) {
                waiter.answer(answer);
            }
        }
        Ok(())
    }
}
