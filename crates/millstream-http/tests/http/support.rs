//! A client that writes raw requests, and flows that run in the background.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use millstream_flow::testing::Collected;
use millstream_flow::{Flow, Options, Recovery, Running, codec};
use millstream_http::Listen;

/// Far beyond what any test takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

trait Socket: Read + Write + Send {}
impl Socket for TcpStream {}
impl Socket for UnixStream {}

/// A connection of a client.
pub(crate) struct Client(BufReader<Box<dyn Socket>>);

/// An answer: its status, its header in lower case, its body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) header: String,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn new(address: &str) -> Self {
        let socket: Box<dyn Socket> = match address.strip_prefix("unix:") {
            Some(path) => {
                let socket = UnixStream::connect(path).unwrap();
                socket.set_read_timeout(Some(LONG)).unwrap();
                Box::new(socket)
            }
            None => {
                let socket = TcpStream::connect(address).unwrap();
                socket.set_read_timeout(Some(LONG)).unwrap();
                Box::new(socket)
            }
        };
        Client(BufReader::new(socket))
    }

    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Writes a request.
    pub(crate) fn send(&mut self, line: &str, header: &str, body: &str) {
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{header}\r\n{body}"
        );
        self.write(request);
    }

    /// Posts a body; a connection that is closed already is found by the next read.
    pub(crate) fn send_if_open(&mut self, body: &str) {
        let length = body.len();
        let request =
            format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}");
        let _ = self.0.get_mut().write_all(request.as_bytes());
    }

    /// Reads an answer; `None` if the connection is closed.
    pub(crate) fn read(&mut self) -> Option<Answer> {
        let mut first = String::new();
        if self.0.read_line(&mut first).unwrap_or(0) == 0 {
            return None;
        }
        let status = first.split(' ').nth(1).unwrap().parse().unwrap();
        let mut header = String::new();
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            if line == "\r\n" {
                break;
            }
            let line = line.to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            header += &line;
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        Some(Answer {
            status,
            header,
            body,
        })
    }

    pub(crate) fn request(&mut self, line: &str, header: &str, body: &str) -> Answer {
        self.send(line, header, body);
        self.read().unwrap()
    }

    pub(crate) fn post(&mut self, body: &str) -> Answer {
        self.request("POST /", "", body)
    }
}

/// A flow that collects what a source listens to.
pub(crate) struct Listening {
    pub(crate) address: String,
    pub(crate) items: Collected<String>,
    pub(crate) running: Running,
}

/// Starts a flow, with a state directory or without, and waits until its source is bound.
pub(crate) fn start(source: Listen, state: Option<&Path>) -> Listening {
    start_into(source, state, Collected::new())
}

/// Starts a flow whose items are added to those of an earlier run.
pub(crate) fn start_into(
    source: Listen,
    state: Option<&Path>,
    items: Collected<String>,
) -> Listening {
    let (bound, address) = channel();
    let source = source.on_bound(move |address| bound.send(address.to_owned()).unwrap());
    let flow = Flow::new("posts");
    flow.source("in", codec::decode(source, codec::text))
        .sink("out", items.sink());
    let running = flow.start(options(state)).unwrap();
    Listening {
        address: address.recv_timeout(LONG).unwrap(),
        items,
        running,
    }
}

pub(crate) fn options(state: Option<&Path>) -> Options {
    let recovery = state.map(|state| Recovery::new(state).epoch(Duration::from_millis(20)));
    Options {
        recovery,
        ..Options::default()
    }
}

impl Listening {
    pub(crate) fn client(&self) -> Client {
        Client::new(&self.address)
    }

    /// Ends the flow, and returns the items.
    pub(crate) fn stop(self) -> Vec<String> {
        self.running.stop();
        self.end()
    }

    /// Waits until the flow has ended, and returns the items.
    pub(crate) fn end(self) -> Vec<String> {
        self.running.wait().unwrap();
        self.items.take()
    }
}
