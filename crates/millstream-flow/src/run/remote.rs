//! The other processes of a run, as the workers of this one see them: what is in flight between them, and whom to notify.
//!
//! A sender counts what it has sent to each worker, also to those of other processes. A receiver counts what it has
//! processed of each sending process, as sums that only grow; a thread reports them while they change. Sources pause by the same limits
//! as within a process, with the limits that the receiver reports.
//!
//! Invariant: a sum is reported after the output of the items was sent on, so that items in flight are never counted too low.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use crate::clock::now_ns;
use crate::cluster::{HandledLoad, Member, Membership};
use crate::run::control::{Control, IN_FLIGHT_MAX};
use crate::run::metrics::LinkMetrics;

/// The interval at which the thread that reports looks at the sums while they change.
const LOOK: Duration = Duration::from_millis(1);
/// The longest time after which a change is reported.
const REPORT_NS: u64 = 5_000_000;
/// A larger change of weight is reported at once.
const REPORT_WEIGHT: u64 = IN_FLIGHT_MAX / 8;

/// A weight and a number of items: sums since the beginning of the run.
#[derive(Default)]
struct Sums {
    weight: AtomicU64,
    items: AtomicU64,
}

impl Sums {
    fn get(&self) -> (u64, u64) {
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

/// The other processes of a run.
pub(crate) struct Others {
    pub(crate) membership: Membership,
    /// The number of workers of each process.
    workers: usize,
    /// Where to send notices to, once the others have been met.
    member: OnceLock<Arc<dyn Member>>,
    /// What each local worker has processed, by the process that sent it and by the worker.
    handled: Vec<Sums>,
    /// What each worker of another process has reported of what this process has sent to it.
    reported: Vec<Sums>,
    links: Vec<LinkState>,
    reporter: OnceLock<Thread>,
    /// Whether the thread that reports waits for a change.
    idle: AtomicBool,
    over: AtomicBool,
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
            member: OnceLock::new(),
            handled: many(all),
            reported: many(all),
            links: many(membership.processes),
            reporter: OnceLock::new(),
            idle: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    /// Begins to send notices to the other processes, which have been met.
    pub(crate) fn meet(&self, member: &Arc<dyn Member>) {
        let _ = self.member.set(Arc::clone(member));
    }

    /// Where to send notices to, once the others have been met.
    pub(crate) fn member(&self) -> Option<&dyn Member> {
        self.member.get().map(|member| &**member)
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

    fn wake_reporter(&self) {
        if self.idle.load(Ordering::SeqCst)
            && self.idle.swap(false, Ordering::SeqCst)
            && let Some(thread) = self.reporter.get()
        {
            thread.unpark();
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

/// Reports to the other processes what this one has processed, until the run is over.
pub(super) fn report_handled(control: &Control, others: &Others) {
    let _ = others.reporter.set(std::thread::current());
    let mut reported = vec![(0, 0); others.handled.len()];
    let mut last_ns = 0;
    while !others.over.load(Ordering::SeqCst) {
        let changes = changes(control, others, &reported);
        if changes.is_empty() {
            others.idle.store(true, Ordering::SeqCst);
            // A worker that counted before it could see this flag has not woken this thread.
            if self::changes(control, others, &reported).is_empty()
                && !others.over.load(Ordering::SeqCst)
            {
                std::thread::park();
            }
            others.idle.store(false, Ordering::SeqCst);
            continue;
        }
        let now = now_ns();
        let index =
            |load: &HandledLoad| load.sender * others.workers + load.worker - others.first();
        let large = changes
            .iter()
            .any(|load| load.weight - reported[index(load)].0 >= REPORT_WEIGHT);
        if large || now - last_ns >= REPORT_NS {
            last_ns = now;
            for load in &changes {
                reported[index(load)] = (load.weight, load.items);
            }
            if let Some(member) = others.member() {
                member.handled(&changes);
            }
        }
        std::thread::park_timeout(LOOK);
    }
}

/// Returns the sums that differ from those that were reported.
fn changes(control: &Control, others: &Others, reported: &[(u64, u64)]) -> Vec<HandledLoad> {
    let sums = others.handled.iter().zip(reported).enumerate();
    let changed = sums.filter_map(|(index, (sums, reported))| {
        let (weight, items) = sums.get();
        let worker = others.first() + index % others.workers;
        let (turn_items, in_flight_items_max) = control.limits(worker);
        ((weight, items) != *reported).then_some(HandledLoad {
            sender: index / others.workers,
            worker,
            weight,
            items,
            turn_items,
            in_flight_items_max,
        })
    });
    changed.collect()
}
