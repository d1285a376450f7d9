//! Worlds of crashes: the journal holds, and each fault that could be in it would be found.

use millstream_journal::planted::Bug;
use millstream_sim::crash::{Kind, first_found, world};

/// Worlds in which a fault has to be found.
const PATIENCE: u64 = 2_000;

#[test]
fn no_world_breaks_a_promise() {
    let (mut kills, mut images, mut relapses) = (0, 0, 0);
    for seed in 1..=150 {
        let tally = world(seed, Kind::Sound);
        assert_eq!(
            tally.failure, None,
            "repeat with: make sim SEED={seed} WORLDS=1"
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
fn a_disk_that_lies_is_found_out() {
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
