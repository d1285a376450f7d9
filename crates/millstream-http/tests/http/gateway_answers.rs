//! Answers of a gateway: the first output that a call causes.

use std::path::Path;
use std::thread;

use millstream_http::Gateway;
use millstream_journal::{CursorMode, Journal, Options};
use millstream_service::json::{Value, json};
use millstream_service::{QueryError, Service, Settings, Stop};

use crate::gateway::{Desk, Orders, Replies, client as connect, orders};
use crate::support::Client;

pub(crate) fn answered(folder: &Path) -> Gateway {
    orders(folder).answers(folder.join("orders"), folder.join("replies"))
}

/// Runs the desk that reads the orders and writes `output`, while `work` runs.
pub(crate) fn while_served(folder: &Path, output: &str, work: impl FnOnce()) {
    let stop = Stop::default();
    let open = |name: &str| Journal::open(folder.join(name), Options::default()).unwrap();
    thread::scope(|scope| {
        let runner = scope.spawn(|| {
            let service = Service::new(&open(output)).unwrap();
            let replies = service.publisher::<dyn Replies>().unwrap();
            let desk = Desk { replies, total: 0 };
            let setup = service.component(desk).input::<dyn Orders>(&open("orders"));
            let setup = setup.unwrap().query("total", |desk, arguments| {
                let key = arguments.get("key").and_then(Value::as_str);
                let key = key.ok_or_else(|| QueryError::arguments("there is no key"))?;
                Ok(json!({ key: desk.total }))
            });
            let mut runner = setup.start(Settings::default()).unwrap();
            runner.run(&stop).unwrap();
        });
        work();
        stop.stop();
        runner.join().unwrap();
    });
}

fn post(client: &mut Client, path: &str, body: &str) -> (u16, String) {
    let answer = client.request(&format!("POST {path}"), "", body);
    (answer.status, answer.body)
}

const PLACE: &str = r#"{"symbol": "A", "quantity": 2}"#;

#[test]
fn a_request_receives_the_first_output_of_its_call() {
    let folder = tempfile::tempdir().unwrap();
    let server = answered(folder.path()).start().unwrap();
    let mut client = connect(&server);
    // No service runs yet, and its output does not exist: the call is recorded.
    let (status, body) = post(&mut client, "/Orders/place?answer=1&timeout=0.01", PLACE);
    let late = "{\"journal\":\"orders\",\"sequence\":1,\"error\":\"there was no answer in time; the call is recorded\"}\n";
    assert_eq!((status, body.as_str()), (504, late));
    while_served(folder.path(), "replies", || {
        for total in [4, 6] {
            let (status, body) = post(&mut client, "/Orders/place?answer=1", PLACE);
            let answer: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(status, 200, "{body}");
            assert_eq!(answer["answer"]["arguments"]["total"], total);
            assert_eq!(
                answer["answer"]["effect_of"]["sequence"],
                answer["sequence"]
            );
        }
    });
}

#[test]
fn each_of_many_requests_receives_its_own_answer_and_a_call_without_one_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let server = answered(folder.path()).start().unwrap();
    while_served(folder.path(), "replies", || {
        thread::scope(|scope| {
            for number in 0..8 {
                let mut client = connect(&server);
                scope.spawn(move || {
                    for turn in 0..20 {
                        let symbol = format!("{number}-{turn}");
                        let body = format!(r#"{{"symbol": "{symbol}", "quantity": 1}}"#);
                        let (status, body) = post(&mut client, "/Orders/place?answer=1", &body);
                        let answer: Value = serde_json::from_str(&body).unwrap();
                        assert_eq!(status, 200, "{body}");
                        assert_eq!(answer["answer"]["arguments"]["symbol"], symbol);
                    }
                });
            }
        });
        // A cancelled order has no output: the next one, which has, says so.
        thread::scope(|scope| {
            let mut client = connect(&server);
            let cancel = scope
                .spawn(move || post(&mut client, "/Orders/cancel?answer=1", r#"{"symbol": "A"}"#));
            let mut client = connect(&server);
            while !cancel.is_finished() {
                post(&mut client, "/Orders/place", PLACE);
            }
            let (status, body) = cancel.join().unwrap();
            assert!(body.ends_with(",\"answer\":null}\n"), "{body}");
            assert_eq!(status, 200);
        });
    });
}

#[test]
fn of_two_services_the_first_answer_counts() {
    let folder = tempfile::tempdir().unwrap();
    let gateway =
        answered(folder.path()).answers(folder.path().join("orders"), folder.path().join("other"));
    let server = gateway.start().unwrap();
    while_served(folder.path(), "other", || {
        let (status, body) = post(&mut connect(&server), "/Orders/place?answer=1", PLACE);
        assert_eq!(status, 200, "{body}");
        assert!(body.contains("\"total\":2"), "{body}");
    });
}

#[test]
fn a_gateway_that_stops_ends_the_waits() {
    let folder = tempfile::tempdir().unwrap();
    let server = answered(folder.path()).start().unwrap();
    let mut client = connect(&server);
    let path = folder.path().join("orders");
    let (status, body) = thread::scope(|scope| {
        let waiting =
            scope.spawn(move || post(&mut client, "/Orders/place?answer=1&timeout=60", PLACE));
        let journal = || Journal::open(&path, Options::read_only()).unwrap();
        while journal().next().unwrap() < 2 {
            thread::yield_now();
        }
        drop(server);
        waiting.join().unwrap()
    });
    assert_eq!(status, 503, "{body}");
    assert!(
        body.contains("the gateway stops; the call is recorded"),
        "{body}"
    );
}

#[test]
fn what_cannot_be_answered_is_refused_and_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let server = answered(folder.path()).start().unwrap();
    let mut client = connect(&server);
    for (query, line) in [
        ("answer=2", "the parameter answer is 0 or 1\n"),
        (
            "answer=1&timeout=61",
            "the parameter timeout is a number of seconds from 0 to 60\n",
        ),
        (
            "answer=1&timeout=-1",
            "the parameter timeout is a number of seconds from 0 to 60\n",
        ),
        (
            "answer=1&timeout=soon",
            "the parameter timeout is a number of seconds from 0 to 60\n",
        ),
    ] {
        let answer = post(&mut client, &format!("/Orders/place?{query}"), PLACE);
        assert_eq!(answer, (400, line.to_owned()));
    }
    drop(server);
    let server = orders(folder.path()).start().unwrap();
    let (status, body) = post(&mut connect(&server), "/Orders/place?answer=1", PLACE);
    let line = "the gateway knows no output with answers to calls in orders\n";
    assert_eq!((status, body.as_str()), (400, line));
    let journal = Journal::open(folder.path().join("orders"), Options::default()).unwrap();
    assert_eq!(journal.next().unwrap(), 0);
    let gateway = orders(folder.path()).answers("other", "replies");
    let error = gateway.start().err().unwrap().to_string();
    assert_eq!(
        error,
        "other, answered by replies: is no journal of calls of this gateway"
    );
}

#[test]
fn a_request_reads_the_state_of_a_service_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = answered(folder.path()).state(folder.path().join("replies"));
    let server = gateway.token("secret").start().unwrap();
    let get = |path: &str, header: &str| {
        let answer = connect(&server).request(&format!("GET {path}"), header, "");
        (answer.status, answer.body)
    };
    let bearer = "Authorization: Bearer secret\r\n";
    let (status, body) = get("/state/replies/total?key=A", bearer);
    let line = "no service with queries runs on this output\n";
    assert_eq!((status, body.as_str()), (503, line));
    while_served(folder.path(), "replies", || {
        while get("/state/replies?key=A", bearer).0 == 503 {}
        let header = format!("{bearer}Content-Type: application/json\r\n");
        let answer = connect(&server).request("POST /Orders/place?answer=1", &header, PLACE);
        assert_eq!(answer.status, 200);
        for (path, header, status, body) in [
            (
                "/state/replies/total?key=A%201",
                bearer,
                200,
                "{\"A 1\":2}\n",
            ),
            ("/state/replies?key=A&token=secret", "", 200, "{\"A\":2}\n"),
            ("/state/replies", bearer, 400, "there is no key\n"),
            (
                "/state/replies/sum?key=A",
                bearer,
                404,
                "the component has no query sum; it has total\n",
            ),
            (
                "/state/orders",
                bearer,
                404,
                "there is no state orders; there is replies\n",
            ),
        ] {
            let answer = get(path, header);
            assert_eq!(answer, (status, body.to_owned()), "{path}");
        }
        assert_eq!(get("/state/replies?key=A", "").0, 401);
    });
}

#[test]
fn a_request_waits_for_followers() {
    let folder = tempfile::tempdir().unwrap();
    let server = answered(folder.path()).start().unwrap();
    let mut client = connect(&server);
    let path = "/Orders/place?wait_follower=1&timeout=0.01";
    let (status, body) = post(&mut client, path, PLACE);
    let line = "record 1 is in the journal, but 0 of 1 follower(s) had acknowledged it after 10ms";
    let expected = format!("{{\"journal\":\"orders\",\"sequence\":1,\"error\":\"{line}\"}}\n");
    assert_eq!((status, body), (504, expected));
    let journal = Journal::open(folder.path().join("orders"), Options::default()).unwrap();
    // A follower that is ahead, as far as the gateway can see.
    let follower = journal
        .cursor("follower.backup", CursorMode::Shared)
        .unwrap();
    assert!(journal.admit_follower("backup").unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            post(
                &mut client,
                "/Orders/place?wait_follower=1&timeout=60",
                PLACE,
            )
        });
        while journal.next().unwrap() < 3 {
            thread::yield_now();
        }
        follower.set(3).unwrap();
        let (status, body) = waiting.join().unwrap();
        let expected = "{\"journal\":\"orders\",\"sequence\":2}\n";
        assert_eq!((status, body.as_str()), (200, expected));
    });
    let (status, body) = post(
        &mut connect(&server),
        "/Orders/place?wait_follower=x",
        PLACE,
    );
    let line = "the parameter wait_follower is a number of followers, from 0 to 64\n";
    assert_eq!((status, body.as_str()), (400, line));
}
