//! The state that the workers share, in a run of several processes: what concerns the others.

use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Control, ENDED_TICK, Ended, lock};
use crate::clock::now_ns;
use crate::cluster::{HandledLoad, Member};
use crate::error::{FlowError, chain};
use crate::run::in_flight::{Peer, Processed, parts};
use crate::run::metrics::LinkMetrics;
use crate::run::remote::{Others, Pauses};

/// The time that a lost connection for data waits for the death of its process to be reported with its cause.
const CAUSE_NS: u64 = 1_000_000_000;
/// The time that a process which has ended waits for the ends of its connections: longer than a death goes unnoticed.
const LINKS_NS: u64 = 15_000_000_000;
/// The interval at which it checks whether that was reported.
const CAUSE_TICK: Duration = Duration::from_millis(10);

impl Control {
    /// Adds the other processes of the run.
    pub(crate) fn with_others(mut self, others: Others) -> Self {
        let workers = self.local.len();
        let all = others.membership.processes * workers;
        self.peers.resize_with(all, Peer::default);
        self.local = others.first()..others.first() + workers;
        self.others = Some(others);
        self
    }

    /// The other processes of the run, if there are any.
    pub(crate) fn others(&self) -> Option<&Others> {
        self.others.as_ref()
    }

    /// Where to send notices to other processes, once they have been met.
    pub(crate) fn member(&self) -> Option<&dyn Member> {
        self.others.as_ref()?.member()
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

    /// Records that the workers of all processes have opened their connectors.
    pub(crate) fn go(&self) {
        self.all_built.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Wakes the workers of this process that sleep, after packets of another process have arrived.
    pub(crate) fn wake_receivers(&self) {
        self.wake_sleepers(usize::MAX);
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

    /// Why the sources of other processes must pause for this one.
    pub(crate) fn own_pauses(&self) -> Pauses {
        Pauses {
            congested: self.peers.iter().any(Peer::is_congested),
            outbox_full: self.full_outboxes.load(Ordering::Relaxed) > 0,
        }
    }

    /// Returns how many items a worker can process in a turn, and how many may be in flight to it.
    pub(crate) fn limits(&self, worker: usize) -> (u64, u64) {
        self.peers[worker].limits()
    }

    /// Returns the metrics of the connections to other processes.
    pub(crate) fn links(&self) -> Vec<LinkMetrics> {
        self.others.as_ref().map_or_else(Vec::new, Others::links)
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

    /// Waits until all connections for data have ended, so that their threads end; false if one of them is lost, or does
    /// not end.
    pub(crate) fn wait_links(&self) -> bool {
        let until = now_ns() + LINKS_NS;
        let mut ended = lock(&self.ended);
        while ended.halves > 0 && !self.aborted() && now_ns() < until {
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
        let over = |ended: &Ended| ended.others || self.stopping();
        over(&ended) || {
            let waited = self.all_ended.wait_timeout(ended, ENDED_TICK);
            over(&waited.unwrap_or_else(PoisonError::into_inner).0)
        }
    }

    /// Ends the run because the connection for data to a process is lost, if the death of that process is not reported
    /// with a better cause. A run that was asked to stop may lose connections: a process that drains for too long ends.
    pub(crate) fn link_lost(&self, process: usize, cause: &str) {
        let until = now_ns() + CAUSE_NS;
        while !self.aborted() && now_ns() < until {
            std::thread::park_timeout(CAUSE_TICK);
        }
        if !self.stopping() {
            let cause = cause.to_owned();
            self.fail(FlowError::Lost { process, cause });
        }
    }

    /// Ends the run if the events of other processes end before it.
    pub(crate) fn events_ended(&self) {
        if !self.workers_ended() && !self.stopping() {
            let cause = "the events of the run have ended".into();
            let process = self
                .others
                .as_ref()
                .map_or(0, |others| others.membership.process);
            self.fail(FlowError::Cluster { process, cause });
        }
    }

    fn workers_ended(&self) -> bool {
        lock(&self.ended).workers == self.local.len()
    }

    /// Ends a run that could not start.
    pub(crate) fn end_start(&self, error: &FlowError) {
        if let Some(member) = self.member() {
            member.failed(&chain(error).to_string());
        }
        if let Some(others) = &self.others {
            others.end();
        }
        self.abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Membership;
    use crate::run::pace::Slow;

    #[test]
    fn sources_pass_on_a_turn_for_each_process_unless_items_are_slow() {
        let membership = |processes| Membership {
            process: 0,
            processes,
        };
        let turn_items = |processes, turn| {
            let control = Control::new(1, None).with_others(Others::new(membership(processes), 1));
            let in_flight = 2 * turn;
            control.set_slow(1, Some(Slow { turn, in_flight }));
            control.turn_items()
        };
        assert_eq!(turn_items(2, 500), 1_000);
        assert_eq!(turn_items(64, 500), 4 * 500);
        assert_eq!(turn_items(2, 1), 1);
        assert_eq!(Control::new(2, None).turn_items(), usize::MAX);
    }
}
