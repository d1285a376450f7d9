//! A listener delivers frames as they were sent, however the stream was divided on its way.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;

use millstream_flow::testing::Collected;
use millstream_flow::{Flow, Framing, Options, codec, tcp};

use super::support::{address, finish, framed, listener, receive_one, run, send, spawn, wait};

/// Frame `n` of connection `c`; its first two characters name the connection.
fn payload(framing: &Framing, c: usize, n: usize) -> String {
    match framing {
        Framing::Fixed(_) => format!("{c:03}-{n}"),
        _ => format!("{c:03}-{n}{}", "x".repeat(n * 3)),
    }
}

#[test]
fn a_division_at_every_byte_does_not_change_the_frames() {
    for name in ["u8", "u16", "u16le", "u32", "u32le", "fixed:5", "lines"] {
        for workers in [1, 2] {
            cut_everywhere(&name.parse().unwrap(), workers);
        }
    }
}

/// One connection for each position at which the stream can be divided in two.
fn cut_everywhere(framing: &Framing, workers: usize) {
    const FRAMES: usize = 4;
    let stream = |c| framed(framing, (0..FRAMES).map(|n| payload(framing, c, n)));
    let connections = stream(0).len() + 1;
    let (source, told) = listener();
    let source = source.framing(framing.clone()).connections(connections);
    let flow = Flow::new("cut");
    let seen = Collected::<String>::new();
    flow.source("in", codec::decode(source, codec::text))
        .sink("out", seen.sink());
    let running = flow.start(Options::workers(workers)).unwrap();
    let to = address(&told);
    let mut clients: Vec<TcpStream> = (0..connections)
        .map(|_| TcpStream::connect(to).unwrap())
        .collect();
    for (c, client) in clients.iter_mut().enumerate() {
        client.set_nodelay(true).unwrap();
        client.write_all(&stream(c)[..c]).unwrap();
    }
    // Long enough for the first parts to be read separately.
    wait(20);
    for (c, client) in clients.iter_mut().enumerate() {
        client.write_all(&stream(c)[c..]).unwrap();
    }
    drop(clients);
    let report = finish(running).unwrap();
    let mut by_connection: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for item in seen.take() {
        by_connection
            .entry(item[..3].to_owned())
            .or_default()
            .push(item);
    }
    let due = (0..connections)
        .map(|c| {
            let frames = (0..FRAMES).map(|n| payload(framing, c, n)).collect();
            (format!("{c:03}"), frames)
        })
        .collect();
    assert_eq!(by_connection, due, "{framing}");
    assert_eq!(report.step("in").unwrap().faults, 0);
}

#[test]
fn single_bytes_make_the_same_frames() {
    let (source, told) = listener();
    let flow = Flow::new("bytes");
    let seen = Collected::<String>::new();
    flow.source(
        "in",
        codec::decode(source.framing(Framing::U16).connections(1), codec::text),
    )
    .sink("out", seen.sink());
    let running = flow.start(Options::default()).unwrap();
    let mut client = TcpStream::connect(address(&told)).unwrap();
    client.set_nodelay(true).unwrap();
    for byte in framed(&Framing::U16, ["", "one", "", "three"]) {
        client.write_all(&[byte]).unwrap();
        wait(1);
    }
    drop(client);
    finish(running).unwrap();
    assert_eq!(seen.take(), ["", "one", "", "three"]);
}

#[test]
fn a_last_line_needs_no_line_end() {
    let (source, told) = listener();
    let flow = Flow::new("lines");
    let seen = Collected::<String>::new();
    let source = source.framing(Framing::Lines).connections(1);
    flow.source("in", codec::decode(source, codec::text))
        .sink("out", seen.sink());
    let running = flow.start(Options::default()).unwrap();
    send(address(&told), b"one\r\n\ntwo\nlast");
    let report = finish(running).unwrap();
    assert_eq!(seen.take(), ["one", "", "two", "last"]);
    assert_eq!(report.step("in").unwrap().faults, 0);
}

#[test]
fn frames_larger_than_a_read_are_complete() {
    let (source, told) = listener();
    let flow = Flow::new("large");
    let seen = Collected::<Vec<u8>>::new();
    let decode = |frame: &[u8]| Ok::<_, std::io::Error>(frame.to_vec());
    flow.source("in", codec::decode(source.connections(1), decode))
        .sink("out", seen.sink());
    let running = flow.start(Options::default()).unwrap();
    let sent: Vec<Vec<u8>> = [1 << 20, 0, 65_532, 65_537, 300_000, 1]
        .iter()
        .enumerate()
        .map(|(n, &length)| vec![n as u8; length])
        .collect();
    send(address(&told), &framed(&Framing::U32, &sent));
    finish(running).unwrap();
    assert!(seen.take() == sent);
}

#[test]
fn a_source_that_connects_reads_to_the_end() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // By name: the listener need not be at the first address that it resolves to.
    let to = format!("localhost:{}", server.local_addr().unwrap().port());
    let serving = spawn(move || {
        let (mut client, _) = server.accept().unwrap();
        client
            .write_all(&framed(&Framing::U32, (0..1000).map(|n| n.to_string())))
            .unwrap();
    });
    let flow = Flow::new("client");
    let seen = Collected::<String>::new();
    flow.source("in", codec::decode(tcp::connect(&to), codec::text))
        .sink("out", seen.sink());
    run(&flow, 2).unwrap();
    serving.join().unwrap();
    let due: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    assert_eq!(seen.take(), due);
}

#[test]
fn from_socket_to_socket() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap().to_string();
    let receiving = spawn(move || receive_one(&server));
    let (source, told) = listener();
    let flow = Flow::new("through");
    flow.source("in", source.connections(1))
        .sink("out", tcp::send_to(&to).framing(Framing::Lines));
    let running = flow.start(Options::default()).unwrap();
    send(address(&told), &framed(&Framing::U32, ["a", "bb", ""]));
    finish(running).unwrap();
    assert_eq!(receiving.join().unwrap(), b"a\nbb\n\n");
}
