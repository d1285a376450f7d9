//! Which threads of a run have begun and ended.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::lifecycle::Lifecycle;
use super::wakers::Wakers;
use crate::clock::now_ns;
use crate::error::FlowError;
use crate::mutex::lock;

/// The time that a run that was asked to stop, or has failed, waits for a delivery in progress.
const FORWARDERS_NS: u64 = 5_000_000_000;
/// The interval at which a wait for the end checks whether that time has passed.
const ENDED_TICK: Duration = Duration::from_millis(50);
/// The time that a process which has ended waits for the ends of its connections: longer than a death goes unnoticed.
const LINKS_NS: u64 = 15_000_000_000;

/// Which threads of a run have ended.
#[derive(Default)]
struct Ended {
    workers: usize,
    /// Forwarders that have not ended.
    forwarders: usize,
    /// The directions of connections for data to other processes that have not ended.
    halves: usize,
    /// Whether all processes of the run have ended.
    others: bool,
    /// When all workers had ended and the run was asked to stop.
    since_ns: Option<u64>,
}

/// The beginnings and ends of the threads of a run.
pub(crate) struct Ends {
    /// The number of workers of this process.
    workers: usize,
    /// Those of them that have opened their connectors.
    built: AtomicUsize,
    /// Whether all workers have, of all processes.
    all_built: AtomicBool,
    ended: Mutex<Ended>,
    all_ended: Condvar,
    life: Arc<Lifecycle>,
    wakers: Arc<Wakers>,
}

impl Ends {
    pub(super) fn new(workers: usize, life: Arc<Lifecycle>, wakers: Arc<Wakers>) -> Self {
        Ends {
            workers,
            built: AtomicUsize::new(0),
            all_built: AtomicBool::new(false),
            ended: Mutex::default(),
            all_ended: Condvar::new(),
            life,
            wakers,
        }
    }

    /// Records that one more worker of this process has opened all its connectors.
    pub(crate) fn worker_built(&self) {
        if self.built.fetch_add(1, Ordering::SeqCst) + 1 == self.workers {
            match self.life.member() {
                Some(member) => member.built(),
                None => self.go(),
            }
        }
    }

    /// Records that the workers of all processes have opened their connectors.
    pub(crate) fn go(&self) {
        self.all_built.store(true, Ordering::SeqCst);
        self.wakers.wake_all();
    }

    /// True if every worker has opened its connectors, or one has failed to.
    pub(crate) fn all_built(&self) -> bool {
        self.all_built.load(Ordering::SeqCst) || self.life.aborted()
    }

    pub(crate) fn worker_ended(&self) {
        lock(&self.ended).workers += 1;
        self.all_ended.notify_all();
    }

    /// Counts a thread that delivers committed output.
    pub(crate) fn forwarder_begins(&self) {
        lock(&self.ended).forwarders += 1;
    }

    pub(crate) fn forwarder_ended(&self) {
        let mut ended = lock(&self.ended);
        ended.forwarders = ended.forwarders.saturating_sub(1);
        self.all_ended.notify_all();
    }

    /// Waits until a thread that delivers committed output has ended, at most for a short time.
    pub(crate) fn await_forwarder(&self) {
        let waited = self.all_ended.wait_timeout(lock(&self.ended), ENDED_TICK);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// The number of threads that deliver committed output and have not ended.
    pub(crate) fn forwarders_left(&self) -> usize {
        lock(&self.ended).forwarders
    }

    /// Waits until every worker and every forwarder has ended, at most for `limit`; true if they have. After a
    /// request to stop, it does not wait long for a forwarder inside a delivery.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let until = now_ns().saturating_add(limit.as_nanos() as u64);
        let mut ended = lock(&self.ended);
        loop {
            if self.has_ended(&mut ended) {
                return true;
            }
            let left = Duration::from_nanos(until.saturating_sub(now_ns()));
            if left.is_zero() {
                return false;
            }
            let tick = if ended.workers < self.workers {
                left
            } else {
                left.min(ENDED_TICK)
            };
            let waited = self.all_ended.wait_timeout(ended, tick);
            ended = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether the run has ended here, and whether in all processes.
    pub(crate) fn ended(&self) -> (bool, bool) {
        let mut ended = lock(&self.ended);
        let here = self.has_ended(&mut ended);
        let others = self.life.member().is_none() || ended.others || self.life.stopping();
        (here, here && others)
    }

    fn has_ended(&self, ended: &mut Ended) -> bool {
        if ended.workers < self.workers {
            return false;
        }
        if ended.forwarders == 0 {
            return true;
        }
        if !self.life.stopping() {
            return false;
        }
        let since = *ended.since_ns.get_or_insert_with(now_ns);
        now_ns().saturating_sub(since) > FORWARDERS_NS
    }

    /// Counts the directions of connections for data that the run uses.
    pub(crate) fn links_begin(&self, links: usize) {
        lock(&self.ended).halves = 2 * links;
    }

    /// Records that one direction of a connection for data has ended.
    pub(crate) fn half_ended(&self) {
        let mut ended = lock(&self.ended);
        ended.halves = ended.halves.saturating_sub(1);
        self.all_ended.notify_all();
    }

    /// Waits until all connections for data have ended, so that their threads end; false if one of them is lost, or
    /// does not end.
    pub(crate) fn wait_links(&self) -> bool {
        let until = now_ns() + LINKS_NS;
        let mut ended = lock(&self.ended);
        while ended.halves > 0 && !self.life.aborted() && now_ns() < until {
            let waited = self.all_ended.wait_timeout(ended, ENDED_TICK);
            ended = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        ended.halves == 0
    }

    /// Records that all processes have ended.
    pub(crate) fn others_ended(&self) {
        lock(&self.ended).others = true;
        self.all_ended.notify_all();
    }

    /// True if all processes have ended, or the run has failed or was asked to stop; waits for that for a short time.
    pub(crate) fn wait_others(&self) -> bool {
        let ended = lock(&self.ended);
        let over = |ended: &Ended| ended.others || self.life.stopping();
        over(&ended) || {
            let waited = self.all_ended.wait_timeout(ended, ENDED_TICK);
            over(&waited.unwrap_or_else(PoisonError::into_inner).0)
        }
    }

    /// Ends the run if the events of other processes end before it; this is process `process`.
    pub(crate) fn events_ended(&self, process: usize) {
        if lock(&self.ended).workers < self.workers && !self.life.stopping() {
            let cause = "the events of the run have ended".into();
            self.life.fail(FlowError::Cluster { process, cause });
        }
    }
}
