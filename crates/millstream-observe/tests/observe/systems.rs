//! A system of services by the files in its state directory.

use std::path::Path;

use millstream_journal::{Journal, Options};
use millstream_observe::sections::services::Services;
use millstream_observe::{Observer, http};
use serde_json::{Value, json};

use crate::server::{get, json as read, until};

/// Writes what a supervisor and the process of the service `desk` write.
fn write(folder: &Path, process: &Value, pid: u32, position: u64) {
    write_call(folder, process, pid, position, &Value::Null);
}

/// As [`write`], while the service is in a long call.
fn write_call(folder: &Path, process: &Value, pid: u32, position: u64, call: &Value) {
    let service = json!({
        "name": "desk", "process": "first", "inputs": ["orders"], "out": null, "dead_letters": null,
    });
    let status = json!({
        "pid": 1, "folder": folder, "processes": {"first": process}, "services": [service],
    });
    let known = json!({
        "pid": pid, "state": "running", "calls": 7, "ticks": 0, "skipped": 0, "dead_letters": 0,
        "calls_per_s": 0.0, "positions": {"orders": position}, "call": call,
    });
    for (name, value) in [("desk.json", known), ("status.json", status)] {
        let unfinished = folder.join("unfinished");
        std::fs::write(&unfinished, value.to_string()).unwrap();
        std::fs::rename(&unfinished, folder.join(name)).unwrap();
    }
}

fn services(observer: &Observer) -> Value {
    read(observer, "/api/snapshot.json")["services"].take()
}

#[test]
fn a_system_is_what_its_files_say() {
    let folder = tempfile::tempdir().unwrap();
    let orders = Journal::open(folder.path().join("orders"), Options::default()).unwrap();
    let writer = orders.writer().unwrap();
    for _ in 0..5 {
        writer.append(b"x").unwrap();
    }
    let observer = http("127.0.0.1:0").bind().unwrap();
    observer.show(Services::watch_system(folder.path()).unwrap());
    until("the missing file is named", || {
        let (status, line) = get(&observer, "/readyz", "");
        status == 503 && line.contains("status.json")
    });

    let running =
        json!({"state": "running", "pid": 7, "restarts": 2, "error": "killed by SIGKILL"});
    write(folder.path(), &running, 7, 3);
    until("the service", || {
        services(&observer)["services"][0]["calls"] == 7
    });
    let shown = services(&observer);
    assert_eq!(shown["services"][0]["process"], "first");
    assert_eq!(shown["services"][0]["inputs"][0]["lag_records"], 2);
    assert_eq!(shown["processes"][0]["name"], "first");
    assert_eq!(shown["processes"][0]["restarts"], 2);
    assert_eq!(get(&observer, "/readyz", "").0, 200);
    let (_, metrics) = get(&observer, "/metrics", "");
    let restarts = "millstream_service_process_restarts_total{process=\"first\"} 2";
    assert!(metrics.contains(restarts), "{metrics}");

    // It is inside one call.
    let call = json!({"input": 0, "record": 3, "seconds": 7, "thread": 9, "stack": "in place"});
    write_call(folder.path(), &running, 7, 3, &call);
    until("the call", || {
        services(&observer)["services"][0]["state"] == "stuck"
    });
    let shown = services(&observer)["services"][0].take();
    assert_eq!(shown["call"]["stack"], "in place");
    assert_eq!(shown["call_rate"], Value::Null);
    let snapshot = read(&observer, "/api/snapshot.json");
    let words = "Service \"desk\" has been inside a call with record 3 of orders for 7 s.";
    let mut conditions = snapshot["conditions"].as_array().unwrap().iter();
    assert!(conditions.any(|one| one["words"] == words), "{snapshot}");
    let (_, metrics) = get(&observer, "/metrics", "");
    let seconds = "millstream_service_call_seconds{service=\"desk\"} 7";
    assert!(metrics.contains(seconds), "{metrics}");

    // Its process is a new one, which has written nothing.
    let new = json!({"state": "running", "pid": 8, "restarts": 3, "error": null});
    write(folder.path(), &new, 7, 3);
    until("it starts", || {
        services(&observer)["services"][0]["state"] == "starting"
    });
    assert!(get(&observer, "/readyz", "").1.contains("\"desk\" starts"));

    // Nothing runs: what the last process has written holds.
    let failed = json!({"state": "failed", "pid": null, "restarts": 3, "error": "a bad record"});
    write(folder.path(), &failed, 7, 4);
    until("it is down", || {
        services(&observer)["services"][0]["state"] == "down"
    });
    let conditions = read(&observer, "/api/snapshot.json")["conditions"].take();
    let words = "Process \"first\" is failed: a bad record";
    let mut conditions = conditions.as_array().unwrap().iter();
    assert!(conditions.any(|one| one["words"] == words));
    let shown = services(&observer);
    assert_eq!(shown["services"][0]["inputs"][0]["lag_records"], 1);
    let (status, line) = get(&observer, "/readyz", "");
    assert_eq!(
        (status, line.as_str()),
        (503, format!("{words}\n").as_str())
    );

    // A file of another kind is an error, and no end of the page.
    std::fs::write(folder.path().join("status.json"), "{").unwrap();
    until("the error", || {
        let snapshot = read(&observer, "/api/snapshot.json");
        let mut conditions = snapshot["conditions"].as_array().unwrap().iter();
        conditions.any(|one| one["words"].as_str().unwrap().contains("status.json"))
    });
}
