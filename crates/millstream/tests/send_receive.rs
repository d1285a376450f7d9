//! `millstream send` and `millstream receive`: real processes, real sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn millstream(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

/// A directory with a file of `count` generated messages.
fn generated(kind: &str, count: u64) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sent");
    let out = millstream(&[
        "generate",
        kind,
        "--out",
        text(&file),
        "--count",
        &count.to_string(),
        "--seed",
        "7",
    ]);
    assert!(out.status.success(), "{out:?}");
    (directory, file)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A running `millstream receive`.
struct Receiver {
    child: Child,
    address: String,
    stderr: BufReader<ChildStderr>,
}

impl Receiver {
    fn start(args: &[&str]) -> Self {
        let mut child = command(&[&["receive", "--listen", ":0", "--json"], args].concat())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .expect(&line)
            .to_owned();
        Self {
            child,
            address,
            stderr,
        }
    }

    /// The report, the exit code, and what was said on stderr after the first line.
    fn end(mut self) -> (Value, Option<i32>, String) {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        let output = self.child.wait_with_output().unwrap();
        (json(&output), output.status.code(), said)
    }
}

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
    let (sent, received) = (
        directory.path().join("sent"),
        directory.path().join("received"),
    );
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
fn a_paced_stream_is_repeated_up_to_its_count_and_tells_its_schedule() {
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

#[test]
fn a_message_of_a_wrong_length_is_named_by_its_offset() {
    let receiver = Receiver::start(&["--expect-length", "2"]);
    let mut socket = TcpStream::connect(&receiver.address).unwrap();
    socket.write_all(b"\0\0\0\x02ab\0\0\0\x03abc").unwrap();
    let (_, code, said) = receiver.end();
    assert_eq!(code, Some(1));
    assert!(
        said.ends_with("the message at offset 6 has 3 bytes, not 2\n"),
        "{said}"
    );
}

#[test]
fn a_truncated_last_frame_is_a_failure_that_names_its_offset() {
    let receiver = Receiver::start(&[]);
    let mut socket = TcpStream::connect(&receiver.address).unwrap();
    socket.write_all(b"\0\0\0\x02ab\0\0\0\x09abc").unwrap();
    drop(socket);
    let (report, code, said) = receiver.end();
    assert_eq!((&report["messages"], code), (&1.into(), Some(1)));
    assert!(
        said.starts_with("millstream receive: connection from 127.0.0.1:"),
        "{said}"
    );
    assert!(
        said.ends_with("the stream ended inside the frame at offset 6: 7 of 13 bytes arrived\n"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1);
}

#[test]
fn a_frame_over_the_limit_is_a_failure() {
    let receiver = Receiver::start(&["--max-frame", "100"]);
    let mut socket = TcpStream::connect(&receiver.address).unwrap();
    socket
        .write_all(b"\0\0\0\x01xGET / HTTP/1.1\r\n\r\n")
        .unwrap();
    let (report, code, said) = receiver.end();
    assert_eq!((&report["messages"], code), (&1.into(), Some(1)));
    assert!(
        said.contains("the frame at offset 5 is 1195725856 bytes long, over the limit of 100"),
        "{said}"
    );
}

#[test]
fn a_file_that_is_cut_is_not_sent() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cut");
    std::fs::write(&file, b"\0\0\0\x02ab\0\0").unwrap();
    let out = millstream(&["send", text(&file), "--to", ":1"]);
    assert_eq!(
        (out.status.code(), stderr(&out).lines().count()),
        (Some(1), 1)
    );
    assert!(
        stderr(&out).contains("offset 6: 2 of 4 bytes"),
        "{}",
        stderr(&out)
    );
}

#[test]
fn a_refused_connection_is_one_line_and_exit_1() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let to = free.to_string();
    let out = millstream(&[
        "send",
        "--generate",
        "votes",
        "--to",
        &to,
        "--connect-timeout",
        "0",
    ]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        stderr(&out).starts_with(&format!("millstream send: cannot connect to {to}: ")),
        "{}",
        stderr(&out)
    );
    assert_eq!(stderr(&out).lines().count(), 1);
}

#[test]
fn a_receiver_that_goes_away_is_one_line_and_exit_1() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let sender = command(&["send", "--generate", "votes", "--to", &to, "--repeat"])
        .spawn()
        .unwrap();
    drop(listener.accept().unwrap());
    let out = sender.wait_with_output().unwrap();
    assert_eq!(
        (out.status.code(), stderr(&out).lines().count()),
        (Some(1), 1)
    );
    assert!(
        stderr(&out).contains(&format!("the connection to {to} was lost after ")),
        "{}",
        stderr(&out)
    );
}

#[test]
fn bad_usage_is_exit_2() {
    for args in [
        &["send"][..],
        &["send", "file"],
        &["send", "--to", ":7000"],
        &["send", "file", "--to", "nowhere"],
        &["send", "file", "--to", ":7000", "--rate", "0"],
        &["send", "file", "--to", ":7000", "--framing", "u64"],
        &[
            "send",
            "file",
            "--to",
            ":7000",
            "--count",
            "1",
            "--seconds",
            "1",
        ],
        &["receive"],
        &["receive", "--listen", ":0", "--connections", "0"],
        &["generate", "nothing", "--out", "file"],
        &["no-such-verb"],
        &[],
    ] {
        let out = millstream(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {out:?}");
        assert!(out.stdout.is_empty() && !out.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn help_shows_an_example() {
    for verb in ["send", "receive", "generate"] {
        let out = millstream(&[verb, "--help"]);
        assert_eq!(out.status.code(), Some(0));
        let help = String::from_utf8(out.stdout).unwrap();
        assert!(
            help.contains("Example") && help.contains(&format!("  millstream {verb} ")),
            "{help}"
        );
    }
}

#[test]
fn ctrl_c_ends_a_sender_after_a_whole_message() {
    for pace in [&["--rate", "1000"][..], &[]] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap().to_string();
        let args = [
            "send",
            "--generate",
            "market-spread-orders",
            "--repeat",
            "--json",
            "--to",
            &to,
        ];
        let sender = command(&[&args[..], pace].concat()).spawn().unwrap();
        // The sender listens to signals before it connects.
        let (mut socket, _) = listener.accept().unwrap();
        let mut received = vec![0; 57];
        socket.read_exact(&mut received).unwrap();
        interrupt(&sender);
        socket.read_to_end(&mut received).unwrap();
        let out = sender.wait_with_output().unwrap();
        assert_eq!(
            (out.status.code(), stderr(&out).as_str()),
            (Some(0), ""),
            "{out:?}"
        );
        assert_eq!(json(&out)["interrupted"], true);
        let messages = json(&out)["streams"][0]["messages"].as_u64().unwrap();
        assert_eq!(received.len() as u64, messages * 57, "{pace:?}");
    }
}

#[test]
fn ctrl_c_ends_a_receiver_without_a_failure() {
    let receiver = Receiver::start(&[]);
    let mut socket = TcpStream::connect(&receiver.address).unwrap();
    socket.write_all(b"\0\0\0\x02ab\0\0").unwrap();
    interrupt(&receiver.child);
    let (_, code, said) = receiver.end();
    assert_eq!((code, said.as_str()), (Some(0), ""));
}
