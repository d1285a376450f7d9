//! Worlds of queues: no crash loses or reorders what was acknowledged, and each thing done wrong would be found.

use millstream_sim::queues::{Kind, Tally, first_found, world};

/// Worlds in which a fault has to be found.
const PATIENCE: u64 = 300;

#[test]
fn no_crash_loses_or_reorders_an_item() {
    let mut total = Tally::default();
    for seed in 1..=50 {
        let tally = world(seed, Kind::Sound);
        assert_eq!(
            tally.failure, None,
            "repeat with: millstream-sim queues --seed {seed} --worlds 1"
        );
        total.add(&tally);
    }
    // The worlds are as eventful as they are meant to be.
    assert!(total.kills > 50 && total.images > 500 && total.relapses > 100);
    assert!(total.acknowledged > 5_000 && total.repeated > 5);
}

#[test]
fn no_sync_that_fails_loses_or_reorders_an_item() {
    for seed in 1..=50 {
        assert_eq!(
            world(seed, Kind::FailingSyncs).failure,
            None,
            "repeat with: millstream-sim queues --failing-syncs --seed {seed} --worlds 1"
        );
    }
}

#[test]
fn what_is_done_wrong_is_found_out() {
    let missed: Vec<Kind> = Kind::WRONG
        .into_iter()
        .filter(|kind| first_found(1, PATIENCE, *kind).is_none())
        .collect();
    assert_eq!(missed, []);
}
