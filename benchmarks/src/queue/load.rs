//! The load: connections with requests in flight, in one thread.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use hdrhistogram::Histogram;
use millstream_flow::clock;
use millstream_queue::address::{Address, Stream};
use mio::event::Source;
use mio::{Events, Interest, Poll, Token};
use serde::Serialize;

use super::dialect::{Dialect, PATIENCE, Words, begin_queue};
use crate::figures::cpu_seconds;

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
    /// Of one core, what the load took meanwhile: if that is near 1, it is what limits the rate.
    pub load_cpu: f64,
    /// Of one core, what the server took; 0 for one that was not started here.
    pub server_cpu: f64,
}

impl Load {
    /// Put this load on a server.
    ///
    /// # Errors
    /// The server does not answer, or answers with something else.
    pub fn run(&self, dialect: Dialect, server: &Address) -> Result<Measured, String> {
        self.try_run(dialect, server)
            .map_err(|error| format!("{server}: {error}"))
    }

    fn connect(&self, server: &Address, poll: &Poll) -> io::Result<Vec<Client>> {
        let mut clients = Vec::with_capacity(self.connections);
        for index in 0..self.connections {
            let mut stream = non_blocking(server.connect()?)?;
            poll.registry()
                .register(&mut *stream, Token(index), Interest::READABLE)?;
            clients.push(Client {
                stream,
                getting: false,
                seen: 0,
                rounds: self.sets.div_ceil(self.in_flight as u64),
                sent_ns: 0,
            });
        }
        Ok(clients)
    }

    fn try_run(&self, dialect: Dialect, server: &Address) -> io::Result<Measured> {
        begin_queue(dialect, server)?;
        let words = Words::new(dialect, self.item_bytes, self.in_flight);
        let mut poll = Poll::new()?;
        let mut clients = self.connect(server, &poll)?;
        let mut times =
            Histogram::<u64>::new_with_bounds(100, 60_000_000_000, 3).map_err(io::Error::other)?;
        let mut events = Events::with_capacity(self.connections.max(16));
        let mut buffer = vec![0; 256 << 10];
        let begun_ns = clock::now_ns();
        let begun_cpu = cpu_seconds();
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
            load_cpu: (cpu_seconds() - begun_cpu) / seconds,
            server_cpu: 0.0,
        })
    }
}

/// A socket of either kind, as a poll knows it.
trait Socket: Read + Write + Source {}

impl<T: Read + Write + Source> Socket for T {}

fn non_blocking(stream: Stream) -> io::Result<Box<dyn Socket>> {
    Ok(match stream {
        Stream::Tcp(stream) => {
            stream.set_nonblocking(true)?;
            Box::new(mio::net::TcpStream::from_std(stream))
        }
        Stream::Unix(stream) => {
            stream.set_nonblocking(true)?;
            Box::new(mio::net::UnixStream::from_std(stream))
        }
    })
}

struct Client {
    stream: Box<dyn Socket>,
    getting: bool,
    /// What of the answer has come.
    seen: usize,
    rounds: u64,
    sent_ns: u64,
}

impl Client {
    /// All fits into the socket's buffer, since nothing else is in flight.
    fn send(&mut self, words: &Words) -> io::Result<()> {
        self.seen = 0;
        self.sent_ns = clock::now_ns();
        self.stream.write_all(if self.getting {
            &words.gets
        } else {
            &words.sets
        })
    }

    /// Whether the answer is complete.
    fn receive(&mut self, words: &Words, buffer: &mut [u8]) -> io::Result<bool> {
        let expected = if self.getting {
            &words.values
        } else {
            &words.stored
        };
        while !expected.is_complete(self.seen) {
            match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    let came = &buffer[..length];
                    self.seen = expected.follow(self.seen, came).ok_or_else(|| {
                        let text = String::from_utf8_lossy(&came[..length.min(80)]).into_owned();
                        io::Error::other(format!("unexpected answer {text:?}"))
                    })?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// The time that a few bytes need to a sleeping thread and back, the median of many, in microseconds.
pub(super) fn round_trip_us(unix: bool) -> io::Result<f64> {
    let (here, there) = if unix {
        let (here, there) = UnixStream::pair()?;
        (Stream::Unix(here), Stream::Unix(there))
    } else {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let here = Address::Tcp(listener.local_addr()?).connect()?;
        let (there, _) = listener.accept()?;
        there.set_nodelay(true)?;
        (here, Stream::Tcp(there))
    };
    trips_us(here, there)
}

fn trips_us(mut here: Stream, mut there: Stream) -> io::Result<f64> {
    const TRIPS: u32 = 5_000;
    let echo =
        std::thread::Builder::new()
            .name("echo".to_owned())
            .spawn(move || -> io::Result<()> {
                let mut buffer = [0; 128];
                loop {
                    match there.read(&mut buffer)? {
                        0 => return Ok(()),
                        length => there.write_all(&buffer[..length])?,
                    }
                }
            })?;
    let mut times =
        Histogram::<u64>::new_with_bounds(100, 60_000_000_000, 3).map_err(io::Error::other)?;
    let mut buffer = [0; 96];
    for _ in 0..TRIPS {
        let begun_ns = clock::now_ns();
        here.write_all(&buffer)?;
        here.read_exact(&mut buffer)?;
        times.saturating_record(clock::now_ns() - begun_ns);
    }
    drop(here);
    echo.join()
        .map_err(|_| io::Error::other("the echo panicked"))??;
    Ok(times.value_at_quantile(0.5) as f64 / 1e3)
}
