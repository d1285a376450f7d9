//! `millstream send` and `millstream receive`: what is sent is what is received.

use super::process::{Receiver, generated, json, millstream, text};

#[test]
fn what_is_received_equals_what_is_sent_byte_for_byte() {
    for (kind, framing, count) in [
        ("market-spread-orders", "u32", 20_000),
        ("votes", "fixed:5", 30_000),
        ("celsius", "fixed:4", 3),
        ("lines", "lines", 20_000),
    ] {
        let (directory, sent) = generated(kind, count);
        let received = directory.path().join("received");
        let receiver = Receiver::start(&["--framing", framing, "--out", text(&received)]);
        let out = millstream(&[
            "send",
            text(&sent),
            "--to",
            &receiver.address,
            "--framing",
            framing,
            "--json",
        ]);
        assert!(out.status.success(), "{kind}: {out:?}");
        let report = &json(&out)["streams"][0];
        assert_eq!(
            (report["messages"].as_u64(), report["unsent"].as_u64()),
            (Some(count), Some(0)),
            "{kind}"
        );
        let (report, code, said) = receiver.end();
        assert_eq!(
            (report["messages"].as_u64(), code, said.as_str()),
            (Some(count), Some(0), ""),
            "{kind}"
        );
        let bytes = std::fs::read(&sent).unwrap();
        assert_eq!(report["bytes"].as_u64(), Some(bytes.len() as u64));
        assert!(
            bytes == std::fs::read(&received).unwrap(),
            "{kind}: the files differ"
        );
    }
}

#[test]
fn a_last_line_without_an_end_arrives_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let sent = directory.path().join("sent");
    let received = directory.path().join("received");
    std::fs::write(&sent, b"one\r\n\nlast").unwrap();
    let receiver = Receiver::start(&["--framing", "lines", "--out", text(&received)]);
    assert!(
        millstream(&[
            "send",
            text(&sent),
            "--to",
            &receiver.address,
            "--framing",
            "lines"
        ])
        .status
        .success()
    );
    assert_eq!(receiver.end().0["messages"], 3);
    assert_eq!(std::fs::read(&received).unwrap(), b"one\r\n\nlast");
}

#[test]
fn a_paced_stream_is_repeated_up_to_its_count_and_reports_its_schedule() {
    let (_directory, sent) = generated("votes", 10);
    let receiver = Receiver::start(&["--framing", "fixed:5", "--expect-length", "5"]);
    let stream = format!("{}@{}", text(&sent), receiver.address);
    let schedule = ["--rate", "100000", "--chunk-us", "100"];
    let args = [
        "send",
        "--stream",
        &stream,
        "--framing",
        "fixed:5",
        "--repeat",
        "--count",
        "5005",
        "--json",
    ];
    let out = millstream(&[&args[..], &schedule].concat());
    assert!(out.status.success(), "{out:?}");
    let report = json(&out);
    assert!(
        report["start_ns"]
            .as_u64()
            .is_some_and(|start_ns| start_ns > 0)
    );
    assert_eq!(
        (&report["rate"], &report["streams"][0]["messages"]),
        (&100_000.0.into(), &5005.into())
    );
    assert!(report["streams"][0]["lag_us"]["max"].is_u64());
    assert_eq!(receiver.end().0["messages"], 5005);
}

#[test]
fn seconds_bound_the_messages_that_are_due() {
    let receiver = Receiver::start(&["--framing", "lines"]);
    let out = millstream(&[
        "send",
        "--generate",
        "lines",
        "--to",
        &receiver.address,
        "--rate",
        "1000",
        "--seconds",
        "0.1",
        "--json",
    ]);
    let report = &json(&out)["streams"][0];
    // However slow the machine is: what was not sent in time is counted.
    assert_eq!(
        report["messages"].as_u64().unwrap() + report["unsent"].as_u64().unwrap(),
        100
    );
    assert_eq!(receiver.end().0["messages"], report["messages"]);
}

#[test]
fn several_connections_and_receivers_each_get_all() {
    let (directory, sent) = generated("market-spread-nbbo", 5_000);
    let received = directory.path().join("received");
    let one = Receiver::start(&["--connections", "3", "--out", text(&received)]);
    let two = Receiver::start(&["--connections", "3"]);
    let out = millstream(&[
        "send",
        text(&sent),
        "--to",
        &one.address,
        "--to",
        &two.address,
        "--connections",
        "3",
        "--json",
    ]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(json(&out)["streams"].as_array().unwrap().len(), 6);
    for receiver in [one, two] {
        let (report, code, _) = receiver.end();
        assert_eq!(
            (&report["messages"], &report["connections"], code),
            (&15_000.into(), &3.into(), Some(0))
        );
    }
    // Frames of several connections are mixed, but each is whole: the file can be sent again.
    let again = Receiver::start(&["--expect-length", "42"]);
    assert!(
        millstream(&["send", text(&received), "--to", &again.address])
            .status
            .success()
    );
    assert_eq!(again.end().0["messages"], 15_000);
}

#[test]
fn receive_ends_after_its_count() {
    let (directory, sent) = generated("votes", 1_000);
    let received = directory.path().join("received");
    let receiver = Receiver::start(&[
        "--framing",
        "fixed:5",
        "--count",
        "17",
        "--out",
        text(&received),
    ]);
    // The rest is not wanted, so that the sender may find the connection closed.
    millstream(&[
        "send",
        text(&sent),
        "--to",
        &receiver.address,
        "--framing",
        "fixed:5",
    ]);
    let (report, code, _) = receiver.end();
    assert_eq!(
        (&report["messages"], &report["bytes"], code),
        (&17.into(), &85.into(), Some(0))
    );
    assert!(
        std::fs::read(&sent)
            .unwrap()
            .starts_with(&std::fs::read(&received).unwrap())
    );
    assert_eq!(std::fs::metadata(&received).unwrap().len(), 85);
}

/// The lag that the sender reports of messages due so many seconds ago.
fn lag_of_a_schedule_that_began(seconds_ago: u64) -> serde_json::Value {
    let receiver = Receiver::start(&["--framing", "lines"]);
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let start = (now.tv_sec as u64 - seconds_ago) * 1_000_000_000;
    let out = millstream(&[
        "send",
        "--generate",
        "lines",
        "--to",
        &receiver.address,
        "--rate",
        "1000000",
        "--count",
        "1000",
        "--start-at",
        &start.to_string(),
        "--json",
    ]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(receiver.end().0["messages"], 1000);
    json(&out)["streams"][0]["lag_us"].clone()
}

#[test]
fn a_lag_of_seconds_is_reported_unchanged() {
    let lag = lag_of_a_schedule_that_began(20);
    for name in ["p50", "p99", "max"] {
        // All were due within the first millisecond.
        assert!(lag[name].as_u64().unwrap() >= 19_900_000, "{lag}");
    }
}

#[test]
fn messages_that_were_due_and_not_sent_are_as_late_as_they_were_at_the_end() {
    // It takes the connection and never reads, until its buffers and the sender's are full.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let out = millstream(&[
        "send",
        "--generate",
        "market-spread-orders",
        "--repeat",
        "--rate",
        "1000000",
        "--seconds",
        "1",
        "--to",
        &to,
        "--json",
    ]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let report = &json(&out)["streams"][0];
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(count("ordered"), 1_000_000, "{said}");
    assert_eq!(count("messages") + count("unsent"), 1_000_000);
    assert!(count("unsent") > 500_000, "{report}");
    // The schedule was left a second after the last message was due.
    assert!(
        report["lag_us"]["p50"].as_u64().unwrap() >= 1_000_000,
        "{report}"
    );
    assert!(
        report["lag_us"]["max"].as_u64().unwrap() >= 1_000_000,
        "{report}"
    );
}
