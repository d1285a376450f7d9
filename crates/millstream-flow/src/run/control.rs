//! The state that the workers of one run share: stop, failure, wake-ups, and the number of items in flight.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mio::Waker;

use crate::clock::now_ns;
use crate::describe::node::DescribedEdge;
use crate::error::{FlowError, chain};
use crate::run::edge_counts::EdgeCounts;
use crate::run::failures::{Failures, Outcome, Traceback};
pub(crate) use crate::run::in_flight::Current;
use crate::run::in_flight::{Peer, Processed, load, parts};
use crate::run::lag::{PartitionLag, WatchedLag};
use crate::run::metrics::{OutboxMetrics, StepMetrics, WorkerMetrics};
use crate::run::pace::Slow;
use crate::run::progress::Progress;
use crate::run::remote::Others;

mod others;

/// Calls the closure once, with work before and after it: the Python package attaches, takes and releases its
/// interpreter.
#[doc(hidden)] // For the other crates of Millstream.
pub type Wrapper = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

const ENDING: u8 = Phase::Ending as u8;
const SUSPENDED: u8 = Phase::Suspended as u8;

const RUNNING: u8 = 0;
const DRAINING: u8 = 1;
const ABORTED: u8 = 2;
const ABANDONED: u8 = 3;

/// The time that a run that was asked to stop, or has failed, waits for a delivery in progress.
const FORWARDERS_NS: u64 = 5_000_000_000;
/// The most turns of a slow worker for which a source of a run of several processes passes on items at once.
const TURNS_MAX: usize = 4;
/// The interval at which a wait for the end checks whether that time has passed.
const ENDED_TICK: Duration = Duration::from_millis(50);

/// Locks a mutex and ignores poisoning: the values of these mutexes are consistent at every moment.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the metrics of an outbox.
pub(crate) type WatchOutbox = Box<dyn Fn() -> OutboxMetrics + Send + Sync>;

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

/// The state that the workers and the program that started them share.
pub struct Control {
    state: AtomicU8,
    failure: Mutex<Option<FlowError>>,
    /// The workers of all processes.
    peers: Vec<Peer>,
    /// The workers of this process among them.
    local: Range<usize>,
    /// The other processes of the run, if there are any.
    others: Option<Others>,
    /// The local workers that have opened their connectors.
    built: AtomicUsize,
    /// Whether all workers have.
    all_built: AtomicBool,
    ended: Mutex<Ended>,
    /// The number of outboxes over their limits.
    full_outboxes: AtomicUsize,
    outboxes: Mutex<Vec<WatchOutbox>>,
    lags: Mutex<Vec<WatchedLag>>,
    all_ended: Condvar,
    release: Option<Wrapper>,
    /// The epoch of the sources; it stays 0 without recovery.
    epoch: AtomicU64,
    phase: AtomicU8,
    /// The sources with remaining input, of all workers; counted with recovery only.
    live_sources: AtomicUsize,
    /// The items that sources have read and not passed on, because they did not fit into a turn.
    held: AtomicUsize,
    /// Changes when sources must check the fields above.
    source_signals: AtomicU64,
    /// Whether the run has a state directory.
    keeps_state: AtomicBool,
    /// The steps for which a warning of late items was logged.
    late: Mutex<Vec<usize>>,
    warns_of_late: bool,
    /// Whether a commit of the running epoch was asked for.
    commit_asked: AtomicBool,
    /// The last failures, in a run that is watched.
    failures: Option<Failures>,
    edge_counts: EdgeCounts,
    /// The epoch of the output at the end of the flow; `u64::MAX` until it is known. Only with a state
    /// directory.
    last_epoch: AtomicU64,
    /// Whether a source has read anything in this run.
    has_input: AtomicBool,
    pub(crate) progress: Progress,
}

/// The phase of a run with recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The sources may have input.
    Running,
    /// All sources have ended: the steps emit their output at the end.
    Ending,
    /// The run was stopped before its end: the next start resumes it, and no step ends.
    Suspended,
}

impl Control {
    pub(crate) fn new(workers: usize, release: Option<Wrapper>) -> Self {
        Control {
            state: AtomicU8::new(RUNNING),
            failure: Mutex::new(None),
            peers: (0..workers).map(|_| Peer::default()).collect(),
            local: 0..workers,
            others: None,
            built: AtomicUsize::new(0),
            all_built: AtomicBool::new(false),
            ended: Mutex::default(),
            full_outboxes: AtomicUsize::new(0),
            outboxes: Mutex::default(),
            lags: Mutex::default(),
            all_ended: Condvar::new(),
            release,
            epoch: AtomicU64::new(0),
            phase: AtomicU8::new(Phase::Running as u8),
            live_sources: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            source_signals: AtomicU64::new(0),
            keeps_state: AtomicBool::new(false),
            late: Mutex::default(),
            warns_of_late: true,
            commit_asked: AtomicBool::new(false),
            failures: None,
            edge_counts: EdgeCounts::default(),
            last_epoch: AtomicU64::new(u64::MAX),
            has_input: AtomicBool::new(false),
            progress: Progress::default(),
        }
    }

    /// Disables the warnings of late items in a run.
    pub(crate) fn without_late_warnings(self) -> Self {
        Control {
            warns_of_late: false,
            ..self
        }
    }

    /// Adds what a view of the run shows beside the metrics.
    pub(crate) fn watched(self, traceback: Option<Traceback>, edges: &[DescribedEdge]) -> Self {
        Control {
            failures: Some(Failures::new(traceback)),
            edge_counts: EdgeCounts::new(edges, self.local.start, self.local.len()),
            ..self
        }
    }

    /// The last failures, in a run that is watched.
    pub(crate) fn failures(&self) -> Option<&Failures> {
        self.failures.as_ref()
    }

    /// The items on connections, in a run that is watched.
    pub(crate) fn edge_counts(&self) -> &EdgeCounts {
        &self.edge_counts
    }

    /// Asks for a commit now instead of at the end of the epoch's length; false if this process does not begin commits: it has no state
    /// directory, or another process does.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn commit_now(&self) -> bool {
        let begins = self.keeps_state() && self.local.start == 0 && !self.stopping();
        if begins {
            self.commit_asked.store(true, Ordering::SeqCst);
        }
        begins
    }

    /// Whether a commit was asked for; the request is taken.
    pub(crate) fn take_commit_request(&self) -> bool {
        self.commit_asked.swap(false, Ordering::SeqCst)
    }

    /// Whether to log a warning of late items of a step: at most once in a run of all workers.
    pub(crate) fn first_late(&self, step: usize) -> bool {
        let mut said = lock(&self.late);
        if !self.warns_of_late || said.contains(&step) {
            return false;
        }
        said.push(step);
        true
    }

    /// Runs `wait`, which may block, without the resources that the run holds during a step: a writer that
    /// waits for its receiver must not hold the interpreter of a Python flow.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn outside(&self, wait: &mut dyn FnMut()) {
        match &self.release {
            Some(release) => release(wait),
            None => wait(),
        }
    }

    /// Whether the run commits epochs to a state directory.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn keeps_state(&self) -> bool {
        self.keeps_state.load(Ordering::Relaxed)
    }

    pub(crate) fn keep_state(&self) {
        self.keeps_state.store(true, Ordering::Relaxed);
    }

    /// Returns the epoch of the sources.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Begins the next epoch.
    pub(crate) fn raise_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.signal_sources();
    }

    pub(crate) fn signal_sources(&self) {
        self.source_signals.fetch_add(1, Ordering::SeqCst);
        self.wake_all();
    }

    /// Returns a number that changes when sources must check the state of the run.
    pub(crate) fn source_signals(&self) -> u64 {
        self.source_signals.load(Ordering::Relaxed)
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            ENDING => Phase::Ending,
            SUSPENDED => Phase::Suspended,
            _ => Phase::Running,
        }
    }

    /// Enters a phase that decides whether the flow emits its output at the end: the first call counts.
    fn enter(&self, phase: Phase) {
        let running = Phase::Running as u8;
        let (order, fails) = (Ordering::SeqCst, Ordering::SeqCst);
        let _ = self
            .phase
            .compare_exchange(running, phase as u8, order, fails);
    }

    pub(crate) fn source_begins(&self) {
        self.live_sources.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn source_ends(&self) {
        self.live_sources.fetch_sub(1, Ordering::SeqCst);
    }

    /// True if there is no input left and the run is still in its running phase.
    pub(crate) fn is_drained(&self) -> bool {
        self.phase() == Phase::Running && self.live_sources.load(Ordering::SeqCst) == 0
    }

    /// Ends the flow at once, in a run without epochs.
    pub(crate) fn end(&self) {
        self.enter(Phase::Ending);
        self.signal_sources();
    }

    /// Ends the flow after the current epoch: its output at the end belongs to the next one. Called by the
    /// thread that raises epochs, while no epoch is in progress.
    pub(crate) fn end_after_epoch(&self) {
        self.last_epoch.store(self.epoch() + 1, Ordering::SeqCst);
        self.enter(Phase::Ending);
        self.raise_epoch();
    }

    /// Ends the run without ending the flow: no step emits its output at the end.
    pub(crate) fn suspend(&self) {
        self.enter(Phase::Suspended);
        self.signal_sources();
    }

    /// Whether `epoch` is the last before the output at the end.
    pub(crate) fn drains_in(&self, epoch: u64) -> bool {
        self.phase() == Phase::Ending
            && self.last_epoch.load(Ordering::SeqCst) == epoch.saturating_add(1)
    }

    /// Whether an operator in `epoch` may end now. At its end a flow has an epoch for the input, and one more
    /// for the output at the end.
    pub(crate) fn ends_in(&self, epoch: u64) -> bool {
        match self.phase() {
            Phase::Running => false,
            Phase::Suspended => true,
            Phase::Ending => !self.keeps_state() || self.last_epoch.load(Ordering::SeqCst) <= epoch,
        }
    }

    /// Records that a source has read input.
    pub(crate) fn note_input(&self) {
        self.has_input.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_input(&self) -> bool {
        self.has_input.load(Ordering::SeqCst)
    }

    /// Asks the sources to end, on all processes of the run; the input read so far is processed and flushed.
    pub fn stop(&self) {
        if let Some(member) = self.member() {
            member.stop();
        }
        self.stop_here();
    }

    /// Asks the sources of this process to end.
    pub(crate) fn stop_here(&self) {
        self.enter(Phase::Suspended);
        self.source_signals.fetch_add(1, Ordering::SeqCst);
        let _ = self
            .state
            .compare_exchange(RUNNING, DRAINING, Ordering::SeqCst, Ordering::SeqCst);
        self.wake_all();
    }

    /// True if the flow was asked to stop, or has failed.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.state.load(Ordering::Relaxed) != RUNNING
    }

    /// True if the flow has failed, or was [abandoned](Self::abandon).
    #[must_use]
    pub fn aborted(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= ABORTED
    }

    /// True if the flow was [abandoned](Self::abandon).
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn abandoned(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ABANDONED
    }

    /// Ends the run without processing the items in its steps: each worker finishes its current item. Nothing
    /// more is committed; with a state directory the next start resumes from the last commit.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn abandon(&self) {
        self.enter(Phase::Suspended);
        let (order, fails) = (Ordering::SeqCst, Ordering::SeqCst);
        for from in [RUNNING, DRAINING] {
            let _ = self.state.compare_exchange(from, ABANDONED, order, fails);
        }
        self.source_signals.fetch_add(1, Ordering::SeqCst);
        self.wake_all();
    }

    /// Returns the number of items in flight between operators, or read and not passed on.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn unfinished(&self) -> usize {
        let peers = self.peers.iter();
        let sent: usize = peers
            .map(|peer| parts(peer.in_flight.load(Ordering::SeqCst)).1)
            .sum();
        sent + self.held.load(Ordering::SeqCst)
    }

    /// Adds and subtracts items that a source has read and not passed on.
    pub(crate) fn hold(&self, more: usize, less: usize) {
        self.held.fetch_add(more, Ordering::SeqCst);
        self.held.fetch_sub(less, Ordering::SeqCst);
    }

    /// Ends the run at once, on all processes; the first failure is reported.
    pub(crate) fn fail(&self, error: FlowError) {
        let cause = self.others.as_ref().map(|_| chain(&error).to_string());
        if self.fail_here(error)
            && let (Some(member), Some(cause)) = (self.member(), cause)
        {
            member.failed(&cause);
        }
    }

    /// Ends the run on this process; true if it is the first failure.
    pub(crate) fn fail_here(&self, error: FlowError) -> bool {
        let mut first = false;
        // A failure after the run was abandoned is not reported.
        if !self.abandoned() {
            let mut failure = lock(&self.failure);
            first = failure.is_none();
            if let (true, Some(failures)) = (first, &self.failures) {
                match &error {
                    FlowError::Failed(failure) => failures.note(failure, Outcome::Failed),
                    error => failures.note_other(&chain(error).to_string()),
                }
            }
            failure.get_or_insert(error);
            self.state.store(ABORTED, Ordering::SeqCst);
        }
        self.wake_all();
        first
    }

    pub(crate) fn has_failed(&self) -> bool {
        lock(&self.failure).is_some()
    }

    /// Returns the failure of the run as text, if it has failed and no wait for its end has returned that.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn failure_text(&self) -> Option<String> {
        let failure = lock(&self.failure);
        failure.as_ref().map(|error| chain(error).to_string())
    }

    pub(crate) fn take_failure(&self) -> Option<FlowError> {
        lock(&self.failure).take()
    }

    pub(crate) fn set_waker(&self, worker: usize, waker: Arc<Waker>) {
        let _ = self.peers[worker].waker.set(waker);
    }

    fn wake_all(&self) {
        for peer in &self.peers[self.local.clone()] {
            if let Some(waker) = peer.waker.get() {
                // A waker fails only after its poller was dropped, and then need not be woken.
                let _ = waker.wake();
            }
        }
    }

    /// Records that one more worker of this process has opened all its connectors.
    pub(crate) fn worker_built(&self) {
        if self.built.fetch_add(1, Ordering::SeqCst) + 1 == self.local.len() {
            match self.member() {
                Some(member) => member.built(),
                None => self.go(),
            }
        }
    }

    /// True if every worker has opened its connectors, or one has failed to.
    pub(crate) fn all_built(&self) -> bool {
        self.all_built.load(Ordering::SeqCst) || self.aborted()
    }

    /// Wakes the workers that sleep, after `worker` may have sent them something.
    pub(crate) fn wake_sleepers(&self, worker: usize) {
        for (index, peer) in self.peers[self.local.clone()].iter().enumerate() {
            if self.local.start + index != worker
                && peer.sleeping.swap(false, Ordering::SeqCst)
                && let Some(waker) = peer.waker.get()
            {
                let _ = waker.wake();
            }
        }
    }

    pub(crate) fn set_sleeping(&self, worker: usize, sleeping: bool) {
        self.peers[worker]
            .sleeping
            .store(sleeping, Ordering::SeqCst);
    }

    pub(crate) fn sent(&self, to: usize, items: usize) {
        let peer = &self.peers[to];
        peer.deliveries.fetch_add(1, Ordering::SeqCst);
        peer.in_flight.fetch_add(load(items), Ordering::SeqCst);
        if let Some(others) = &self.others
            && peer.is_congested()
        {
            others.wake_reporter();
        }
    }

    pub(crate) fn handled(&self, worker: usize, items: usize) {
        self.subtract_load(worker, Processed::of(items, 0));
    }

    /// Subtracts a load that has been processed and flushed.
    pub(crate) fn subtract_load(&self, worker: usize, processed: Processed) {
        self.peers[worker]
            .in_flight
            .fetch_sub(processed.0, Ordering::SeqCst);
    }

    /// Counts an outbox that is over its limit, or no longer: sources pause while there is one.
    pub(crate) fn hold_sources(&self, hold: bool) {
        match hold {
            true => self.full_outboxes.fetch_add(1, Ordering::SeqCst),
            false => self.full_outboxes.fetch_sub(1, Ordering::SeqCst),
        };
        if let Some(others) = &self.others {
            others.wake_reporter();
        }
    }

    /// True if sources pause until an outbox has delivered, which may take long.
    pub(crate) fn waits_for_delivery(&self) -> bool {
        self.full_outboxes.load(Ordering::Relaxed) > 0
            || self
                .others
                .as_ref()
                .is_some_and(|others| others.pauses().outbox_full)
    }

    /// Adds the metrics of an outbox to the run's.
    pub(crate) fn watch_outbox(&self, watch: WatchOutbox) {
        lock(&self.outboxes).push(watch);
    }

    pub(crate) fn outboxes(&self) -> Vec<OutboxMetrics> {
        let watched = lock(&self.outboxes);
        watched.iter().map(|watch| watch()).collect()
    }

    /// Adds the lag of a partition to the run's metrics.
    pub(crate) fn watch_lag(&self, watched: WatchedLag) {
        lock(&self.lags).push(watched);
    }

    /// Drops the lags of partitions of a source that have ended.
    pub(crate) fn forget_lags(&self, source: &str, partitions: &HashSet<&str>) {
        if !partitions.is_empty() {
            lock(&self.lags).retain(|watched| {
                watched.source != source || !partitions.contains(&*watched.partition)
            });
        }
    }

    /// Returns the lags of partitions, sorted by source and partition.
    pub(crate) fn lags(&self) -> Vec<PartitionLag> {
        let watched = lock(&self.lags);
        let mut lags: Vec<_> = watched.iter().filter_map(WatchedLag::metrics).collect();
        lags.sort_by(|a, b| (&a.source, &a.partition).cmp(&(&b.source, &b.partition)));
        lags
    }

    /// True if the load in flight to some worker is so large, or an outbox so full, that sources must pause.
    pub(crate) fn congested(&self) -> bool {
        self.waits_for_delivery() || self.workers_congested()
    }

    /// True if the load in flight to some worker is so large that sources must pause.
    pub(crate) fn workers_congested(&self) -> bool {
        self.peers.iter().any(Peer::is_congested)
            || self
                .others
                .as_ref()
                .is_some_and(|others| others.pauses().congested)
    }

    /// Publishes the pace of a worker, which the worker measured.
    pub(crate) fn set_slow(&self, worker: usize, slow: Option<Slow>) {
        self.peers[worker].set_slow(slow);
    }

    /// Returns how many items at once every worker can process. With several processes they are dealt to the workers of all, in
    /// packets that cost much more than in memory: so it is some turns then, unless a turn has one item, which may take any time.
    pub(crate) fn turn_items(&self) -> usize {
        let slow = self.peers.iter().filter_map(Peer::slow_turn);
        match (slow.min().unwrap_or(usize::MAX), &self.others) {
            (items @ 2.., Some(others)) => {
                items.saturating_mul(others.membership.processes.min(TURNS_MAX))
            }
            (items, _) => items,
        }
    }

    /// True if nothing is in flight between operators. Packets that one worker sends to another during the
    /// check are seen as deliveries.
    pub(crate) fn quiet(&self) -> bool {
        let deliveries = || -> u64 {
            let peers = self.peers.iter();
            peers
                .map(|peer| peer.deliveries.load(Ordering::SeqCst))
                .sum()
        };
        let before = deliveries();
        let mut peers = self.peers.iter();
        peers.all(|peer| peer.in_flight.load(Ordering::SeqCst) == 0) && deliveries() == before
    }

    pub(crate) fn publish(&self, worker: usize, metrics: &[StepMetrics]) {
        let published = (now_ns(), Arc::new(metrics.to_vec()));
        let old = std::mem::replace(&mut *lock(&self.peers[worker].snapshot), published);
        // A reader does not wait while this is freed.
        drop(old);
    }

    pub(crate) fn snapshots(&self) -> Vec<Vec<StepMetrics>> {
        let published = self.published();
        published
            .iter()
            .map(|worker| worker.steps.to_vec())
            .collect()
    }

    /// Returns where a worker writes the operator in which it is.
    pub(crate) fn current_of(&self, worker: usize) -> Arc<Current> {
        let peer = self.peers.get(worker);
        peer.map_or_else(Arc::default, |peer| Arc::clone(&peer.current))
    }

    /// Returns what each worker published last.
    pub(crate) fn published(&self) -> Vec<WorkerMetrics> {
        let published = |peer: &Peer| {
            let (published_ns, steps) = lock(&peer.snapshot).clone();
            let in_flight_items = parts(peer.in_flight.load(Ordering::Relaxed)).1;
            WorkerMetrics {
                published_ns,
                steps,
                in_flight_items,
                current: peer.current.get(),
                turn: peer.current.turn(),
                thread: peer.current.thread(),
            }
        };
        self.peers[self.local.clone()]
            .iter()
            .map(published)
            .collect()
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

    /// True if all workers have ended and everything committed is delivered; waits for that at most for `limit`.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn ended_within(&self, limit: Duration) -> bool {
        self.wait_ended(limit)
    }

    /// Waits until every worker and every forwarder has ended, at most for `limit`; true if they have. After a
    /// request to stop, it does not wait long for a forwarder inside a delivery.
    pub(crate) fn wait_ended(&self, limit: Duration) -> bool {
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
            let tick = match ended.workers < self.local.len() {
                true => left,
                false => left.min(ENDED_TICK),
            };
            let waited = self.all_ended.wait_timeout(ended, tick);
            ended = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn has_ended(&self, ended: &mut Ended) -> bool {
        if ended.workers < self.local.len() {
            return false;
        }
        if ended.forwarders == 0 {
            return true;
        }
        if !self.stopping() {
            return false;
        }
        let since = *ended.since_ns.get_or_insert_with(now_ns);
        now_ns().saturating_sub(since) > FORWARDERS_NS
    }
}
