//! Deliveries that wait for the records of several epochs.

use std::time::Duration;

use millstream_flow::outbox::DeliveryError;
use millstream_flow::{Flow, codec, testing};

use crate::destination::{Point, Table, copy, numbers, options, recovery, run};
use crate::support::{self, finish};

const HOUR: Duration = Duration::from_secs(3600);

/// Items one by one, each in an epoch of its own.
fn slow(count: u32) -> testing::Script<u32> {
    let item = |n| {
        [
            testing::Mark::Item(n),
            testing::Mark::Pause(Duration::from_millis(4)),
        ]
    };
    testing::script([(0..count).flat_map(item).collect()])
}

#[test]
fn a_batch_waits_for_the_records_of_several_epochs() {
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    let flow = Flow::new("copy");
    let outbox = table.outbox().batch_age(HOUR);
    flow.source("numbers", slow(40))
        .sink("out", codec::encode(outbox, codec::display));
    let report = run(&flow, 1, recovery(state.path())).expect("it runs");
    // Each delivery but the last is full.
    let outbox = report.outbox("out").expect("the sink has one");
    assert_eq!(outbox.deliveries, 40_u64.div_ceil(7));
    assert_eq!(table.sorted(), numbers(40));
}

#[test]
fn a_batch_that_has_its_bytes_is_delivered() {
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    let outbox = table.outbox().batch(1000).batch_bytes(3).batch_age(HOUR);
    let flow = Flow::new("copy");
    flow.source("numbers", slow(10))
        .sink("out", codec::encode(outbox, codec::display));
    let report = run(&flow, 1, recovery(state.path())).expect("it runs");
    assert_eq!(
        report.outbox("out").map(|outbox| outbox.deliveries),
        Some(4)
    );
    assert_eq!(table.sorted(), numbers(10));
}

#[test]
fn a_batch_that_has_its_age_is_delivered() {
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    let flow = Flow::new("copy");
    let outbox = table.outbox().batch_age(Duration::from_millis(20));
    let items = vec![testing::Mark::Item(0), testing::Mark::Pause(HOUR)];
    flow.source("numbers", testing::script([items]))
        .sink("out", codec::encode(outbox, codec::display));
    let running = flow
        .start(options(1, recovery(state.path())))
        .expect("it starts");
    table.wait_until(|contents| !contents.rows.is_empty());
    running.stop();
    finish(running).expect("it ends");
    assert_eq!(table.sorted(), numbers(1));
}

#[test]
fn a_stop_delivers_a_batch_that_waits() {
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    let flow = Flow::new("copy");
    let items = vec![testing::Mark::Item(0), testing::Mark::Pause(HOUR)];
    flow.source("numbers", testing::script([items])).sink(
        "out",
        codec::encode(table.outbox().batch_age(HOUR), codec::display),
    );
    let running = flow
        .start(options(1, recovery(state.path())))
        .expect("it starts");
    let waiting = || {
        let report = running.report();
        report
            .outbox("out")
            .is_some_and(|outbox| outbox.waiting_records > 0)
    };
    while !waiting() {
        support::wait(1);
    }
    assert_eq!(table.lock().rows, []);
    running.stop();
    finish(running).expect("it ends");
    assert_eq!(table.sorted(), numbers(1));
}

#[test]
fn a_full_outbox_does_not_wait() {
    for workers in [1, 3] {
        let state = tempfile::tempdir().expect("a folder");
        let table = Table::new(true);
        let outbox = table.outbox().batch(100_000).batch_age(HOUR);
        run(
            &copy(5000, outbox.max_bytes(100)),
            workers,
            recovery(state.path()),
        )
        .expect("it ends");
        assert_eq!(table.sorted(), numbers(5000));
        assert!(table.lock().writes > 1);
    }
}

#[test]
fn attempts_that_fail_are_repeated_with_the_same_records() {
    for remembers in [true, false] {
        let state = tempfile::tempdir().expect("a folder");
        let table = Table::new(remembers);
        table.fails(|point| {
            let fails = match point {
                Point::Connect(n) => n % 3 == 1,
                Point::Before(n) => n % 3 == 2,
                Point::After(n) => n % 3 == 0,
            };
            fails.then(|| DeliveryError::retry("no route"))
        });
        let flow = Flow::new("copy");
        let outbox = table.outbox().batch_age(Duration::from_millis(5));
        flow.source("numbers", slow(40))
            .sink("out", codec::encode(outbox, codec::display));
        run(&flow, 1, recovery(state.path())).expect("it runs");
        assert_eq!(table.sorted(), numbers(40));
    }
}
