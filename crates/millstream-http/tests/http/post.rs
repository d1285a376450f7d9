//! Sinks that post, against a server whose answers the test writes.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_flow::outbox::{Backoff, Outbox};
use millstream_flow::{Flow, FlowError, Options, Recovery, codec, testing};
use millstream_http::{Batch, Post, post};

/// The head of a request in lower case, its idempotency key, and its body.
#[derive(Clone, Debug)]
struct Request {
    head: String,
    key: String,
    body: String,
}

/// Answers each request with the next text, the last one for ever; an empty text closes the connection.
struct Server {
    url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

impl Server {
    fn start(answers: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/in", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let answers = answers.iter().map(|answer| (*answer).to_owned());
        let answers: Vec<String> = answers.collect();
        let seen = Arc::clone(&requests);
        std::thread::Builder::new()
            .spawn(move || {
                for stream in listener.incoming() {
                    serve(stream.unwrap(), &answers, &seen);
                }
            })
            .unwrap();
        Server { url, requests }
    }

    fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    fn bodies(&self) -> Vec<String> {
        self.requests()
            .into_iter()
            .map(|request| request.body)
            .collect()
    }
}

fn serve(stream: TcpStream, answers: &[String], seen: &Mutex<Vec<Request>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        let mut key = String::new();
        let mut length = 0;
        loop {
            let mut line = String::new();
            match stream.read_line(&mut line) {
                Ok(read) if read > 0 => {}
                _ => return,
            }
            if line == "\r\n" {
                break;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if lower.starts_with("idempotency-key:") {
                key = line["idempotency-key:".len()..].trim().to_owned();
            }
            head += &lower;
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        let answer = {
            let mut seen = seen.lock().unwrap();
            seen.push(Request { head, key, body });
            answers[(seen.len() - 1).min(answers.len() - 1)].clone()
        };
        if answer.is_empty() {
            return;
        }
        stream.get_mut().write_all(answer.as_bytes()).unwrap();
    }
}

fn run(post: Post, items: &[&str], state: Option<&Path>) -> Result<(), FlowError> {
    run_outbox(Outbox::new(post), items, state)
}

fn run_outbox(outbox: Outbox, items: &[&str], state: Option<&Path>) -> Result<(), FlowError> {
    let items: Vec<String> = items.iter().map(|item| (*item).to_owned()).collect();
    let backoff = Backoff {
        first: Duration::from_millis(5),
        tries: Some(6),
        ..Backoff::default()
    };
    let flow = Flow::new("größe");
    flow.source("in", testing::items(items)).sink(
        "out",
        codec::encode(outbox.backoff(backoff), codec::display),
    );
    // One epoch, and so one batch.
    let epoch = Duration::from_secs(600);
    let options = Options {
        recovery: state.map(|state| Recovery::new(state).epoch(epoch)),
        ..Options::default()
    };
    flow.run(options).map(drop)
}

fn text(error: &FlowError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

#[test]
fn a_batch_is_an_array_lines_or_requests() {
    let cases: [(Batch, &[&str], &str); 3] = [
        (Batch::Array, &["[1,\"x\"]"], "application/json"),
        (Batch::Lines, &["1\n\"x\"\n"], "application/x-ndjson"),
        (Batch::Each, &["1", "\"x\""], "application/json"),
    ];
    for (batch, bodies, kind) in cases {
        let server = Server::start(&[OK]);
        let folder = tempfile::tempdir().unwrap();
        let post = post(&server.url)
            .batch(batch)
            .token("secret")
            .header("X-Of", "me");
        run(post, &["1", "\"x\""], Some(folder.path())).unwrap();
        assert_eq!(server.bodies(), bodies);
        for (number, request) in server.requests().iter().enumerate() {
            assert!(
                request.head.starts_with("post /in http/1.1\r\n"),
                "{request:?}"
            );
            assert!(
                request.head.contains(&format!("content-type: {kind}\r\n")),
                "{request:?}"
            );
            assert!(
                request.head.contains("authorization: bearer secret\r\n"),
                "{request:?}"
            );
            assert!(request.head.contains("x-of: me\r\n"), "{request:?}");
            assert!(
                request.key.starts_with("gr%c3%b6%c3%9fe-out-"),
                "{request:?}"
            );
            let range = match batch {
                Batch::Each => format!("-{number}-{number}"),
                _ => "-0-1".to_owned(),
            };
            assert!(request.key.ends_with(&range), "{request:?}");
        }
    }
}

#[test]
fn a_delivery_that_may_succeed_later_is_repeated_with_its_key() {
    let answers = [
        "",
        "HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\nno",
        "rubbish\r\n\r\n",
        "HTTP/1.1 429 Slow\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 503 Away\r\nRetry-After: rubbish\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
    ];
    for durable in [true, false] {
        let server = Server::start(&answers);
        let folder = tempfile::tempdir().unwrap();
        let state = durable.then_some(folder.path());
        run(post(&server.url), &["1"], state).unwrap();
        let requests = server.requests();
        assert_eq!(requests.len(), answers.len());
        assert!(requests.iter().all(|request| request.body == "[1]"));
        assert!(
            requests
                .iter()
                .all(|request| request.key == requests[0].key),
            "{requests:?}"
        );
    }
}

#[test]
fn a_refusal_fails_the_flow_and_the_next_start_delivers() {
    let folder = tempfile::tempdir().unwrap();
    for status in ["301 Moved Permanently", "401 Unauthorized", "404 Not Found"] {
        let refusal = format!(
            "HTTP/1.1 {status}\r\nLocation: /other\r\nContent-Length: 11\r\n\r\nwhat\r\nelse\n"
        );
        let server = Server::start(&[&refusal]);
        let error = text(&run(post(&server.url), &["1", "2"], Some(folder.path())).unwrap_err());
        assert!(
            error.contains(&format!("http post {}", server.url)),
            "{error}"
        );
        assert!(
            error.contains(&format!("the answer is {status}: what")),
            "{error}"
        );
        assert!(error.contains("records 0 to 1"), "{error}");
        assert_eq!(server.requests().len(), 1);
    }
    let server = Server::start(&[OK]);
    run(post(&server.url), &["1", "2"], Some(folder.path())).unwrap();
    assert_eq!(server.bodies(), ["[1,2]"]);
}

#[test]
fn refused_records_can_be_skipped() {
    let refusal = "HTTP/1.1 422 Bad\r\nContent-Length: 0\r\n\r\n";
    let server = Server::start(&[OK, refusal, OK]);
    let folder = tempfile::tempdir().unwrap();
    let post = Outbox::new(post(&server.url).batch(Batch::Each)).skip_refused();
    run_outbox(post, &["1", "2", "3"], Some(folder.path())).unwrap();
    assert_eq!(server.bodies(), ["1", "2", "3"]);
}

#[test]
fn a_batch_with_a_refused_record_is_halved_until_it_is_alone() {
    let refusal = "HTTP/1.1 400 Bad Request\r\nContent-Length: 4\r\n\r\nwhat";
    let folder = tempfile::tempdir().unwrap();
    // The third of four records is refused.
    let server = Server::start(&[refusal, OK, refusal, refusal]);
    let items = ["1", "2", "3", "4"];
    let error = text(&run(post(&server.url), &items, Some(folder.path())).unwrap_err());
    let bodies = ["[1,2,3,4]", "[1,2]", "[3,4]", "[3]"];
    assert_eq!(server.bodies(), bodies, "{error}");
    assert!(error.contains("record 2"), "{error}");
    assert!(error.contains("400 Bad Request: what"), "{error}");
}

#[test]
fn a_server_that_is_not_there_or_silent_uses_up_the_attempts() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let error = text(&run(post(&format!("http://{address}/")), &["1"], None).unwrap_err());
    assert!(
        error.contains(&address.to_string()) && error.contains("refused"),
        "{error}"
    );
    // Its connections wait in the system's queue.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let post = post(&url).timeout(Duration::from_millis(20));
    let error = text(&run(post, &["1"], None).unwrap_err());
    assert!(error.contains("timeout"), "{error}");
}

#[test]
fn a_server_without_tls_is_an_error_of_the_connection() {
    let server = Server::start(&[OK]);
    let url = server.url.replace("http://", "https://");
    let error = text(&run(post(&url), &["1"], None).unwrap_err());
    assert!(error.contains(&url), "{error}");
}

#[test]
fn what_cannot_be_posted_is_named_and_secrets_are_not_shown() {
    let cases = [
        (post("example.com/in"), "begins with http:// or https://"),
        (post("ftp://example.com"), "begins with http:// or https://"),
        (post("http://"), "URL"),
        (post("http://me:secret@example.com/"), "pass it as a header"),
        (post("http://example.com/").header("a b", "1"), "\"a b\""),
        (
            post("http://example.com/").token("secret\n"),
            "the header authorization",
        ),
        (
            post("http://127.0.0.1:1/").batch(Batch::Lines),
            "record 0 contains a line end",
        ),
    ];
    for (post, says) in cases {
        let error = text(&run(post, &["1\n2"], None).unwrap_err());
        assert!(error.contains(says) && !error.contains("secret"), "{error}");
    }
}
