//! Options of sources, windows and recovery that are out of range are refused at the start, or are right.

use std::time::Duration;

use millstream_flow::testing::{Collected, items};
use millstream_flow::{EventTime, Flow, Options, Recovery, Window, directory, generator};

use super::recovery::run as run_saving;
use super::support::finish;

/// The message of a run that ends at its start.
fn refused(make: impl FnOnce(&Flow)) -> String {
    let flow = Flow::new("refused");
    make(&flow);
    let run = flow.start(Options::default()).and_then(finish);
    format!("{:?}", run.unwrap_err())
}

#[test]
fn a_generator_has_a_rate_and_partitions() {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let said = refused(|flow| {
            let numbers = generator::from_fn(Some).rate(rate);
            flow.source("numbers", numbers)
                .sink("out", Collected::new().sink());
        });
        let wrong = format!("a number of items a second above 0, not {rate}");
        assert!(
            said.contains("source \"numbers\"") && said.contains(&wrong),
            "{said}"
        );
    }
    let said = refused(|flow| {
        let none = generator::from_fn(Some).partitions(0);
        flow.source("numbers", none)
            .sink("out", Collected::new().sink());
    });
    assert!(said.contains("has 1 partition or more, not 0"), "{said}");
}

#[test]
fn a_directory_has_partitions() {
    let dir = tempfile::tempdir().expect("a directory");
    let said = refused(|flow| {
        let none = directory::frames(dir.path(), "*").partitions(0);
        flow.source("files", none)
            .sink("out", Collected::new().sink());
    });
    assert!(said.contains("1 partition or more, not 0"), "{said}");
}

#[test]
fn windows_are_not_absurdly_many_or_long() {
    let hour = Duration::from_secs(3600);
    let micro = Duration::from_micros(1);
    for (window, wrong) in [
        (
            Window::sliding(hour, micro),
            "each item would be in more than 100,000 sliding windows",
        ),
        (Window::tumbling(Duration::MAX), "at most 200 years"),
        (Window::session(Duration::MAX), "at most 200 years"),
        (
            Window::tumbling(hour).offset(Duration::MAX),
            "at most 200 years",
        ),
    ] {
        let said = refused(|flow| {
            let times = flow
                .source("in", items([1i64, 2]))
                .event_time(|n| *n, EventTime::default());
            let counts = times.key_by(|_| 0).window("w", window).count();
            counts.results.values().sink("out", Collected::new().sink());
        });
        assert!(said.contains(wrong), "{said}");
    }
    assert_eq!(
        Window::sliding(hour, Duration::from_millis(36)).check(),
        Ok(())
    );
}

#[test]
fn an_epoch_may_be_longer_than_any_run() {
    for epoch in [
        Duration::MAX,
        Duration::from_secs(u64::MAX),
        Duration::from_nanos(u64::MAX),
    ] {
        let state = tempfile::tempdir().expect("a directory");
        let flow = Flow::new("long");
        let out = Collected::new();
        flow.source("in", items(0..100)).sink("out", out.sink());
        run_saving(&flow, 2, Recovery::new(state.path()).epoch(epoch)).expect("it runs");
        assert_eq!(out.take().len(), 100);
    }
}
