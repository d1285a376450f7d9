//! Joins, compared with a plain model that processes the items in the order of their times.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_flow::join::{Join, JoinKind, Pairs, Side};
use millstream_flow::testing::{self, Collected, Mark, script};
use millstream_flow::{EventTime, Flow, FlowError, Timed};

use super::support::{Random, by_key, run};

type Item = (u32, i64, i64);
type Pair = (i64, Option<i64>, Option<i64>);

const LATENESS: i64 = 10;

fn items(seed: u64, step: i64) -> Vec<Item> {
    let mut random = Random::new(seed);
    let mut now = 0;
    let mut times = std::collections::BTreeSet::new();
    (0..800)
        .filter_map(|number| {
            now += random.below(step);
            let key = random.below(8) as u32;
            let time = now - random.below(16);
            // One item of a stream for a key and a time: the order of several is not defined by time.
            times.insert((key, time)).then_some((key, time, number))
        })
        .collect()
}

/// Divides items into those that are not late, in the order of time, and late ones.
fn split(items: &[Item]) -> (Vec<Item>, Vec<Item>) {
    let mut watermark = i64::MIN;
    let (mut kept, late): (Vec<Item>, Vec<Item>) = items.iter().partition(|item| {
        let late = item.1 < watermark;
        watermark = watermark.max(item.1 - LATENESS);
        !late
    });
    kept.sort_by_key(|item| item.1);
    (kept, late)
}

type Model = fn(&[(i64, i64)], &[(i64, i64)], JoinKind) -> Vec<Pair>;

fn latest(left: &[(i64, i64)], right: &[(i64, i64)], how: JoinKind) -> Vec<Pair> {
    let mut turns: Vec<(i64, bool, i64)> = left.iter().map(|(t, n)| (*t, true, *n)).collect();
    turns.extend(right.iter().map(|(t, n)| (*t, false, *n)));
    turns.sort_unstable();
    let mut l = None;
    let mut r = None;
    let mut out = Vec::new();
    for (time, is_left, number) in turns {
        *(if is_left { &mut l } else { &mut r }) = Some(number);
        let alone_counts = if is_left {
            how != JoinKind::Inner
        } else {
            how == JoinKind::Full
        };
        if (l.is_some() && r.is_some()) || alone_counts {
            out.push((time, l, r));
        }
    }
    out
}

fn lookup(left: &[(i64, i64)], right: &[(i64, i64)], how: JoinKind) -> Vec<Pair> {
    let find = |time: i64| right.iter().rev().find(|r| r.0 <= time).map(|r| r.1);
    left.iter()
        .map(|(time, l)| (*time, Some(*l), find(*time)))
        .filter(|pair| how != JoinKind::Inner || pair.2.is_some())
        .collect()
}

const WITHIN: i64 = 6;

/// In any order: the comparison sorts them.
fn within(left: &[(i64, i64)], right: &[(i64, i64)], how: JoinKind) -> Vec<Pair> {
    between(left, right, how, (WITHIN, WITHIN))
}

const BEFORE: i64 = 2;
const AFTER: i64 = 11;

fn mostly_after(left: &[(i64, i64)], right: &[(i64, i64)], how: JoinKind) -> Vec<Pair> {
    between(left, right, how, (BEFORE, AFTER))
}

fn between(
    left: &[(i64, i64)],
    right: &[(i64, i64)],
    how: JoinKind,
    (before, after): (i64, i64),
) -> Vec<Pair> {
    let near = |l: i64, r: i64| (l - before..=l + after).contains(&r);
    let mut out = Vec::new();
    for (lt, l) in left {
        for (rt, r) in right.iter().filter(|(rt, _)| near(*lt, *rt)) {
            out.push((*lt.max(rt), Some(*l), Some(*r)));
        }
        if how != JoinKind::Inner && !right.iter().any(|(rt, _)| near(*lt, *rt)) {
            out.push((lt + after, Some(*l), None));
        }
    }
    for (rt, r) in right {
        if how == JoinKind::Full && !left.iter().any(|(lt, _)| near(*lt, *rt)) {
            out.push((rt + before, None, Some(*r)));
        }
    }
    out.sort();
    out
}

fn of_key(items: &[Item], key: u32) -> Vec<(i64, i64)> {
    items
        .iter()
        .filter(|i| i.0 == key)
        .map(|i| (i.1, i.2))
        .collect()
}

fn judge(join: Join, how: JoinKind, model: Model, sorted: bool) {
    for seed in 0..2 {
        let left = items(seed, 3);
        let right = items(seed + 100, 5);
        let ((in_time, late_left), (table, late_right)) = (split(&left), split(&right));
        let due: BTreeMap<u32, Vec<Pair>> = (0..8)
            .map(|key| {
                (
                    key,
                    model(&of_key(&in_time, key), &of_key(&table, key), how),
                )
            })
            .collect();
        let mut first: Option<BTreeMap<u32, Vec<Pair>>> = None;
        for workers in 1..=3 {
            for batch in [1, 13, 10_000] {
                let flow = Flow::new("join");
                let out = Collected::new();
                let late = Collected::new();
                let stream = |name: &str, items: &[Item]| {
                    let marks = items.iter().copied().map(Mark::Item).collect();
                    let lateness = Duration::from_nanos(LATENESS as u64);
                    flow.source(name, script([marks]).batch_size(batch))
                        .event_time(
                            |item: &Item| item.1,
                            EventTime::default().lateness(lateness),
                        )
                        .key_by(|item| item.0)
                        .map(|item| item.map(|(_, _, number)| number))
                };
                let joined: Pairs<u32, i64, i64> =
                    stream("left", &left).join("joined", &stream("right", &right), join.how(how));
                joined.results.items().sink("out", out.sink());
                joined.late.values().sink("late", late.sink());
                run(&flow, workers).unwrap();
                let place = format!("seed {seed}, {workers} workers, batches of {batch}");
                type Seen = (u32, Timed<(Option<i64>, Option<i64>)>);
                let seen: Vec<Seen> = out.take();
                let seen = seen
                    .into_iter()
                    .map(|(key, pair)| (key, (pair.time, pair.0, pair.1)));
                let mut seen = by_key(seen.collect());
                let order = first.get_or_insert_with(|| seen.clone());
                assert!(*order == seen, "the order differs: {place}");
                if sorted {
                    seen.values_mut().for_each(|pairs| pairs.sort());
                }
                assert_eq!(seen, due, "{place}");
                let late: Vec<Timed<Side<i64, i64>>> = late.take();
                assert_eq!(late.len(), late_left.len() + late_right.len(), "{place}");
                assert!(!late_left.is_empty());
            }
        }
    }
}

#[test]
fn the_latest_values() {
    for how in [JoinKind::Inner, JoinKind::Left, JoinKind::Full] {
        judge(Join::latest(), how, latest, false);
    }
}

#[test]
fn a_table_that_changes_slowly() {
    for how in [JoinKind::Inner, JoinKind::Left] {
        judge(Join::lookup(), how, lookup, false);
    }
}

#[test]
fn within_a_time() {
    for how in [JoinKind::Inner, JoinKind::Left, JoinKind::Full] {
        judge(
            Join::within(Duration::from_nanos(WITHIN as u64)),
            how,
            within,
            true,
        );
    }
}

#[test]
fn more_after_than_before() {
    for how in [JoinKind::Inner, JoinKind::Left, JoinKind::Full] {
        let before = BEFORE as u64;
        let after = AFTER as u64;
        let join = Join::between(Duration::from_nanos(before), Duration::from_nanos(after));
        judge(join, how, mostly_after, true);
    }
}

#[test]
fn a_key_expires_after_its_time_to_live() {
    let flow = Flow::new("ttl");
    let out = Collected::new();
    let stream = |name: &str, times: &[i64]| {
        let marks = times.iter().copied().map(Mark::Item).collect();
        flow.source(name, script([marks]))
            .event_time(|time: &i64| *time, EventTime::default())
            .key_by(|_| 0u8)
    };
    let join = Join::lookup().ttl(Duration::from_nanos(10));
    let joined = stream("left", &[5, 15, 26, 30]).join("joined", &stream("right", &[0, 27]), join);
    joined
        .results
        .values()
        .map(|pair| pair.value)
        .sink("out", out.sink());
    run(&flow, 2).unwrap();
    let due = [(5, Some(0)), (15, Some(0)), (26, None), (30, Some(27))];
    assert_eq!(out.take(), due.map(|(left, right)| (Some(left), right)));
}

#[test]
fn without_times_each_item_is_joined_with_the_latest_one_of_the_other_stream() {
    for workers in 1..=3 {
        let flow = Flow::new("join");
        let inner = Collected::new();
        let table = Collected::new();
        let left = flow.source("left", testing::items((0..50).map(|n| (n % 25, n))));
        let right = flow.source("right", testing::items((10..40).map(|n| (n, -n))));
        let left = left.into_keyed();
        let right = right.into_keyed();
        let pairs = left.join("inner", &right, Join::latest());
        pairs.items().sink("inner out", inner.sink());
        // Each item of the left stream has an output, whether the right one was faster or not.
        let rows = left.join("table", &right, Join::lookup());
        rows.items().sink("table out", table.sink());
        run(&flow, workers).unwrap();
        // Which of them meet depends on the order of arrival; the last ones of both streams always do.
        let last = |pairs: &[(Option<i64>, Option<i64>)]| pairs.last().copied();
        let inner = by_key(inner.take());
        assert_eq!(
            inner.keys().copied().collect::<Vec<_>>(),
            (10..25).collect::<Vec<_>>()
        );
        for (key, pairs) in &inner {
            assert_eq!(last(pairs), Some((Some(key + 25), Some(-key))));
        }
        let table = table.take();
        let mut lefts: Vec<_> = table.iter().filter_map(|(_, (left, _))| *left).collect();
        lefts.sort_unstable();
        assert_eq!(lefts, (0..50).collect::<Vec<_>>());
        for (key, (_, right)) in table {
            assert!(right.is_none() || right == Some(-key));
        }
    }
}

#[test]
fn without_times_a_join_by_time_is_a_mistake() {
    let second = Duration::from_secs(1);
    let by_time = [
        Join::within(second),
        Join::latest().ttl(second),
        Join::lookup().per_key(second, None),
    ];
    for join in by_time {
        let flow = Flow::new("join");
        let out = Collected::new();
        let keyed = flow.source("in", testing::items([(1, 2)])).into_keyed();
        let pairs = keyed.join("pairs", &keyed, join);
        pairs.items().sink("out", out.sink());
        let error = flow.check().unwrap_err();
        assert!(matches!(error, FlowError::Usage(_)), "{error}");
        assert!(error.to_string().contains("call event_time before key_by"));
    }
}
