//! `millstream demo`: all its processes, and its report.

use std::process::Child;
use std::time::Duration;

use serde_json::Value;

use super::process::{command, interrupt, json, millstream, stderr};

/// A report is whole: everything that was sent was handled, and what was asked for was measured.
fn judge(report: &Value, workers: u64, rate: f64) {
    assert_eq!(report["workers"], workers);
    assert_eq!(report["rate_ordered"], rate);
    assert_eq!(report["skipped"], 0);
    assert!(report["rate_reached"].as_f64().unwrap() > 0.0, "{report}");
    let counts = &report["counts"];
    assert_eq!(report["end_to_end"]["count"], counts["ordered"]);
    assert_eq!(
        (&counts["sent"], &counts["handled"]),
        (&report["messages"], &report["messages"])
    );
    assert_eq!(counts["expected_results"], counts["results"]);
    assert_eq!(counts["wrong_results"], serde_json::json!([]));
    for latency in ["internal", "end_to_end"] {
        let us = |q: &str| report[latency][q].as_f64().unwrap();
        assert!(
            us("p50_us") > 0.0 && us("p50_us") <= us("max_us"),
            "{report}"
        );
    }
}

#[test]
fn the_demo_handles_all_that_it_sends() {
    let out = millstream(&["demo", "--seconds", "1", "--rate", "20000", "--json"]);
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
    let report = json(&out);
    judge(&report, 1, 20_000.0);
    assert_eq!(report["messages"], 20_000);
}

#[test]
fn orders_are_rejected_and_received() {
    // Long enough for the first order of a symbol with a wide spread.
    let out = millstream(&["demo", "--seconds", "4", "--rate", "100000", "--json"]);
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
    assert!(json(&out)["results"].as_u64().unwrap() >= 1, "{out:?}");
}

/// Waits until the two streams flow.
fn wait_for_streams(demo: &Child) {
    let children = format!("/proc/{0}/task/{0}/children", demo.id());
    let sends = |pid: &str| {
        let args = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
        args.is_ok_and(|args| args.contains("--stream"))
    };
    let started = || {
        let children = std::fs::read_to_string(&children).unwrap();
        children.split(' ').any(sends)
    };
    for _ in 0..3000 {
        if started() {
            // The schedule starts 0.7 s after the sender.
            return std::thread::sleep(Duration::from_millis(1500));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the senders do not start");
}

#[test]
fn ctrl_c_at_any_moment_ends_well() {
    for milliseconds in [0, 20, 50, 100, 200, 400, 800] {
        let demo = command(&["demo", "--rate", "50000", "--seconds", "600", "--json"])
            .spawn()
            .unwrap();
        // The signals are hooked before the data are generated.
        let data = std::env::temp_dir().join(format!("millstream-bench-{}", demo.id()));
        while !data.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(milliseconds));
        interrupt(&demo);
        let out = demo.wait_with_output().unwrap();
        let said = stderr(&out);
        assert_eq!(out.status.code(), Some(0), "{milliseconds}: {said}");
        match said.as_str() {
            "" => assert!(json(&out)["messages"].is_u64()),
            line => assert_eq!(
                line,
                "millstream demo: interrupted before there was anything to measure\n"
            ),
        }
        assert!(!data.exists(), "{milliseconds}: the data are left behind");
    }
}

#[test]
fn ctrl_c_under_load_drains_and_reports() {
    let demo = ["demo", "--rate", "50000", "--seconds", "600", "--json"];
    let demo = command(&demo).spawn().unwrap();
    wait_for_streams(&demo);
    interrupt(&demo);
    let out = demo.wait_with_output().unwrap();
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
    let report = json(&out);
    judge(&report, 1, 50_000.0);
    let messages = report["messages"].as_u64().unwrap();
    assert!(messages > 0 && messages < 600 * 50_000);
}
