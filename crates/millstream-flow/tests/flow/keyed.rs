//! The methods of keyed streams, compared with a plain map.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use millstream_flow::testing::{Collected, Mark, script};
use millstream_flow::{Emit, Flow, KeyContext, KeyedStream, Logic};

use super::support::run;

type Keyed = KeyedStream<u32, i64>;
type Model = BTreeMap<u32, Vec<i64>>;
type Marks = Vec<Mark<(u32, i64)>>;

/// Pseudo-random values; each key is in one partition, so that its order is known.
fn input() -> (Vec<Marks>, Model) {
    let mut state = 0x9e37_79b9_u64;
    let mut model = Model::new();
    let mut partitions = vec![Vec::new(); 3];
    for _ in 0..5000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let key = (state >> 33) as u32 % 70;
        let value = (state >> 40) as i64 % 100 - 50;
        model.entry(key).or_default().push(value);
        partitions[key as usize % 3].push(Mark::Item((key, value)));
    }
    (partitions, model)
}

/// Runs `verb` with 1 to 3 workers; the outputs of each key must be those of `model` for its values, in order.
fn judge<U>(verb: impl Fn(&Keyed) -> KeyedStream<u32, U>, model: impl Fn(&[i64]) -> Vec<U>)
where
    U: Clone + Send + 'static + PartialEq + std::fmt::Debug,
{
    let (partitions, values) = input();
    let due: BTreeMap<u32, Vec<U>> = values
        .iter()
        .map(|(key, values)| (*key, model(values)))
        .filter(|(_, outputs)| !outputs.is_empty())
        .collect();
    for workers in 1..=3 {
        for batch in [1, 64, 10_000] {
            let flow = Flow::new("verb");
            let seen = Collected::new();
            let source = flow.source("in", script(partitions.clone()).batch_size(batch));
            let keyed = source.key_by(|item| item.0).map(|item| item.1);
            verb(&keyed).items().sink("out", seen.sink());
            run(&flow, workers).unwrap();
            let mut outputs: BTreeMap<u32, Vec<U>> = BTreeMap::new();
            for (key, output) in seen.take() {
                outputs.entry(key).or_default().push(output);
            }
            assert_eq!(outputs, due, "{workers} workers, batches of {batch}");
        }
    }
}

/// The running results of `f`, or the last one.
fn running(emit: Emit, values: &[i64], f: impl Fn(&[i64]) -> i64) -> Vec<i64> {
    let all: Vec<i64> = (1..=values.len()).map(|n| f(&values[..n])).collect();
    match emit {
        Emit::Each => all,
        Emit::End => all[all.len() - 1..].to_vec(),
    }
}

#[test]
fn aggregates() {
    for emit in [Emit::Each, Emit::End] {
        judge(
            |keyed| keyed.count(emit).map(|count| count as i64),
            |values| running(emit, values, |seen| seen.len() as i64),
        );
        judge(
            |keyed| keyed.sum(emit),
            |values| running(emit, values, |seen| seen.iter().sum()),
        );
        judge(
            |keyed| keyed.min(emit),
            |values| running(emit, values, |seen| *seen.iter().min().unwrap()),
        );
        judge(
            |keyed| keyed.max(emit),
            |values| running(emit, values, |seen| *seen.iter().max().unwrap()),
        );
        judge(
            |keyed| {
                let numbers = keyed.map(|value| value as i32);
                numbers.mean(emit).map(|mean| mean.to_bits() as i64)
            },
            |values| {
                running(emit, values, |seen| {
                    let sum: i64 = seen.iter().sum();
                    (sum as f64 / seen.len() as f64).to_bits() as i64
                })
            },
        );
    }
}

#[test]
fn fold_and_reduce_see_the_values_in_order() {
    let mix = |a: i64, b: i64| a.wrapping_mul(31) + b;
    for emit in [Emit::Each, Emit::End] {
        judge(
            |keyed| keyed.fold("fold", emit, 7, move |acc, value| *acc = mix(*acc, value)),
            |values| {
                running(emit, values, |seen| {
                    seen.iter().fold(7, |acc, value| mix(acc, *value))
                })
            },
        );
        judge(
            |keyed| keyed.reduce("reduce", emit, mix),
            |values| {
                running(emit, values, |seen| {
                    seen.iter().copied().reduce(mix).unwrap()
                })
            },
        );
    }
}

#[test]
fn the_earlier_of_two_equal_values_stays() {
    let flow = Flow::new("ties");
    let least = Collected::new();
    let most = Collected::new();
    let tied = [1.0, -0.0, 0.0, 1.0].map(Mark::Item).to_vec();
    let keyed = flow.source("in", script([tied])).key_by(|_| 0);
    keyed.min(Emit::End).values().sink("least", least.sink());
    keyed.max(Emit::Each).values().sink("most", most.sink());
    run(&flow, 1).unwrap();
    let least: Vec<f64> = least.take();
    assert!(least.len() == 1 && least[0].is_sign_negative());
    assert_eq!(most.take(), [1.0; 4]);
}

#[test]
fn values_change_one_by_one() {
    judge(
        |keyed| keyed.map(|v| v * 2).filter(|v| v % 3 == 0),
        |values| {
            values
                .iter()
                .map(|v| v * 2)
                .filter(|v| v % 3 == 0)
                .collect()
        },
    );
    judge(
        |keyed| keyed.flat_map(|v| vec![v; (v % 3).unsigned_abs() as usize]),
        |values| {
            values
                .iter()
                .flat_map(|v| vec![*v; (v % 3).unsigned_abs() as usize])
                .collect()
        },
    );
    judge(
        |keyed| keyed.filter_map(|v| (v > 0).then_some(v.to_string())),
        |values| {
            values
                .iter()
                .filter(|v| **v > 0)
                .map(i64::to_string)
                .collect()
        },
    );
}

#[test]
fn complete_batches_before_and_after_a_state() {
    let negate = |batch: Vec<(u32, i64)>| batch.into_iter().map(|(k, v)| (k, -v)).collect();
    judge(
        |keyed| keyed.map_batch(negate).sum(Emit::Each).map_batch(negate),
        |values| running(Emit::Each, values, |seen| seen.iter().sum()),
    );
}

#[test]
fn inspect_sees_every_value_once() {
    let count = Arc::new(Mutex::new(0u64));
    let seen = Arc::clone(&count);
    let inspected = move |keyed: &Keyed| {
        let seen = Arc::clone(&seen);
        keyed.inspect(move |key, value| {
            assert!(*key < 70 && (-50..50).contains(value));
            *seen.lock().unwrap() += 1;
        })
    };
    judge(inspected, <[i64]>::to_vec);
    assert_eq!(*count.lock().unwrap(), 9 * 5000);
}

#[test]
fn branches_are_merged_again() {
    judge(
        |keyed| {
            let (low, high) = keyed.branch(|v| *v < 0);
            low.map(|v| v - 1000).merge(&[high]).sum(Emit::End)
        },
        |values| {
            let sum = |v: &i64| if *v < 0 { v - 1000 } else { *v };
            vec![values.iter().map(sum).sum()]
        },
    );
    judge(
        |keyed| keyed.sum(Emit::Each).branch(|v| v % 2 == 0).0,
        |values| {
            running(Emit::Each, values, |seen| seen.iter().sum())
                .into_iter()
                .filter(|v| v % 2 == 0)
                .collect()
        },
    );
}

/// Keeps the last value; emits the number of values at the end.
struct Last {
    last: Option<i64>,
    count: i64,
}

impl Logic<u32, i64> for Last {
    type Out = (i64, i64);
    fn on_item(&mut self, _: &u32, value: i64, cx: &mut KeyContext<'_, (i64, i64)>) {
        self.count += 1;
        if let Some(last) = self.last.replace(value)
            && last > value
        {
            cx.emit((last, value));
        }
    }
    fn on_end(&mut self, key: &u32, cx: &mut KeyContext<'_, (i64, i64)>) {
        cx.emit((i64::from(*key), self.count));
        cx.emit((self.count, self.count));
    }
}

#[test]
fn a_logic_for_each_key() {
    let (_, values) = input();
    let key_of = move |seen: &[i64]| {
        let of = values.iter().find(|(_, values)| values.as_slice() == seen);
        i64::from(*of.unwrap().0)
    };
    judge(
        |keyed| {
            keyed.stateful_with("last", None, |_| Last {
                last: None,
                count: 0,
            })
        },
        |values| {
            let mut out: Vec<(i64, i64)> = values
                .windows(2)
                .filter(|pair| pair[0] > pair[1])
                .map(|pair| (pair[0], pair[1]))
                .collect();
            let count = values.len() as i64;
            out.extend([(key_of(values), count), (count, count)]);
            out
        },
    );
}

#[test]
fn states_end_in_the_order_of_their_first_items() {
    let flow = Flow::new("order");
    let seen = Collected::new();
    let words = ["pear", "fig", "pear", "apple", "fig", "kiwi"];
    let words = words.map(|word| Mark::Item(word.to_owned()));
    flow.source("in", script([words.to_vec()]))
        .key_by(|word: &String| word.clone())
        .count(Emit::End)
        .items()
        .sink("out", seen.sink());
    run(&flow, 1).unwrap();
    let due = [("pear", 2), ("fig", 2), ("apple", 1), ("kiwi", 1)];
    assert_eq!(
        seen.take(),
        due.map(|(word, count)| (word.to_owned(), count))
    );
}
