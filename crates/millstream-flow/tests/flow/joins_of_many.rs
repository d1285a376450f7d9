//! `join_all`: which rows are emitted, how long a key is kept, and what is saved.

use std::time::Duration;

use millstream_flow::join::{Insert, JoinAll};
use millstream_flow::testing::{Collected, Mark, VirtualClock, items, script};
use millstream_flow::{EventTime, Flow, FlowError, KeyedStream, Options, Recovery};

use super::recovery::{crash_everywhere, run as run_saving};
use super::support::run;

type Row = (Option<u64>, Option<String>, Option<char>);

/// One source divided into three streams of one key.
fn rows(flow: &Flow, input: &[&str], how: JoinAll) -> KeyedStream<u8, Row> {
    let all = flow.source(
        "in",
        items(input.iter().map(|text| text.to_string())).batch_size(1),
    );
    let keyed = all.key_by(|_| 7);
    let numbers = keyed.filter_map(|text| text.parse::<u64>().ok());
    let words = keyed.filter_map(|text| text.starts_with('w').then_some(text));
    let signs =
        keyed.filter_map(|text| text.strip_prefix('-').and_then(|sign| sign.chars().next()));
    numbers.join_all("rows", (&words, &signs), how)
}

fn row(number: u64, word: &str, sign: char) -> Row {
    let there = |word: &str| (!word.is_empty()).then(|| word.to_owned());
    (
        (number > 0).then_some(number),
        there(word),
        (sign != ' ').then_some(sign),
    )
}

/// All rows, sorted: merged streams have no order between them.
fn found(input: &[&str], how: JoinAll, workers: usize) -> Vec<Row> {
    let flow = Flow::new("rows");
    let out = Collected::new();
    rows(&flow, input, how).values().sink("out", out.sink());
    run(&flow, workers).expect("nothing fails");
    let mut rows = out.take();
    rows.sort();
    rows
}

#[test]
fn a_row_is_emitted_once_each_stream_has_a_value() {
    for workers in 1..=3 {
        let found = |input: &[&str]| found(input, JoinAll::complete(), workers);
        assert_eq!(found(&["1", "w", "-a"]), [row(1, "w", 'a')]);
        assert_eq!(found(&["1", "w"]), []);
    }
}

#[test]
fn at_the_end_a_row_has_the_values_that_count() {
    let input = ["1", "2", "wa", "wb"];
    for workers in 1..=3 {
        let found = |insert| found(&input, JoinAll::at_end().insert(insert), workers);
        assert_eq!(found(Insert::Last), [row(2, "wb", ' ')]);
        assert_eq!(found(Insert::First), [row(1, "wa", ' ')]);
        let all = [(1, "wa"), (1, "wb"), (2, "wa"), (2, "wb")];
        assert_eq!(
            found(Insert::Product),
            all.map(|(n, word)| row(n, word, ' '))
        );
    }
}

#[test]
fn a_running_join_emits_a_row_after_each_value() {
    let found = found(&["1", "2", "3"], JoinAll::running(), 1);
    assert_eq!(found, [1, 2, 3].map(|n| row(n, "", ' ')));
}

#[test]
fn a_key_without_values_expires_after_the_time_to_live() {
    let clock = std::sync::Arc::new(VirtualClock::starting_at(0));
    let flow = Flow::new("rows");
    let out = Collected::new();
    let moved = std::sync::Arc::clone(&clock);
    let source = items([1u64, 2, 3]).batch_size(1);
    let keyed = flow
        .source("in", source)
        .inspect(move |number| {
            if *number == 3 {
                moved.advance(Duration::from_secs(60));
            }
        })
        .key_by(|_| 7);
    let how = JoinAll::at_end()
        .insert(Insert::Product)
        .ttl(Duration::from_secs(59));
    let none = keyed.filter_map(|_| None::<u8>);
    keyed
        .join_all("rows", (&none,), how)
        .values()
        .sink("out", out.sink());
    let mut options = Options::workers(1);
    options.clock = Some(clock);
    flow.run(options).expect("nothing fails");
    let rows = out.take();
    assert!(rows.contains(&(Some(3), None)), "{rows:?}");
}

fn saving(flow: &Flow, state: &std::path::Path) -> Result<(), FlowError> {
    run_saving(flow, 1, Recovery::new(state).epoch(Duration::ZERO))
}

#[test]
fn a_crash_at_every_commit_does_not_change_the_results() {
    let folder = tempfile::tempdir().expect("a folder");
    let flow = Flow::new("rows");
    let out = folder.path().join("out");
    let input = ["1", "wa", "2", "-x", "wb", "3", "-y", "4"];
    let show = |row: Row| format!("{row:?}");
    let written = millstream_flow::codec::encode(
        millstream_flow::files::write(&out),
        millstream_flow::codec::display,
    );
    let how = JoinAll::at_end().insert(Insert::Product);
    flow.saves::<char>();
    rows(&flow, &input, how)
        .values()
        .map(show)
        .sink("out", written);
    let mut workers = [1, 3, 2].into_iter().cycle();
    let crashes = crash_everywhere(&flow, &folder.path().join("state"), 1, || {
        workers.next().unwrap_or(1)
    });
    assert!(crashes > 6, "{crashes} crashes");
    let text = std::fs::read_to_string(&out).expect("there is output");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let mut wanted: Vec<String> = found(&input, how, 1).into_iter().map(show).collect();
    wanted.sort_unstable();
    assert_eq!(lines, wanted);
    assert_eq!(wanted.len(), 4 * 2 * 2);
}

#[test]
fn a_saved_join_of_other_streams_is_an_error_that_names_the_step() {
    let state = tempfile::tempdir().expect("a folder");
    let collected = Collected::<String>::new();
    let two = |with_third: bool| {
        let flow = Flow::new("rows");
        let keyed = flow.source("in", items([1u64, 2])).key_by(|_| 7);
        let none = keyed.filter_map(|_| None::<u64>);
        let out = collected.sink();
        if with_third {
            let third = keyed.filter_map(|_| None::<u64>);
            let rows = keyed.join_all("rows", (&none, &third), JoinAll::running());
            rows.values().map(|row| format!("{row:?}")).sink("out", out);
        } else {
            let rows = keyed.join_all("rows", (&none,), JoinAll::running());
            rows.values().map(|row| format!("{row:?}")).sink("out", out);
        }
        flow
    };
    saving(&two(false), state.path()).expect("nothing fails");
    let error = saving(&two(true), state.path()).expect_err("there are three streams now");
    let error = format!("{error:?}");
    assert!(
        error.contains("\"rows\"") && error.contains("is that of a join_all (2 streams)"),
        "{error}"
    );
}

/// The rows of timed streams that are read in turn, one partition for each item of a stream.
fn timed_rows(batch: usize, workers: usize, how: JoinAll) -> (Vec<(i64, PricedOrder)>, usize) {
    let flow = Flow::new("timed");
    let out = Collected::new();
    let late = Collected::new();
    let timed = |name, items: &[(i64, i64)]| {
        let marks = items.iter().copied().map(Mark::Item).collect();
        let source = flow.source(name, script([marks]).batch_size(batch));
        let times = source.event_time(|item: &(i64, i64)| item.0, EventTime::default());
        times.key_by(|_| 7).map(|item| item.map(|item| item.1))
    };
    let prices = timed("prices", &[(0, 10), (5, 20), (2, 99), (40, 30)]);
    let orders = timed("orders", &[(3, 1), (5, 2), (50, 3)]);
    let joined = prices.join_all("costs", (&orders,), how);
    joined
        .results
        .values()
        .map(|row| (row.time, row.value))
        .sink("out", out.sink());
    joined.late.values().sink("late", late.sink());
    run(&flow, workers).expect("nothing fails");
    (out.take(), late.take().len())
}

type PricedOrder = (Option<i64>, Option<i64>);

#[test]
fn streams_with_times_are_joined_in_the_order_of_their_times() {
    let due = [
        (0, (Some(10), None)),
        (3, (Some(10), Some(1))),
        (5, (Some(20), Some(1))),
        (5, (Some(20), Some(2))),
        (40, (Some(30), Some(2))),
        (50, (Some(30), Some(3))),
    ];
    for workers in 1..=3 {
        for batch in [1, 100] {
            let found = timed_rows(batch, workers, JoinAll::running());
            assert_eq!(
                found,
                (due.to_vec(), 1),
                "{workers} workers, batches of {batch}"
            );
        }
    }
}

#[test]
fn the_time_to_live_of_streams_with_times_is_event_time() {
    // The key has no value from 5 to 40.
    let how = JoinAll::running().ttl(Duration::from_nanos(20));
    for workers in 1..=2 {
        let (rows, _) = timed_rows(1, workers, how);
        assert_eq!(
            rows[4..],
            [(40, (Some(30), None)), (50, (Some(30), Some(3)))]
        );
    }
}
