//! The other processes of a run, as the workers of this one see them: what is in flight between them, and where notices
//! go.
//!
//! A sender counts what it has sent to each worker, also to those of other processes. A receiver counts what it has
//! processed of each sending process, as sums that only grow; a thread reports them while they change. Sources pause by
//! the same limits as within a process, with the limits that the receiver reports.
//!
//! Invariant: a sum is reported after the output of the items was sent on, so that items in flight are never counted
//! too low.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;

use crate::cluster::{HandledLoad, Member, Membership, STATUS_BYTES_MAX, Status};
use crate::control::statuses::Statuses;
use crate::metrics::LinkMetrics;

/// A weight and a number of items: sums since the beginning of the run.
#[derive(Default)]
pub(crate) struct Sums {
    weight: AtomicU64,
    items: AtomicU64,
}

impl Sums {
    pub(crate) fn get(&self) -> (u64, u64) {
        let weight = self.weight.load(Ordering::SeqCst);
        (weight, self.items.load(Ordering::SeqCst))
    }
}

/// The connection for data to another process, as it is counted.
#[derive(Default)]
pub(crate) struct LinkState {
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    /// Whether the process runs on this machine, with the same clock.
    pub(crate) same_clock: AtomicBool,
}

/// Why the sources of all processes pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pauses {
    /// Too much is in flight to some worker.
    pub(crate) congested: bool,
    /// An outbox is full.
    pub(crate) outbox_full: bool,
}

/// Where to send notices to, once the other processes have been met. Clones are of the same run.
#[derive(Clone, Default)]
pub(super) struct Notices(Arc<OnceLock<Arc<dyn Member>>>);

impl Notices {
    pub(super) fn member(&self) -> Option<&dyn Member> {
        self.0.get().map(|member| &**member)
    }
}

/// The other processes of a run.
pub(crate) struct Others {
    pub(crate) membership: Membership,
    /// The number of workers of each process.
    pub(crate) workers: usize,
    notices: Notices,
    /// What each local worker has processed, by the process that sent it and by the worker.
    pub(crate) handled: Vec<Sums>,
    /// What each worker of another process has reported of what this process has sent to it.
    reported: Vec<Sums>,
    /// Why each other process lets the sources pause: set by the thread that reads events.
    pauses: Mutex<Vec<Pauses>>,
    /// Whether any of them is congested.
    congested: AtomicBool,
    /// Whether any of them has a full outbox.
    outbox_full: AtomicBool,
    links: Vec<LinkState>,
    /// Process 0: how the others are doing.
    statuses: Statuses,
    pub(crate) reporter: OnceLock<Thread>,
    /// Whether the thread that reports waits for a change.
    pub(crate) idle: AtomicBool,
    pub(crate) over: AtomicBool,
}

impl Others {
    pub(crate) fn new(membership: Membership, workers: usize) -> Self {
        fn many<T: Default>(count: usize) -> Vec<T> {
            (0..count).map(|_| T::default()).collect()
        }
        let all = membership.processes * workers;
        Others {
            membership,
            workers,
            notices: Notices::default(),
            handled: many(all),
            reported: many(all),
            pauses: Mutex::new(vec![Pauses::default(); membership.processes]),
            congested: AtomicBool::new(false),
            outbox_full: AtomicBool::new(false),
            links: many(membership.processes),
            statuses: Statuses::new(membership.processes),
            reporter: OnceLock::new(),
            idle: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    /// Begins to send notices to the other processes, which have been met.
    pub(crate) fn meet(&self, member: &Arc<dyn Member>) {
        let _ = self.notices.0.set(Arc::clone(member));
    }

    /// Where to send notices to, once the others have been met.
    pub(crate) fn member(&self) -> Option<&dyn Member> {
        self.notices.member()
    }

    /// Where notices go.
    pub(super) fn notices(&self) -> Notices {
        self.notices.clone()
    }

    /// The number of the first worker of this process.
    pub(crate) fn first(&self) -> usize {
        self.membership.process * self.workers
    }

    /// The process of a worker, if it is another one than this.
    pub(crate) fn process_of(&self, worker: usize) -> Option<usize> {
        let process = worker / self.workers;
        (process != self.membership.process).then_some(process)
    }

    pub(crate) fn link(&self, process: usize) -> &LinkState {
        &self.links[process]
    }

    /// Whether the clock of a process is that of this one.
    pub(crate) fn same_clock(&self, process: usize) -> bool {
        self.links[process].same_clock.load(Ordering::Relaxed)
    }

    /// Counts what local worker `worker`, counted over all processes, has processed of the packets of `sender`.
    pub(crate) fn add_handled(&self, sender: usize, worker: usize, (weight, items): (u64, u64)) {
        let sums = &self.handled[sender * self.workers + worker - self.first()];
        sums.weight.fetch_add(weight, Ordering::SeqCst);
        sums.items.fetch_add(items, Ordering::SeqCst);
        self.wake_reporter();
    }

    /// Returns what the worker of a report has processed since its last report.
    pub(crate) fn take_report(&self, load: &HandledLoad) -> (u64, u64) {
        let Some(known) = self.reported.get(load.worker) else {
            return (0, 0);
        };
        let before =
            |sum: &AtomicU64, now: u64| now.saturating_sub(sum.fetch_max(now, Ordering::SeqCst));
        (
            before(&known.weight, load.weight),
            before(&known.items, load.items),
        )
    }

    /// Takes what a report says of its process.
    pub(crate) fn take_pauses(&self, load: &HandledLoad) {
        let mut pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pauses.get_mut(load.worker / self.workers) {
            *known = Pauses {
                congested: load.congested,
                outbox_full: load.outbox_full,
            };
        }
        let congested = pauses.iter().any(|pauses| pauses.congested);
        self.congested.store(congested, Ordering::Relaxed);
        let outbox_full = pauses.iter().any(|pauses| pauses.outbox_full);
        self.outbox_full.store(outbox_full, Ordering::Relaxed);
    }

    /// Why the other processes let the sources pause.
    pub(crate) fn pauses(&self) -> Pauses {
        Pauses {
            congested: self.congested.load(Ordering::Relaxed),
            outbox_full: self.outbox_full.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn wake_reporter(&self) {
        if self.idle.load(Ordering::SeqCst)
            && self.idle.swap(false, Ordering::SeqCst)
            && let Some(thread) = self.reporter.get()
        {
            thread.unpark();
        }
    }

    /// Process 0: takes how another process is doing.
    pub(crate) fn take_status(&self, process: usize, status: Status) {
        self.statuses.take(process, status);
    }

    pub(crate) fn statuses(&self) -> &Statuses {
        &self.statuses
    }

    /// Sends how this process is doing to process 0.
    pub(crate) fn send_status(&self, last: bool, bytes: Vec<u8>) {
        if self.membership.process == 0 || bytes.len() > STATUS_BYTES_MAX {
            return;
        }
        if let Some(member) = self.member() {
            member.status(Status { last, bytes });
        }
    }

    /// Ends the thread that reports.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.idle.store(false, Ordering::SeqCst);
        if let Some(thread) = self.reporter.get() {
            thread.unpark();
        }
    }

    pub(crate) fn links(&self) -> Vec<LinkMetrics> {
        let links = self.links.iter().enumerate();
        let others = links.filter(|(process, _)| *process != self.membership.process);
        let metrics = others.map(|(process, link)| LinkMetrics {
            process,
            sent_bytes: link.sent_bytes.load(Ordering::Relaxed),
            received_bytes: link.received_bytes.load(Ordering::Relaxed),
        });
        metrics.collect()
    }
}
