//! `millstream send` and `millstream receive`: how they fail, and how they are ended.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::process::{Receiver, command, interrupt, json, millstream, stderr, text};

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
fn a_receiver_that_disconnects_is_one_line_and_exit_1() {
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
