//! An idle flow sleeps, and still processes input after a pause.

use std::io::Write;
use std::net::TcpStream;

use millstream_flow::testing::Collected;
use millstream_flow::{Flow, Framing, Options, codec};
use rustix::time::{ClockId, clock_gettime};

use super::support::{address, finish, framed, listener, wait};

/// CPU time of this process in seconds.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn idle(workers: usize) {
    const SECONDS: f64 = 2.0;
    let (source, told) = listener();
    let flow = Flow::new("idle");
    let seen = Collected::<String>::new();
    flow.source("in", codec::decode(source.connections(1), codec::text))
        .key_by(String::len)
        .stateful("last", |_| (), |(), _, item| [item])
        .values()
        .sink("out", seen.sink());
    let running = flow.start(Options::workers(workers)).unwrap();
    let mut client = TcpStream::connect(address(&told)).unwrap();
    client
        .write_all(&framed(&Framing::U32, ["before"]))
        .unwrap();
    while seen.take().is_empty() {
        wait(1);
    }
    let before = cpu();
    wait((SECONDS * 1000.0) as u64);
    let share = (cpu() - before) / SECONDS;
    assert!(
        share < 0.03,
        "{workers} idle workers take {share} of a core"
    );
    client.write_all(&framed(&Framing::U32, ["after"])).unwrap();
    drop(client);
    finish(running).unwrap();
    assert_eq!(seen.take(), ["after"]);
}

#[test]
fn an_idle_worker_uses_no_cpu() {
    idle(1);
}

#[test]
fn two_idle_workers_use_no_cpu() {
    idle(2);
}
