//! The load: connections with requests in flight, in one thread.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use hdrhistogram::Histogram;
use millstream_flow::clock;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use serde::Serialize;

/// What the connections do.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many there are.
    pub connections: usize,
    /// Requests that each has on its way at a time.
    pub in_flight: usize,
    /// The length of an item.
    pub item_bytes: usize,
    /// Each connection sends so many sets and is done...
    pub sets: u64,
    /// ...or sets and gets in turn, for so long.
    pub sustained: Option<Duration>,
}

impl Default for Load {
    fn default() -> Self {
        Load {
            connections: 1,
            in_flight: 1,
            item_bytes: 64,
            sets: 0,
            sustained: None,
        }
    }
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Requests answered.
    pub requests: u64,
    /// From the first to the last.
    pub seconds: f64,
    /// Both together.
    pub per_second: f64,
    /// Half of the requests were answered within this time.
    pub p50_us: f64,
    /// All but one in a hundred.
    pub p99_us: f64,
}

const QUEUE: &str = "bench";
const PATIENCE: Duration = Duration::from_secs(10);

impl Load {
    /// Put this load on a server.
    ///
    /// # Errors
    /// The server does not answer, or gives an answer that is none.
    pub fn run(&self, server: SocketAddr) -> Result<Measured, String> {
        self.try_run(server)
            .map_err(|error| format!("{server}: {error}"))
    }

    fn connect(&self, server: SocketAddr, poll: &Poll) -> io::Result<Vec<Client>> {
        let mut clients = Vec::with_capacity(self.connections);
        for index in 0..self.connections {
            let stream = std::net::TcpStream::connect(server)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry()
                .register(&mut stream, Token(index), Interest::READABLE)?;
            clients.push(Client {
                stream,
                getting: false,
                answered: 0,
                rounds: self.sets.div_ceil(self.in_flight as u64),
                sent_ns: 0,
            });
        }
        Ok(clients)
    }

    fn try_run(&self, server: SocketAddr) -> io::Result<Measured> {
        forget_items(server)?;
        let words = Words::new(self);
        let mut poll = Poll::new()?;
        let mut clients = self.connect(server, &poll)?;
        let mut times =
            Histogram::<u64>::new_with_bounds(100, 60_000_000_000, 3).map_err(io::Error::other)?;
        let mut events = Events::with_capacity(self.connections.max(16));
        let mut buffer = vec![0; 256 << 10];
        let begun_ns = clock::now_ns();
        let until_ns = self.sustained.map(|time| begun_ns + time.as_nanos() as u64);
        let mut busy = clients.len();
        let mut requests = 0;
        for client in &mut clients {
            client.send(&words)?;
        }
        while busy > 0 {
            poll.poll(&mut events, Some(PATIENCE))
                .or_else(|error| match error.kind() {
                    ErrorKind::Interrupted => Ok(()),
                    _ => Err(error),
                })?;
            if events.is_empty() {
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    "no answer for 10 seconds",
                ));
            }
            for event in &events {
                let client = &mut clients[event.token().0];
                if !client.receive(&words, &mut buffer)? {
                    continue;
                }
                let now_ns = clock::now_ns();
                times.saturating_record_n(now_ns - client.sent_ns, self.in_flight as u64);
                requests += self.in_flight as u64;
                let more = match until_ns {
                    // A get for each set, so that the queue ends as empty as it began.
                    Some(until_ns) => now_ns < until_ns || !client.getting,
                    None => client.rounds > 1,
                };
                if !more {
                    busy -= 1;
                    continue;
                }
                client.rounds = client.rounds.saturating_sub(1);
                client.getting = self.sustained.is_some() && !client.getting;
                client.send(&words)?;
            }
        }
        let seconds = (clock::now_ns() - begun_ns) as f64 / 1e9;
        Ok(Measured {
            requests,
            seconds,
            per_second: requests as f64 / seconds,
            p50_us: times.value_at_quantile(0.5) as f64 / 1e3,
            p99_us: times.value_at_quantile(0.99) as f64 / 1e3,
        })
    }
}

/// Whatever a load before has left goes, on a server that knows how.
fn forget_items(server: SocketAddr) -> io::Result<()> {
    let mut stream = std::net::TcpStream::connect(server)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("flush {QUEUE}\r\n").as_bytes())?;
    stream.read(&mut [0; 64]).map(|_| ())
}

/// What is sent and what must come back, for all requests that are in flight together.
struct Words {
    sets: Vec<u8>,
    stored: Vec<u8>,
    gets: Vec<u8>,
    values: Vec<u8>,
}

impl Words {
    fn new(load: &Load) -> Self {
        let (length, body) = (load.item_bytes, "x".repeat(load.item_bytes));
        let all = |one: String| one.repeat(load.in_flight).into_bytes();
        Words {
            sets: all(format!("set {QUEUE} 0 0 {length}\r\n{body}\r\n")),
            stored: all("STORED\r\n".to_owned()),
            gets: all(format!("get {QUEUE}\r\n")),
            values: all(format!("VALUE {QUEUE} 0 {length}\r\n{body}\r\nEND\r\n")),
        }
    }
}

struct Client {
    stream: TcpStream,
    getting: bool,
    /// Bytes of the answer that have come.
    answered: usize,
    rounds: u64,
    sent_ns: u64,
}

impl Client {
    /// All fits into the socket's buffer, since nothing else is in flight.
    fn send(&mut self, words: &Words) -> io::Result<()> {
        self.answered = 0;
        self.sent_ns = clock::now_ns();
        self.stream.write_all(if self.getting {
            &words.gets
        } else {
            &words.sets
        })
    }

    /// Whether the answer is whole.
    fn receive(&mut self, words: &Words, buffer: &mut [u8]) -> io::Result<bool> {
        let expected = if self.getting {
            &words.values
        } else {
            &words.stored
        };
        while self.answered < expected.len() {
            match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    let came = &buffer[..length];
                    if expected.get(self.answered..self.answered + length) != Some(came) {
                        let text = String::from_utf8_lossy(&came[..length.min(80)]).into_owned();
                        return Err(io::Error::other(format!("unexpected answer {text:?}")));
                    }
                    self.answered += length;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// The time that a few bytes need to a sleeping thread and back, the median of many, in microseconds.
pub(super) fn round_trip_us() -> io::Result<f64> {
    const TRIPS: u32 = 5_000;
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let echo =
        std::thread::Builder::new()
            .name("echo".to_owned())
            .spawn(move || -> io::Result<()> {
                let (mut stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                let mut buffer = [0; 128];
                loop {
                    match stream.read(&mut buffer)? {
                        0 => return Ok(()),
                        length => stream.write_all(&buffer[..length])?,
                    }
                }
            })?;
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut times =
        Histogram::<u64>::new_with_bounds(100, 60_000_000_000, 3).map_err(io::Error::other)?;
    let mut buffer = [0; 96];
    for _ in 0..TRIPS {
        let begun_ns = clock::now_ns();
        stream.write_all(&buffer)?;
        stream.read_exact(&mut buffer)?;
        times.saturating_record(clock::now_ns() - begun_ns);
    }
    drop(stream);
    echo.join()
        .map_err(|_| io::Error::other("the echo panicked"))??;
    Ok(times.value_at_quantile(0.5) as f64 / 1e3)
}
