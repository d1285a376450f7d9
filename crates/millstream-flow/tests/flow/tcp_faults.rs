//! An invalid client loses its connection, is counted as a fault, and affects no other client.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::channel;

use millstream_flow::testing::Collected;
use millstream_flow::{Flow, FlowError, Framing, Options, codec, tcp};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::support::{
    WATCHDOG, address, finish, framed, in_own_process, listener, run, send, show_log, wait,
};

/// Sends each stream over its own connection; returns the sorted frames and the faults.
fn after(streams: &[&[u8]], max_frame: usize) -> (Vec<String>, u64) {
    let (source, told) = listener();
    let flow = Flow::new("faults");
    let seen = Collected::<String>::new();
    let source = source.max_frame(max_frame).connections(streams.len());
    flow.source("in", codec::decode(source, codec::text))
        .sink("out", seen.sink());
    let running = flow.start(Options::default()).unwrap();
    let to = address(&told);
    streams.iter().for_each(|stream| send(to, stream));
    let report = finish(running).unwrap();
    let mut frames = seen.take();
    frames.sort();
    (frames, report.step("in").unwrap().faults)
}

#[test]
fn frames_before_one_over_the_limit_are_delivered() {
    let mut stream = framed(&Framing::U32, ["a", "b"]);
    stream.extend(framed(&Framing::U32, ["x".repeat(101)]));
    stream.extend(framed(&Framing::U32, ["never"]));
    let other = framed(&Framing::U32, ["x".repeat(100)]);
    let (frames, faults) = after(&[&stream, &other], 100);
    assert_eq!(frames, ["a".to_owned(), "b".to_owned(), "x".repeat(100)]);
    assert_eq!(faults, 1);
}

#[test]
fn a_truncated_last_frame_is_a_fault() {
    let whole = framed(&Framing::U32, ["one", "two"]);
    for missing in [1, 3, 6] {
        let (frames, faults) = after(&[&whole[..whole.len() - missing]], 100);
        assert_eq!((frames, faults), (vec!["one".to_owned()], 1), "{missing}");
    }
    let (frames, faults) = after(&[&whole[..7], b""], 100);
    assert_eq!((frames, faults), (vec!["one".to_owned()], 0));
}

#[test]
fn garbage_ends_the_connection_and_no_other() {
    let good = framed(&Framing::U32, ["good"]);
    let (frames, faults) = after(&[b"GET / HTTP/1.1\r\n\r\n", &good, &[0xff; 3000]], 4096);
    assert_eq!((frames, faults), (vec!["good".to_owned()], 2));
}

#[test]
fn an_invalid_client_is_disconnected_while_others_continue() {
    let (source, told) = listener();
    let flow = Flow::new("cut off");
    let seen = Collected::<String>::new();
    let source = source.max_frame(10).connections(2);
    flow.source("in", codec::decode(source, codec::text))
        .sink("out", seen.sink());
    let running = flow.start(Options::default()).unwrap();
    let to = address(&told);
    let mut other = TcpStream::connect(to).unwrap();
    other.write_all(&framed(&Framing::U32, ["before"])).unwrap();
    let mut offender = TcpStream::connect(to).unwrap();
    offender
        .write_all(&framed(&Framing::U32, ["longer than ten"]))
        .unwrap();
    // The connection ends, by a close or by a reset.
    assert!(matches!(offender.read(&mut [0; 8]), Ok(0) | Err(_)));
    other.write_all(&framed(&Framing::U32, ["after"])).unwrap();
    drop(other);
    assert_eq!(finish(running).unwrap().step("in").unwrap().faults, 1);
    assert_eq!(seen.take(), ["before", "after"]);
}

#[test]
fn a_fault_is_reported_with_source_client_and_offset() {
    let output = in_own_process("tcp_faults::two_faults");
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with(" WARN "))
        .collect();
    assert_eq!(lines.len(), 2, "{said}");
    for (line, what) in lines.iter().zip([
        "the frame at offset 5 is 101 bytes long, over the limit of 100",
        "the stream ended inside the frame at offset 7: 5 of 7 bytes arrived",
    ]) {
        let worker = " WARN worker{flow=\"faults\" worker=0}: ";
        let told = line.strip_prefix(worker).unwrap_or_default();
        assert!(
            told.starts_with("source \"in\": connection from 127.0.0.1:"),
            "{line}"
        );
        assert!(line.contains(what), "{line}");
        assert!(line.ends_with(" source=\"in\""), "{line}");
    }
}

#[test]
#[ignore = "run by the test above, as a process of its own"]
fn two_faults() {
    show_log();
    let long = framed(&Framing::U32, ["a".to_owned(), "x".repeat(101)]);
    assert_eq!(after(&[&long], 100).1, 1);
    let whole = framed(&Framing::U32, ["one", "two"]);
    assert_eq!(after(&[&whole[..12]], 100).1, 1);
}

#[test]
fn a_connection_that_cannot_be_accepted_is_retried() {
    let output = in_own_process("tcp_faults::few_files");
    let said = String::from_utf8_lossy(&output.stderr);
    let worker = " WARN worker{flow=\"files\" worker=0}: ";
    let line = format!("{worker}source \"in\": cannot take a connection: ");
    assert!(said.contains(&line), "{said}");
}

/// There is no file descriptor for the connection of a second client until one is closed.
#[test]
#[ignore = "run by the test above, as a process of its own"]
fn few_files() {
    show_log();
    let limit = getrlimit(Resource::Nofile);
    let current = Some(64);
    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
    let (source, told) = listener();
    let flow = Flow::new("files");
    let seen = Collected::<String>::new();
    flow.source("in", codec::decode(source.connections(2), codec::text))
        .sink("out", seen.sink());
    let running = flow.start(Options::default()).unwrap();
    let to = address(&told);
    let mut first = TcpStream::connect(to).unwrap();
    first.write_all(&framed(&Framing::U32, ["first"])).unwrap();
    assert_eq!(next_frames(&seen), ["first"]);
    let mut files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    // One descriptor for the client, none for the flow.
    files.pop();
    let mut second = TcpStream::connect(to).unwrap();
    second
        .write_all(&framed(&Framing::U32, ["second"]))
        .unwrap();
    // The connected client is served meanwhile.
    first.write_all(&framed(&Framing::U32, ["again"])).unwrap();
    assert_eq!(next_frames(&seen), ["again"]);
    drop(files);
    drop((first, second));
    assert!(finish(running).unwrap().step("in").unwrap().faults > 0);
    assert_eq!(seen.take(), ["second"]);
}

/// Returns the next frames that arrive.
fn next_frames(seen: &Collected<String>) -> Vec<String> {
    for _ in 0..10_000 {
        let frames = seen.take();
        if !frames.is_empty() {
            return frames;
        }
        wait(1);
    }
    panic!("nothing arrives");
}

#[test]
fn connections_over_the_limit_wait() {
    // All of them have sent and closed before the first is accepted.
    for most in [1, 2] {
        let (source, told) = listener();
        let flow = Flow::new("queue");
        let seen = Collected::<String>::new();
        let source = source.max_connections(most).connections(9);
        flow.source("in", codec::decode(source, codec::text))
            .sink("out", seen.sink());
        let running = flow.start(Options::default()).unwrap();
        let to = address(&told);
        let held: Vec<TcpStream> = (0..most).map(|_| TcpStream::connect(to).unwrap()).collect();
        wait(20);
        for n in most..9 {
            send(to, &framed(&Framing::U32, [n.to_string()]));
        }
        wait(20);
        drop(held);
        finish(running).unwrap();
        let mut frames = seen.take();
        frames.sort();
        let due: Vec<String> = (most..9).map(|n| n.to_string()).collect();
        assert_eq!(frames, due);
    }
}

#[test]
fn no_ready_connection_is_skipped_when_another_ends() {
    for first in 0..4 {
        for second in 0..4 {
            for third in (0..4).filter(|third| first != second && ![first, second].contains(third))
            {
                ends_while_another_sends([first, second, third, 6 - first - second - third]);
            }
        }
    }
}

/// One connection keeps the worker busy; meanwhile one ends, one sends, and one does nothing. They were
/// accepted in the order `order`.
fn ends_while_another_sends(order: [usize; 4]) {
    let (source, told) = listener();
    let flow = Flow::new("round");
    let seen = Collected::<String>::new();
    let (release, held) = channel::<()>();
    let (hold, holds) = channel::<()>();
    let held = Mutex::new(held);
    flow.source("in", codec::decode(source, codec::text))
        .inspect(move |item| {
            if item == "hold" {
                hold.send(()).unwrap();
                held.lock().unwrap().recv().unwrap();
            }
        })
        .sink("out", seen.sink());
    let running = flow.start(Options::default()).unwrap();
    let to = address(&told);
    let mut clients: [Option<TcpStream>; 4] = [const { None }; 4];
    for client in order {
        clients[client] = Some(TcpStream::connect(to).unwrap());
    }
    let [Some(holding), Some(sending), Some(ending), Some(quiet)] = &mut clients else {
        unreachable!()
    };
    // Time for the worker to find that there is nothing to read.
    wait(5);
    holding.write_all(&framed(&Framing::U32, ["hold"])).unwrap();
    holds.recv_timeout(WATCHDOG).unwrap();
    ending.shutdown(Shutdown::Both).unwrap();
    sending.write_all(&framed(&Framing::U32, ["x"])).unwrap();
    release.send(()).unwrap();
    let mut frames = Vec::new();
    for _ in 0..2000 {
        frames.extend(seen.take());
        if frames.len() == 2 {
            break;
        }
        wait(1);
    }
    assert_eq!(frames, ["hold", "x"], "accepted in the order {order:?}");
    assert!(quiet.peer_addr().is_ok());
    running.stop();
    finish(running).unwrap();
}

#[test]
fn a_port_in_use_is_named_with_its_source() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    for workers in 1..=3 {
        let flow = Flow::new("taken");
        let source = codec::decode(tcp::listen(&at.to_string()), codec::text);
        flow.source("orders", source)
            .sink("out", Collected::new().sink());
        let error = run(&flow, workers).unwrap_err();
        assert!(matches!(error, FlowError::Open { .. }), "{error:?}");
        let text = format!("{error:?}");
        assert!(
            text.starts_with(&format!("source \"orders\" (tcp listen {at}, u32): ")),
            "{text}"
        );
        assert!(
            text.to_lowercase().contains("address already in use"),
            "{text}"
        );
    }
}

#[test]
fn a_refused_connection_is_named_with_its_source() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = free.local_addr().unwrap();
    drop(free);
    let flow = Flow::new("refused");
    let source = codec::decode(tcp::connect(&at.to_string()), codec::text);
    flow.source("in", source)
        .sink("out", Collected::new().sink());
    let text = format!("{:?}", run(&flow, 1).unwrap_err());
    assert!(
        text.starts_with(&format!("source \"in\" (tcp connect {at}, u32): ")),
        "{text}"
    );
    assert!(text.contains("refused"), "{text}");
}

#[test]
fn a_client_without_a_valid_frame_fails_the_flow() {
    let (source, told) = listener();
    let flow = Flow::new("tcp");
    let out = Collected::<String>::new();
    flow.source("in", codec::decode(source.connections(2), codec::text))
        .sink("out", out.sink());
    let running = flow.start(Options::default()).unwrap();
    let at = address(&told);
    for _ in 0..2 {
        let mut client = TcpStream::connect(at).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    }
    let error = format!("{:?}", finish(running).expect_err("all of it was lost"));
    let said = "step \"in\": no message was understood in framing u32: connection from 127.0.0.1:";
    assert!(error.starts_with(said), "{error}");
}
