//! A destination that is away, refuses, hangs or has other contents than the outbox.

use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_flow::outbox::{Backoff, DeliveryError, outbox_dir};
use millstream_flow::{Flow, FlowError, Options, codec, testing};
use tempfile::TempDir;

use crate::destination::{Point, Table, copy, numbers, options, recovery, run};
use crate::support::{self, finish};

fn away(_: Point) -> Option<DeliveryError> {
    Some(DeliveryError::retry("connection refused"))
}

fn failed(flow: &Flow, state: &Path) -> String {
    match run(flow, 1, recovery(state)) {
        Ok(_) => panic!("it ended well"),
        Err(error) => format!("{error:?}"),
    }
}

#[test]
fn a_destination_that_is_away_and_comes_back_gets_everything() {
    for remembers in [true, false] {
        let state = tempfile::tempdir().expect("a folder");
        let table = Table::new(remembers);
        table.fails(|point| match point {
            Point::Connect(n) if n < 20 || n % 2 == 0 => away(point),
            Point::Before(n) if n % 5 == 0 => away(point),
            Point::After(n) if n % 7 == 0 => away(point),
            _ => None,
        });
        let flow = copy(300, table.outbox());
        let report = run(&flow, 1, recovery(state.path())).expect("it comes back");
        assert_eq!(table.sorted(), numbers(300));
        let outbox = report.outbox("out").expect("the sink has one");
        assert!(outbox.retries >= 20, "{outbox:?}");
    }
}

#[test]
fn a_refusal_fails_the_flow_and_names_the_records() {
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    table.fails(|point| match point {
        Point::Before(3) => Some(DeliveryError::fatal("no permission to insert")),
        _ => None,
    });
    let flow = copy(100, table.outbox());
    let said = failed(&flow, state.path());
    let names = ["\"out\"", "table t", "records ", "no permission to insert"];
    assert!(names.iter().all(|name| said.contains(name)), "{said}");
    table.heals();
    run(&flow, 1, recovery(state.path())).expect("it resumes");
    assert_eq!(table.sorted(), numbers(100));
}

#[test]
fn a_panic_of_the_destination_fails_the_flow() {
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    let broken = millstream_flow::outbox::connector("a bug", true, |_: &_| {
        if true {
            panic!("it divides by zero");
        }
        Ok(Never)
    });
    struct Never;
    impl millstream_flow::outbox::Destination for Never {
        fn write(
            &mut self,
            _: &millstream_flow::Frames,
            _: u64,
            _: u64,
        ) -> Result<(), DeliveryError> {
            Ok(())
        }
    }
    let flow = copy(10, millstream_flow::outbox::Outbox::new(broken));
    let said = failed(&flow, state.path());
    assert!(
        said.contains("it divides by zero") && said.contains("\"out\""),
        "{said}"
    );
    drop(flow);
    run(&copy(10, table.outbox()), 1, recovery(state.path())).expect("it resumes");
    assert_eq!(table.sorted(), numbers(10));
}

#[test]
fn a_limited_number_of_attempts_fails_the_flow() {
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    table.fails(away);
    let three = Backoff {
        first: Duration::from_millis(1),
        tries: Some(3),
        ..Backoff::default()
    };
    let said = failed(&copy(10, table.outbox().backoff(three)), state.path());
    assert!(said.contains("connection refused"), "{said}");
    assert_eq!(table.lock().connects, 3);
}

#[test]
fn a_flow_at_its_end_fails_when_nothing_is_delivered_and_the_next_start_delivers() {
    for remembers in [true, false] {
        let state = tempfile::tempdir().expect("a folder");
        let table = Table::new(remembers);
        table.fails(away);
        let flow = copy(40, table.outbox().wait_at_end(Duration::from_millis(20)));
        let said = failed(&flow, state.path());
        let names = [
            "\"out\"",
            "40 records wait",
            "table t",
            "connection refused",
            "start the flow again",
        ];
        assert!(names.iter().all(|name| said.contains(name)), "{said}");
        assert_eq!(table.lock().rows, []);
        table.heals();
        // The sources have ended, and the run delivers what waits.
        run(&flow, 1, recovery(state.path())).expect("it delivers");
        assert_eq!(table.sorted(), numbers(40));
    }
}

#[test]
fn a_stop_ends_the_run_whatever_the_destination_does() {
    // It is away, hangs in a write, or works.
    for case in ["away", "hangs", "works"] {
        let state = tempfile::tempdir().expect("a folder");
        let table = Table::new(true);
        match case {
            "away" => table.fails(away),
            "hangs" => table.close(true),
            _ => {}
        }
        let flow = copy(50_000, table.outbox().max_bytes(2000));
        let running = flow
            .start(options(2, recovery(state.path())))
            .expect("it starts");
        while running
            .report()
            .outbox("out")
            .is_none_or(|outbox| outbox.waiting_records + outbox.delivered_records == 0)
        {
            support::wait(1);
        }
        running.stop();
        finish(running).unwrap_or_else(|error| panic!("{case}: {error}"));
        table.heals();
        table.close(false);
        // A delivery that hung ends, and its thread with it.
        support::wait(200);
        let rows = table.lock().rows.len();
        assert!(rows < 50_000, "{case}: {rows}");
        run(&flow, 2, recovery(state.path())).expect("it resumes");
        assert_eq!(table.sorted(), numbers(50_000), "{case}");
    }
}

#[test]
fn a_stop_without_a_state_directory_drops_what_cannot_be_delivered() {
    let table = Table::new(true);
    table.fails(away);
    let flow = copy(200_000, table.outbox());
    let running = flow.start(Options::workers(2)).expect("it starts");
    while running
        .report()
        .outbox("out")
        .is_none_or(|outbox| outbox.retries == 0)
    {
        support::wait(1);
    }
    running.stop();
    finish(running).expect("it stops");
    assert_eq!(table.lock().rows, []);
}

#[test]
fn a_record_that_is_too_large_fails_the_flow_when_it_is_produced() {
    for keeps in [true, false] {
        let state = tempfile::tempdir().expect("a folder");
        let table = Table::new(true);
        let flow = Flow::new("large");
        flow.source("in", testing::items(["x".repeat(3 << 20)]))
            .sink("out", codec::encode(table.outbox(), codec::display));
        let mut settings = Options::workers(1);
        settings.recovery = keeps.then(|| recovery(state.path()));
        let error = finish(flow.start(settings).expect("it starts")).expect_err("it is large");
        let said = format!("{error:?}");
        let names = ["\"out\"", "3145728 bytes", "table t", "2097152"];
        assert!(names.iter().all(|name| said.contains(name)), "{said}");
    }
}

#[test]
fn another_copy_of_the_state_directory_is_noticed() {
    let (_folder, table, [state, copied]) = two_copies();
    // Each finds 50 more items. The first of them delivers, the other has other records of the same numbers.
    run(&copy(100, table.outbox()), 1, recovery(&state)).expect("it runs");
    let said = failed(&copy(80, table.outbox()), &copied);
    let names = [
        "\"out\"",
        "record 99",
        "another copy",
        "Recovery::drop_state",
    ];
    assert!(names.iter().all(|name| said.contains(name)), "{said}");
    assert_eq!(table.sorted(), numbers(100));
}

#[test]
fn two_copies_at_once_never_deliver_a_number_twice() {
    let (_folder, table, [state, copied]) = two_copies();
    let flows = [copy(5000, table.outbox()), copy(5000, table.outbox())];
    let started = flows.iter().zip([&state, &copied]);
    let running: Vec<_> = started
        .map(|(flow, dir)| flow.start(options(1, recovery(dir))).expect("it starts"))
        .collect();
    let ends: Vec<_> = running.into_iter().map(finish).collect();
    let failures: Vec<String> = ends
        .iter()
        .filter_map(|end| end.as_ref().err().map(FlowError::to_string))
        .collect();
    assert!(failures.len() < 2, "{failures:?}");
    assert_eq!(table.sorted(), numbers(5000));
}

#[test]
fn a_destination_that_has_lost_records_is_an_error_once_they_are_removed() {
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    let large = |count: u32| {
        let flow = Flow::new("copy");
        let source = testing::items((0..count).map(|_| "x".repeat(1 << 20)));
        flow.source("in", source.batch_size(1))
            .sink("out", codec::encode(table.outbox(), codec::display));
        flow
    };
    run(&large(100), 1, recovery(state.path())).expect("it runs");
    table.lock().positions.values_mut().for_each(|at| *at = 10);
    let said = failed(&large(101), state.path());
    let names = [
        "\"out\"",
        "the records before 11 only",
        "restore it",
        "Recovery::drop_state(\"out\")",
    ];
    assert!(names.iter().all(|name| said.contains(name)), "{said}");
}

#[test]
fn a_copy_that_reaches_the_destination_late_is_noticed() {
    let (_folder, table, [state, copied]) = two_copies();
    run(&copy(100, table.outbox()), 1, recovery(&state)).expect("it runs");
    // When the copy reaches the destination, it has committed more records than the destination has.
    table.fails(|point| match point {
        Point::Connect(attempt) if attempt < 200 => away(point),
        _ => None,
    });
    let said = failed(&copy(120, table.outbox()), &copied);
    let names = ["\"out\"", "record 99", "before 50", "another copy"];
    assert!(names.iter().all(|name| said.contains(name)), "{said}");
    assert_eq!(table.sorted(), numbers(100));
}

#[test]
fn a_destination_that_has_lost_its_newest_records_receives_them_again() {
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    run(&copy(50, table.outbox()), 1, recovery(state.path())).expect("it runs");
    table.loses_from(30);
    run(&copy(100, table.outbox()), 1, recovery(state.path())).expect("it runs");
    assert_eq!(table.sorted(), numbers(100));
    // Also while a flow runs: the destination fails in a write, and has less than before.
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    table.loses_at_write(5, 10);
    run(&copy(100, table.outbox()), 1, recovery(state.path())).expect("it runs");
    assert_eq!(table.sorted(), numbers(100));
}

#[test]
fn a_destination_that_has_forgotten_its_position_gets_no_old_records() {
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    run(&copy(50, table.outbox()), 1, recovery(state.path())).expect("it runs");
    // It has forgotten its position altogether, as groups of Kafka do after a week.
    table.lock().positions.clear();
    let flow = copy(100, table.outbox());
    let said = failed(&flow, state.path());
    // This model refuses the next record without its predecessor; the outbox offers record 50, and no older one.
    assert!(said.contains("50 comes next here"), "{said}");
}

#[test]
fn an_outbox_that_was_removed_is_an_error() {
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    run(&copy(50, table.outbox()), 1, recovery(state.path())).expect("it runs");
    std::fs::remove_dir_all(outbox_dir(state.path(), "out")).expect("it is there");
    let said = failed(&copy(100, table.outbox()), state.path());
    let names = [
        "\"out\"",
        "before record 0",
        "before 50",
        "Recovery::drop_state",
    ];
    assert!(names.iter().all(|name| said.contains(name)), "{said}");
    // Begun anew it is another outbox, with numbers of its own.
    let again = Table::new(true);
    let dropped = recovery(state.path()).drop_state("out");
    run(&copy(100, again.outbox()), 1, dropped).expect("it runs");
    assert_eq!(again.lock().rows.len(), 50);
    assert_eq!(again.lock().rows[0], (0, "50".to_owned()));
}

#[test]
fn a_fresh_start_removes_the_outbox_with_the_records_that_wait() {
    let state = tempfile::tempdir().expect("a folder");
    let table = Table::new(true);
    table.fails(away);
    let flow = copy(40, table.outbox().wait_at_end(Duration::from_millis(20)));
    failed(&flow, state.path());
    table.heals();
    let short = copy(5, table.outbox());
    run(&short, 1, recovery(state.path()).fresh()).expect("it starts again");
    assert_eq!(table.sorted(), numbers(5));
}

/// A destination with 50 records, and two copies of the state directory of the flow that has delivered them.
fn two_copies() -> (TempDir, Table, [PathBuf; 2]) {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let copied = folder.path().join("copied");
    let table = Table::new(true);
    run(&copy(50, table.outbox()), 1, recovery(&state)).expect("it runs");
    copy_dir(&state, &copied);
    (folder, table, [state, copied])
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("it is new");
    for entry in std::fs::read_dir(from).expect("it is there") {
        let entry = entry.expect("it is readable");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("it has one").is_dir() {
            copy_dir(&entry.path(), &target)
        } else {
            std::fs::copy(entry.path(), target).expect("it is copied");
        }
    }
}
