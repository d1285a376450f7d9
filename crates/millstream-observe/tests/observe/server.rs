//! The server of a running flow, by a client that speaks HTTP itself.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use millstream_flow::clock::{Clock, WallClock};
use millstream_flow::{EventTime, Flow, Options, Recovery, generator, testing};
use millstream_observe::{Observer, http};
use serde_json::Value;

/// Sends a GET request and returns status and body.
pub(crate) fn get(observer: &Observer, path: &str, headers: &str) -> (u16, String) {
    ask(observer, "GET", path, headers)
}

/// Sends a POST request without a body, and returns status and body.
pub(crate) fn post(observer: &Observer, path: &str, headers: &str) -> (u16, String) {
    ask(observer, "POST", path, headers)
}

fn ask(observer: &Observer, method: &str, path: &str, headers: &str) -> (u16, String) {
    let mut client = TcpStream::connect(observer.address()).unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let address = observer.address();
    let host = if headers.contains("Host:") {
        String::new()
    } else {
        format!("Host: {address}\r\n")
    };
    write!(
        client,
        "{method} {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// A flow without an end, with a step that takes all the time of the worker.
fn slow_flow(stop: &Arc<AtomicBool>) -> Flow {
    let flow = Flow::new("slow");
    let stop = Arc::clone(stop);

    flow.source(
        "numbers",
        generator::from_fn(move |n| (!stop.load(Ordering::Relaxed)).then_some(n)),
    )
    .map(|n| n + 1)
    .named("fast")
    .map(|n| {
        let until = millstream_flow::clock::now_ns() + 200_000;
        while millstream_flow::clock::now_ns() < until {}
        n
    })
    .named("spins")
    .sink("out", testing::Collected::new().sink());
    flow
}

/// Runs `check` until it is true.
pub(crate) fn until(what: &str, mut check: impl FnMut() -> bool) {
    let (_sender, ticks) = mpsc::channel::<()>();
    for _ in 0..600 {
        if check() {
            return;
        }
        let _ = ticks.recv_timeout(Duration::from_millis(100));
    }
    panic!("{what}: not within a minute");
}

pub(crate) fn json(observer: &Observer, path: &str) -> Value {
    let (status, body) = get(observer, path, "");
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn a_slow_step_is_the_cause_and_the_steps_before_it_wait() {
    let stop = Arc::new(AtomicBool::new(false));
    let flow = slow_flow(&stop);
    let observer = http("127.0.0.1:0").bind().unwrap();
    assert_eq!(get(&observer, "/readyz", "").0, 503);
    let report = std::thread::scope(|scope| {
        let running = scope.spawn(|| observer.run(&flow, Options::default()).unwrap());
        let mut snapshot = Value::Null;
        until("the bottleneck", || {
            snapshot = json(&observer, "/api/snapshot.json");
            snapshot["bottleneck"]["step"] == "spins"
        });
        assert_eq!(get(&observer, "/readyz", "").0, 200);
        let marks: Vec<&str> = snapshot["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| step["mark"].as_str().unwrap())
            .collect();
        assert_eq!(marks, ["waiting", "waiting", "cause", "none"]);
        let busy = snapshot["steps"][2]["busy"].as_f64().unwrap();
        assert!((0.5..=1.0).contains(&busy), "{busy}");
        let history = json(&observer, "/api/history.json?of=step&name=spins");
        assert!(history["series"]["busy"].as_array().unwrap().len() > 1);
        let graph = json(&observer, "/api/graph.json");
        assert_eq!(graph["nodes"][2]["name"], "spins");
        assert_eq!(graph["run"], snapshot["run"]);
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap()
    });
    // After the end the figures are those of the report.
    let last = json(&observer, "/api/snapshot.json");
    for (step, shown) in report.steps().iter().zip(last["steps"].as_array().unwrap()) {
        assert_eq!(shown["items_in"], step.items_in);
        assert_eq!(shown["items_out"], step.items_out);
    }
}

#[test]
fn a_source_shows_its_watermark_lag_and_a_run_its_epochs() {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let clock = WallClock::default();
    let numbers = generator::from_fn(move |n| (!stopped.load(Ordering::Relaxed)).then_some(n));
    let flow = Flow::new("late");
    flow.source("numbers", numbers.rate(100.0).partitions(2))
        .event_time(
            move |_| clock.time_ns() - 3_600_000_000_000,
            EventTime::default(),
        )
        .named("times")
        .sink("out", testing::Collected::new().sink());
    let state = tempfile::tempdir().unwrap();
    let options = Options {
        recovery: Some(Recovery::new(state.path()).epoch(Duration::from_millis(50))),
        ..Options::default()
    };
    let observer = http("127.0.0.1:0").bind().unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| observer.run(&flow, options).unwrap());
        until("a watermark and commits", || {
            let snapshot = json(&observer, "/api/snapshot.json");
            let source = &snapshot["sources"][0];
            let lag = source["watermark_lag_seconds"].as_f64().unwrap_or(0.0);
            let held_by = source["held_by"].as_str().unwrap_or_default();
            let commits = snapshot["epochs"]["commits"].as_u64().unwrap_or(0);
            lag > 3599.0 && ["0", "1"].contains(&held_by) && commits > 2
        });
        let metrics = get(&observer, "/metrics", "").1;
        let watermark = "millstream_source_watermark_lag_seconds{flow=\"late\",source=\"numbers\",partition=\"1\"} 36";
        assert!(metrics.contains(watermark), "{metrics}");
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap();
    });
}

#[test]
fn pages_of_others_and_names_of_others_are_refused() {
    let observer = http("127.0.0.1:0").bind().unwrap();
    for path in ["/", "/metrics", "/healthz", "/events"] {
        assert_eq!(get(&observer, path, "Host: evil.example\r\n").0, 403);
        let origin = "Origin: http://evil.example\r\n";
        assert_eq!(get(&observer, path, origin).0, 403);
    }
    assert_eq!(get(&observer, "/", "").0, 200);
    for path in [
        "/x",
        "/api",
        "/../Cargo.toml",
        "/api/history.json",
        "/api/history.json?of=x",
    ] {
        assert_eq!(get(&observer, path, "").0, 404, "{path}");
    }
}

#[test]
fn a_token_is_required_for_figures_and_not_for_the_page() {
    let observer = http("127.0.0.1:0").token("secret").bind().unwrap();
    for path in ["/", "/page.js", "/healthz"] {
        assert_eq!(get(&observer, path, "").0, 200, "{path}");
    }
    for path in [
        "/metrics",
        "/api/snapshot.json",
        "/api/graph.json",
        "/events",
    ] {
        assert_eq!(get(&observer, path, "").0, 401, "{path}");
        let wrong = "Authorization: Bearer wrong\r\n";
        assert_eq!(get(&observer, path, wrong).0, 403, "{path}");
    }
    let right = "Authorization: Bearer secret\r\n";
    assert_eq!(get(&observer, "/metrics", right).0, 200);
    assert_eq!(get(&observer, "/metrics?token=secret", "").0, 200);
}

#[test]
fn an_address_that_others_can_reach_needs_a_token() {
    let refused = format!("{:?}", http("0.0.0.0:0").bind().unwrap_err());
    assert!(refused.contains("needs a token"), "{refused}");
    assert!(http("0.0.0.0:0").open(true).bind().is_ok());
    assert!(http("0.0.0.0:0").token("x").bind().is_ok());
}

#[test]
fn an_address_in_use_is_named() {
    let first = http("127.0.0.1:0").bind().unwrap();
    let error = format!("{:?}", http(first.address()).bind().unwrap_err());
    assert!(error.contains(first.address()), "{error}");
    first.stop();
    http(first.address()).bind().unwrap();
}

#[test]
fn the_server_ends_while_a_client_reads_events() {
    let observer = http("127.0.0.1:0").bind().unwrap();
    let flow = Flow::new("one");
    flow.source("in", testing::items([1]))
        .sink("out", testing::Collected::new().sink());
    observer.run(&flow, Options::default()).unwrap();
    let mut client = TcpStream::connect(observer.address()).unwrap();
    client
        .write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut first = [0; 12];
    client.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    observer.stop();
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: {\"flow\":\"one\""), "{rest}");
    // The last chunk: the answer is complete.
    assert!(rest.ends_with("0\r\n\r\n"), "{rest}");
}
