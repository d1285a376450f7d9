//! Records passed between two threads through memory alone: the floor of a journal between two processes, in the same
//! run.
//!
//! Each record has a place of its own, as large as its frame in a journal, never used before. The writer stores all of
//! it, the first word last; the reader looks at that word until it is there, then reads the rest. There is no checksum,
//! no clock and no number.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use hdrhistogram::Histogram;
use millstream_journal::clock::monotonic_ns;

use super::figures::{Fault, Figures};
use super::latency::{RATE, RECORDS, percentiles};
use super::speed::per_second;

/// The words of a frame with a body of 64 bytes.
type Place = [AtomicU64; 11];

const FLAT_OUT: usize = 4_000_000;

fn places(count: usize) -> Vec<Place> {
    let places: Vec<Place> = (0..count).map(|_| Place::default()).collect();
    // Memory that was asked for as zeros is the process's only when it is written.
    for place in &places {
        place[0].store(0, Ordering::Relaxed);
    }
    places
}

fn write(place: &Place, first: u64) {
    for word in &place[1..] {
        word.store(first, Ordering::Relaxed);
    }
    place[0].store(first, Ordering::Release);
}

fn read(place: &Place) -> u64 {
    loop {
        let first = place[0].load(Ordering::Acquire);
        if first != 0 {
            black_box(place.each_ref().map(|word| word.load(Ordering::Relaxed)));
            return first;
        }
        spin_loop();
    }
}

pub(super) fn run(figures: &mut Figures) -> Result<(), Fault> {
    let all = places(FLAT_OUT);
    let start = monotonic_ns();
    thread::scope(|scope| {
        scope.spawn(|| all.iter().for_each(|place| write(place, 1)));
        for place in &all {
            read(place);
        }
    });
    let rate = per_second(FLAT_OUT as u64, start) / 1e6;
    figures.add("bare memory, two threads, 64 B", rate, "M/s", None);
    drop(all);
    let all = places(RECORDS as usize);
    let start = monotonic_ns() + 1_000_000;
    let mut histogram = Histogram::<u64>::new(3)?;
    thread::scope(|scope| {
        scope.spawn(|| {
            for (index, place) in (0..).zip(&all) {
                let due = start + index * 1_000_000_000 / RATE;
                while monotonic_ns() < due {
                    spin_loop();
                }
                write(place, due);
            }
        });
        all.iter().try_for_each(|place| {
            let due = read(place);
            histogram.record(monotonic_ns().saturating_sub(due))
        })
    })?;
    percentiles("bare memory, spinning, 100 k/s", &histogram, figures, None);
    Ok(())
}
