//! The feed for browsers: server-sent events over raw sockets, and the handshake and frames of a WebSocket byte by
//! byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::time::Duration;

use millstream_flow::{Flow, Running, codec};
use millstream_http::{Feed, feed, listen};

use crate::support::{Answer, Client, LONG, options};

/// A flow whose items are posted, and that feeds them.
struct Feeding {
    posts: Client,
    feed: String,
    running: Running,
}

impl Feeding {
    fn start(feed: Feed) -> Self {
        let (bound, addresses) = channel();
        let also = bound.clone();
        let body = millstream_http::Body::Bytes;
        let source = listen("127.0.0.1:0").body(body).max_body(16 << 20);
        let source = source.on_bound(move |address| bound.send((1, address.to_owned())).unwrap());
        let feed = feed.on_bound(move |address| also.send((2, address.to_owned())).unwrap());
        let flow = Flow::new("feeding");
        flow.source("in", source).sink("feed", feed);
        let running = flow.start(options(None)).unwrap();
        let mut bound: Vec<_> = (0..2)
            .map(|_| addresses.recv_timeout(LONG).unwrap())
            .collect();
        bound.sort();
        Feeding {
            posts: Client::new(&bound[0].1),
            feed: bound.pop().unwrap().1,
            running,
        }
    }

    /// Returns after the flow has taken the item.
    fn post(&mut self, item: &str) {
        assert_eq!(self.posts.post(item).status, 200);
    }

    /// The answer to a request that is refused.
    fn refused(&self, line: &str, header: &str) -> (u16, String) {
        let Answer { status, body, .. } = Client::new(&self.feed).request(line, header, "");
        (status, body)
    }

    /// Ends the flow.
    fn stop(self) {
        self.running.stop();
        self.running.wait().unwrap();
    }
}

/// A client of server-sent events.
pub(crate) struct Events {
    socket: BufReader<TcpStream>,
    /// The last id that was read.
    pub(crate) id: String,
}

impl Events {
    /// Connects, and waits until the feed has begun. Returns the header, too.
    pub(crate) fn connect(address: &str, path: &str, header: &str) -> (Self, String) {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        write!(
            socket,
            "GET {path} HTTP/1.0\r\nHost: localhost\r\n{header}\r\n"
        )
        .unwrap();
        let mut events = Events {
            socket: BufReader::new(socket),
            id: String::new(),
        };
        let mut answer = String::new();
        while !answer.ends_with("\r\n\r\n") {
            assert_ne!(events.socket.read_line(&mut answer).unwrap(), 0, "{answer}");
        }
        assert!(
            answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"),
            "{answer}"
        );
        let mut comment = String::new();
        events.socket.read_line(&mut comment).unwrap();
        assert!(comment.starts_with(": "), "{comment}");
        (events, answer.to_ascii_lowercase())
    }

    fn open(address: &str) -> Self {
        Self::connect(address, "/", "").0
    }

    /// The next item of one line; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<String> {
        loop {
            let line = self.line()?;
            if let Some(item) = line.strip_prefix("data: ") {
                return Some(item.trim_end().to_owned());
            }
        }
    }

    /// The id before the first item.
    pub(crate) fn begin(&mut self) -> String {
        while self.id.is_empty() {
            self.line().unwrap();
        }
        self.id.clone()
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.socket.read_line(&mut line) {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
        if let Some(id) = line.strip_prefix("id: ") {
            id.trim_end().clone_into(&mut self.id);
        }
        Some(line)
    }
}

/// A client of a WebSocket.
struct WebSocket(BufReader<TcpStream>);

impl WebSocket {
    /// The handshake with the key of RFC 6455, section 1.3, and its answer.
    fn open(address: &str) -> Self {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket.write_all(handshake("").as_bytes()).unwrap();
        let mut client = WebSocket(BufReader::new(socket));
        let mut answer = String::new();
        while !answer.ends_with("\r\n\r\n") {
            assert_ne!(client.0.read_line(&mut answer).unwrap(), 0, "{answer}");
        }
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        let answer = answer.to_ascii_lowercase();
        assert!(
            answer.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="),
            "{answer}"
        );
        client
    }

    /// The next frame, not masked: its first byte and its payload. `None` if the connection is closed.
    fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).ok()?;
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.0.read_exact(&mut length).ok()?;
                u16::from_be_bytes(length).into()
            }
            127 => {
                let mut length = [0; 8];
                self.0.read_exact(&mut length).ok()?;
                usize::try_from(u64::from_be_bytes(length)).unwrap()
            }
            length => usize::from(length),
        };
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload).ok()?;
        Some((head[0], payload))
    }

    /// The next frame but the pings that a server sends when nothing else came for a while.
    fn next_message(&mut self) -> Option<(u8, Vec<u8>)> {
        std::iter::from_fn(|| self.next()).find(|(first, _)| *first != PING)
    }

    /// Writes a frame, masked with zeros.
    fn write(&mut self, first: u8, payload: &[u8]) {
        let length = 0x80 | u8::try_from(payload.len()).unwrap();
        let frame = [&[first, length, 0, 0, 0, 0], payload].concat();
        self.0.get_mut().write_all(&frame).unwrap();
    }
}

fn handshake(header: &str) -> String {
    format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{header}\r\n"
    )
}

const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

#[test]
fn clients_get_the_items_from_their_connection_on() {
    let mut feeding = Feeding::start(feed("127.0.0.1:0"));
    // A post is answered when the flow has taken the item; another client shows when it was sent.
    let mut before = Events::open(&feeding.feed);
    feeding.post("missed");
    assert_eq!(before.next().as_deref(), Some("missed"));
    let mut events = Events::open(&feeding.feed);
    feeding.post("first");
    assert_eq!(before.next().as_deref(), Some("first"));
    let mut socket = WebSocket::open(&feeding.feed);
    feeding.post("second");
    let long = "x".repeat(70_000);
    feeding.post(&long);
    assert_eq!(events.next().as_deref(), Some("first"));
    assert_eq!(events.next().as_deref(), Some("second"));
    assert_eq!(events.next(), Some(long.clone()));
    assert_eq!(socket.next(), Some((TEXT, b"second".to_vec())));
    assert_eq!(socket.next(), Some((TEXT, long.into_bytes())));
    socket.write(PING, b"there?");
    assert_eq!(socket.next(), Some((PONG, b"there?".to_vec())));
    // A message of a client has no effect.
    socket.write(TEXT, b"subscribe");
    feeding.post("last");
    feeding.running.stop();
    assert_eq!(events.next().as_deref(), Some("last"));
    assert_eq!(events.next(), None);
    assert_eq!(socket.next(), Some((TEXT, b"last".to_vec())));
    let (first, close) = socket.next().unwrap();
    assert_eq!((first, &close[..2]), (CLOSE, &1001u16.to_be_bytes()[..]));
    socket.write(CLOSE, &close[..2]);
    assert_eq!(socket.next(), None);
    feeding.running.wait().unwrap();
}

#[test]
fn a_client_that_does_not_keep_up_is_disconnected_and_others_get_all() {
    let mut feeding = Feeding::start(feed("127.0.0.1:0").max_client(1 << 20));
    let mut slow = Events::open(&feeding.feed);
    let mut slow_socket = WebSocket::open(&feeding.feed);
    let (mut quick, mut quick_socket) =
        (Events::open(&feeding.feed), WebSocket::open(&feeding.feed));
    // Far more than the buffers of the system and the limit of a client.
    let count = 300;
    for number in 0..count {
        let item = format!("{number} {}", "x".repeat(100_000));
        feeding.post(&item);
        assert_eq!(quick.next().as_ref(), Some(&item));
        assert_eq!(quick_socket.next_message(), Some((TEXT, item.into_bytes())));
    }
    let number = |item: &str| item.split(' ').next().unwrap().parse::<usize>().unwrap();
    let got: Vec<_> = std::iter::from_fn(|| slow.next())
        .map(|item| number(&item))
        .collect();
    assert!(got.len() < count, "{}", got.len());
    assert!(
        got.iter().copied().eq(0..got.len()),
        "without a gap: {got:?}"
    );
    let mut frames = Vec::new();
    while let Some((first, item)) = slow_socket.next_message() {
        assert_eq!(first, TEXT, "no close that looks complete");
        frames.push(number(std::str::from_utf8(&item).unwrap()));
    }
    assert!(frames.len() < count, "{}", frames.len());
    assert!(
        frames.iter().copied().eq(0..frames.len()),
        "without a gap: {frames:?}"
    );
    feeding.stop();
}

#[test]
fn pages_of_other_origins_are_refused() {
    let feeding = Feeding::start(feed("127.0.0.1:0"));
    let (status, body) = feeding.refused("GET /", "Origin: https://evil.example\r\n");
    assert_eq!(
        (status, &*body),
        (
            403,
            "pages of the origin https://evil.example are not accepted\n"
        )
    );
    let mut client = Client::new(&feeding.feed);
    client.write(handshake("Origin: https://evil.example\r\n"));
    assert_eq!(client.read().unwrap().status, 403);
    feeding.stop();

    let feeding = Feeding::start(feed("127.0.0.1:0").origin("https://good.example"));
    let (_, header) = Events::connect(&feeding.feed, "/", "Origin: https://good.example\r\n");
    assert!(
        header.contains("access-control-allow-origin: https://good.example\r\n"),
        "{header}"
    );
    assert_eq!(feeding.refused("GET /", "Origin: null\r\n").0, 403);
    // No browser.
    Events::open(&feeding.feed);
    feeding.stop();

    let feeding = Feeding::start(feed("127.0.0.1:0").origin("*"));
    Events::connect(&feeding.feed, "/", "Origin: null\r\n");
    feeding.stop();
}

/// The status of a request for a host, without an origin: a page sends it to its own origin.
fn status_for(feeding: &Feeding, host: &str, header: &str) -> u16 {
    let mut client = Client::new(&feeding.feed);
    client.write(format!(
        "GET /other HTTP/1.1\r\nHost: {host}\r\n{header}\r\n"
    ));
    client.read().unwrap().status
}

#[test]
fn a_page_whose_name_is_bound_to_this_machine_is_refused() {
    let feeding = Feeding::start(feed("127.0.0.1:0").origin("https://good.example"));
    let mut client = Client::new(&feeding.feed);
    client.write("GET / HTTP/1.1\r\nHost: evil.example:8080\r\n\r\n");
    let answer = client.read().unwrap();
    assert_eq!(answer.status, 403);
    assert!(
        answer
            .body
            .starts_with("the host evil.example is not accepted")
    );
    for host in ["127.0.0.1:80", "localhost", "[::1]:80", "good.example"] {
        assert_eq!(status_for(&feeding, host, ""), 404, "{host}");
    }
    feeding.stop();
    // Such a page does not have the token.
    let feeding = Feeding::start(feed("127.0.0.1:0").token("secret"));
    assert_eq!(status_for(&feeding, "evil.example", ""), 401);
    let token = "Authorization: Bearer secret\r\n";
    assert_eq!(status_for(&feeding, "evil.example", token), 404);
    feeding.stop();
}

#[test]
fn a_page_asks_before_it_sends_a_token() {
    let feed = feed("127.0.0.1:0").origin("https://good.example");
    let feeding = Feeding::start(feed.token("secret"));
    let asks = "Access-Control-Request-Method: GET\r\nOrigin: https://good.example\r\n";
    let answer = Client::new(&feeding.feed).request("OPTIONS /", asks, "");
    assert_eq!(answer.status, 204);
    assert!(
        answer
            .header
            .contains("access-control-allow-headers: authorization, ")
    );
    let evil = "Origin: https://evil.example\r\n";
    assert_eq!(feeding.refused("OPTIONS /", evil).0, 403);
    feeding.stop();
}

#[test]
fn escapes_in_path_and_query_are_decoded() {
    let feeding = Feeding::start(feed("127.0.0.1:0").path("/my feed").token("a+b&"));
    Events::connect(&feeding.feed, "/my%20f%65ed?x=%20&tok%65n=a+b%26", "");
    Events::connect(&feeding.feed, "/my%20feed?token=a%2Bb%26", "");
    let token = "Authorization: Bearer a+b&\r\n";
    let (status, line) = feeding.refused("GET /my%2feed", token);
    assert_eq!((status, &*line), (404, "no such path: /my%2feed\n"));
    let (status, line) = feeding.refused("GET /my%zzfeed", token);
    let expected = "the path: \"%zz\" is no escape: that is % and two hexadecimal digits\n";
    assert_eq!((status, &*line), (400, expected));
    let (status, line) = feeding.refused("GET /?token=%4", "");
    let expected = "the query: \"%4\" is no escape: that is % and two hexadecimal digits\n";
    assert_eq!((status, &*line), (400, expected));
    feeding.stop();
}

#[test]
fn a_token_is_in_a_header_or_in_the_url() {
    let feeding = Feeding::start(feed("127.0.0.1:0").path("/feed").token("sec-ret"));
    assert_eq!(feeding.refused("GET /feed", "").0, 401);
    assert_eq!(feeding.refused("GET /feed?token=wrong", "").0, 403);
    assert_eq!(feeding.refused("GET /feed?token=sec-re", "").0, 403);
    assert_eq!(
        feeding
            .refused("GET /feed", "Authorization: Bearer wrong\r\n")
            .0,
        403
    );
    Events::connect(&feeding.feed, "/feed?from=page&token=sec-ret", "");
    Events::connect(&feeding.feed, "/feed", "Authorization: Bearer sec-ret\r\n");
    feeding.stop();
}

#[test]
fn other_requests_are_refused_with_one_line() {
    let feeding = Feeding::start(feed("127.0.0.1:0"));
    assert_eq!(
        feeding.refused("GET /other", ""),
        (404, "no such path: /other\n".into())
    );
    assert_eq!(
        feeding.refused("POST /", ""),
        (405, "the method is GET, not POST\n".into())
    );
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let (status, body) = feeding.refused("GET /", upgrade);
    assert_eq!(
        (status, &*body),
        (
            400,
            "the version of WebSocket is 13: Sec-WebSocket-Version: 13\n"
        )
    );
    let no_key = format!("{upgrade}Sec-WebSocket-Version: 13\r\n");
    assert_eq!(feeding.refused("GET /", &no_key).0, 400);
    let mut client = Client::new(&feeding.feed);
    client.write("garbage\r\n\r\n");
    assert_eq!(client.read().unwrap().status, 400);
    // A refused client may send another request on the connection.
    let mut client = Client::new(&feeding.feed);
    assert_eq!(client.request("GET /other", "", "").status, 404);
    client.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.read().unwrap().status, 200);
    feeding.stop();
}

#[test]
fn a_client_without_an_answer_to_pings_is_disconnected() {
    let timeout = Duration::from_secs(1);
    let feeding = Feeding::start(feed("127.0.0.1:0").timeout(timeout));
    let mut socket = WebSocket::open(&feeding.feed);
    let mut pings = 0;
    while let Some((first, _)) = socket.next() {
        assert_eq!(first, PING);
        pings += 1;
        // The first three are answered.
        if pings <= 3 {
            socket.write(PONG, b"");
        }
    }
    assert!((4..=6).contains(&pings), "{pings}");
    feeding.stop();
}

#[test]
fn clients_that_leave_or_say_rubbish_do_not_disturb_others() {
    let mut feeding = Feeding::start(feed("127.0.0.1:0"));
    let mut stays = Events::open(&feeding.feed);
    drop(Events::open(&feeding.feed));
    drop(WebSocket::open(&feeding.feed));
    let mut rubbish = WebSocket::open(&feeding.feed);
    rubbish.0.get_mut().write_all(&[0xff; 64]).unwrap();
    let mut closes = WebSocket::open(&feeding.feed);
    closes.write(CLOSE, &1000u16.to_be_bytes());
    assert_eq!(closes.next(), Some((CLOSE, 1000u16.to_be_bytes().to_vec())));
    assert_eq!(closes.next(), None);
    while rubbish.next().is_some() {}
    feeding.post("item");
    assert_eq!(stays.next().as_deref(), Some("item"));
    feeding.stop();
}

#[test]
fn a_unix_socket_is_served_and_its_file_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feed");
    let feeding = Feeding::start(feed(&format!("unix:{}", path.display())));
    assert_eq!(feeding.refused("GET /other", "").0, 404);
    feeding.stop();
    assert!(!path.exists());
}

#[test]
fn what_cannot_be_fed_fails_the_flow() {
    let mut feeding = Feeding::start(feed("127.0.0.1:0"));
    feeding
        .posts
        .write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n\xff\xfe");
    let error = format!("{:?}", feeding.running.wait().unwrap_err());
    assert!(error.contains("a feed is of text in UTF-8"), "{error}");
}

#[test]
fn wrong_options_and_an_address_in_use_fail_the_start() {
    let used = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = used.local_addr().unwrap().to_string();
    let wrong = [
        (feed(&address), &*address),
        (feed("127.0.0.1:0").path("feed"), "the path begins with /"),
        (
            feed("127.0.0.1:0").token("a b"),
            "a token is one or more visible ASCII characters",
        ),
        (
            feed("127.0.0.1:0").origin("example.org"),
            "an origin is like",
        ),
        (
            feed("127.0.0.1:0").path("/%4"),
            "the path /%4: \"%4\" is no escape",
        ),
    ];
    for (feed, expected) in wrong {
        let flow = Flow::new("wrong");
        let items = millstream_flow::testing::items(["a"]);
        flow.source("in", items)
            .sink("feed", codec::encode(feed, codec::display));
        let error = format!("{:?}", flow.run(options(None)).unwrap_err());
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_workers_share_one_feed() {
    let (connected, client) = channel();
    let feed = feed("127.0.0.1:0").on_bound(move |address| {
        connected.send(Events::open(address)).unwrap();
    });
    let flow = Flow::new("workers");
    let items = millstream_flow::testing::items(0..1000_u32);
    flow.source("in", items)
        .key_by(|item: &u32| *item % 7)
        .stateful("kept", |_| (), |(), _, item: u32| [item])
        .values()
        .sink("feed", codec::encode(feed, codec::display));
    let mut options = options(None);
    options.workers = 3.try_into().unwrap();
    flow.run(options).unwrap();
    let mut client = client.recv().unwrap();
    let mut items: Vec<u32> = std::iter::from_fn(|| client.next())
        .map(|item| item.parse().unwrap())
        .collect();
    items.sort_unstable();
    assert!(items.into_iter().eq(0..1000));
}
