//! The thread that reports to the other processes what this one has processed, while that changes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock::now_ns;
use crate::cluster::HandledLoad;
use crate::control::Load;
use crate::control::in_flight::IN_FLIGHT_MAX;
use crate::control::remote::{Others, Pauses, Sums};

/// The interval at which the thread that reports looks at the sums while they change.
const LOOK: Duration = Duration::from_millis(1);
/// The longest time after which a change is reported.
const REPORT_NS: u64 = 5_000_000;
/// A larger change of weight is reported at once.
const REPORT_WEIGHT: u64 = IN_FLIGHT_MAX / 8;
/// So is this part of the items that may be in flight to a slow worker, which would wait for its senders otherwise.
const REPORT_PART: u64 = 8;

/// Reports to the other processes what this one has processed, and whether sources must pause, until the run is over.
pub(super) fn report_handled(load: &Load, others: &Others) {
    let _ = others.reporter.set(std::thread::current());
    let mut reports = Reports {
        load,
        others,
        sums: vec![(0, 0); others.handled.len()],
        pauses: Pauses::default(),
        last_ns: 0,
    };
    while !others.over.load(Ordering::SeqCst) {
        if reports.is_idle() {
            others.idle.store(true, Ordering::SeqCst);
            // A worker that counted before it could see this flag has not woken this thread.
            if reports.is_idle() && !others.over.load(Ordering::SeqCst) {
                std::thread::park();
            }
            others.idle.store(false, Ordering::SeqCst);
        } else {
            reports.send_due();
            std::thread::park_timeout(LOOK);
        }
    }
}

/// What the other processes know of this one.
struct Reports<'a> {
    load: &'a Load,
    others: &'a Others,
    /// The sums that were reported last.
    sums: Vec<(u64, u64)>,
    pauses: Pauses,
    last_ns: u64,
}

impl Reports<'_> {
    /// Whether nothing has changed, and nothing is expected to.
    fn is_idle(&self) -> bool {
        let handled = self.others.handled.iter();
        let now = self.load.own_pauses();
        now == Pauses::default()
            && self.pauses == now
            && handled
                .zip(&self.sums)
                .all(|(sums, known)| sums.get() == *known)
    }

    /// Reports all changes, if one of them is due.
    fn send_due(&mut self) {
        let now = now_ns();
        let pauses = self.load.own_pauses();
        let paused = pauses != self.pauses;
        let sums: Vec<_> = self.others.handled.iter().map(Sums::get).collect();
        let changed = sums != self.sums;
        let large = self.is_large(&sums);
        if !paused && !large && (!changed || now - self.last_ns < REPORT_NS) {
            return;
        }
        let loads = self.loads(&sums, pauses, paused);
        (self.sums, self.pauses, self.last_ns) = (sums, pauses, now);
        if let Some(member) = self.others.member() {
            member.handled(&loads);
        }
    }

    /// Whether so much was processed that senders must not wait for the next report.
    fn is_large(&self, sums: &[(u64, u64)]) -> bool {
        let workers = self.others.workers;
        let first = self.others.first();
        let mut grown = sums.iter().zip(&self.sums).enumerate();
        grown.any(|(index, (sums, known))| {
            let (_, in_flight_items_max) = self.load.limits(first + index % workers);
            sums.0 - known.0 >= REPORT_WEIGHT
                || sums.1 - known.1 > in_flight_items_max / REPORT_PART
        })
    }

    /// The sums that have changed; of each process one, if `all`.
    fn loads(&self, sums: &[(u64, u64)], pauses: Pauses, all: bool) -> Vec<HandledLoad> {
        let others = self.others;
        let workers = self.others.workers;
        let own = others.membership.process;
        let loads = sums
            .iter()
            .enumerate()
            .filter_map(|(index, &(weight, items))| {
                let sender = index / workers;
                let worker = index % workers;
                let reported = (weight, items) != self.sums[index] || (all && worker == 0);
                let (turn_items, in_flight_items_max) = self.load.limits(others.first() + worker);
                (reported && sender != own).then_some(HandledLoad {
                    sender,
                    worker: others.first() + worker,
                    weight,
                    items,
                    turn_items,
                    in_flight_items_max,
                    congested: pauses.congested,
                    outbox_full: pauses.outbox_full,
                })
            });
        loads.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Membership;
    use crate::control::Control;
    use crate::metrics::figures::Figures;

    const MEMBERSHIP: Membership = Membership {
        process: 1,
        processes: 2,
    };

    fn control() -> Control {
        let others = Others::new(MEMBERSHIP, 2);
        Control::of(Figures::new(2..4), Some(others), None)
    }

    fn reports(load: &Load) -> Reports<'_> {
        Reports {
            load,
            others: load.others().expect("there are others"),
            sums: vec![(0, 0); 4],
            pauses: Pauses::default(),
            last_ns: 0,
        }
    }

    #[test]
    fn a_part_of_what_may_be_in_flight_to_a_slow_worker_is_reported_at_once() {
        let control = control();
        let reports = reports(&control.load);
        let is_large = |items| reports.is_large(&[(0, 0), (items, items), (0, 0), (0, 0)]);
        control.load.set_slow(3, None);
        assert!(!is_large(REPORT_WEIGHT - 1) && is_large(REPORT_WEIGHT));
        let slow = crate::control::in_flight::Slow {
            turn: 10,
            in_flight: 80,
        };
        control.load.set_slow(3, Some(slow));
        assert!(!is_large(10) && is_large(11));
    }
}
