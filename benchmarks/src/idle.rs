//! A flow that waits: what it costs, and how soon it answers.
//!
//! A client sends a frame to a flow that sleeps and waits for what comes out at the other end. The same
//! is done, in turn, with a *bare echo*: a thread that waits in epoll (kqueue), reads and writes back. What the
//! echo takes is the system's; the difference is what the flow adds.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use millstream_flow::metrics::latency_histogram;
use millstream_flow::{Flow, Options, Running, codec, tcp};
use millstream_journal::clock::monotonic_ns;
use mio::{Events, Interest, Poll, Token};
use serde::Serialize;

use crate::figures::{Latency, cpu_seconds};

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How long an idle flow is watched.
pub const WATCHED: Duration = Duration::from_secs(3);
/// Frames for each of flow and echo.
pub const SAMPLES: usize = 2_000;
/// How long the client waits before each frame, so that flow and echo have gone to sleep.
const PAUSE: Duration = Duration::from_millis(1);
/// Frames before those that count.
const WARM_UP: usize = 50;
/// How long anything may take at most.
const LIMIT: Duration = Duration::from_secs(10);
/// A length in front and eight bytes.
const FRAME: [u8; 12] = [0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];

/// What waiting costs and how soon it ends.
#[derive(Clone, Debug, Serialize)]
pub struct Idle {
    /// Percent of a core that a flow of one worker takes while it waits.
    pub cpu_percent: f64,
    /// The same with two workers.
    pub cpu_percent_two_workers: f64,
    /// From the client's write to the output of a flow that slept: TCP, decode, map, TCP.
    pub flow: Latency,
    /// From the client's write to the answer of a bare echo that slept.
    pub echo: Latency,
}

#[expect(clippy::disallowed_methods, reason = "what is measured is a wait")]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// A client and what it talks to: writes go out on one socket, answers come in on another.
struct Client {
    out: TcpStream,
    back: TcpStream,
}

impl Client {
    fn new(out: TcpStream, back: TcpStream) -> Fallible<Self> {
        out.set_nodelay(true)?;
        back.set_read_timeout(Some(LIMIT))?;
        Ok(Client { out, back })
    }

    /// Sends a frame after a pause; returns the nanoseconds until the answer is complete.
    fn ask(&mut self) -> Fallible<u64> {
        sleep(PAUSE);
        let start = monotonic_ns();
        self.out.write_all(&FRAME)?;
        self.back.read_exact(&mut [0; FRAME.len()])?;
        Ok(monotonic_ns() - start)
    }
}

/// A flow that adds one to what comes in over TCP and sends it out over TCP, and what it is connected to:
/// its input, and its output, a connection for each worker.
fn flow(workers: usize) -> Fallible<(Running, TcpStream, Vec<TcpStream>)> {
    let server = TcpListener::bind("127.0.0.1:0")?;
    let (sender, bound) = channel::<SocketAddr>();
    let source = tcp::listen("127.0.0.1:0")
        .connections(1)
        .on_bound(move |address| {
            // The receiver is gone when the flow could not start.
            let _ = sender.send(address);
        });
    let number = |frame: &[u8]| frame.try_into().map(u64::from_be_bytes);
    let encode = |number: &u64, out: &mut Vec<u8>| out.extend_from_slice(&number.to_be_bytes());
    let sink = codec::encode(tcp::send_to(&server.local_addr()?.to_string()), encode);
    let flow = Flow::new("idle");
    flow.source("in", codec::decode(source, number))
        .map(|number: u64| number.wrapping_add(1))
        .sink("out", sink);
    let running = flow.start(Options::workers(workers))?;
    let out = TcpStream::connect(bound.recv_timeout(LIMIT)?)?;
    let backs: std::io::Result<Vec<TcpStream>> =
        (0..workers).map(|_| Ok(server.accept()?.0)).collect();
    Ok((running, out, backs?))
}

/// Percent of a core that a flow takes which has had one frame and waits for more.
fn cpu_percent(workers: usize, watched: Duration) -> Fallible<f64> {
    let (running, mut out, _backs) = flow(workers)?;
    out.write_all(&FRAME)?;
    sleep(Duration::from_millis(200));
    let cpu = cpu_seconds();
    let start = monotonic_ns();
    sleep(watched);
    let percent = 100.0 * (cpu_seconds() - cpu) / ((monotonic_ns() - start) as f64 / 1e9);
    drop(out);
    running.wait()?;
    Ok(percent)
}

/// A thread that echoes one connection.
fn echo() -> Fallible<(JoinHandle<std::io::Result<()>>, Client)> {
    let server = TcpListener::bind("127.0.0.1:0")?;
    let out = TcpStream::connect(server.local_addr()?)?;
    let stream = server.accept()?.0;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let stream = mio::net::TcpStream::from_std(stream);
    let thread = Builder::new()
        .name("echo".to_owned())
        .spawn(move || echo_to_end(stream))?;
    let back = out.try_clone()?;
    Ok((thread, Client::new(out, back)?))
}

fn echo_to_end(mut stream: mio::net::TcpStream) -> std::io::Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1);
    poll.registry()
        .register(&mut stream, Token(0), Interest::READABLE)?;
    let mut bytes = [0; 4096];
    loop {
        poll.poll(&mut events, None)?;
        loop {
            match stream.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(read) => stream.write_all(&bytes[..read])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
    }
}

/// Watches idle flows for the time `watched`, and asks flow and echo `samples` times each.
///
/// # Errors
/// A flow that fails, or a socket.
pub fn run(watched: Duration, samples: usize) -> Fallible<Idle> {
    let cpu_percent_one = cpu_percent(1, watched)?;
    let cpu_percent_two_workers = cpu_percent(2, watched)?;
    let (running, out, mut backs) = flow(1)?;
    let (thread, mut echo_client) = echo()?;
    let mut flow_client = Client::new(out, backs.remove(0))?;
    let mut flow = latency_histogram();
    let mut echo = latency_histogram();
    // They take turns, so that slow phases of the machine meet both.
    for sample in 0..WARM_UP + samples {
        for (client, histogram) in [(&mut flow_client, &mut flow), (&mut echo_client, &mut echo)] {
            let taken = client.ask()?;
            if sample >= WARM_UP {
                histogram.saturating_record(taken);
            }
        }
    }
    drop((flow_client, echo_client));
    running.wait()?;
    thread.join().map_err(|_| "the echo panicked")??;
    Ok(Idle {
        cpu_percent: cpu_percent_one,
        cpu_percent_two_workers,
        flow: Latency::of(&flow),
        echo: Latency::of(&echo),
    })
}

impl std::fmt::Display for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (what, percent) in [
            ("an idle flow, one worker", self.cpu_percent),
            ("an idle flow, two workers", self.cpu_percent_two_workers),
        ] {
            writeln!(f, "{what:<36} {percent:>8.2} % of a core")?;
        }
        for (what, latency) in [
            ("TCP to TCP through a sleeping flow", &self.flow),
            ("TCP to TCP through a bare echo", &self.echo),
        ] {
            let p50 = latency.p50_us;
            let p99 = latency.p99_us;
            writeln!(f, "{what:<36} {p50:>8.1} us p50, {p99:.1} us p99")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_of_flow_and_echo_is_counted() {
        let idle = run(Duration::from_millis(20), 30).expect("sockets and a flow");
        for latency in [&idle.flow, &idle.echo] {
            assert_eq!(latency.count, 30);
            assert!(latency.p50_us > 0.0 && latency.p50_us <= latency.max_us);
        }
        assert!(idle.cpu_percent >= 0.0 && idle.cpu_percent_two_workers >= 0.0);
        assert_eq!(idle.to_string().lines().count(), 4);
    }
}
