//! A client of the memcache text protocol, as small as the verbs need it.

use std::io::{BufRead, BufReader, Read, Write};

use millstream_queue::address::{Address, Stream};

use super::super::{Failure, address};

/// The largest item that is believed to be one, in bytes.
const ITEM_BYTES_MAX: usize = 1 << 30;

/// Where the server is.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct ServerArgs {
    /// The server.
    #[arg(long, value_name = "ADDRESS", value_parser = address::parse_server, default_value = "127.0.0.1:22133")]
    pub(super) server: Address,
}

/// An item as the server sent it.
pub(super) struct Item {
    pub(super) body: Vec<u8>,
}

pub(super) struct Client {
    server: Address,
    stream: BufReader<Stream>,
}

impl Client {
    pub(super) fn connect(args: &ServerArgs) -> Result<Self, Failure> {
        let server = args.server.clone();
        let failed = |error| Failure::failed(format!("cannot connect to {server}: {error}"));
        let stream = server.connect().map_err(failed)?;
        Ok(Client {
            server,
            stream: BufReader::new(stream),
        })
    }

    /// Send bytes that ask for something.
    pub(super) fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        let sent = self.stream.get_mut().write_all(request);
        sent.map_err(|error| self.lost(&error))
    }

    /// The next line of the answer, without its end.
    pub(super) fn line(&mut self) -> Result<String, Failure> {
        let mut line = Vec::new();
        match self.stream.read_until(b'\n', &mut line) {
            Ok(0) => Err(self.lost(&"the server closed the connection")),
            Ok(_) => Ok(String::from_utf8_lossy(&line).trim_end().to_owned()),
            Err(error) => Err(self.lost(&error)),
        }
    }

    /// The `STAT` lines of an answer: name and value.
    pub(super) fn stats(&mut self, request: &str) -> Result<Vec<(String, String)>, Failure> {
        self.send(request.as_bytes())?;
        let mut stats = Vec::new();
        loop {
            let line = self.line()?;
            if line == "END" {
                return Ok(stats);
            }
            match line
                .strip_prefix("STAT ")
                .and_then(|stat| stat.split_once(' '))
            {
                Some((name, value)) => stats.push((name.to_owned(), value.to_owned())),
                // A value may be empty.
                None if line.starts_with("STAT ") => {
                    stats.push((line[5..].to_owned(), String::new()))
                }
                None => return Err(Failure::failed(format!("{}: {line}", self.server))),
            }
        }
    }

    /// The answer to a `get` of one key.
    pub(super) fn get(&mut self, key: &str) -> Result<Option<Item>, Failure> {
        self.send(format!("get {key}\r\n").as_bytes())?;
        let line = self.line()?;
        if line == "END" {
            return Ok(None);
        }
        let unexpected = || Failure::failed(format!("{}: {line}", self.server));
        let bytes = line
            .strip_prefix("VALUE ")
            .and_then(|value| value.split(' ').nth(2))
            .ok_or_else(unexpected)?;
        let bytes: usize = bytes
            .parse()
            .ok()
            .filter(|&bytes| bytes <= ITEM_BYTES_MAX)
            .ok_or_else(unexpected)?;
        let mut body = vec![0; bytes];
        let mut end = [0; 2];
        let read = self
            .stream
            .read_exact(&mut body)
            .and_then(|()| self.stream.read_exact(&mut end));
        read.map_err(|error| self.lost(&error))?;
        match self.line()?.as_str() {
            "END" => Ok(Some(Item { body })),
            other => Err(Failure::failed(format!("{}: {other}", self.server))),
        }
    }

    fn lost(&self, why: &dyn std::fmt::Display) -> Failure {
        Failure::failed(format!("{}: {why}", self.server))
    }
}

/// The name of a queue, or why it is none.
pub(super) fn queue_name(text: &str) -> Result<String, String> {
    match millstream_queue::name::check(text.as_bytes()) {
        Ok(name) => Ok(name.to_owned()),
        Err(fault) => Err(fault.to_string()),
    }
}
