//! The gateway of services: requests to calls of a journal, and calls of a journal to feeds.

use std::path::Path;
use std::thread;
use std::time::Duration;

use millstream_http::{Gateway, GatewayServer, gateway};
use millstream_journal::{Journal, Options, Sync};
use millstream_service::{Calls, Content, Service, Settings, publisher};
use millstream_wire::{Call, Interface, NamedValues};

use crate::feed::Events;
use crate::support::{Answer, Client};

#[millstream_wire::interface]
pub(crate) trait Orders {
    fn place(&mut self, symbol: &str, quantity: u32);
    fn cancel(&mut self, symbol: &str);
    fn close(&mut self);
}

#[millstream_wire::interface]
pub(crate) trait Limits {
    fn limit(&mut self, most: u32);
}

#[millstream_wire::interface]
pub(crate) trait Replies {
    fn accepted(&mut self, symbol: &str, total: u32);
}

/// A component of both.
pub(crate) struct Desk<R> {
    pub(crate) replies: R,
    pub(crate) total: u32,
}

impl<R: Replies> Orders for Desk<R> {
    fn place(&mut self, symbol: &str, quantity: u32) {
        self.total += quantity;
        self.replies.accepted(symbol, self.total);
    }
    fn cancel(&mut self, _: &str) {}
    fn close(&mut self) {}
}

pub(crate) fn orders(folder: &Path) -> Gateway {
    let schema = <dyn Orders>::schema().unwrap();
    gateway("127.0.0.1:0").calls(folder.join("orders"), [schema])
}

pub(crate) fn client(server: &GatewayServer) -> Client {
    Client::new(server.address())
}

fn json(arguments: &Call) -> String {
    serde_json::to_string(&NamedValues(&arguments.arguments)).unwrap()
}

/// The calls of a journal: number, method, arguments.
pub(crate) fn recorded(journal: &Path) -> Vec<(u64, String, String)> {
    let journal = Journal::open(journal, Options::read_only()).unwrap();
    let mut reader = journal.reader().unwrap();
    let mut calls = Calls::of(&journal);
    let mut found = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        if let Content::Call(call, lineage) = calls.read(record.sequence, record.body).unwrap() {
            assert_eq!(lineage, None);
            found.push((record.sequence, call.method.clone(), json(&call)));
        }
    }
    found
}

#[test]
fn a_request_is_a_call() {
    let folder = tempfile::tempdir().unwrap();
    for sync in [
        Sync::Always,
        Sync::Never,
        Sync::Every(Duration::from_millis(10)),
    ] {
        let path = folder.path().join(sync.to_string());
        let server = orders(&path).sync(sync).start().unwrap();
        let mut client = client(&server);
        let kind = "Content-Type: application/json; charset=utf-8\r\n";
        let body = r#"{"quantity": 7, "symbol": "VOD.L"}"#;
        let Answer { status, body, .. } = client.request("POST /Orders/place", kind, body);
        let expected = "{\"journal\":\"orders\",\"sequence\":1}\n";
        assert_eq!((status, body.as_str()), (200, expected));
        assert_eq!(client.request("POST /Orders/close", "", "").status, 200);
        drop(server);

        // A later gateway adds to the journal.
        let server = orders(&path).sync(sync).start().unwrap();
        let mut client = self::client(&server);
        let answer = client.request("POST /Ord%65rs/c%61ncel?x=1", "", r#"{"symbol": "A"}"#);
        assert_eq!(answer.status, 200);
        let calls = recorded(&path.join("orders"));
        let shown: Vec<_> = calls.iter().map(|(_, m, a)| format!("{m} {a}")).collect();
        let expected = [
            r#"place {"symbol":"VOD.L","quantity":7}"#,
            "close {}",
            r#"cancel {"symbol":"A"}"#,
        ];
        assert_eq!(shown, expected);
    }
}

const PLACE: &str = "POST /Orders/place";
const GOOD: &str = r#"{"symbol": "A", "quantity": 1}"#;
/// More than 100 bytes.
const LONG: &str = r#"{"symbol": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "quantity": 1}"#;

/// Request line, header, body; status and line of the answer.
const REFUSED: [(&str, &str, &str, u16, &str); 21] = [
    (
        PLACE,
        "",
        "",
        400,
        "place.symbol: the argument is missing and has no default",
    ),
    (
        PLACE,
        "",
        r#"{"symbol": 1, "quantity": 1}"#,
        400,
        "place.symbol: expected str, found 1",
    ),
    (
        PLACE,
        "",
        r#"{"symbol": "A", "quantity": -1}"#,
        400,
        "place.quantity: -1 is out of range for u32",
    ),
    (
        PLACE,
        "",
        r#"{"symbol": "A", "quantity": "1"}"#,
        400,
        r#"place.quantity: expected u32, found "1""#,
    ),
    (
        PLACE,
        "",
        r#"{"symbol": "A", "quantty": 1}"#,
        400,
        r#"place: there is no argument "quantty""#,
    ),
    (
        PLACE,
        "",
        r#"["A", 1]"#,
        400,
        "place: expected an object of arguments by name, found an array",
    ),
    (
        PLACE,
        "",
        "{",
        400,
        "place: no JSON: EOF while parsing an object at line 1 column 1",
    ),
    (
        PLACE,
        "Content-Type: text/plain\r\n",
        GOOD,
        415,
        "the content type is application/json, not text/plain",
    ),
    (
        PLACE,
        "Content-Encoding: gzip\r\n",
        GOOD,
        415,
        "the content encoding gzip is not supported",
    ),
    (PLACE, "", LONG, 413, "the body is larger than 100 bytes"),
    (
        PLACE,
        "Origin: https://evil.example\r\n",
        GOOD,
        403,
        "pages of the origin https://evil.example are not accepted",
    ),
    (
        "POST /Orders/placed",
        "",
        GOOD,
        404,
        "the interface Orders has no method placed; it has place, cancel, close",
    ),
    (
        "POST /Order/place",
        "",
        GOOD,
        404,
        "there is no interface Order; there is Orders",
    ),
    (
        "POST /orders/place",
        "",
        GOOD,
        404,
        "there is no interface orders; there is Orders",
    ),
    (
        "POST /Orders/pl%2",
        "",
        GOOD,
        400,
        "the path: \"%2\" is no escape: that is % and two hexadecimal digits",
    ),
    (
        "POST /Orders%2Fplace",
        "",
        GOOD,
        404,
        "no such path: /Orders%2Fplace; a call is /INTERFACE/METHOD, a feed /feeds/NAME, a state /state/NAME",
    ),
    (
        "POST /",
        "",
        GOOD,
        404,
        "no such path: /; a call is /INTERFACE/METHOD, a feed /feeds/NAME, a state /state/NAME",
    ),
    (
        "POST /Orders/place/x",
        "",
        GOOD,
        404,
        "no such path: /Orders/place/x; a call is /INTERFACE/METHOD, a feed /feeds/NAME, a state /state/NAME",
    ),
    (
        "GET /feeds/replies",
        "",
        "",
        404,
        "there is no interface feeds; there is Orders",
    ),
    (
        "GET /Orders/place",
        "",
        "",
        405,
        "the method is POST, not GET",
    ),
    (
        "OPTIONS /Orders/place",
        "",
        "",
        405,
        "the method is POST, not OPTIONS",
    ),
];

#[test]
fn a_refusal_names_what_is_wrong_and_records_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = orders(folder.path()).max_body(100).start().unwrap();
    for (line, header, body, status, expected) in REFUSED {
        let answer = client(&server).request(line, header, body);
        let expected = format!("{expected}\n");
        assert_eq!(
            (answer.status, answer.body),
            (status, expected),
            "{line} {body}"
        );
    }
    // A body whose length is not declared.
    let mut client = client(&server);
    client.write("POST /Orders/place HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.write(format!("{:x}\r\n{LONG}\r\n0\r\n\r\n", LONG.len()));
    assert_eq!(client.read().unwrap().status, 413);
    assert_eq!(recorded(&folder.path().join("orders")), []);
    server.wait(Duration::ZERO).unwrap();
}

#[test]
fn a_token_and_an_origin_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let server = orders(folder.path()).feed(folder.path().join("orders"));
    let server = server
        .token("s3cret")
        .origin("https://shop.example")
        .start()
        .unwrap();
    let post = |header: &str| client(&server).request("POST /Orders/close", header, "");
    let none = post("");
    let wrong = post("Authorization: Bearer s3cre\r\n");
    assert_eq!((none.status, wrong.status), (401, 403));
    assert!(
        none.header.contains("www-authenticate: bearer"),
        "{}",
        none.header
    );
    assert_eq!(post("Authorization: Bearer s3cret\r\n").status, 200);
    assert_eq!(
        client(&server)
            .request("POST /Orders/close?token=s3cret", "", "")
            .status,
        401
    );
    assert_eq!(
        client(&server).request("GET /feeds/orders", "", "").status,
        401
    );

    // A page asks first, without the token.
    let asked = "Origin: https://shop.example\r\nAccess-Control-Request-Method: POST\r\n";
    let preflight = client(&server).request("OPTIONS /Orders/close", asked, "");
    assert_eq!(preflight.status, 204);
    for line in [
        "access-control-allow-origin: https://shop.example",
        "access-control-allow-headers: authorization, content-type, idempotency-key",
        "access-control-allow-methods: get, post",
    ] {
        assert!(preflight.header.contains(line), "{}", preflight.header);
    }
    let page = "Origin: https://shop.example\r\nAuthorization: Bearer s3cret\r\n";
    let answer = post(page);
    assert_eq!(answer.status, 200);
    assert!(
        answer
            .header
            .contains("access-control-allow-origin: https://shop.example")
    );
    let exposed = "access-control-expose-headers: idempotent-replayed";
    assert!(answer.header.contains(exposed), "{}", answer.header);
    let other = "Origin: https://other.example\r\n";
    let refused = client(&server).request("OPTIONS /Orders/close", other, "");
    assert_eq!(refused.status, 403);
    assert!(
        !refused.header.contains("access-control"),
        "{}",
        refused.header
    );
    assert_eq!(recorded(&folder.path().join("orders")).len(), 2);
}

#[test]
fn a_feed_has_the_calls_from_now_on_with_their_causes() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = folder.path().join("orders");
    let outputs = folder.path().join("replies");
    let server = orders(folder.path())
        .feed(&inputs)
        .feed(&outputs)
        .start()
        .unwrap();
    let (mut calls, _) = Events::connect(server.address(), "/feeds/orders", "");
    // Its journal does not exist yet.
    let (mut replies, _) = Events::connect(server.address(), "/feeds/replies", "");
    let mut client = client(&server);
    for quantity in 1..=3 {
        let body = format!(r#"{{"symbol": "A\n", "quantity": {quantity}}}"#);
        assert_eq!(client.request("POST /Orders/place", "", &body).status, 200);
    }
    let journal = Journal::open(&inputs, Options::default()).unwrap();
    let out = Journal::open(&outputs, Options::default()).unwrap();
    let service = Service::new(&out).unwrap();
    let desk = Desk {
        replies: service.publisher::<dyn Replies>().unwrap(),
        total: 0,
    };
    let setup = service
        .component(desk)
        .input::<dyn Orders>(&journal)
        .unwrap();
    setup.start(Settings::default()).unwrap().drain().unwrap();

    let mut place = None;
    for quantity in 1..=3 {
        let item: serde_json::Value = serde_json::from_str(&calls.next().unwrap()).unwrap();
        let arguments = serde_json::json!({"symbol": "A\n", "quantity": quantity});
        assert_eq!(
            (&item["sequence"], &item["method"]),
            (&quantity.into(), &"place".into())
        );
        assert_eq!(
            (&item["arguments"], item.get("effect_of")),
            (&arguments, None)
        );
        place = Some(item);
    }
    for (at, total) in [1, 3, 6].into_iter().enumerate() {
        let item: serde_json::Value = serde_json::from_str(&replies.next().unwrap()).unwrap();
        assert_eq!(item["arguments"]["total"], total);
        assert_eq!(item["effect_of"]["sequence"], at + 1);
        assert!(
            item["effect_of"]["journal"]
                .as_str()
                .unwrap()
                .ends_with("orders"),
            "{item}"
        );
    }
    assert!(place.unwrap()["time"].as_str().unwrap().ends_with('Z'));

    // A client that comes later misses what was before.
    let (mut later, _) = Events::connect(server.address(), "/feeds/replies", "");
    let mut more = publisher::<dyn Replies>(&out).unwrap();
    more.accepted("B", 7);
    assert!(
        later
            .next()
            .unwrap()
            .contains(r#""arguments":{"symbol":"B","total":7}"#)
    );
    drop(server);
    assert_eq!(later.next(), None);
}

#[test]
fn every_answered_call_is_recorded_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = orders(folder.path()).start().unwrap();
    let post = |name: u32| {
        let mut client = client(&server);
        let call = move |quantity| {
            let body = format!(r#"{{"symbol": "{name}", "quantity": {quantity}}}"#);
            let answer = client.request("POST /Orders/place", "", &body);
            let answer: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
            let arguments = format!(r#"{{"symbol":"{name}","quantity":{quantity}}}"#);
            (
                answer["sequence"].as_u64().unwrap(),
                "place".to_owned(),
                arguments,
            )
        };
        (0..50).map(call).collect::<Vec<_>>()
    };
    let mut answered: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|name| scope.spawn(move || post(name))).collect();
        clients
            .into_iter()
            .flat_map(|it| it.join().unwrap())
            .collect()
    });
    answered.sort();
    assert_eq!(recorded(&folder.path().join("orders")), answered);
}

#[test]
fn a_gateway_that_cannot_work_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let error = |gateway: Gateway| gateway.start().err().unwrap().to_string();
    let empty = gateway("127.0.0.1:0");
    assert_eq!(
        error(empty.clone()),
        "a gateway has calls, feeds, or states"
    );
    let limits = || <dyn Limits>::schema().unwrap();
    let twice = empty.clone().calls("a", [limits()]).calls("b", [limits()]);
    let line = "the interface Limits is of a and of b; a gateway records its calls in one journal";
    assert_eq!(error(twice), line);
    let feeds = empty.clone().feed("x/a").feed("y/a");
    assert_eq!(error(feeds), "x/a and y/a are feeds of one name");
    let none = "/: feeds are named by the last part of their path, in UTF-8";
    assert_eq!(error(empty.clone().feed("/")), none);
    let line = "a token is one or more visible ASCII characters";
    assert_eq!(error(empty.clone().feed(at("a")).token("a b")), line);
    std::fs::write(at("file"), "no journal").unwrap();
    assert!(error(empty.clone().calls(at("file"), [limits()])).contains("file"));
    let server = empty.feed(at("a")).start().unwrap();
    let taken = error(gateway(server.address()).feed(at("a")));
    assert!(taken.contains(server.address()), "{taken}");
}

#[test]
fn a_journal_that_cannot_be_read_fails_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines");
    let journal = Journal::open(&path, Options::default()).unwrap();
    let server = gateway("127.0.0.1:0").feed(&path).start().unwrap();
    let writer = journal.writer().unwrap();
    writer.append(b"no call").unwrap();
    let error = loop {
        if let Err(cause) = server.wait(Duration::from_secs(60)) {
            break millstream_journal::chain(&*cause).to_string();
        }
    };
    assert!(error.contains("lines: record 0: "), "{error}");
}
