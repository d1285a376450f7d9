//! A client of the memcache text protocol, as small as the verbs need it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;

use millstream_queue::address::{Address, Stream};
use serde::{Deserialize, Serialize};

use super::secure;
use crate::address;
use crate::failure::Failure;

/// The largest item that is believed to be one, in bytes.
const ITEM_BYTES_MAX: usize = 1 << 30;

/// Where the server is, and how to come in.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct ServerArgs {
    /// The server: HOST:PORT or unix:PATH.
    #[arg(long, value_name = "ADDRESS", value_parser = address::parse_server, default_value = "127.0.0.1:22133")]
    pub(super) server: Address,
    /// A file whose first line is NAME:PASSWORD, for a server with --auth-file. Without it the environment variable
    /// MILLSTREAM_QUEUE_AUTH may hold NAME:PASSWORD.
    #[arg(long, value_name = "FILE")]
    auth_file: Option<PathBuf>,
    /// Speak TLS, and trust the certificates in this PEM file: those of an authority, or the server's own.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// The name for which an authority must have signed the server's certificate, if it is not the server's address.
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_name: Option<String>,
}

impl ServerArgs {
    /// What a client sends to come in: the name, a blank, the password.
    fn secret(&self) -> Result<Option<String>, Failure> {
        let (text, place) = match &self.auth_file {
            Some(path) => {
                let place = path.display().to_string();
                let text = std::fs::read_to_string(path)
                    .map_err(|error| Failure::failed(format!("{place}: {error}")))?;
                (text, place)
            }
            None => match std::env::var(AUTH_VARIABLE) {
                Ok(text) => (text, AUTH_VARIABLE.to_owned()),
                Err(std::env::VarError::NotPresent) => return Ok(None),
                Err(error) => return Err(Failure::failed(format!("{AUTH_VARIABLE}: {error}"))),
            },
        };
        let line = text.lines().find(|line| !line.trim().is_empty());
        let secret = line.and_then(|line| line.split_once(':'));
        match secret {
            Some((name, password)) => Ok(Some(format!("{name} {password}"))),
            None => Err(Failure::failed(format!(
                "{place}: the first line is not NAME:PASSWORD"
            ))),
        }
    }
}

const AUTH_VARIABLE: &str = "MILLSTREAM_QUEUE_AUTH";

/// An item as the server sent it.
pub(super) struct Item {
    pub(super) body: Vec<u8>,
    /// The words of the line before it: flags, length, and further words of the server.
    words: Vec<String>,
}

impl Item {
    pub(super) fn flags(&self) -> u64 {
        self.number(0).unwrap_or(0)
    }

    /// The details that only a server of Millstream reports, on request.
    pub(super) fn details(&self) -> Option<Details> {
        let [_, _, _, _, _, _, more @ ..] = self.words.as_slice() else {
            return None;
        };
        let origin = match more {
            [_, queue, reason, _, _, _, ..] => Some(Origin {
                queue: queue.clone(),
                reason: reason.clone(),
                left_ms: self.number(9)?,
                deliveries: self.number(10)?,
                expires_ms: self.number(11).filter(|&at| at != 0),
            }),
            _ => None,
        };
        Some(Details {
            id: self.number(2)?,
            added_ms: self.number(3)?,
            expiry_ms: self.number(4)?,
            deliveries: self.number(5)?,
            first_failed_ms: self.number(6).filter(|&at| at != 0),
            origin,
        })
    }

    fn number(&self, at: usize) -> Option<u64> {
        self.words.get(at)?.parse().ok()
    }
}

/// What a queue knows about an item besides its bytes and flags.
pub(super) struct Details {
    pub(super) id: u64,
    /// When it was added; wall clock in milliseconds.
    pub(super) added_ms: u64,
    /// When it expires, wall clock in milliseconds; 0 never.
    pub(super) expiry_ms: u64,
    /// How often it was delivered and came back.
    pub(super) deliveries: u64,
    /// When it first came back, here or in the queue that it left; wall clock in milliseconds.
    pub(super) first_failed_ms: Option<u64>,
    /// The queue that it left.
    pub(super) origin: Option<Origin>,
}

/// The queue that an item left because it failed or expired there, and how it was then.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Origin {
    queue: String,
    /// `failed` or `expired`.
    reason: String,
    /// When it left, in milliseconds since 1970.
    left_ms: u64,
    /// How often it had been delivered and come back.
    deliveries: u64,
    /// When it was to expire, in milliseconds since 1970; without it never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_ms: Option<u64>,
}

/// A connection, plain or not.
trait Duplex: Read + Write {}
impl<T: Read + Write> Duplex for T {}

pub(super) struct Client {
    server: Address,
    stream: BufReader<Box<dyn Duplex>>,
}

impl Client {
    /// Connects and authenticates.
    pub(super) fn connect(args: &ServerArgs) -> Result<Self, Failure> {
        let server = args.server.clone();
        let secret = args.secret()?;
        let failed = |error: &dyn std::fmt::Display| {
            Failure::failed(format!("cannot connect to {server}: {error}"))
        };
        let plain = server.connect().map_err(|error| failed(&error))?;
        let stream: Box<dyn Duplex> = match (&args.tls_ca, plain) {
            (None, plain) => Box::new(plain),
            (Some(_), Stream::Unix(_)) => {
                return Err(Failure::usage("--tls-ca is for servers on TCP"));
            }
            (Some(trusted), Stream::Tcp(plain)) => {
                let ip = plain.peer_addr().map_err(|error| failed(&error))?.ip();
                let name = args.tls_name.clone().unwrap_or_else(|| ip.to_string());
                let stream = secure::connect(trusted, &name, plain)?;
                Box::new(stream)
            }
        };
        let mut client = Client {
            server,
            stream: BufReader::new(stream),
        };
        if let Some(secret) = secret {
            client.enter(&secret)?;
        }
        Ok(client)
    }

    fn enter(&mut self, secret: &str) -> Result<(), Failure> {
        self.send(format!("set auth 0 0 {}\r\n{secret}\r\n", secret.len()).as_bytes())?;
        match self.line()?.as_str() {
            "STORED" => Ok(()),
            refused => Err(self.lost(&refused)),
        }
    }

    /// Send bytes that ask for something.
    pub(super) fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        let stream = self.stream.get_mut();
        let sent = stream.write_all(request).and_then(|()| stream.flush());
        sent.map_err(|error| self.lost(&error))
    }

    /// The next line of the answer, without its end.
    pub(super) fn line(&mut self) -> Result<String, Failure> {
        let mut line = Vec::new();
        match self.stream.read_until(b'\n', &mut line) {
            Ok(0) => Err(self.lost(&"the server closed the connection")),
            // A server that ends may leave out the goodbye of TLS.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.lost(&"the server closed the connection"))
            }
            Ok(_) => Ok(String::from_utf8_lossy(&line).trim_end().to_owned()),
            Err(error) => Err(self.lost(&error)),
        }
    }

    /// The answer to a request of one line.
    pub(super) fn ask(&mut self, request: &str) -> Result<String, Failure> {
        self.send(format!("{request}\r\n").as_bytes())?;
        self.line()
    }

    /// Ask, and take any other answer than `expected` for a failure.
    pub(super) fn demand(&mut self, request: &str, expected: &str) -> Result<(), Failure> {
        match self.ask(request)? {
            answer if answer == expected => Ok(()),
            answer => Err(self.lost(&answer)),
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
                None => return Err(self.lost(&line)),
            }
        }
    }

    /// The answer to a `get` of one key.
    pub(super) fn get(&mut self, key: &str) -> Result<Option<Item>, Failure> {
        self.send(format!("get {key}\r\n").as_bytes())?;
        let Some(item) = self.item()? else {
            return Ok(None);
        };
        match self.line()?.as_str() {
            "END" => Ok(Some(item)),
            other => Err(self.lost(&other)),
        }
    }

    /// The next item of an answer, without the `END` that follows; `None` if that comes instead.
    pub(super) fn item(&mut self) -> Result<Option<Item>, Failure> {
        let line = self.line()?;
        if line == "END" {
            return Ok(None);
        }
        let Some(value) = line.strip_prefix("VALUE ") else {
            return Err(self.lost(&line));
        };
        let words: Vec<String> = value.split(' ').skip(1).map(str::to_owned).collect();
        let bytes = words.get(1).and_then(|bytes| bytes.parse::<usize>().ok());
        let Some(bytes) = bytes.filter(|&bytes| bytes <= ITEM_BYTES_MAX) else {
            return Err(self.lost(&line));
        };
        let mut body = vec![0; bytes];
        let mut end = [0; 2];
        let read = self
            .stream
            .read_exact(&mut body)
            .and_then(|()| self.stream.read_exact(&mut end));
        read.map_err(|error| self.lost(&error))?;
        Ok(Some(Item { body, words }))
    }

    /// Put an item; the answer must be that it is stored.
    pub(super) fn set(
        &mut self,
        key: &str,
        flags: u64,
        expiry: i64,
        item: &[u8],
    ) -> Result<(), Failure> {
        let mut request = format!("set {key} {flags} {expiry} {}\r\n", item.len()).into_bytes();
        request.extend_from_slice(item);
        request.extend_from_slice(b"\r\n");
        self.send(&request)?;
        match self.line()?.as_str() {
            "STORED" => Ok(()),
            "NOT_STORED" => {
                let queue = key.split('/').next().unwrap_or(key);
                self.send(b"status\r\n")?;
                let why = match self.line()?.as_str() {
                    status @ ("READONLY" | "QUIESCENT") => format!(
                        "the server takes no sets, since its status is {status}; `millstream queue status UP` ends that"
                    ),
                    _ => "it is full, or the item too large".to_owned(),
                };
                Err(Failure::failed(format!(
                    "queue \"{queue}\" does not take the item: {why}"
                )))
            }
            other => Err(Failure::failed(other)),
        }
    }

    /// A failure at this server.
    pub(super) fn lost(&self, why: &dyn std::fmt::Display) -> Failure {
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
