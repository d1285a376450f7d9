//! The committer: group commit, one sync for all replies that wait for it.
//!
//! A sync covers all that was appended before it begins. What is appended meanwhile is covered by the next sync,
//! which begins as soon as the current one ends. Syncs run on a thread of their own, so that a slow disk delays only
//! the replies that wait for it. For a single client the wake-up of that thread would only cost time: then the thread
//! of the connections syncs by itself, until other connections are seen to have waited for it.
//!
//! The invariant: commit number `n` is complete only after a sync that began after all its records were appended.

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_journal::chain;
use millstream_replication::Served;
use tokio::sync::Notify;
use tracing::{error, info, warn};

use super::core::{Core, State};
use crate::clock;
use crate::error::Cause;
use crate::pair::{Keeper, Standing};
use crate::replica::ReplicatedSyncing;
use crate::storage::Syncing;

/// The number of consecutive commits after which the other placement is used.
const AGAINST_MAX: u32 = 3;

/// How often a wait for a follower looks whether the server stops, and a commit whether there is room for its change.
const LOOK: Duration = Duration::from_millis(100);
/// A longer wait for a follower holds the connections: what they ask is not done, since it could not be answered.
const PATIENCE_US: u64 = 1_000_000;

/// How often a commit waits for more input before it begins, at most.
const GATHERS: u32 = 4;

/// Runs the syncs, on the calling thread or on its own.
pub(super) struct Committer {
    syncs: Arc<SyncQueue<ReplicatedSyncing>>,
    placement: Cell<Placement>,
    /// Whether a commit waits for a follower, which takes place on the thread.
    waits: bool,
    thread: Option<JoinHandle<()>>,
}

/// What the two threads share.
struct SyncQueue<L> {
    requests: Mutex<SyncRequests<L>>,
    /// Notified when there is something to sync, or the thread must stop.
    requested: Condvar,
    /// Notified when commits are complete.
    done: Notify,
}

struct SyncRequests<L> {
    /// Queues and their logs, each once.
    unsynced: Vec<(Arc<str>, L)>,
    /// The commits that are not complete.
    pending: Range<u64>,
    failed: Vec<Failure>,
    /// The durations of the syncs.
    took_us: Vec<u64>,
    /// The change that a follower must have, where answers wait for one.
    followed: Option<u64>,
    /// No follower has it for some time.
    is_held: bool,
    stopping: bool,
}

/// The second machine.
struct Second {
    served: Served,
    keeper: Option<Arc<Keeper>>,
}

impl Second {
    /// Waits for a moment until the followers have a change. Returns whether what follows from it may be answered now.
    fn wait(&mut self, change: u64) -> Result<bool, Cause> {
        let standing = self.keeper.as_ref().map(|keeper| keeper.standing());
        let is_alone = standing.is_some_and(Standing::is_alone);
        let has_all = is_alone || self.served.wait_for_all(change, LOOK)?;
        // After the followers: what is answered was true while the lease was held.
        let is_allowed = standing.is_none_or(Standing::may_answer);
        if has_all && !is_allowed {
            rest();
        }
        Ok(has_all && is_allowed)
    }

    fn why_not(&self) -> &'static str {
        match &self.keeper {
            Some(keeper) if !keeper.standing().may_answer() => {
                "the lease could not be renewed: nothing is answered until it is (--arbiter)"
            }
            _ => {
                "not all followers that count have acknowledged for a second: nothing is answered until they have"
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the lease is renewed by another thread"
)]
fn rest() {
    std::thread::sleep(LOOK);
}

/// A queue that could not be synced, and the commits that relied on it.
struct Failure {
    commits: Range<u64>,
    /// `None` where a follower was waited for.
    queue: Option<Arc<str>>,
    cause: Cause,
}

/// Where syncs run, learned from whether they made other connections wait.
#[derive(Clone, Copy, Debug, Default)]
struct Placement {
    on_thread: bool,
    /// Consecutive commits that favored the other placement.
    against: u32,
}

impl Placement {
    /// Records whether other connections had input during a commit.
    fn learn(&mut self, others: bool) {
        if others == self.on_thread {
            self.against = 0;
            return;
        }
        self.against += 1;
        if self.against >= AGAINST_MAX {
            *self = Placement {
                on_thread: others,
                against: 0,
            };
        }
    }
}

impl<L: Syncing> SyncQueue<L> {
    fn new() -> Self {
        SyncQueue {
            requests: Mutex::new(SyncRequests {
                unsynced: Vec::new(),
                pending: 0..0,
                failed: Vec::new(),
                took_us: Vec::new(),
                followed: None,
                is_held: false,
                stopping: false,
            }),
            requested: Condvar::new(),
            done: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SyncRequests<L>> {
        // No operation leaves the state incomplete while it holds the lock.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self, number: u64, unsynced: Vec<(Arc<str>, L)>, followed: Option<u64>) {
        let mut requests = self.lock();
        requests.followed = followed.or(requests.followed);
        if requests.pending.is_empty() {
            requests.pending.start = number;
        }
        requests.pending.end = number + 1;
        for (queue, log) in unsynced {
            let mut known = requests.unsynced.iter_mut();
            match known.find(|(known, _)| Arc::ptr_eq(known, &queue)) {
                // A handle may sync only what there was when it was made.
                Some((_, earlier)) => *earlier = log,
                None => requests.unsynced.push((queue, log)),
            }
        }
        drop(requests);
        self.requested.notify_one();
    }

    /// The thread: syncs until it must stop, and waits for a follower where there is one.
    fn run(&self, mut second: Option<Second>) {
        let mut requests = self.lock();
        loop {
            if requests.pending.is_empty() {
                if requests.stopping {
                    return;
                }
                requests = self
                    .requested
                    .wait(requests)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let covered = requests.pending.clone();
            let unsynced = std::mem::take(&mut requests.unsynced);
            let followed = requests.followed.take();
            drop(requests);
            let begin_us = clock::steady_us();
            let mut failed = sync(unsynced, &covered);
            let took_us = clock::steady_us() - begin_us;
            if let (Some(second), Some(change)) = (&mut second, followed) {
                match self.wait_for_follower(second, change) {
                    Ok(true) => {}
                    // The server stops: what waits is not answered.
                    Ok(false) => return,
                    Err(cause) => failed.push(Failure {
                        commits: covered.clone(),
                        queue: None,
                        cause,
                    }),
                }
            }
            requests = self.lock();
            requests.took_us.push(took_us);
            requests.pending.start = covered.end;
            requests.failed.extend(failed);
            self.done.notify_one();
        }
    }
}

impl<L> SyncQueue<L> {
    /// Waits until a follower has a change, and answers are allowed. Returns false when the server stops before.
    fn wait_for_follower(&self, second: &mut Second, change: u64) -> Result<bool, Cause> {
        let begin_us = clock::steady_us();
        let mut is_held = false;
        let outcome = loop {
            match second.wait(change) {
                Ok(false) => {}
                outcome => break outcome,
            }
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            if requests.stopping {
                return Ok(false);
            }
            if !is_held && clock::steady_us() - begin_us >= PATIENCE_US {
                is_held = true;
                requests.is_held = true;
                self.done.notify_one();
                warn!("{}", second.why_not());
            }
        };
        if is_held {
            self.requests
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_held = false;
            if outcome.is_ok() {
                info!("what is missing has come: the server goes on");
            }
        }
        outcome
    }
}

fn sync<L: Syncing>(unsynced: Vec<(Arc<str>, L)>, commits: &Range<u64>) -> Vec<Failure> {
    let failed = unsynced.into_iter().filter_map(|(queue, log)| {
        let cause = log.sync().err()?;
        let commits = commits.clone();
        Some(Failure {
            commits,
            queue: Some(queue),
            cause,
        })
    });
    failed.collect()
}

impl Committer {
    /// Starts the thread. Where answers wait for a follower, `served` knows which one has what, and the keeper of the
    /// lease whether answers are allowed.
    pub(super) fn start(served: Option<Served>, keeper: Option<Arc<Keeper>>) -> io::Result<Self> {
        let syncs = Arc::new(SyncQueue::new());
        let for_thread = Arc::clone(&syncs);
        let waits = served.is_some();
        let thread = std::thread::Builder::new()
            .name("committer".to_owned())
            .spawn(move || for_thread.run(served.map(|served| Second { served, keeper })))?;
        Ok(Committer {
            syncs,
            waits,
            placement: Cell::default(),
            thread: Some(thread),
        })
    }

    fn learn(&self, others: bool) {
        let mut placement = self.placement.get();
        placement.learn(others);
        self.placement.set(placement);
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.syncs.lock().stopping = true;
        self.syncs.requested.notify_one();
        // The thread panics only because of a bug in the journal, and has logged it.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Begins a commit whenever a reply waits for one, forever.
pub(super) async fn begin_commits(core: Rc<Core>, committer: Rc<Committer>) {
    loop {
        core.commit_wanted.notified().await;
        gather(&core).await;
        let begun = core.with(|state| {
            // First: a commit that has begun includes all that was done before.
            let followed = if committer.waits {
                Some(state.broker.write_beat()?)
            } else {
                None
            };
            let number = state.commits_begun;
            let alone = state.commits == number;
            if alone {
                state.reads_before = state.reads;
            }
            state.commits_begun += 1;
            // No answer waits for a sync that a policy demands: it holds up no connection.
            let inline = alone && !state.uncommitted.is_empty();
            Ok::<_, Cause>((state.broker.take_unsynced(), number, inline, followed))
        });
        let Ok((unsynced, number, inline, followed)) = begun else {
            // On a full disk there may be room later. A server that can write no change at all ends.
            tokio::time::sleep(LOOK).await;
            core.commit_wanted.notify_one();
            continue;
        };
        if committer.waits || committer.placement.get().on_thread || !inline {
            committer.syncs.request(number, unsynced, followed);
            continue;
        }
        let begin_us = clock::steady_us();
        let failed = sync(unsynced, &(number..number + 1));
        let took_us = clock::steady_us() - begin_us;
        // Connections that had to wait are read now.
        tokio::task::yield_now().await;
        core.with(|state| finish(state, &committer, &failed, &[took_us], number + 1));
    }
}

/// Input that is ready now joins this commit, at no extra cost, as long as more arrives.
async fn gather(core: &Core) {
    for _ in 0..GATHERS {
        let reads = core.with(|state| state.reads);
        tokio::task::yield_now().await;
        if core.with(|state| state.reads) == reads {
            return;
        }
    }
}

/// Completes the commits that the thread has synced, forever.
pub(super) async fn complete_commits(core: Rc<Core>, committer: Rc<Committer>) {
    loop {
        committer.syncs.done.notified().await;
        let (done, failed, took_us, is_held) = {
            let requests = &mut *committer.syncs.lock();
            let failed = std::mem::take(&mut requests.failed);
            (
                requests.pending.start,
                failed,
                std::mem::take(&mut requests.took_us),
                requests.is_held,
            )
        };
        core.with(|state| {
            if is_held != state.is_held {
                state.hold(is_held);
            }
            if done > state.commits {
                finish(state, &committer, &failed, &took_us, done);
            }
        });
    }
}

/// Wakes the replies that waited for the commits before `done`.
fn finish(
    state: &mut State,
    committer: &Committer,
    failed: &[Failure],
    took_us: &[u64],
    done: u64,
) {
    committer.learn(state.reads > state.reads_before);
    for &us in took_us {
        state.broker.latencies().sync_us(us);
    }
    for Failure {
        commits,
        queue,
        cause,
    } in failed
    {
        match queue {
            // A queue that was deleted meanwhile has no items to lose.
            Some(queue) if state.broker.items(queue).is_none() => continue,
            Some(queue) => {
                error!("not acknowledged: queue \"{queue}\": {}", chain(&**cause));
                state.broker.sync_failed(queue);
            }
            None => error!("not acknowledged: {}", chain(&**cause)),
        }
        state.failed_commits.extend(commits.clone());
    }
    state.commits = done;
    state
        .uncommitted
        .extract_if(.., |(commit, _)| *commit < done)
        .for_each(|(_, waker)| waker.wake());
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A log whose syncs the test begins and ends step by step.
    #[derive(Clone)]
    struct SteppedLog {
        begun: Sender<()>,
        end: Arc<Mutex<Receiver<Result<(), Cause>>>>,
    }

    impl Syncing for SteppedLog {
        fn sync(&self) -> Result<(), Cause> {
            self.begun.send(()).unwrap();
            self.end.lock().unwrap().recv().unwrap()
        }
    }

    #[test]
    fn what_is_posted_during_a_sync_belongs_to_the_next_one() {
        let ((begun, begins), (end, ends)) = (channel(), channel());
        let log = SteppedLog {
            begun,
            end: Arc::new(Mutex::new(ends)),
        };
        let queue: Arc<str> = "jobs".into();
        let syncs = Arc::new(SyncQueue::new());
        let for_thread = Arc::clone(&syncs);
        let thread = std::thread::Builder::new()
            .spawn(move || for_thread.run(None))
            .unwrap();
        let request = |number| syncs.request(number, vec![(Arc::clone(&queue), log.clone())], None);

        request(7);
        begins.recv().unwrap();
        request(8);
        request(9);
        assert_eq!(syncs.lock().pending, 7..10);
        end.send(Ok(())).unwrap();
        // One sync for both.
        begins.recv().unwrap();
        assert_eq!(syncs.lock().pending, 8..10);
        end.send(Err("the disk failed".into())).unwrap();
        syncs.lock().stopping = true;
        syncs.requested.notify_one();
        thread.join().unwrap();

        let requests = syncs.lock();
        assert_eq!(
            (requests.pending.clone(), requests.took_us.len()),
            (10..10, 2)
        );
        let failed: Vec<_> = requests
            .failed
            .iter()
            .map(|failure| (failure.commits.clone(), failure.queue.as_deref()))
            .collect();
        assert_eq!(failed, [(8..10, Some("jobs"))]);
    }

    #[test]
    fn the_thread_is_used_while_others_come() {
        let mut placement = Placement::default();
        let mut learn = |others: bool, times: u32| {
            (0..times).for_each(|_| placement.learn(others));
            placement.on_thread
        };
        assert!(!learn(false, 10));
        assert!(!learn(true, AGAINST_MAX - 1));
        assert!(!learn(false, 1), "one that speaks for it starts again");
        assert!(learn(true, AGAINST_MAX));
        assert!(learn(false, AGAINST_MAX - 1));
        assert!(!learn(false, 1));
    }
}
