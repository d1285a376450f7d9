//! `millstream-bench market-spread`: all its processes, and its report.

use std::process::Child;
use std::time::Duration;

use serde_json::Value;

use super::process::{bench, command, interrupt, json, stderr};

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
fn the_bench_shares_the_work_among_workers() {
    let out = bench(&[
        "market-spread",
        "--workers",
        "2",
        "--seconds",
        "1",
        "--rate",
        "20000",
        "--json",
        "--runs",
        "2",
    ]);
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
    let report = json(&out);
    assert_eq!(report["runs"].as_array().unwrap().len(), 2);
    for run in report["runs"].as_array().unwrap() {
        judge(run, 2, 20_000.0);
        assert_eq!(run["messages"], 20_000);
    }
    judge(&report["median"], 2, 20_000.0);
}

#[test]
fn messages_that_were_ordered_and_not_sent_are_counted_and_fail_the_run() {
    // 46 GB/s: no machine sends that.
    let args = ["--rate", "1000000000", "--seconds", "1", "--json"];
    let out = bench(&[&["market-spread"][..], &args].concat());
    let report = &json(&out)["median"];
    let count = |name: &str| report["counts"][name].as_u64().unwrap();
    assert_eq!(count("ordered"), 1_000_000_000);
    assert!(count("sent") < count("ordered"), "{report}");
    assert_eq!(count("handled"), count("sent"));
    assert_eq!(count("results"), count("expected_results"));
    // What was not sent is in the latencies: the sender gave up a second after the last was due.
    assert_eq!(report["end_to_end"]["count"], count("ordered"));
    assert!(report["sender_lag_max_us"].as_u64().unwrap() >= 1_000_000);
    assert!(report["end_to_end"]["max_us"].as_f64().unwrap() >= 1e6);
    let said = format!(
        "millstream-bench market-spread: the counts disagree: ordered 1000000000, sent {0}, handled {0}; results expected {1}, received {1}\n",
        count("sent"),
        count("results")
    );
    assert_eq!((out.status.code(), stderr(&out)), (Some(1), said));
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
fn ctrl_c_under_load_drains_and_reports() {
    let args = "market-spread --rate 50000 --workers 2 --seconds 600 --json";
    let args: Vec<&str> = args.split(' ').collect();
    let running = command(&args).spawn().unwrap();
    wait_for_streams(&running);
    interrupt(&running);
    let out = running.wait_with_output().unwrap();
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
    let run = &json(&out)["median"];
    judge(run, 2, 50_000.0);
    let messages = run["messages"].as_u64().unwrap();
    assert!(messages > 0 && messages < 600 * 50_000);
}
