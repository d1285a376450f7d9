//! `millstream-bench cluster`: two processes of each part.

use super::process::{bench, json, stderr};

fn measured(parts: &[&str], seconds: &str) -> serde_json::Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let args = ["--runs", "1", "--json", "--folder", path, "--seconds"];
    let out = bench(&[&["cluster"][..], parts, &args, &[seconds]].concat());
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
    json(&out)
}

#[test]
fn rates_are_measured_beside_one_process_and_beside_timely() {
    let report = measured(&["--only", "step", "--only", "exchange"], "0.05");
    let rates = report["rates"].as_array().unwrap();
    // The step beside one process, and beside two flows that do not meet; the exchange beside `timely`.
    assert_eq!(rates.len(), 3);
    for rate in rates {
        assert!(rate["ratio"].as_f64().unwrap() > 0.0, "{report}");
    }
    assert_eq!(report.get("hop"), None);
}

#[test]
fn each_hop_is_received() {
    let report = measured(&["--only", "hop"], "0.1");
    for way in ["flow", "timely", "socket"] {
        assert_eq!(report["hop"][way]["count"], 40, "{report}");
    }
}

#[test]
fn commits_are_measured_on_one_process_and_on_two() {
    let report = measured(&["--only", "commit"], "0.02");
    assert_eq!(report["commits"].as_array().unwrap().len(), 2, "{report}");
}

#[test]
fn what_only_python_measures_needs_python() {
    let out = bench(&["cluster", "--only", "kill"]);
    let line = "millstream-bench cluster: --only kill needs --python\n";
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(2), line));
}
