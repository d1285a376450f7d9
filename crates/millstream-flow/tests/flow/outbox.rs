//! Sinks outside of the machine's files: what is delivered, and when a flow waits.

use std::time::Duration;

use millstream_flow::outbox::{DeliveryError, outbox_dir};
use millstream_flow::{DeadLetter, Flow, OnError, Options, codec, files, testing};
use millstream_journal::{Journal, Options as Opening};

use crate::destination::{Point, Table, copy, numbers, options, recovery, run};
use crate::slow_steps::{Greedy, LINES};
use crate::support::{self, finish};

#[test]
fn each_record_is_delivered_once_with_dense_numbers() {
    for remembers in [true, false] {
        for workers in [1, 3] {
            let state = tempfile::tempdir().expect("a folder");
            let table = Table::new(remembers);
            let flow = copy(200, table.outbox());
            let report = run(&flow, workers, recovery(state.path())).expect("it runs");
            assert_eq!(table.sorted(), numbers(200));
            assert_eq!(table.lock().rows.len(), 200);
            assert_eq!(table.lock().records_max, 7);
            let outbox = report.outbox("out").expect("the sink has one");
            assert_eq!(outbox.address, "table t");
            assert_eq!((outbox.waiting_records, outbox.waiting_bytes), (0, 0));
            assert_eq!(outbox.waiting, Duration::ZERO);
            assert_eq!((outbox.delivered_records, outbox.retries), (200, 0));
            assert!(outbox.deliveries >= 200 / 7 && outbox.since_delivery.is_some());
            let json = &report.to_json()["outboxes"][0];
            assert_eq!(json["sink"], "out");
            assert_eq!(json["delivered_records"], 200);
            let line = "outbox of out: 200 records delivered in ";
            assert!(report.to_string().contains(line), "{report}");
            // Nothing is new at the next start, and nothing is delivered.
            run(&flow, workers, recovery(state.path())).expect("it runs");
            assert_eq!(table.lock().rows.len(), 200);
        }
    }
}

#[test]
fn a_record_is_delivered_only_after_its_commit() {
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    let flow = Flow::new("copy");
    let source = testing::script([vec![
        testing::Mark::Item("early".to_owned()),
        testing::Mark::Pause(Duration::from_millis(300)),
        testing::Mark::Item("late".to_owned()),
    ]]);
    flow.source("in", source)
        .sink("out", codec::encode(table.outbox(), codec::display));
    let long = recovery(state.path()).epoch(Duration::from_secs(3600));
    let running = flow.start(options(1, long)).expect("it starts");
    table.wait_until(|contents| contents.connects > 0);
    while running
        .report()
        .outbox("out")
        .is_none_or(|outbox| outbox.waiting_records == 0)
    {
        support::wait(1);
    }
    assert_eq!(table.lock().rows, []);
    finish(running).expect("it ends");
    assert_eq!(table.sorted(), ["early", "late"]);
}

#[test]
fn dead_letters_go_through_an_outbox() {
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    let letter = |letter: &DeadLetter, out: &mut Vec<u8>| {
        out.extend_from_slice(letter.item.as_deref().unwrap_or("?").as_bytes());
    };
    let flow = Flow::new("letters");
    let bad = OnError::dead_letter(codec::encode(table.outbox(), letter));
    flow.source(
        "in",
        testing::items(["1", "x", "2", "y"].map(str::to_owned)),
    )
    .try_map("parse", bad, |text: &String| text.parse::<u32>())
    .sink(
        "numbers",
        codec::encode(files::write(state.path().join("numbers")), codec::display),
    );
    let report = run(&flow, 1, recovery(&state.path().join("state"))).expect("it runs");
    assert!(report.outbox("parse.dead_letters").is_some());
    assert_eq!(table.sorted(), ["\"x\"", "\"y\""]);
}

#[test]
fn two_steps_that_write_to_one_sink_share_its_outbox() {
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    let sink: std::sync::Arc<dyn millstream_flow::sink::Sink<Vec<u32>>> =
        std::sync::Arc::new(codec::encode(table.outbox(), codec::display));
    let flow = Flow::new("two");
    let all = flow.source("in", testing::items(0..40u32));
    all.sink("one", std::sync::Arc::clone(&sink));
    all.sink("other", sink);
    let report = run(&flow, 2, recovery(state.path())).expect("it runs");
    assert_eq!(report.outboxes.len(), 1);
    let mut twice: Vec<String> = numbers(40).into_iter().chain(numbers(40)).collect();
    twice.sort();
    assert_eq!(table.sorted(), twice);
}

#[test]
fn without_a_state_directory_each_flush_waits_for_the_delivery() {
    for remembers in [true, false] {
        for workers in [1, 3] {
            let table = Table::new(remembers);
            // Two attempts out of three fail, half of them after they took effect.
            table.fails(|point| {
                let fails = match point {
                    Point::Connect(n) => n % 3 == 1,
                    Point::Before(n) => n % 3 == 2,
                    Point::After(n) => n % 3 == 0,
                };
                fails.then(|| DeliveryError::retry("no route"))
            });
            let flow = copy(100, table.outbox());
            let report = finish(flow.start(Options::workers(workers)).expect("it starts"));
            let report = report.expect("it ends");
            assert_eq!(table.sorted(), numbers(100));
            let outbox = report.outbox("out").expect("the sink has one");
            assert_eq!(outbox.waiting_records, 0);
            assert!(outbox.retries > 10, "{outbox:?}");
        }
    }
}

#[test]
fn delivered_segments_are_removed() {
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    let flow = Flow::new("large");
    let source = testing::items((0..100u32).map(|_| "x".repeat(1 << 20)));
    flow.source("in", source.batch_size(1))
        .sink("out", codec::encode(table.outbox(), codec::display));
    run(&flow, 1, recovery(state.path())).expect("it runs");
    let outbox = outbox_dir(state.path(), "out");
    let journal = Journal::open(&outbox, Opening::read_only()).expect("it is there");
    assert_eq!(journal.next().expect("it is sound"), 100);
    assert!(journal.first().expect("it is sound") >= 60);
    drop(journal);
    assert_eq!(table.lock().rows.len(), 100);
    // What is left suffices to go on.
    run(&flow, 1, recovery(state.path())).expect("it runs");
    assert_eq!(table.lock().rows.len(), 100);
}

#[test]
fn a_full_outbox_pauses_the_sources_and_never_the_commits() {
    for workers in [1, 3] {
        let state = tempfile::tempdir().expect("a folder");
        let table = Table::new(true);
        table.close(true);
        let count = 50_000;
        let flow = copy(count, table.outbox().max_bytes(1000).batch(1000));
        let running = flow
            .start(options(workers, recovery(state.path())))
            .expect("it starts");
        let waiting = || {
            let report = running.report();
            report
                .outbox("out")
                .map_or(0, |outbox| outbox.waiting_records)
        };
        while waiting() == 0 {
            support::wait(1);
        }
        let mut before = 0;
        // The sources stop: what waits does not grow any more.
        while waiting() != before {
            before = waiting();
            support::wait(50);
        }
        assert!(before < 20_000, "{before}");
        assert!(!running.ended_within(Duration::ZERO));
        table.close(false);
        finish(running).expect("it ends");
        assert_eq!(table.sorted(), numbers(count));
    }
}

#[test]
fn an_outbox_with_one_byte_passes_everything() {
    for workers in [1, 3] {
        let state = tempfile::tempdir().expect("a folder");
        let table = Table::new(true);
        // Large batches of the source are passed on in parts.
        let flow = Flow::new("copy");
        flow.source("numbers", testing::items(0..5000u32).batch_size(2500))
            .sink(
                "out",
                codec::encode(table.outbox().max_bytes(1), codec::display),
            );
        run(&flow, workers, recovery(state.path())).expect("it ends");
        assert_eq!(table.sorted(), numbers(5000));
    }
}

#[test]
fn an_old_record_pauses_the_sources() {
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    let flow = copy(3000, table.outbox().max_age(Duration::ZERO));
    run(&flow, 1, recovery(state.path())).expect("it ends");
    assert_eq!(table.sorted(), numbers(3000));
}

#[test]
fn a_read_that_takes_many_turns_passes_a_full_outbox() {
    let folder = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    let flow = Flow::new("slow");
    // One batch has all items; no epoch ends within it, and a turn has one item.
    flow.source("numbers", Greedy(LINES))
        .inspect(|_| support::wait(1))
        .sink(
            "out",
            codec::encode(table.outbox().max_bytes(1), codec::display),
        );
    run(&flow, 1, recovery(&folder.path().join("state"))).expect("it ends");
    assert_eq!(table.sorted(), numbers(LINES as u32));
}
