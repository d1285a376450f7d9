//! Worlds of crashes: the journal holds, and each fault that could be in it would be found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_journal::storage::Simulated;
use millstream_journal::{Host, Journal, Options, Sync};
use millstream_sim::bug::Bug;
use millstream_sim::crash::{Kind, first_found, world};

/// Worlds in which a fault has to be found.
const PATIENCE: u64 = 2_000;

#[test]
fn no_world_breaks_a_promise() {
    let mut kills = 0;
    let mut images = 0;
    let mut relapses = 0;
    for seed in 1..=150 {
        let tally = world(seed, Kind::Sound);
        assert_eq!(
            tally.failure, None,
            "repeat with: make worlds SEED={seed} WORLDS=1"
        );
        kills += tally.kills;
        images += tally.images;
        relapses += tally.relapses;
    }
    // The worlds are as eventful as they are meant to be.
    assert!(kills > 50 && images > 2_000 && relapses > 500);
}

#[test]
fn no_sync_that_fails_breaks_a_promise() {
    for seed in 1..=50 {
        assert_eq!(
            world(seed, Kind::FailingSyncs).failure,
            None,
            "repeat with: millstream-sim crash --failing-syncs --seed {seed} --worlds 1"
        );
    }
}

#[test]
fn a_disk_that_confirms_what_it_did_not_write_fails_the_test() {
    let (_, broken) = first_found(1, 20, Kind::Lying).expect("a lying disk was believed");
    assert!(broken.promise == 2 || broken.promise == 3);
}

#[test]
fn every_planted_bug_is_found() {
    let missed: Vec<Bug> = Bug::ALL
        .into_iter()
        .filter(|bug| first_found(1, PATIENCE, Kind::Planted(*bug)).is_none())
        .collect();
    assert_eq!(missed, []);
}

/// One process has appended and dies before its time to sync comes; another has the journal open by then, but not for
/// so long. World 100191026 has found it.
#[test]
fn a_time_between_syncs_bounds_the_loss_of_a_killed_writer() {
    const EVERY_NS: u64 = 200_000_000;
    let clock = Arc::new(AtomicU64::new(1));
    let options = |boot| {
        let clock = Arc::clone(&clock);
        let host = Host::simulated(move || clock.load(Ordering::Relaxed), || 1).with_boot(boot);
        Options::on(host)
            .with_sync(Sync::Every(Duration::from_nanos(EVERY_NS)))
            .with_segment_bytes(64 << 10)
    };
    let machine = Simulated::new();
    let process = machine.process();
    let first = Journal::open_in(process.clone(), options(1)).unwrap();
    first.writer().unwrap().append(b"of the first").unwrap();
    clock.fetch_add(EVERY_NS * 3 / 4, Ordering::Relaxed);
    let second = Journal::open_in(machine.process(), options(1)).unwrap();
    let second = second.writer().unwrap();
    process.kill();
    clock.fetch_add(EVERY_NS / 3, Ordering::Relaxed);
    second.background();
    // Of each page the oldest state that it may have.
    let after = machine.lose_power(&mut |_| 0);
    let after = Journal::open_in(after.process(), options(2)).unwrap();
    assert_eq!(after.next().unwrap(), 1);
}
