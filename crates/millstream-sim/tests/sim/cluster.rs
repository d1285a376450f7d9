//! Worlds of several processes: the protocol holds, and each fault that could be in it would be found.

use millstream_sim::cluster::{Kind, Tally, first_found, world};

/// Worlds in which a fault has to be found.
const PATIENCE: u64 = 2_000;

#[test]
fn no_world_breaks_the_commit_over_processes() {
    let mut total = Tally::default();
    for seed in 1..=100 {
        let tally = world(seed, Kind::Sound);
        assert_eq!(
            tally.failure, None,
            "repeat with: millstream-sim cluster --seed {seed} --worlds 1"
        );
        total.add(&tally);
    }
    // The worlds are as eventful as they are meant to be.
    assert!(
        total.kills > 500 && total.joins > 300 && total.commits > 1_000,
        "{total:?}"
    );
    assert!(
        total.kept > 10 && total.aborted > 50 && total.copies_refused > 10,
        "{total:?}"
    );
}

#[test]
fn every_fault_of_the_commit_over_processes_is_found() {
    let missed: Vec<Kind> = Kind::WRONG
        .into_iter()
        .filter(|kind| first_found(1, PATIENCE, *kind).is_none())
        .collect();
    assert_eq!(missed, []);
}
