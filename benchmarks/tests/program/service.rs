//! `millstream-bench service`: publisher and consumer, two processes.

use super::process::{bench, json, stderr};

#[test]
fn typed_calls_are_measured_from_process_to_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let args = "service --rate 2000 --seconds 0.3 --warm-up 0.1 --runs 1 --json --folder";
    let args: Vec<&str> = args.split(' ').chain([path]).collect();
    let out = bench(&args);
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
    let report = json(&out);
    let run = &report["runs"][0];
    let count = run["latency"]["count"].as_u64().unwrap();
    assert!(count.abs_diff(600) <= 1, "{report}");
    let us = |name: &str| run["latency"][name].as_f64().unwrap();
    assert!(0.0 < us("p50_us") && us("p50_us") <= us("p99_us") && us("p99_us") <= us("max_us"));
    assert_ne!(run["digest"], 0);
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
}
