//! Traces of epochs and of calls of services arrive at a collector, here a stand-in that reads the requests itself.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use millstream_flow::{Flow, Options, Recovery, generator, testing};
use millstream_journal::{Journal, Options as JournalOptions};
use millstream_observe::http;
use millstream_observe::sections::services::{ServiceOf, Services};
use millstream_service::{Meter, Service, Settings, Stop, publisher};
use serde_json::Value;

/// Answers each request with 200 and passes its body on.
fn collect(listener: &TcpListener, documents: &Sender<(String, Value)>) {
    for stream in listener.incoming() {
        let mut stream = BufReader::new(stream.unwrap());
        let mut request = String::new();
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).unwrap() == 0 {
                break;
            }
            if request.is_empty() {
                request = line.trim().to_owned();
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                let mut body = vec![0; length];
                stream.read_exact(&mut body).unwrap();
                let document = serde_json::from_slice(&body).unwrap();
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
                stream.get_mut().write_all(answer).unwrap();
                if documents.send((request, document)).is_err() {
                    return;
                }
                break;
            }
        }
    }
}

/// Starts a collector; returns its address, and what it is sent.
fn collector() -> (String, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (sender, documents) = channel();
    let collector = Builder::new().name("collector".to_owned());
    collector
        .spawn(move || collect(&listener, &sender))
        .unwrap();
    (endpoint, documents)
}

#[test]
fn each_epoch_is_a_trace_with_its_parts() {
    let (endpoint, documents) = collector();

    let folder = tempfile::tempdir().unwrap();
    let flow = Flow::new("traced");
    flow.source("numbers", generator::from_fn(Some))
        .key_by(|n| n % 3)
        .stateful(
            "sums",
            |_| 0,
            |sum: &mut u64, _, n| {
                *sum += n;
                None::<u64>
            },
        )
        .items()
        .sink("out", testing::Collected::new().sink());
    let observer = http("127.0.0.1:0").otlp(&endpoint).bind().unwrap();
    let recovery = Recovery::new(folder.path()).epoch(Duration::from_millis(20));
    let options = observer.options(Options {
        recovery: Some(recovery),
        ..Options::default()
    });
    let running = flow.start(options).unwrap();
    observer.watch(flow.describe(), running.watch());
    let (request, document) = documents.recv_timeout(Duration::from_secs(60)).unwrap();
    running.stop();
    running.wait().unwrap();

    assert_eq!(request, "POST /v1/traces HTTP/1.1");
    let resource = &document["resourceSpans"][0];
    let service = &resource["resource"]["attributes"][0];
    assert_eq!(service["value"]["stringValue"], "traced");
    let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
    assert!(spans.len() >= 4 && spans.len() % 4 == 0, "{spans:?}");
    for epoch in spans.chunks(4) {
        let names: Vec<_> = epoch
            .iter()
            .map(|span| span["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["epoch", "waiting", "saving", "syncing"]);
        let time =
            |span: &Value, name: &str| -> u64 { span[name].as_str().unwrap().parse().unwrap() };
        let begin = time(&epoch[0], "startTimeUnixNano");
        assert!(begin > 1_500_000_000_000_000_000);
        assert_eq!(time(&epoch[1], "startTimeUnixNano"), begin);
        assert_eq!(
            time(&epoch[3], "endTimeUnixNano"),
            time(&epoch[0], "endTimeUnixNano")
        );
        for part in &epoch[1..] {
            assert_eq!(part["parentSpanId"], epoch[0]["spanId"]);
            assert_eq!(part["traceId"], epoch[0]["traceId"]);
        }
        assert_eq!(epoch[0]["traceId"].as_str().unwrap().len(), 32);
    }
}

#[millstream_wire::interface]
trait Orders {
    fn place(&mut self, symbol: &str);
    fn forget(&mut self, symbol: &str);
}

#[millstream_wire::interface]
trait Replies {
    fn placed(&mut self, symbol: &str);
}

struct Desk<R>(R);

impl<R: Replies> Orders for Desk<R> {
    fn place(&mut self, symbol: &str) {
        self.0.placed(symbol);
        self.0.placed(symbol);
    }

    fn forget(&mut self, _: &str) {}
}

/// The value of an attribute of a span.
fn attribute<'a>(span: &'a Value, key: &str) -> &'a str {
    let attributes = span["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|one| one["key"] == key).unwrap();
    let value = found["value"].as_object().unwrap();
    value.values().next().unwrap().as_str().unwrap()
}

#[test]
fn a_call_of_a_service_is_a_trace_with_its_wait() {
    let (endpoint, documents) = collector();

    let folder = tempfile::tempdir().unwrap();
    let open = |name| Journal::open(folder.path().join(name), JournalOptions::default()).unwrap();
    let orders = open("orders");
    let replies = open("replies");
    let mut calls = publisher::<dyn Orders>(&orders).unwrap();
    let stop = Stop::default();
    let meter = Arc::new(Meter::default());
    let observer = http("127.0.0.1:0").otlp(&endpoint).bind().unwrap();
    let progress = Arc::clone(&meter);
    let watched = ServiceOf {
        name: "desk".to_owned(),
        progress: Box::new(move || progress.read()),
        inputs: vec![folder.path().join("orders")],
        output: Some(folder.path().join("replies")),
        dead_letters: None,
    };
    observer.show(Services::watch(watched).unwrap());
    let ends = stop.clone();
    let runs = meter;
    let running = Builder::new().name("service".to_owned()).spawn(move || {
        let service = Service::new(&replies).unwrap();
        let desk = Desk(service.publisher::<dyn Replies>().unwrap());
        let setup = service.component(desk).input::<dyn Orders>(&orders);
        let mut runner = setup.unwrap().start(Settings::default()).unwrap();
        runner.run_with(&ends, &runs).unwrap();
    });
    // Calls that come before the first look at the output have no traces: more are made until there is one.
    let (request, document) = loop {
        calls.forget("BP.L");
        calls.place("VOD.L");
        match documents.recv_timeout(Duration::from_millis(50)) {
            Ok(found) => break found,
            Err(wait) => assert_eq!(wait, std::sync::mpsc::RecvTimeoutError::Timeout),
        }
    };
    stop.stop();
    running.unwrap().join().unwrap();

    assert_eq!(request, "POST /v1/traces HTTP/1.1");
    let resource = &document["resourceSpans"][0];
    let service = &resource["resource"]["attributes"][0];
    assert_eq!(service["value"]["stringValue"], "desk");
    let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
    assert!(!spans.is_empty() && spans.len() % 3 == 0, "{spans:?}");
    assert!(spans.len() <= 3 * 16, "{}", spans.len());
    let orders = Journal::open(folder.path().join("orders"), JournalOptions::read_only()).unwrap();
    let ids: std::collections::HashSet<&str> = spans
        .chunks(3)
        .map(|call| check_call(call, &orders))
        .collect();
    assert_eq!(ids.len(), spans.len() / 3);
}

/// Checks the spans of a call against its record; returns the identity of the trace.
fn check_call<'a>(call: &'a [Value], orders: &Journal) -> &'a str {
    let names: Vec<_> = call
        .iter()
        .map(|span| span["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["place", "wait", "call"]);
    let time = |span: &Value, name: &str| -> u64 { span[name].as_str().unwrap().parse().unwrap() };
    let begin = "startTimeUnixNano";
    let end = "endTimeUnixNano";
    assert_eq!(time(&call[0], begin), time(&call[1], begin));
    assert_eq!(time(&call[1], end), time(&call[2], begin));
    assert_eq!(time(&call[2], end), time(&call[0], end));
    assert!(time(&call[1], end) >= time(&call[1], begin));
    for span in call {
        assert_eq!(span["traceId"], call[0]["traceId"]);
        assert_eq!(attribute(span, "service"), "desk");
        assert_eq!(attribute(span, "method"), "place");
        assert_eq!(attribute(span, "input"), "orders");
    }
    assert_eq!(call[1]["parentSpanId"], call[0]["spanId"]);
    assert_eq!(call[2]["parentSpanId"], call[0]["spanId"]);
    // The time is that of the record in the input.
    let record: u64 = attribute(&call[0], "record").parse().unwrap();
    let mut reader = orders.reader().unwrap();
    assert_eq!(time(&call[0], begin), reader.read(record).unwrap().time_ns);
    call[0]["traceId"].as_str().unwrap()
}

#[test]
fn an_address_that_is_none_is_an_error() {
    for wrong in ["collector:4318", "ftp://a", "", "http:// a"] {
        let refused = http("127.0.0.1:0").otlp(wrong).bind();
        assert!(refused.is_err(), "{wrong}");
    }
}
