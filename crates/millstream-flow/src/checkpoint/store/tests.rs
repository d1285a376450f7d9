//! What a state journal contains after any sequence of epochs.

use std::collections::BTreeMap;

use super::super::fragments::FRAGMENT_BYTES;
use super::super::opened::Opened;
use super::super::replica::committed_end;
use super::*;
use crate::checkpoint::{Division, SourceMark};

/// Keys of a step with their state, as the two workers of a flow write them.
fn written(step: &str, keys: Range<u64>, state: u8, anew: bool) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    for worker in 0..2 {
        let mut changes = Changes::new(step, Shards::default());
        if anew {
            changes.supersede(worker, 2);
        }
        for key in keys.clone().filter(|key| key % 2 == worker as u64) {
            let shard = key as usize % Shards::default().count();
            changes.copy(shard, key, &key.to_le_bytes(), (1, &[state]));
        }
        records.extend(changes.records());
    }
    records
}

/// The states of a step, by key.
fn states(saved: &Saved, step: &str) -> Vec<u8> {
    let keys = saved.keys(step, |_| true).expect("it is read");
    keys.into_iter().map(|key| key.state[0]).collect()
}

#[test]
fn a_complete_state_supersedes_earlier_records_of_the_step() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(dir.path(), false).expect("it opens");
    let append = |store: &mut Store, epoch, records: [Vec<Vec<u8>>; 2]| {
        let commit = Commit {
            epoch,
            workers: 2,
            ..Commit::default()
        };
        store.commit(records.concat(), &commit).expect("it appends");
    };
    let nothing = Vec::new;
    let first = [
        written("all", 0..100, 1, false),
        written("some", 0..100, 1, false),
    ];
    append(&mut store, 1, first);
    append(&mut store, 2, [written("all", 0..100, 2, true), nothing()]);
    append(
        &mut store,
        3,
        [
            written("all", 0..50, 3, true),
            written("some", 0..1, 3, false),
        ],
    );
    let check = |saved: &Saved| {
        assert_eq!(states(saved, "all"), [3; 50]);
        assert_eq!(states(saved, "some"), [&[3][..], &[1; 99]].concat());
        // Of the rewritten records one of each group counts, and empty ones of groups that have no keys
        // left.
        let index = &saved.index;
        let of_all = index.names.iter().position(|name| name == "all");
        let records = index.groups.iter().flat_map(|group| &group.0);
        let records = records.filter(|record| Some(record.name) == of_all);
        assert_eq!(records.filter(|record| record.base).count(), GROUPS);
    };
    check(store.saved());
    drop(store);
    check(&Saved::open(dir.path()).expect("it is read"));
}

#[test]
fn a_commit_keeps_the_segments_of_records_that_were_appended_before_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(dir.path(), false).expect("it opens");
    // A state directory that is divided anew, with a state of more than a segment.
    const STATE_BYTES: usize = 6 << 20;
    let parts = 3 * SEGMENT_BYTES / STATE_BYTES as u64;
    for part in 0..parts {
        let mut changes = Changes::new("large", Shards::default());
        let state = vec![part as u8; STATE_BYTES];
        changes.copy(part as usize, part, &part.to_le_bytes(), (1, &state));
        let records: Vec<_> = changes.records().collect();
        store.append(&records).expect("it appends");
    }
    let commit = Commit {
        epoch: 1,
        ..Commit::default()
    };
    store.commit(Vec::new(), &commit).expect("it appends");
    let expected: Vec<u8> = (0..parts as u8).collect();
    assert_eq!(states(store.saved(), "large"), expected);
    drop(store);
    let saved = Saved::open(dir.path()).expect("it is read");
    assert_eq!(states(&saved, "large"), expected);
}

#[test]
fn complete_states_are_not_rewritten() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(dir.path(), false).expect("it opens");
    for epoch in 1..100 {
        let records = written("all", 0..20_000, epoch as u8, true);
        let count = records.len() as u64;
        let commit = Commit {
            epoch,
            ..Commit::default()
        };
        let before = store.saved.journal.next().expect("it tells");
        store.commit(records, &commit).expect("it appends");
        let after = store.saved.journal.next().expect("it tells");
        assert_eq!(after - before, count + 1);
    }
    assert_eq!(states(store.saved(), "all"), [99; 20_000]);
    let length = store.saved.journal.next().expect("it tells")
        - store.saved.journal.first().expect("it tells");
    assert!(length < 99 * 17, "nothing was pruned: {length} records");
}

/// Numbers that look random, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }
}

/// A state whose bytes differ by its place and its epoch.
fn state_of(length: usize, epoch: u64) -> Vec<u8> {
    (0..length)
        .map(|at| (at % 253) as u8 ^ epoch as u8)
        .collect()
}

/// The states of a step by key, complete.
fn all_states(saved: &Saved, step: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let keys = saved.keys(step, |_| true).expect("it is read");
    keys.into_iter().map(|key| (key.key, key.state)).collect()
}

#[test]
fn states_of_any_length_are_read_as_they_were_written() {
    const HEAD_BYTES: usize = 64;
    let lengths = [
        0,
        1,
        1000,
        FRAGMENT_BYTES - HEAD_BYTES,
        FRAGMENT_BYTES - 1,
        FRAGMENT_BYTES,
        FRAGMENT_BYTES + 1,
        2 * FRAGMENT_BYTES,
        5 * FRAGMENT_BYTES + 3,
    ];
    let (mut random, mut model) = (Random(1), BTreeMap::<Vec<u8>, Vec<u8>>::new());
    let dir = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(dir.path(), false).expect("it opens");
    let mut rewritten = 0;
    for epoch in 1..=60 {
        let mut changes = Changes::new("step", Shards::default());
        let keys: BTreeSet<usize> = (0..=random.below(3)).map(|_| random.below(6)).collect();
        for key in keys {
            let shard = key % 3;
            let key = vec![key as u8];
            let state = state_of(lengths[random.below(lengths.len())], epoch);
            match (random.below(5), model.get_mut(&key)) {
                (0, _) => {
                    changes.copy(shard, 0, &key, (REMOVED, &[]));
                    model.remove(&key);
                }
                (1 | 2, Some(before)) => {
                    changes.copy(shard, 0, &key, (ADDED, &state));
                    before.extend(state);
                }
                _ => {
                    changes.copy(shard, 0, &key, (1, &state));
                    model.insert(key, state);
                }
            }
        }
        let commit = Commit {
            epoch,
            ..Commit::default()
        };
        let records: Vec<_> = changes.records().collect();
        let bytes: usize = records.iter().map(Vec::len).sum();
        rewritten += usize::from(!store.saved.index.outgrown(bytes as u64).is_empty());
        store.commit(records, &commit).expect("it appends");
        assert_eq!(all_states(store.saved(), "step"), model, "epoch {epoch}");
        if epoch % 5 == 0 {
            let saved = Saved::open(dir.path()).expect("it is read");
            assert_eq!(all_states(&saved, "step"), model, "epoch {epoch}");
            drop(store);
            store = Store::open(dir.path(), false).expect("it opens");
        }
    }
    assert!(
        rewritten > 5,
        "the journal was compacted in {rewritten} epochs"
    );
    let first = store.saved.journal.first().expect("it tells");
    assert!(first > 0, "nothing was pruned");
}

#[test]
fn an_addition_without_a_state_is_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(dir.path(), false).expect("it opens");
    let mut changes = Changes::new("step", Shards::default());
    changes.copy(0, 0, &[7], (ADDED, &[1]));
    let records = changes.records().collect();
    store
        .commit(records, &Commit::default())
        .expect("it appends");
    let read = store.saved().keys("step", |_| true);
    let text = format!("{:?}", read.expect_err("it is an error"));
    assert!(text.contains("a state is missing"), "{text}");
}

/// A commit of more than a fragment.
fn long_commit(epoch: u64, division: Option<Division>) -> Commit {
    let source = |number: usize| SourceMark {
        source: "in".to_owned(),
        partition: format!("{number:01000}"),
        position: epoch.into(),
        recorded: false,
        local: None,
        input: None,
    };
    Commit {
        epoch,
        division,
        sources: (0..2 * FRAGMENT_BYTES / 1000).map(source).collect(),
        ..Commit::default()
    }
}

/// The changes of an epoch in which a long state of one key is replaced.
fn long_change(epoch: u64) -> Vec<Vec<u8>> {
    let mut changes = Changes::new("step", Shards::default());
    let state = state_of(3 * FRAGMENT_BYTES + 9, epoch);
    changes.copy(0, 0, &[7], (1, &state));
    changes.records().collect()
}

#[test]
fn a_crash_between_the_fragments_of_an_epoch_leaves_the_state_before_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let next = |store: &Store| store.saved.journal.next().expect("it tells");
    let mut store = Store::open(dir.path(), false).expect("it opens");
    store
        .commit(long_change(1), &long_commit(1, None))
        .expect("it appends");
    let before = next(&store);
    store
        .commit(long_change(2), &long_commit(2, None))
        .expect("it appends");
    let after = next(&store);
    assert!(after - before >= 7, "{before} to {after}");
    let journal = store.journal().clone();
    let expect = |epoch: u64| {
        let saved = Saved::open(dir.path()).expect("it is read");
        assert_eq!(saved.commit(), Some(&long_commit(epoch, None)));
        let expected = state_of(3 * FRAGMENT_BYTES + 9, epoch);
        assert_eq!(all_states(&saved, "step"), [(vec![7], expected)].into());
    };
    expect(2);
    for end in (before..after).rev() {
        journal.cut(end).expect("it is cut");
        expect(1);
    }
    drop((store, journal));
    let mut store = Store::open(dir.path(), false).expect("it opens");
    store
        .commit(long_change(2), &long_commit(2, None))
        .expect("it appends");
    expect(2);
}

#[test]
fn what_is_prepared_in_fragments_is_kept_or_dropped_completely() {
    let division = |process| Division {
        process,
        processes: 2,
        ..Division::default()
    };
    for (process, keeps) in [(0, true), (1, true), (1, false)] {
        let dir = tempfile::tempdir().expect("a folder");
        let commit = |epoch| long_commit(epoch, Some(division(process)));
        let mut store = Store::open(dir.path(), false).expect("it opens");
        let journal = store.journal().clone();
        let end = || committed_end(&path(dir.path())).expect("it is read");
        store
            .prepare(long_change(1), &commit(1))
            .expect("it appends");
        let prepared = journal.next().expect("it tells");
        assert_eq!(end(), 0);
        store
            .commit_prepared(&commit(1), false)
            .expect("it appends");
        let committed = journal.next().expect("it tells");
        // The commit record of another process than 0 is not synced.
        assert_eq!(end(), if process == 0 { committed } else { prepared });
        store
            .prepare(long_change(2), &commit(2))
            .expect("it appends");
        drop((store, journal));
        let opened = Opened::open(dir.path(), false).expect("it opens");
        assert_eq!(opened.commit(), Some(&commit(1)));
        assert_eq!(opened.prepared(), Some(&commit(2)));
        let store = if keeps {
            opened.keep()
        } else {
            opened.truncate()
        };
        let store = store.expect("it is decided");
        let epoch = if keeps { 2 } else { 1 };
        let expected = state_of(3 * FRAGMENT_BYTES + 9, epoch);
        assert_eq!(store.saved().commit(), Some(&commit(epoch)));
        assert_eq!(
            all_states(store.saved(), "step"),
            [(vec![7], expected)].into()
        );
    }
}
