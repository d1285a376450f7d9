//! `millstream-bench flow`: its options.

use super::process::{bench, json, stderr};

#[test]
fn a_part_is_measured_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let args = [
        "--only", "resume", "--runs", "1", "--json", "--folder", path,
    ];
    let out = bench(&[&["flow"][..], &args].concat());
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
    let report = json(&out);
    assert!(report["resume_seconds"].as_f64().unwrap() > 0.0, "{report}");
    assert_eq!(report["steps"], serde_json::json!([]));
    assert_eq!(report.get("idle"), None);
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
}

#[test]
fn wake_ups_of_python_sources_need_python() {
    let out = bench(&["flow", "--only", "wake"]);
    let line = "millstream-bench flow: --only wake needs --python\n";
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(2), line));
}
