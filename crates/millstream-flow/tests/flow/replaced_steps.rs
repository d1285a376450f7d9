//! A step that takes the name of one of another kind: its state is refused, and removed by the advice.

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use millstream_flow::join::{Join, JoinAll, JoinKind};
use millstream_flow::window::{Windower, Windows};
use millstream_flow::{
    Emit, EventTime, Flow, FlowError, KeyedStream, Options, Recovery, Stream, Timed, Window,
    testing,
};

type Values = KeyedStream<u8, Timed<u64>>;
/// Adds the step "step", and shows what it emits.
type Add = fn(&Values) -> Stream<String>;

const ALIKE: [&[Add]; 3] = [
    &[
        |values| shown(&plain(values).count(Emit::Each).named("step")),
        |values| shown(&plain(values).sum(Emit::Each).named("step")),
        |values| shown(&plain(values).min(Emit::Each).named("step")),
        |values| shown(&plain(values).max(Emit::Each).named("step")),
        |values| shown(&plain(values).reduce("step", Emit::Each, |a, b| a * b)),
        |values| shown(&plain(values).fold("step", Emit::Each, 0, |acc, value| *acc += value)),
    ],
    &[
        |values| shown(&tens(values).count().results),
        |values| {
            shown(
                &tens(values)
                    .fold(0, |acc, n| *acc += n, |acc, n| *acc += n)
                    .results,
            )
        },
        |values| shown(&windows(values, Window::tumbling(ns(2_000))).count().results),
        |values| {
            shown(
                &windows(values, Window::tumbling(ns(1_000)).offset(ns(7)))
                    .count()
                    .results,
            )
        },
        |values| {
            shown(
                &windows(values, Window::sliding(ns(1_000), ns(500)))
                    .count()
                    .results,
            )
        },
        |values| shown(&windows(values, Window::session(ns(1_000))).count().results),
        |values| shown(&windows(values, Window::count(100)).count().results),
        |values| shown(&values.window_by("step", Thousands).count().results),
        |values| {
            shown(
                &tens(values)
                    .with(|it| it.per_key(ns(9), None))
                    .count()
                    .results,
            )
        },
        |values| shown(&tens(values).sum().results),
        |values| shown(&tens(values).min().results),
        |values| shown(&tens(values).max().results),
        |values| shown(&tens(values).reduce(|a, b| a * b).results),
    ],
    &[
        |values| shown(&values.join("step", values, Join::latest()).results),
        |values| shown(&values.join("step", values, Join::lookup()).results),
        |values| shown(&values.join("step", values, Join::within(ns(9))).results),
        |values| {
            shown(
                &values
                    .join_windows("step", values, Window::count(9), JoinKind::Full)
                    .results,
            )
        },
        |values| {
            shown(
                &values
                    .join_all("step", (values,), JoinAll::running())
                    .results,
            )
        },
        |values| {
            shown(
                &values
                    .join_all("step", (values, values), JoinAll::running())
                    .results,
            )
        },
    ],
];

/// Windows of the times from one thousand to the next.
struct Thousands;

impl Windower for Thousands {
    fn windows(&self, time: i64) -> Vec<(i64, i64)> {
        let start = time - time.rem_euclid(1_000);
        vec![(start, start + 1_000)]
    }
}

fn ns(nanoseconds: u64) -> Duration {
    Duration::from_nanos(nanoseconds)
}

fn plain(values: &Values) -> KeyedStream<u8, u64> {
    values.map(|timed| timed.value)
}

fn windows(values: &Values, window: Window) -> Windows<u8, u64> {
    values.window("step", window)
}

fn tens(values: &Values) -> Windows<u8, u64> {
    windows(values, Window::tumbling(ns(1_000)))
}

fn shown<V: Debug + Clone + Send + 'static>(results: &KeyedStream<u8, V>) -> Stream<String> {
    results.values().map(|value| format!("{value:?}"))
}

/// Runs the flow with this step; returns what it emits.
fn run(
    state: &Path,
    add: Add,
    change: impl FnOnce(Recovery) -> Recovery,
) -> Result<Vec<String>, FlowError> {
    let (flow, out) = (Flow::new("replaced"), testing::Collected::new());
    // Rows of two and of three streams, which wait for their turn.
    flow.saves::<(Option<u64>, Option<u64>)>();
    flow.saves::<(Option<u64>, Option<u64>, Option<u64>)>();
    let source = testing::script(vec![(1..9u64).map(testing::Mark::Item).collect()]);
    let values = flow
        .source("in", source.batch_size(1))
        .event_time(|value| *value as i64, EventTime::default())
        .key_by(|_| 7);
    add(&values).sink("out", out.sink());
    let recovery = Recovery::new(state).epoch(Duration::ZERO).sync(false);
    flow.run(Options {
        recovery: Some(change(recovery)),
        ..Options::default()
    })?;
    Ok(out.take())
}

#[test]
fn a_step_of_another_kind_refuses_the_state() {
    for alike in ALIKE {
        for (one, first) in alike.iter().enumerate() {
            for (other, second) in alike.iter().enumerate() {
                if one >= other {
                    continue;
                }
                let folder = tempfile::tempdir().unwrap();
                let state = folder.path().join("state");
                let crashed = run(&state, *first, |recovery| recovery.crash_after(4));
                assert!(matches!(crashed, Err(FlowError::Crashed(_))));
                let refused = format!("{:?}", run(&state, *second, |it| it).unwrap_err());
                for part in [
                    "step \"step\" of flow \"replaced\" is a ",
                    "its state is that of a ",
                    "Recovery::drop_state(\"step\")",
                ] {
                    assert!(refused.contains(part), "{one} {other}: {refused}");
                }
                // The advice, with the whole input again: the results are those of a run from scratch.
                let dropped = run(&state, *second, |recovery| {
                    let recovery = recovery.drop_state("step");
                    recovery.drop_state("in").drop_state("out")
                });
                let scratch = run(&folder.path().join("other"), *second, |it| it);
                assert_eq!(dropped.unwrap(), scratch.unwrap(), "{one} {other}");
            }
        }
    }
}
