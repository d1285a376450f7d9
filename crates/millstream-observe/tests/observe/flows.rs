//! What the page knows about a flow beside rates: state, items on their way, lag, failures, and a commit on request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_flow::{
    Flow, OnError, Options, Recovery, codec, files, generator, journals, testing,
};
use millstream_observe::http;
use serde_json::Value;

use crate::server::{json, post, until};

fn step<'a>(snapshot: &'a Value, name: &str) -> &'a Value {
    let mut steps = snapshot["steps"].as_array().unwrap().iter();
    steps.find(|step| step["name"] == name).unwrap()
}

fn index(snapshot: &Value, name: &str) -> usize {
    let mut steps = snapshot["steps"].as_array().unwrap().iter();
    steps.position(|step| step["name"] == name).unwrap()
}

/// Numbers until `stop`, of which every hundredth becomes a dead letter, summed by key.
fn counted(stop: &Arc<AtomicBool>) -> Flow {
    let ended = Arc::clone(stop);
    let flow = Flow::new("counted");
    let letters = OnError::dead_letter(testing::Collected::new().sink());
    let next = move |n| (!ended.load(Ordering::Relaxed)).then_some(n);
    flow.source("numbers", generator::from_fn(next).rate(2000.0))
        .try_map("checks", letters, |n: &u64| match n % 100 {
            7 => Err(format!("<b>{n}</b>")),
            _ => Ok(*n),
        })
        .key_by(|n| n % 10)
        .stateful(
            "sums",
            |_| 0_u64,
            |sum: &mut u64, _, n| {
                *sum = sum.wrapping_add(n);
                Some(*sum)
            },
        )
        .items()
        .sink("out", testing::Collected::new().sink());
    flow
}

#[test]
fn a_flow_shows_its_state_its_edges_its_failures_and_commits_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let flow = counted(&stop);
    let observer = http("127.0.0.1:0").token("secret").bind().unwrap();
    let recovery = Recovery::new(folder.path()).epoch(Duration::from_secs(3600));
    let options = observer.options(Options {
        recovery: Some(recovery),
        ..Options::workers(2)
    });
    let running = flow.start(options).unwrap();
    observer.watch(flow.describe(), running.watch());
    let path = "/api/snapshot.json?token=secret";
    let mut snapshot = Value::Null;
    until("keys and failures", || {
        snapshot = json(&observer, path);
        step(&snapshot, "sums")["keys"] == 10 && step(&snapshot, "checks")["dead_letters"] != 0
    });
    // Nothing was committed in this hour.
    assert_eq!(step(&snapshot, "sums")["state_bytes"], 0);
    assert_eq!(snapshot["epochs"]["since_commit_seconds"], Value::Null);
    assert_eq!(snapshot["actions"], serde_json::json!(["stop", "commit"]));
    let failure = &snapshot["failures"][0];
    assert_eq!(failure["outcome"], "dead letter");
    assert_eq!(failure["step"], "checks");
    assert!(failure["error"].as_str().unwrap().starts_with("<b>"));
    let edges = snapshot["edges"].as_array().unwrap();
    let reads = index(&snapshot, "sums");
    assert!(
        edges
            .iter()
            .any(|edge| edge["to"].as_u64().unwrap() <= reads as u64)
    );
    assert!(
        edges
            .iter()
            .all(|edge| edge["in_flight_items"].as_i64().unwrap() >= 0)
    );

    assert_eq!(post(&observer, "/api/actions/commit", "").0, 401);
    let token = "Authorization: Bearer secret\r\n";
    assert_eq!(post(&observer, "/api/actions/commit", token).0, 200);
    until("the commit", || {
        snapshot = json(&observer, path);
        snapshot["epochs"]["commits"] == 1 && step(&snapshot, "sums")["state_bytes"] != 0
    });
    assert!(snapshot["epochs"]["since_commit_seconds"].is_number());

    stop.store(true, Ordering::Relaxed);
    assert_eq!(post(&observer, "/api/actions/stop", token).0, 200);
    let report = running.wait().unwrap();
    let sums = report.step("sums").unwrap().state.unwrap();
    assert_eq!(sums.keys, 10);
}

#[test]
fn files_and_journals_have_a_lag() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    let journal = folder.path().join("journal");
    std::fs::write(&text, "a line\n".repeat(20_000)).unwrap();
    let write = Flow::new("write");
    write.source("numbers", testing::items(0..20_000)).sink(
        "journal",
        codec::encode(journals::append(&journal), codec::display),
    );
    write.run(Options::default()).unwrap();

    let slow = |item: String| {
        #[expect(clippy::disallowed_methods, reason = "the test waits for the flow")]
        std::thread::sleep(Duration::from_millis(1));
        item
    };
    let flow = Flow::new("lags");
    flow.source("text", files::lines(&text))
        .map(slow)
        .sink("lines", testing::Collected::new().sink());
    flow.source(
        "journal",
        codec::decode(journals::read(&journal), codec::text),
    )
    .map(slow)
    .sink("records", testing::Collected::new().sink());
    let observer = http("127.0.0.1:0").bind().unwrap();
    let running = flow.start(observer.options(Options::default())).unwrap();
    observer.watch(flow.describe(), running.watch());
    until("the lags", || {
        let snapshot = json(&observer, "/api/snapshot.json");
        let sources = &snapshot["sources"];
        let bytes = sources[0]["lag_bytes"].as_u64().unwrap_or(0);
        let records = sources[1]["lag_records"].as_u64().unwrap_or(0);
        (1..140_000).contains(&bytes) && (1..20_000).contains(&records)
    });
    running.stop();
    running.wait().unwrap();
}
