//! The load: connections in one thread, each with one request at a time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use millstream_journal::clock::monotonic_ns;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::texts::Request;
use crate::figures::{Latency, cpu_seconds};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
const OK: &[u8] = b"HTTP/1.1 200 ";
const LENGTH: &str = "content-length: ";

/// What the connections do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) connections: u32,
    /// The items of a request.
    pub(super) lines: u32,
    /// How long requests are sent.
    pub(super) time: Duration,
}

/// What came out.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// From the first request to the last answer.
    pub(super) seconds: f64,
    pub(super) latency: Latency,
    /// Of one core, what the load took.
    pub(super) load_cpu: f64,
    /// The requests of each connection. All were answered with 200.
    pub(super) acknowledged: Vec<u32>,
}

struct Client {
    stream: TcpStream,
    answer: Vec<u8>,
    sent_ns: u64,
    requests: u32,
}

impl Load {
    /// Puts the load on a server.
    pub(super) fn run(&self, address: &str) -> Result<Measured, String> {
        self.try_run(address)
            .map_err(|error| format!("{address}: {error}"))
    }

    fn connect(&self, address: &str, poll: &Poll) -> io::Result<Vec<Client>> {
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        let connect = |index| {
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            let registry = poll.registry();
            registry.register(&mut stream, Token(index as usize), Interest::READABLE)?;
            Ok(Client {
                stream,
                answer: Vec::new(),
                sent_ns: 0,
                requests: 0,
            })
        };
        (0..self.connections).map(connect).collect()
    }

    fn try_run(&self, address: &str) -> io::Result<Measured> {
        let mut poll = Poll::new()?;
        let mut clients = self.connect(address, &poll)?;
        let mut request = Request::new(self.lines);
        let times = Histogram::<u64>::new_with_bounds(1000, 60_000_000_000, 3);
        let mut times = times.map_err(io::Error::other)?;
        let mut events = Events::with_capacity(clients.len().max(16));
        let begun_ns = monotonic_ns();
        let begun_cpu = cpu_seconds();
        let until_ns = begun_ns + self.time.as_nanos() as u64;
        for (index, client) in (0..).zip(&mut clients) {
            client.send(index, &mut request)?;
        }
        let mut busy = clients.len();
        while busy > 0 {
            match poll.poll(&mut events, Some(PATIENCE)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            if events.is_empty() {
                return Err(io::Error::new(ErrorKind::TimedOut, "no answer"));
            }
            for event in &events {
                let index = event.token().0;
                let client = &mut clients[index];
                if !client.receive()? {
                    continue;
                }
                let now_ns = monotonic_ns();
                times.saturating_record(now_ns - client.sent_ns);
                if now_ns < until_ns {
                    client.send(index as u32, &mut request)?
                } else {
                    busy -= 1
                }
            }
        }
        let seconds = (monotonic_ns() - begun_ns) as f64 / 1e9;
        Ok(Measured {
            seconds,
            latency: Latency::of(&times),
            load_cpu: (cpu_seconds() - begun_cpu) / seconds,
            acknowledged: clients.iter().map(|client| client.requests).collect(),
        })
    }
}

impl Client {
    /// Sends the next request. It fits into the socket's buffer, since nothing else is on its way.
    fn send(&mut self, index: u32, request: &mut Request) -> io::Result<()> {
        self.sent_ns = monotonic_ns();
        self.stream.write_all(request.of(index, self.requests))
    }

    /// Whether the answer is complete.
    fn receive(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.answer.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if !is_complete(&self.answer) {
                continue;
            }
            if !self.answer.starts_with(OK) {
                return Err(io::Error::other(String::from_utf8_lossy(&self.answer)));
            }
            self.answer.clear();
            self.requests += 1;
            return Ok(true);
        }
    }
}

/// Whether an answer has its body.
fn is_complete(answer: &[u8]) -> bool {
    // Answers of this server are of ASCII.
    let Ok(answer) = std::str::from_utf8(answer) else {
        return false;
    };
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| line.strip_prefix(LENGTH));
    length.and_then(|length| length.parse().ok()) == Some(body.len())
}

#[cfg(test)]
mod tests {
    use super::is_complete;

    #[test]
    fn an_answer_is_complete_with_its_body() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ndate: x\r\n\r\n{}";
        assert!(is_complete(answer));
        assert!((0..answer.len()).all(|length| !is_complete(&answer[..length])));
    }
}
