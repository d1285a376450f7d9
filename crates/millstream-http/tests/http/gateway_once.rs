//! Requests with the header `Idempotency-Key`: one that is repeated is one call.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use millstream_http::gateway;
use millstream_journal::{Journal, Options, Retention};
use millstream_service::json::Value;
use millstream_service::publisher;
use millstream_wire::{Field, Interface, Method, Schema, Type};

use crate::gateway::{Limits, Orders, client, orders, recorded};
use crate::gateway_answers::{answered, while_served};
use crate::support::{Answer, Client};

const PLACE: &str = "POST /Orders/place";
const BODY: &str = r#"{"symbol": "A", "quantity": 2}"#;

fn keyed(client: &mut Client, line: &str, key: &str, body: &str) -> Answer {
    client.request(line, &format!("Idempotency-Key: {key}\r\n"), body)
}

fn is_repeated(answer: &Answer) -> bool {
    answer.header.contains("idempotent-replayed: true\r\n")
}

/// The record that an answer names.
fn number(answer: &Answer) -> u64 {
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    body["sequence"].as_u64().unwrap()
}

fn journal(folder: &Path, name: &str) -> Journal {
    Journal::open(folder.join(name), Options::default()).unwrap()
}

#[test]
fn a_repeated_request_is_one_call_also_after_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Vec::new();
    for start in 0..3 {
        let server = orders(folder.path()).start().unwrap();
        let mut client = client(&server);
        for key in ["a", "b", "\"c\""] {
            let answer = keyed(&mut client, PLACE, key, BODY);
            assert_eq!(
                (answer.status, is_repeated(&answer)),
                (200, start > 0),
                "{}",
                answer.body
            );
            first.push(answer.body);
        }
        // Another call between them: without a key each request is one.
        assert_eq!(client.request(PLACE, "", BODY).status, 200);
        // The arguments in another order are the same call.
        let answer = keyed(&mut client, PLACE, "a", r#"{"quantity": 2, "symbol": "A"}"#);
        assert_eq!((&answer.body, is_repeated(&answer)), (&first[0], true));
    }
    assert_eq!((&first[..3], &first[..3]), (&first[3..6], &first[6..]));
    assert_eq!(recorded(&folder.path().join("orders")).len(), 6);
}

#[test]
fn the_key_of_another_call_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let schemas = [
        <dyn Orders>::schema().unwrap(),
        <dyn Limits>::schema().unwrap(),
    ];
    let server = gateway("127.0.0.1:0").calls(folder.path().join("orders"), schemas);
    let server = server.start().unwrap();
    let mut client = client(&server);
    assert_eq!(keyed(&mut client, PLACE, "k", BODY).status, 200);
    assert_eq!(
        keyed(&mut client, "POST /Limits/limit", "m", r#"{"most": 1}"#).status,
        200
    );
    let line = "the key k is of another call, record 2 of orders; a new call needs a new key\n";
    for (request, body) in [
        (PLACE, r#"{"symbol": "A", "quantity": 3}"#),
        (PLACE, "{}"),
        ("POST /Orders/cancel", r#"{"symbol": "A"}"#),
        ("POST /Limits/limit", r#"{"most": 1}"#),
    ] {
        let answer = keyed(&mut client, request, "k", body);
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (422, line),
            "{request} {body}"
        );
    }
    assert_eq!(recorded(&folder.path().join("orders")).len(), 2);
}

#[test]
fn a_header_that_is_no_key_is_refused_and_a_call_that_is_refused_has_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let server = orders(folder.path()).start().unwrap();
    let mut client = client(&server);
    let longest = "k".repeat(1024);
    let line = "the header Idempotency-Key is one key of 1 to 1024 visible characters of ASCII\n";
    for key in [
        "",
        "a b",
        "\u{e9}",
        &format!("{longest}k"),
        "a\r\nIdempotency-Key: a",
    ] {
        let answer = keyed(&mut client, PLACE, key, BODY);
        assert_eq!((answer.status, answer.body.as_str()), (400, line), "{key}");
    }
    assert_eq!(keyed(&mut client, PLACE, "k", "{}").status, 400);
    for key in ["k", &longest] {
        let answer = keyed(&mut client, PLACE, key, BODY);
        assert_eq!((answer.status, is_repeated(&answer)), (200, false));
    }
    let error = orders(folder.path())
        .idempotency_keep(Duration::from_millis(999))
        .start();
    let error = error.err().unwrap().to_string();
    assert_eq!(error, "the keys of calls are kept for at least 1 s");
}

#[test]
fn gateways_and_publishers_of_one_journal_record_a_key_once() {
    let folder = tempfile::tempdir().unwrap();
    let servers = [(); 2].map(|()| orders(folder.path()).start().unwrap());
    let server = &servers;
    let folder = folder.path();
    let numbers: Vec<BTreeMap<String, u64>> = thread::scope(|scope| {
        let clients: Vec<_> = { (0..4).map(|it| client(&server[it % 2])) }
            .map(|mut client| {
                scope.spawn(move || {
                    let posts = (0..60).map(|turn| {
                        let key = format!("k{}", turn % 40);
                        let body = format!(r#"{{"symbol": "{key}", "quantity": 1}}"#);
                        let answer = keyed(&mut client, PLACE, &key, &body);
                        assert_eq!(answer.status, 200, "{}", answer.body);
                        (key, number(&answer))
                    });
                    posts.collect()
                })
            })
            .collect();
        let mut publisher = publisher::<dyn Orders>(&journal(folder, "orders")).unwrap();
        (0..200).for_each(|quantity| publisher.place("published", quantity));
        clients.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert!(numbers.iter().all(|it| *it == numbers[0]), "{numbers:?}");
    let calls = recorded(&folder.join("orders"));
    assert_eq!(calls.len(), 240);
    for (number, _, arguments) in calls {
        let call: Value = serde_json::from_str(&arguments).unwrap();
        if let Some(expected) = numbers[0].get(call["symbol"].as_str().unwrap()) {
            assert_eq!(*expected, number, "{arguments}");
        }
    }
}

#[test]
fn a_repeat_receives_the_answer_of_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let line = "POST /Orders/place?answer=1";
    let server = answered(folder.path()).start().unwrap();
    let late = keyed(
        &mut client(&server),
        &format!("{line}&timeout=0.01"),
        "late",
        BODY,
    );
    assert_eq!((late.status, is_repeated(&late)), (504, false));
    let again = keyed(
        &mut client(&server),
        &format!("{line}&timeout=0.01"),
        "late",
        BODY,
    );
    assert_eq!(
        (again.status, is_repeated(&again), again.body),
        (504, true, late.body)
    );
    let mut first = BTreeMap::new();
    while_served(folder.path(), "replies", || {
        // Both wait for the same call.
        let (again, other) = thread::scope(|scope| {
            let other = scope.spawn(|| keyed(&mut client(&server), line, "late", BODY));
            (
                keyed(&mut client(&server), line, "late", BODY),
                other.join().unwrap(),
            )
        });
        assert_eq!((again.status, &again.body), (200, &other.body));
        first.insert("late".to_owned(), again.body);
        let mut client = client(&server);
        for key in (0..5).map(|it| it.to_string()) {
            let answer = keyed(&mut client, line, &key, BODY);
            assert_eq!((answer.status, is_repeated(&answer)), (200, false));
            first.insert(key, answer.body);
            // It has no output.
            let cancel = keyed(
                &mut client,
                "POST /Orders/cancel",
                "cancel",
                r#"{"symbol": "A"}"#,
            );
            assert_eq!(cancel.status, 200);
        }
    });
    // A later gateway, and no service that runs.
    drop(server);
    let server = answered(folder.path()).start().unwrap();
    let mut client = client(&server);
    for (key, body) in &first {
        let answer = keyed(&mut client, line, key, BODY);
        assert_eq!(
            (answer.status, is_repeated(&answer), &answer.body),
            (200, true, body)
        );
    }
    let cancel = "POST /Orders/cancel?answer=1";
    let answer = keyed(&mut client, cancel, "cancel", r#"{"symbol": "A"}"#);
    assert!(
        answer.body.ends_with(",\"answer\":null}\n"),
        "{}",
        answer.body
    );
}

#[test]
fn a_pruned_answer_is_distinguished_from_none() {
    let folder = tempfile::tempdir().unwrap();
    let small = Options::default().with_segment_bytes(256 << 10);
    let replies = Journal::open(folder.path().join("replies"), small).unwrap();
    let server = answered(folder.path()).start().unwrap();
    let line = "POST /Orders/place?answer=1";
    let long = format!(r#"{{"symbol": "{}", "quantity": 1}}"#, "x".repeat(60_000));
    while_served(folder.path(), "replies", || {
        let mut client = client(&server);
        let answer = keyed(&mut client, line, "old", BODY);
        assert_eq!(answer.status, 200, "{}", answer.body);
        // Several segments: the one with the answer is found among them.
        for turn in 0..60 {
            let answer = keyed(&mut client, line, &format!("long-{turn}"), &long);
            assert_eq!(answer.status, 200);
            let place = format!("{PLACE}?answer=1");
            assert_eq!(
                keyed(&mut client, &place, &turn.to_string(), BODY).status,
                200
            );
        }
        for turn in 0..60 {
            let answer = keyed(&mut client, line, &turn.to_string(), BODY);
            let body: Value = serde_json::from_str(&answer.body).unwrap();
            assert!(is_repeated(&answer));
            assert_eq!(body["answer"]["effect_of"]["sequence"], body["sequence"]);
        }
    });
    let retention = Retention {
        bytes: Some(0),
        ..Retention::default()
    };
    replies.prune(&retention).unwrap();
    assert!(replies.first().unwrap() > 2);
    let answer = keyed(&mut client(&server), line, "old", BODY);
    let error = "the outputs since the call were pruned; the call is recorded";
    let expected = format!("{{\"journal\":\"orders\",\"sequence\":1,\"error\":\"{error}\"}}\n");
    assert_eq!((answer.status, answer.body), (410, expected));
}

#[test]
fn a_key_of_an_earlier_version_of_the_interface_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let version = |version, fields: &[&str]| {
        let fields = fields.iter().map(|name| Field::new(*name, Type::Str));
        let place = Method::new("place", fields.collect());
        let schema = Schema::new("Shop", version, vec![place], vec![]).unwrap();
        let server = gateway("127.0.0.1:0").calls(folder.path().join("shop"), [schema]);
        server.start().unwrap()
    };
    let old = r#"{"id": "A"}"#;
    let new = r#"{"id": "A", "note": "B"}"#;
    let line = "POST /Shop/place";
    let first = keyed(&mut client(&version(1, &["id"])), line, "k", old);
    assert_eq!(first.status, 200);
    let server = version(2, &["id", "note"]);
    let mut client = client(&server);
    let again = keyed(&mut client, line, "k", old);
    assert_eq!(
        (again.status, is_repeated(&again), again.body),
        (200, true, first.body)
    );
    assert_eq!(keyed(&mut client, line, "k", new).status, 422);
    assert_eq!(keyed(&mut client, line, "l", new).status, 200);
}
