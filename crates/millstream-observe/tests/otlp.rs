//! Traces of epochs arrive at a collector, here a stand-in that reads the requests itself.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use millstream_flow::{Flow, Options, Recovery, generator, testing};
use millstream_observe::http;
use serde_json::Value;

/// Answers each request with 200 and passes its body on.
fn collect(listener: &TcpListener, documents: &Sender<(String, Value)>) {
    for stream in listener.incoming() {
        let mut stream = BufReader::new(stream.unwrap());
        let (mut request, mut length) = (String::new(), 0);
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

#[test]
fn each_epoch_is_a_trace_with_its_parts() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (sender, documents) = channel();
    std::thread::spawn(move || collect(&listener, &sender));

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

#[test]
fn an_address_that_is_none_is_an_error() {
    for wrong in ["collector:4318", "ftp://a", "", "http:// a"] {
        let refused = http("127.0.0.1:0").otlp(wrong).bind();
        assert!(refused.is_err(), "{wrong}");
    }
}
