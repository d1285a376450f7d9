//! A client of a server, and the options of one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use millstream_queue::address::{Address, Stream};
use millstream_queue::server::{Server, ServerOptions};
use millstream_queue::session::Compat;

/// A server that does not answer in this time does not answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A server on a free port.
pub(crate) fn options(dir: &Path) -> ServerOptions {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    ServerOptions {
        listen: vec![(any.into(), Compat::Memcached)],
        ..ServerOptions::new(dir)
    }
}

pub(crate) fn start(dir: &Path) -> Server {
    Server::start(options(dir)).unwrap()
}

pub(crate) struct Client(BufReader<Stream>);

impl Client {
    pub(crate) fn of(server: &Server) -> Self {
        Client::connect(&server.addresses()[0])
    }

    pub(crate) fn connect(address: &Address) -> Self {
        let stream = address.connect().unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Client(BufReader::new(stream))
    }

    pub(crate) fn send(&mut self, request: &str) {
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
    }

    /// The next line; empty at the end of the connection.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn put(&mut self, queue: &str, body: &str) {
        self.send(&format!("set {queue} 0 0 {}\r\n{body}\r\n", body.len()));
        assert_eq!(self.line(), "STORED");
    }

    /// The next item of a key, as `jobs` or `jobs/open`.
    pub(crate) fn get(&mut self, key: &str) -> Option<String> {
        self.send(&format!("get {key}\r\n"));
        let head = self.line();
        if head == "END" {
            return None;
        }
        let length = head.rsplit(' ').next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        assert_eq!((self.line(), self.line()), (String::new(), "END".into()));
        Some(String::from_utf8(body).unwrap())
    }

    pub(crate) fn drain(&mut self, queue: &str) -> Vec<String> {
        std::iter::from_fn(|| self.get(queue)).collect()
    }
}
