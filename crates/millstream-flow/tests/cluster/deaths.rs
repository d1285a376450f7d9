//! The death of a process, and a failure of a step in one, end the run on all.

use std::io;
use std::sync::Arc;

use millstream_flow::testing::Collected;
use millstream_flow::{Flow, FlowError, OnError, generator};

use super::hub::{Hub, finish, start, until};

/// An endless flow; what it counts on each process is seen while it runs.
fn endless(seen: &Collected<(u64, u64)>) -> Flow {
    let flow = Flow::new("endless");
    flow.source("numbers", generator::from_fn(Some).partitions(3))
        .key_by(|n| n % 97)
        .stateful(
            "sum",
            |_| 0u64,
            |sum, _, n| {
                *sum += n;
                Some(*sum)
            },
        )
        .items()
        .filter(|(_, sum)| sum % 64 == 0)
        .sink("out", seen.sink());
    flow
}

/// Starts the endless flow and kills process 1 when there is output.
fn killed(cause: Option<&str>) -> Vec<FlowError> {
    let hub = Hub::new(3);
    let seen = Collected::new();
    let flow = seen.clone();
    let processes = start(&hub, 2, move |_| endless(&flow));
    until("there is output", || !seen.take().is_empty());
    hub.kill(1, cause);
    let outcomes = finish(processes);
    assert!(hub.ended.lock().unwrap().is_empty());
    outcomes.into_iter().map(|o| o.unwrap_err()).collect()
}

#[test]
fn a_death_that_is_reported_ends_the_run_with_its_cause() {
    let errors = killed(Some("it was killed by signal 9"));
    for survivor in [0, 2] {
        assert!(errors[survivor].is_lost());
        assert_eq!(
            errors[survivor].to_string(),
            "process 1 of the cluster has ended: it was killed by signal 9"
        );
    }
}

#[test]
fn a_lost_connection_ends_the_run_without_a_report() {
    for error in killed(None) {
        assert!(error.is_lost(), "{error}");
        assert!(format!("{error:?}").contains("data"), "{error}");
    }
}

#[test]
fn a_failing_step_ends_all_processes_with_its_cause() {
    let hub = Hub::new(3);
    let processes = start(&hub, 1, |_| {
        let flow = Flow::new("fails");
        flow.source("numbers", generator::from_fn(Some))
            .redistribute()
            .try_map("check", OnError::Fail, |n| match n {
                5000 => Err(io::Error::other("not this one")),
                n => Ok(*n),
            })
            .sink("out", Collected::new().sink());
        flow
    });
    let errors: Vec<FlowError> = finish(processes)
        .into_iter()
        .map(|o| o.unwrap_err())
        .collect();
    let own: Vec<&FlowError> = errors.iter().filter(|error| !error.is_lost()).collect();
    assert_eq!(own.len(), 1, "{errors:?}");
    for error in &errors {
        assert!(format!("{error:?}").contains("not this one"), "{error}");
    }
}

#[test]
fn a_sink_that_cannot_be_opened_ends_all_processes_before_they_read() {
    let hub = Hub::new(2);
    let read = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&read);
    let processes = start(&hub, 1, move |process| {
        let flow = Flow::new("closed");
        let counted = Arc::clone(&counted);
        let source = generator::from_fn(move |n| {
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Some(n)
        });
        let out = match process {
            0 => std::env::temp_dir().join(format!("millstream-cluster-{}", std::process::id())),
            _ => "/nowhere/out".into(),
        };
        let lines = flow.source("numbers", source).map(|n| n.to_string());
        let write = millstream_flow::files::write(out);
        let encoded = millstream_flow::codec::encode(write, millstream_flow::codec::display);
        lines.sink("out", encoded);
        flow
    });
    let errors: Vec<String> = finish(processes)
        .into_iter()
        .map(|o| format!("{:?}", o.unwrap_err()))
        .collect();
    assert!(
        errors.iter().all(|error| error.contains("/nowhere/out")),
        "{errors:?}"
    );
    assert_eq!(read.load(std::sync::atomic::Ordering::SeqCst), 0);
    let _ = std::fs::remove_file(
        std::env::temp_dir().join(format!("millstream-cluster-{}", std::process::id())),
    );
}
