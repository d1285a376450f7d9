//! A receiver that reads nothing blocks the sender, and no item is lost when it resumes.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_flow::{Flow, Framing, Options, Running, codec, tcp};

use super::support::{WATCHDOG, address, cut, finish, listener, spawn};

const KEYS: u64 = 16;
/// The bytes that may be in the flow itself.
const FLOW_BYTES: usize = 12 << 20;

/// The bytes that may be between sender and receiver: in the flow, and in the buffers of the kernel for the connection
/// of the sender and those of at most two workers.
fn bytes_max() -> usize {
    let most = |name: &str| {
        let sizes = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
        let most = sizes.split_ascii_whitespace().next_back().unwrap();
        most.parse::<usize>().unwrap()
    };
    FLOW_BYTES + 3 * (most("tcp_rmem") + most("tcp_wmem"))
}

/// Items of `size` bytes that begin with a number, through a state to a sink with a connection for each worker.
fn flow_to(at: SocketAddr, workers: usize) -> (Running, SocketAddr) {
    let (source, told) = listener();
    let flow = Flow::new("numbers");
    let decode = |frame: &[u8]| Ok::<_, std::io::Error>(frame.to_vec());
    flow.source("in", codec::decode(source.connections(1), decode))
        .key_by(|item| number(item) % KEYS)
        .stateful("seen", |_| (), |(), _, item| [item])
        .values()
        .sink(
            "out",
            codec::encode(
                tcp::send_to(&at.to_string()),
                |item: &Vec<u8>, out: &mut Vec<u8>| out.extend_from_slice(item),
            ),
        );
    let running = flow.start(Options::workers(workers)).unwrap();
    (running, address(&told))
}

fn number(item: &[u8]) -> u64 {
    u64::from_be_bytes(item[..8].try_into().unwrap())
}

/// Sends numbered frames until `stream` accepts no more for so long; returns their count, and the rest of the last
/// one. A flow that is only slow accepts more within `patience`.
fn push_until_stuck(stream: &mut TcpStream, size: usize, patience: Duration) -> (u64, Vec<u8>) {
    stream.set_write_timeout(Some(patience)).unwrap();
    let mut pushed = 0;
    let most = bytes_max();
    for n in 0.. {
        let mut frame = (size as u32).to_be_bytes().to_vec();
        frame.extend_from_slice(&u64::to_be_bytes(n));
        frame.resize(size + 4, 0);
        let mut written = 0;
        while written < frame.len() {
            match stream.write(&frame[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return (n + 1, frame.split_off(written));
                }
                Err(error) => panic!("{error}"),
            }
        }
        pushed += frame.len();
        assert!(pushed < most, "the sender is not held up");
    }
    unreachable!()
}

fn read_all(mut stream: TcpStream) -> JoinHandle<Vec<u8>> {
    spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// Checks that all of `count` numbers arrived once, those of each key in order.
fn judge(streams: Vec<Vec<u8>>, count: u64) {
    let mut last: HashMap<u64, u64> = HashMap::new();
    let mut seen = 0;
    for stream in streams {
        for item in cut(Framing::U32, &stream) {
            let n = number(&item);
            let due = last.get(&(n % KEYS)).map_or(n % KEYS, |last| last + KEYS);
            assert_eq!(n, due);
            last.insert(n % KEYS, n);
            seen += 1;
        }
    }
    assert_eq!(seen, count);
}

/// The receiver reads the first `reading` of its connections from the start, the others later.
fn stuck(workers: usize, reading: usize, size: usize) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (running, to) = flow_to(server.local_addr().unwrap(), workers);
    let mut outs: Vec<TcpStream> = (0..workers).map(|_| server.accept().unwrap().0).collect();
    let mut readers: Vec<_> = outs.drain(..reading).map(read_all).collect();
    let mut client = TcpStream::connect(to).unwrap();
    let (count, rest) = push_until_stuck(&mut client, size, Duration::from_millis(500));
    readers.extend(outs.into_iter().map(read_all));
    client.set_write_timeout(Some(WATCHDOG)).unwrap();
    client.write_all(&rest).unwrap();
    drop(client);
    finish(running).unwrap();
    judge(
        readers.into_iter().map(|r| r.join().unwrap()).collect(),
        count,
    );
}

#[test]
fn one_worker() {
    stuck(1, 0, 100);
}

#[test]
fn two_workers_both_stuck() {
    stuck(2, 0, 100);
}

#[test]
fn two_workers_one_stuck() {
    stuck(2, 1, 100);
}

#[test]
fn large_items_count_by_their_size() {
    stuck(1, 0, 20_000);
    stuck(2, 0, 20_000);
    stuck(2, 1, 20_000);
}

#[test]
fn a_stop_ends_a_stuck_flow_with_an_error() {
    for workers in [1, 2] {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = server.local_addr().unwrap();
        let (running, to) = flow_to(at, workers);
        let _outs: Vec<TcpStream> = (0..workers).map(|_| server.accept().unwrap().0).collect();
        let mut client = TcpStream::connect(to).unwrap();
        push_until_stuck(&mut client, 100, Duration::from_secs(5));
        running.stop();
        let text = format!("{:?}", finish(running).unwrap_err());
        let due = format!(
            "step \"out\": the receiver {at} is gone: it accepts no bytes, and the flow is stopping"
        );
        assert_eq!(text, due);
    }
}
