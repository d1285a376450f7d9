//! The metrics of a run: their sums are consistent, and they can be observed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_flow::metrics::Report;
use millstream_flow::testing::{Collected, items, script};
use millstream_flow::{Emit, Flow, Options, generator, testing::Mark};

use super::support::{finish, run};

#[test]
fn counts_of_steps_and_workers_add_up() {
    for workers in 1..=3 {
        let flow = Flow::new("counts");
        let marks = |p: u64| (0..1000).map(|n| Mark::Item(n * 3 + p)).collect::<Vec<_>>();
        flow.source("n", script((0..3).map(marks)))
            .filter(|n| n % 2 == 0)
            .named("even")
            .flat_map(|n| [n, n])
            .named("twice")
            .key_by(|n| n % 50)
            .named("key")
            .count(Emit::End)
            .items()
            .sink("out", Collected::new().sink());
        let report = run(&flow, workers).unwrap();
        for (name, due) in [
            ("n", (0, 3000)),
            ("even", (3000, 1500)),
            ("twice", (1500, 3000)),
            ("key", (3000, 3000)),
            ("count", (3000, 25)),
            ("out", (25, 0)),
        ] {
            let step = report.step(name).unwrap();
            assert_eq!((step.items_in, step.items_out), due, "{name}");
            let of_workers: u64 = report
                .workers
                .iter()
                .flatten()
                .filter(|step| step.name == name)
                .map(|step| step.items_in + step.items_out)
                .sum();
            assert_eq!(of_workers, due.0 + due.1, "{name}");
            assert_eq!(step.latency_ns.len(), due.0, "{name}");
            assert!(step.batches > 0 && step.skipped == 0 && step.faults == 0);
        }
        assert_eq!(report.workers.len(), workers);
        assert_eq!(report.flow, "counts");
        assert!(report.step("none").is_none());
    }
}

#[test]
fn the_callback_sees_the_run_and_its_end() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&seen);
    let flow = Flow::new("watched");
    let source = generator::from_fn(|n| (n < 300).then_some(n)).rate(1000.0);
    flow.source("n", source)
        .sink("out", Collected::new().sink());
    let options = Options {
        on_metrics: Some((
            Duration::from_millis(10),
            Arc::new(move |report: &Report| {
                let items = report.step("out").map_or(0, |step| step.items_in);
                keep.lock().unwrap().push(items);
            }),
        )),
        ..Options::workers(2)
    };
    flow.run(options).unwrap();
    let counts = seen.lock().unwrap();
    assert!(counts.is_sorted(), "{counts:?}");
    assert_eq!(counts.last(), Some(&300));
    assert!(
        counts.iter().any(|&count| count > 0 && count < 300),
        "the callback is called while the flow runs: {counts:?}"
    );
}

#[test]
fn a_report_as_json_and_as_text() {
    let flow = Flow::new("shape");
    flow.source("n", items(0..10))
        .map(|n: u64| n)
        .named("same")
        .sink("out", Collected::new().sink());
    let report = finish(flow.start(Options::workers(2)).unwrap()).unwrap();
    let json = report.to_json();
    let keys = |value: &serde_json::Value| {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys.join(" ")
    };
    assert_eq!(
        keys(&json),
        "flow lags links outboxes seconds steps workers"
    );
    assert_eq!(json["flow"], "shape");
    assert!(json["seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(json["workers"].as_array().unwrap().len(), 2);
    let same = &json["steps"][1];
    assert_eq!(
        keys(same),
        "batches busy_ms dead_letters faults items_in items_out keys kind late latency_us name skipped \
         state_bytes"
    );
    assert_eq!(keys(&same["latency_us"]), "max p50 p90 p99 p99.9 p99.99");
    assert_eq!(
        (&same["name"], &same["kind"]),
        (&"same".into(), &"map".into())
    );
    assert_eq!(
        (&same["items_in"], &same["items_out"]),
        (&10.into(), &10.into())
    );
    let text = report.to_string();
    assert!(text.starts_with("flow shape ran 0."), "{text}");
    assert!(
        text.contains("same                             10           10"),
        "{text}"
    );
}

#[test]
fn latency_counts_from_the_source() {
    // The last step includes the time of the steps before it.
    let flow = Flow::new("latency");
    flow.source("n", items(0..3).batch_size(1))
        .inspect(|_: &u64| super::support::wait(5))
        .named("slow")
        .map(|n| n)
        .named("quick")
        .sink("out", Collected::new().sink());
    let report = run(&flow, 1).unwrap();
    let slow = report.step("slow").unwrap();
    let quick = report.step("quick").unwrap();
    assert!(slow.busy_ns >= 15_000_000);
    assert!(
        quick.latency_ns.min() >= 4_990_000,
        "{}",
        quick.latency_ns.min()
    );
    assert!(quick.busy_ns < slow.busy_ns);
}
