//! The load in flight to one worker.
//!
//! A packet counts from the moment at which it is sent until its output was flushed. Its *weight* is the number of its
//! items, and that of a small batch is more.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::clock::now_ns;

/// The weight in flight to one worker at which sources pause: this many items in full batches.
pub(crate) const IN_FLIGHT_MAX: u64 = 1 << 16;
/// In a sum of loads the low bits are the weight, the high bits the items.
const WEIGHT_BITS: u32 = 32;
/// The time after which a worker that has not reported again no longer counts as slow.
const SLOW_NS: u64 = 2_000_000_000;
/// The least weight of a batch. A batch has few items because they are large: a read of 64 KiB contains them,
/// so that the weight bounds the bytes in flight too.
const BATCH_WEIGHT: usize = 256;

/// The capacity of a slow worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slow {
    /// The number of items that fit into a turn.
    pub(crate) turn: usize,
    /// The number of items that may be in flight.
    pub(crate) in_flight: usize,
}

/// The load of one worker, as the others see it. It has cache lines of its own, since each of its senders writes it.
#[repr(align(128))]
pub(super) struct Peer {
    pub(super) sleeping: AtomicBool,
    /// The load in flight to it: the sum of weights and, above them, that of items.
    pub(super) in_flight: AtomicU64,
    /// The number of items that may be in flight to it while it is slow. One until it has processed some.
    in_flight_items_max: AtomicUsize,
    /// The number of items that fit into one of its turns, if it was slow at [`slow_at_ns`](Self::slow_at_ns).
    turn_items: AtomicUsize,
    slow_at_ns: AtomicU64,
    /// The number of packets that were sent to it.
    pub(super) deliveries: AtomicU64,
}

impl Default for Peer {
    fn default() -> Self {
        Peer {
            sleeping: AtomicBool::new(false),
            in_flight: AtomicU64::new(0),
            in_flight_items_max: AtomicUsize::new(1),
            turn_items: AtomicUsize::new(usize::MAX),
            slow_at_ns: AtomicU64::new(0),
            deliveries: AtomicU64::new(0),
        }
    }
}

impl Peer {
    /// Whether the load in flight to it is so large that sources must pause.
    pub(super) fn is_congested(&self) -> bool {
        let (weight, items) = parts(self.in_flight.load(Ordering::Relaxed));
        weight > IN_FLIGHT_MAX || items > self.in_flight_items_max.load(Ordering::Relaxed)
    }

    pub(super) fn set_limits(&self, turn_items: usize, in_flight_items_max: usize) {
        self.turn_items.store(turn_items, Ordering::Relaxed);
        self.slow_at_ns.store(now_ns(), Ordering::Relaxed);
        self.in_flight_items_max
            .store(in_flight_items_max, Ordering::Relaxed);
    }

    /// Sets the limits that the worker has measured.
    pub(super) fn set_slow(&self, slow: Option<Slow>) {
        let no_limit = Slow {
            turn: usize::MAX,
            in_flight: usize::MAX,
        };
        let limits = slow.unwrap_or(no_limit);
        self.set_limits(limits.turn, limits.in_flight);
    }

    /// Returns how many items it can process in a turn, and how many may be in flight to it.
    pub(super) fn limits(&self) -> (u64, u64) {
        let turn_items = self.turn_items.load(Ordering::Relaxed) as u64;
        let in_flight_items_max = self.in_flight_items_max.load(Ordering::Relaxed);
        (turn_items, in_flight_items_max as u64)
    }

    /// Returns how many items it can process in a turn, if it was slow a short time ago.
    pub(super) fn slow_turn(&self) -> Option<usize> {
        let items = self.turn_items.load(Ordering::Relaxed);
        let until = || {
            let slow_at_ns = self.slow_at_ns.load(Ordering::Relaxed);
            slow_at_ns.saturating_add(SLOW_NS)
        };
        (items != usize::MAX && now_ns() < until()).then_some(items)
    }
}

/// Returns the load of a packet of `items` items: its weight and its items.
pub(super) fn load(items: usize) -> u64 {
    (items as u64) << WEIGHT_BITS | items.max(BATCH_WEIGHT) as u64
}

/// Returns the weight and the items of a load.
pub(super) fn parts(load: u64) -> (u64, usize) {
    (
        load & ((1 << WEIGHT_BITS) - 1),
        (load >> WEIGHT_BITS) as usize,
    )
}

/// A part of the load in flight that was processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Processed(pub(super) u64);

impl Processed {
    /// Returns the load of a packet, or a part of one, that had `before` items left and has `left` items now.
    pub(crate) fn of(before: usize, left: usize) -> Self {
        Processed(match left {
            0 => load(before),
            left => load(before) - load(left),
        })
    }

    pub(crate) fn is_nothing(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn add(&mut self, other: Processed) {
        self.0 += other.0;
    }

    /// The load of a weight and a number of items.
    pub(super) fn of_sums(weight: u64, items: u64) -> Self {
        Processed(items << WEIGHT_BITS | weight)
    }
}
