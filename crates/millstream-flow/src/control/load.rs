//! The load in flight to the workers of a run, and why sources pause.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::in_flight::{Peer, Processed, Slow, load, parts};
use super::remote::{Others, Pauses};
use super::wakers::Wakers;
use crate::cluster::HandledLoad;
use crate::metrics::LinkMetrics;

/// The most turns of a slow worker for which a source of a run of several processes passes on items at once.
const TURNS_MAX: usize = 4;

/// The load in flight to each worker.
pub(crate) struct Load {
    /// The workers of all processes.
    peers: Vec<Peer>,
    /// The workers of this process among them.
    local: Range<usize>,
    /// The other processes of the run, if there are any.
    others: Option<Others>,
    /// The items that sources have read and not passed on, because they did not fit into a turn.
    held: AtomicUsize,
    /// The number of outboxes over their limits.
    full_outboxes: AtomicUsize,
    wakers: Arc<Wakers>,
}

impl Load {
    /// The load of a run with these workers in this process.
    pub(super) fn new(local: Range<usize>, others: Option<Others>, wakers: Arc<Wakers>) -> Self {
        let processes = others
            .as_ref()
            .map_or(1, |others| others.membership.processes);
        let workers = processes * local.len();
        Load {
            peers: (0..workers).map(|_| Peer::default()).collect(),
            local,
            others,
            held: AtomicUsize::new(0),
            full_outboxes: AtomicUsize::new(0),
            wakers,
        }
    }

    /// The other processes of the run, if there are any.
    pub(crate) fn others(&self) -> Option<&Others> {
        self.others.as_ref()
    }

    /// Whether the run has more than one worker.
    pub(crate) fn has_peers(&self) -> bool {
        self.peers.len() > 1
    }

    /// The process of a worker, if it is not this one.
    pub(crate) fn other_process(&self, worker: usize) -> Option<usize> {
        self.others.as_ref()?.process_of(worker)
    }

    /// Whether another process has the clock of this one.
    pub(crate) fn same_clock(&self, process: usize) -> bool {
        let others = self.others.as_ref();
        others.is_none_or(|others| others.same_clock(process))
    }

    /// The workers of this process.
    pub(crate) fn local(&self) -> Range<usize> {
        self.local.clone()
    }

    /// Wakes the workers that sleep, after `worker` may have sent them something.
    pub(crate) fn wake_sleepers(&self, worker: usize) {
        for (index, peer) in self.peers[self.local.clone()].iter().enumerate() {
            if self.local.start + index != worker && peer.sleeping.swap(false, Ordering::SeqCst) {
                self.wakers.wake(index);
            }
        }
    }

    /// Wakes the workers of this process that sleep, after packets of another process have arrived.
    pub(crate) fn wake_receivers(&self) {
        self.wake_sleepers(usize::MAX);
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
        self.subtract(worker, Processed::of(items, 0));
    }

    /// Subtracts a load that has been processed and flushed.
    pub(crate) fn subtract(&self, worker: usize, processed: Processed) {
        self.peers[worker]
            .in_flight
            .fetch_sub(processed.0, Ordering::SeqCst);
    }

    /// Counts a load of another process that a local worker has processed and flushed.
    pub(crate) fn add_handled(&self, sender: usize, worker: usize, processed: Processed) {
        if let Some(others) = &self.others {
            let (weight, items) = parts(processed.0);
            others.add_handled(sender, worker, (weight, items as u64));
        }
    }

    /// Subtracts what a worker of another process has processed, and takes its limits.
    pub(crate) fn take_report(&self, load: &HandledLoad) {
        let (Some(others), Some(peer)) = (&self.others, self.peers.get(load.worker)) else {
            return;
        };
        others.take_pauses(load);
        let (weight, items) = others.take_report(load);
        let processed = Processed::of_sums(weight, items);
        peer.in_flight.fetch_sub(processed.0, Ordering::SeqCst);
        let limit = |limit| usize::try_from(limit).unwrap_or(usize::MAX);
        peer.set_limits(limit(load.turn_items), limit(load.in_flight_items_max));
    }

    /// Returns the number of items in flight between operators, or read and not passed on.
    pub(crate) fn unfinished(&self) -> usize {
        let sent: usize = (0..self.peers.len())
            .map(|worker| self.items_to(worker))
            .sum();
        sent + self.held.load(Ordering::SeqCst)
    }

    /// Returns the number of items in flight to a worker.
    pub(crate) fn items_to(&self, worker: usize) -> usize {
        parts(self.peers[worker].in_flight.load(Ordering::SeqCst)).1
    }

    /// Adds and subtracts items that a source has read and not passed on.
    pub(crate) fn hold(&self, more: usize, less: usize) {
        self.held.fetch_add(more, Ordering::SeqCst);
        self.held.fetch_sub(less, Ordering::SeqCst);
    }

    /// Counts an outbox that is over its limit, or no longer: sources pause while there is one.
    pub(crate) fn hold_sources(&self, hold: bool) {
        if hold {
            self.full_outboxes.fetch_add(1, Ordering::SeqCst)
        } else {
            self.full_outboxes.fetch_sub(1, Ordering::SeqCst)
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

    /// Why the sources of other processes must pause for this one.
    pub(crate) fn own_pauses(&self) -> Pauses {
        Pauses {
            congested: self.peers.iter().any(Peer::is_congested),
            outbox_full: self.full_outboxes.load(Ordering::Relaxed) > 0,
        }
    }

    /// Publishes the pace of a worker, which the worker measured.
    pub(crate) fn set_slow(&self, worker: usize, slow: Option<Slow>) {
        self.peers[worker].set_slow(slow);
    }

    /// Returns how many items a worker can process in a turn, and how many may be in flight to it.
    pub(crate) fn limits(&self, worker: usize) -> (u64, u64) {
        self.peers[worker].limits()
    }

    /// Returns how many items at once every worker can process. With several processes they are dealt to the workers of
    /// all, in packets that cost much more than in memory: so it is some turns then, unless a turn has one item, which
    /// may take any time.
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

    /// Returns the metrics of the connections to other processes.
    pub(crate) fn links(&self) -> Vec<LinkMetrics> {
        self.others.as_ref().map_or_else(Vec::new, Others::links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Membership;

    #[test]
    fn sources_pass_on_a_turn_for_each_process_unless_items_are_slow() {
        let load = |others| Load::new(0..1, others, Arc::new(Wakers::new(0..1)));
        let turn_items = |processes, turn| {
            let membership = Membership {
                process: 0,
                processes,
            };
            let load = load(Some(Others::new(membership, 1)));
            let in_flight = 2 * turn;
            load.set_slow(1, Some(Slow { turn, in_flight }));
            load.turn_items()
        };
        assert_eq!(turn_items(2, 500), 1_000);
        assert_eq!(turn_items(64, 500), 4 * 500);
        assert_eq!(turn_items(2, 1), 1);
        assert_eq!(load(None).turn_items(), usize::MAX);
    }
}
