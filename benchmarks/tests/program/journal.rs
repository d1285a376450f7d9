//! `millstream-bench journal`: rows of several processes and of other stores.

use super::process::{bench, json, stderr};

#[test]
fn the_benchmark_measures_with_other_processes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let args = ["journal", "--runs", "1", "--json", "--folder", path];
    let only = ["--only", "processes", "--only", "durable"];
    let out = bench(&[&args[..], &only].concat());
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
    let report = json(&out);
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() > 10, "{report}");
    assert!(
        rows.iter().all(|row| row["median"].as_f64().unwrap() > 0.0),
        "{report}"
    );
    assert_eq!(report["missing"], serde_json::json!([]));
    // It removes what it made.
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
}

#[test]
fn the_benchmark_counts_what_idle_journals_have() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let out = bench(&[
        "journal", "--only", "idle", "--runs", "1", "--json", "--folder", path,
    ]);
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
    let report = json(&out);
    let median = |name: &str| {
        let rows = report["rows"].as_array().unwrap();
        let row = rows
            .iter()
            .find(|row| row["name"] == format!("100 idle journals, {name}"));
        row.unwrap()["median"].as_f64().unwrap()
    };
    for (kind, descriptors, threads) in [
        ("never", 100.0, 0.0),
        ("always", 100.0, 0.0),
        ("10ms", 100.0, 1.0),
        ("read only", 0.0, 0.0),
    ] {
        assert_eq!(
            median(&format!("{kind}: descriptors")),
            descriptors,
            "{kind}"
        );
        assert_eq!(median(&format!("{kind}: threads")), threads, "{kind}");
    }
}

#[test]
fn other_stores_do_the_same_work() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let out = bench(&[
        "journal", "--only", "compare", "--runs", "1", "--json", "--folder", path,
    ]);
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
    let report = json(&out);
    let names: Vec<&str> = report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    for store in [
        "Millstream journal",
        "plain file",
        "SQLite WAL, from Python",
        "fjall 3",
    ] {
        let rows = names.iter().filter(|name| name.ends_with(store)).count();
        assert_eq!(rows, 4, "{store}: {report}");
    }
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
}
