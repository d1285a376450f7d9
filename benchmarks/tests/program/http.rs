//! `millstream-bench http`: the source under load.

use super::process::{bench, json, stderr};

#[test]
fn a_source_is_measured_and_its_items_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    for options in [&["--lines", "3"][..], &["--sync", "never", "--pin"]] {
        let args = [
            "http",
            "--runs",
            "1",
            "--seconds",
            "0.2",
            "--json",
            "--dir",
            path,
        ];
        let out = bench(&[&args[..], options].concat());
        assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
        let report = json(&out);
        assert!(report["median"]["items"].as_u64().unwrap() > 0, "{report}");
        let requests = report["median"]["latency"]["count"].as_u64().unwrap();
        let lines = report["lines"].as_u64().unwrap();
        assert_eq!(report["median"]["items"], requests * lines);
        assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
    }
}
