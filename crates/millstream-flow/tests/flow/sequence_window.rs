//! The sequence-window invariant: each key is sent 1, 2, ..., n; its state is a ring of the last four; each
//! output must be the last four numbers. Loss, duplication, reordering and mixing of keys all violate it, in
//! any topology.

use std::collections::HashMap;

use millstream_flow::testing::{Collected, Mark, script};
use millstream_flow::{Flow, KeyedStream, Options, Stream};

type Item = (u32, u64);
type Window = [u64; 4];

const KEYS: u32 = 40;
const PER_KEY: u64 = 500;
const PARTITIONS: u32 = 3;

/// Each key is in one partition, in order; the keys of a partition are interleaved.
fn partitions() -> Vec<Vec<Mark<Item>>> {
    (0..PARTITIONS)
        .map(|p| {
            let keys: Vec<u32> = (0..KEYS).filter(|key| key % PARTITIONS == p).collect();
            (1..=PER_KEY)
                .flat_map(|n| {
                    keys.iter()
                        .map(move |&key| Mark::Item((key, n)))
                        .collect::<Vec<_>>()
                })
                .collect()
        })
        .collect()
}

fn windows(keyed: &KeyedStream<u32, u64>) -> KeyedStream<u32, Window> {
    keyed.stateful(
        "window",
        |_| [0u64; 4],
        |ring, _, n| {
            ring.rotate_left(1);
            ring[3] = n;
            Some(*ring)
        },
    )
}

fn keyed(stream: &Stream<Item>) -> KeyedStream<u32, u64> {
    stream.key_by(|item| item.0).map(|item| item.1)
}

/// Runs a topology with 1, 2 and 3 workers and checks its output against the rule.
fn judge(topology: impl Fn(&Flow, Stream<Item>) -> Stream<(u32, Window)>) {
    for workers in 1..=3 {
        for batch in [1, 7, 1000] {
            let flow = Flow::new("windows");
            flow.saves::<[u64; 4]>();
            let seen = Collected::new();
            let source = flow.source("numbers", script(partitions()).batch_size(batch));
            topology(&flow, source).sink("out", seen.sink());
            flow.run(Options::workers(workers)).expect("the flow runs");
            let mut last: HashMap<u32, u64> = HashMap::new();
            for (key, window) in seen.take() {
                let n = last.entry(key).or_default();
                *n += 1;
                let due = [3, 2, 1, 0].map(|back| n.saturating_sub(back));
                assert_eq!(
                    window, due,
                    "key {key}, {workers} workers, batches of {batch}"
                );
            }
            assert_eq!(last.len(), KEYS as usize);
            assert!(last.values().all(|&n| n == PER_KEY));
        }
    }
}

#[test]
fn key_by_then_state() {
    judge(|_, source| windows(&keyed(&source)).items());
}

#[test]
fn stateless_steps_before_and_after() {
    judge(|_, source| {
        let odd = source
            .map(|item| (item.0, item.1 * 2))
            .filter(|item| item.1 > 0);
        let keyed = odd
            .flat_map(|item| [item])
            .key_by(|item| item.0)
            .map(|item| item.1 / 2);
        windows(&keyed)
            .filter(|window| window[3] > 0)
            .map(|window| window)
            .items()
    });
}

#[test]
fn branched_and_merged_by_key() {
    judge(|_, source| {
        let (even, odd) = source.branch(|item| item.0 % 2 == 0);
        windows(&keyed(&even).merge(&[keyed(&odd)])).items()
    });
}

#[test]
fn merged_before_the_key() {
    judge(|flow, source| {
        let empty = flow.source("nothing", script::<Item>([vec![], vec![Mark::End]]));
        windows(&keyed(&source.merge(&[empty]))).items()
    });
}

#[test]
fn two_states_in_a_row_and_a_new_key() {
    judge(|_, source| {
        let first = keyed(&source).stateful(
            "count",
            |_| 0u64,
            |n, _, _| {
                *n += 1;
                Some(*n)
            },
        );
        let again = first
            .items()
            .key_by(|item| u64::from(item.0) * 31)
            .map(|(key, n)| (key, n));
        let back = again.values().key_by(|item| item.0).map(|item| item.1);
        windows(&back).items()
    });
}

#[test]
fn placed_streams_merged() {
    judge(|_, source| {
        let (low, high) = source.branch(|item| item.0 < 20);
        windows(&keyed(&low))
            .merge(&[keyed(&high).stateful(
                "other window",
                |_| [0u64; 4],
                |ring, _, n| {
                    ring.rotate_left(1);
                    ring[3] = n;
                    vec![*ring]
                },
            )])
            .items()
    });
}

#[test]
fn one_stream_read_twice() {
    judge(|flow, source| {
        let counted = Collected::<Item>::new();
        source.sink("copy", counted.sink());
        let _ = flow;
        windows(&keyed(&source)).items()
    });
}
