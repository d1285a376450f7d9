//! The results of a flow on several processes are those on one.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use millstream_flow::batch::Data;
use millstream_flow::join::{Join, JoinKind, Pairs};
use millstream_flow::testing::{Collected, Mark, script};
use millstream_flow::window::{Outcome, Windowed};
use millstream_flow::{Emit, EventTime, Flow, KeyedStream, Options, Stream, Timed, Window};

use super::hub::run;

/// Processes and workers of each.
const SHAPES: [(usize, usize); 4] = [(2, 1), (2, 2), (3, 1), (3, 2)];

/// The outputs of each key, in order.
fn by_key<K: Ord, V>(outputs: Vec<(K, V)>) -> BTreeMap<K, Vec<V>> {
    let mut keys: BTreeMap<K, Vec<V>> = BTreeMap::new();
    for (key, value) in outputs {
        keys.entry(key).or_default().push(value);
    }
    keys
}

/// Runs a flow on one process and on several; the outputs of each key must be the same, in the same order if
/// `in_order`.
fn judge<K, V>(in_order: bool, flow: impl Fn(&Flow, &Collected<(K, V)>) + Send + Sync + 'static)
where
    K: Ord + Data + Debug + Sync,
    V: Ord + Data + Debug + Sync,
{
    let flow = Arc::new(flow);
    let sorted = |out: &Collected<(K, V)>| {
        let mut seen = by_key(out.take());
        if !in_order {
            seen.values_mut().for_each(|values| values.sort());
        }
        seen
    };
    let alone = {
        let described = Flow::new("same");
        let out = Collected::new();
        flow(&described, &out);
        described.run(Options::default()).unwrap();
        sorted(&out)
    };
    assert!(!alone.is_empty());
    for (processes, workers) in SHAPES {
        let out = Collected::new();
        let seen = out.clone();
        let flow = Arc::clone(&flow);
        let reports = run(processes, workers, move |_| {
            let described = Flow::new("same");
            flow(&described, &seen);
            described
        });
        let place = format!("{processes} processes of {workers} workers");
        assert_eq!(sorted(&out), alone, "{place}");
        for report in reports {
            assert_eq!(report.workers.len(), workers, "{place}");
            assert_eq!(report.links.len(), processes - 1, "{place}");
            let carried = |link: &millstream_flow::metrics::LinkMetrics| {
                link.sent_bytes > 0 && link.received_bytes > 0
            };
            assert!(report.links.iter().all(carried), "{place}");
        }
    }
}

const PARTITIONS: u32 = 3;

/// Items (key, time, number) in partitions; each key is in one of them, in order.
fn partitions(keys: u32, each: i64) -> Vec<Vec<Mark<(u32, i64, i64)>>> {
    let of = |partition: u32| {
        let keys = move |n: i64| {
            let mine = (0..keys).filter(move |key| key % PARTITIONS == partition);
            mine.map(move |key| Mark::Item((key, n * 3, n)))
        };
        (1..=each).flat_map(keys).collect()
    };
    (0..PARTITIONS).map(of).collect()
}

#[test]
fn words_are_counted_and_the_counts_come_at_the_end() {
    judge(true, |flow, out| {
        let words: Vec<Mark<String>> = (0..3000)
            .map(|n: u32| Mark::Item(format!("word {}", n % 101)))
            .collect();
        flow.source("words", script([words]))
            .key_by(|word| word.clone())
            .count(Emit::End)
            .items()
            .sink("out", out.sink());
    });
}

/// Each output must be the last four numbers of its key.
fn last_four(keyed: &KeyedStream<u32, i64>) -> Stream<(u32, [i64; 4])> {
    let step = |ring: &mut [i64; 4], _: &u32, n| {
        ring.rotate_left(1);
        ring[3] = n;
        Some(*ring)
    };
    keyed.stateful("window", |_| [0i64; 4], step).items()
}

#[test]
fn the_numbers_of_each_key_keep_their_order() {
    for batch in [1, 7, 1000] {
        judge(true, move |flow, out| {
            flow.saves::<[i64; 4]>();
            let source = flow.source("numbers", script(partitions(40, 150)).batch_size(batch));
            let (even, odd) = source.branch(|item| item.0 % 2 == 0);
            let keyed =
                |stream: &Stream<(u32, i64, i64)>| stream.key_by(|item| item.0).map(|item| item.2);
            let counted = keyed(&odd).stateful(
                "first",
                |_| 0i64,
                |count, _, _| {
                    *count += 1;
                    Some(*count)
                },
            );
            let again = counted.items().key_by(|item| item.0).map(|item| item.1);
            last_four(&keyed(&even).merge(&[again])).sink("out", out.sink());
        });
    }
}

#[test]
fn redistributed_items_are_all_there() {
    judge(false, |flow, out| {
        flow.saves::<(u32, i64, i64)>();
        let source = flow.source("numbers", script(partitions(6, 200)));
        let more = flow.source("more", script(partitions(6, 100)));
        let merged = source.merge(&[more]).redistribute();
        merged.map(|item| (item.0, item.2)).sink("out", out.sink());
    });
}

#[test]
fn windows_close_by_the_watermark_of_all_processes() {
    judge(true, |flow, out| {
        flow.saves::<(u32, i64, i64)>();
        let closed: Outcome<u32, (u32, i64, i64), Windowed<Vec<i64>>> = flow
            .source("in", script(partitions(12, 120)))
            .event_time(|item: &(u32, i64, i64)| item.1, EventTime::default())
            .key_by(|item| item.0)
            .window("windows", Window::tumbling(Duration::from_nanos(50)))
            .fold(
                Vec::new(),
                |numbers: &mut Vec<i64>, item| numbers.push(item.2),
                |numbers, later| numbers.extend_from_slice(later),
            );
        let results = closed.results.items();
        results
            .map(|(key, window)| (key, (window.time, window.value.value)))
            .sink("out", out.sink());
    });
}

/// A key, and what a join has made of its values.
type Pair = (u32, Timed<(Option<i64>, Option<i64>)>);

#[test]
fn streams_are_joined() {
    judge(true, |flow, out| {
        let stream = |name: &str, every: i64| {
            let marks = partitions(9, 150 / every);
            flow.source(name, script(marks).batch_size(4))
                .event_time(
                    move |item: &(u32, i64, i64)| item.1 * every,
                    EventTime::default(),
                )
                .key_by(|item| item.0)
                .map(|item| item.map(|(_, _, number)| number))
        };
        let joined: Pairs<u32, i64, i64> = stream("left", 1).join(
            "joined",
            &stream("right", 2),
            Join::latest().how(JoinKind::Full),
        );
        let results: Stream<Pair> = joined.results.items();
        results
            .map(|(key, pair)| (key, (pair.time, pair.value)))
            .sink("out", out.sink());
    });
}
