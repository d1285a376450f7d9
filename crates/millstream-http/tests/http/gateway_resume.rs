//! Clients of a feed of calls that connect again, and receive what they missed.

use std::path::Path;
use std::thread;
use std::time::Duration;

use millstream_http::GatewayServer;
use millstream_journal::{Journal, Options, Retention};
use millstream_service::publisher;

use crate::feed::Events;
use crate::gateway::{Orders, client, orders};
use crate::support::Answer;

const FEED: &str = "/feeds/orders";

fn start(folder: &Path) -> GatewayServer {
    let gateway = orders(folder).feed(folder.join("orders"));
    gateway.max_client(2000).start().unwrap()
}

fn place(server: &GatewayServer, quantities: std::ops::Range<u32>) {
    let mut client = client(server);
    for quantity in quantities {
        let body = format!(r#"{{"symbol": "A", "quantity": {quantity}}}"#);
        assert_eq!(client.request("POST /Orders/place", "", &body).status, 200);
    }
}

fn connect(server: &GatewayServer, id: &str) -> Events {
    let header = format!("Last-Event-ID: {id}\r\n");
    Events::connect(server.address(), FEED, &header).0
}

/// A new client, when the feed has read the calls up to this number: it begins where the feed is, which may be before
/// the last calls.
fn connect_after(server: &GatewayServer, last: u64) -> (Events, String) {
    loop {
        let (mut events, _) = Events::connect(server.address(), FEED, "");
        let begin = events.begin();
        if number(&begin) == last.to_string() {
            return (events, begin);
        }
    }
}

/// The number in an id.
fn number(id: &str) -> &str {
    id.split('-').nth(1).unwrap()
}

/// Reads items until that of the quantity `last`; they are those from `first`, in order. Returns the id of the last.
fn expect(events: &mut Events, first: u32, last: u32) -> String {
    for expected in first..=last {
        let item: serde_json::Value = serde_json::from_str(&events.next().unwrap()).unwrap();
        assert_eq!(item["arguments"]["quantity"], expected);
        assert_eq!(number(&events.id), item["sequence"].to_string());
    }
    events.id.clone()
}

#[test]
fn a_client_resumes_after_its_last_event() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    place(&server, 0..3);
    let (mut events, begin) = connect_after(&server, 3);
    // It resumes there if it loses the connection before an event.
    place(&server, 3..8);
    let id = expect(&mut events, 3, 5);
    drop(events);
    place(&server, 8..10);
    let mut events = connect(&server, &id);
    expect(&mut events, 6, 9);
    // Then it is a client like others.
    place(&server, 10..12);
    expect(&mut events, 10, 11);
    expect(&mut connect(&server, &begin), 3, 11);

    // The query is that of the first time; a browser that connects again adds the header.
    let query = format!("{FEED}?after=1");
    let (mut events, _) = Events::connect(server.address(), &query, "");
    expect(&mut events, 1, 11);
    let header = format!("Last-Event-ID: {id}\r\n");
    let (mut events, _) = Events::connect(server.address(), &query, &header);
    expect(&mut events, 6, 11);

    // A client that misses nothing receives what follows.
    let mut events = connect(&server, "12");
    place(&server, 12..13);
    expect(&mut events, 12, 12);

    // A feed that ends has a client that resumes at another gateway.
    let id = events.id.clone();
    drop(server);
    assert_eq!(events.next(), None);
    let journal = Journal::open(folder.path().join("orders"), Options::default()).unwrap();
    publisher::<dyn Orders>(&journal).unwrap().place("A", 13);
    let server = start(folder.path());
    let mut events = connect(&server, &id);
    place(&server, 14..16);
    expect(&mut events, 13, 15);
}

#[test]
fn a_client_that_connected_before_the_journal_existed_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("later");
    let gateway = millstream_http::gateway("127.0.0.1:0").feed(&path);
    let server = gateway.start().unwrap();
    let (mut events, _) = Events::connect(server.address(), "/feeds/later", "");
    let begin = events.begin();
    assert_eq!(begin, "begin");
    drop(events);
    let header = format!("Last-Event-ID: {begin}\r\n");
    // Once before there is a journal, once after.
    let (mut early, _) = Events::connect(server.address(), "/feeds/later", &header);
    let journal = Journal::open(&path, Options::default()).unwrap();
    let mut publisher = publisher::<dyn Orders>(&journal).unwrap();
    publisher.place("A", 0);
    expect(&mut early, 0, 0);
    let (mut late, _) = Events::connect(server.address(), "/feeds/later", &header);
    publisher.place("A", 1);
    expect(&mut early, 1, 1);
    expect(&mut late, 0, 1);
}

#[test]
fn a_client_catches_up_while_calls_are_made() {
    const COUNT: u32 = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let journal = Journal::open(folder.path().join("orders"), Options::default()).unwrap();
    let mut publisher = publisher::<dyn Orders>(&journal).unwrap();
    for quantity in 0..COUNT / 2 {
        publisher.place("A", quantity);
    }
    // What it missed is far more than may wait for a client.
    thread::scope(|scope| {
        scope.spawn(move || {
            for quantity in COUNT / 2..COUNT {
                publisher.place("A", quantity);
            }
        });
        let mut next = 0;
        let mut id = "begin".to_owned();
        while next < COUNT {
            // The queue of a client that has caught up may overflow meanwhile: then it resumes.
            let mut events = connect(&server, &id);
            while let Some(item) = events.next() {
                let item: serde_json::Value = serde_json::from_str(&item).unwrap();
                assert_eq!(item["arguments"]["quantity"], next);
                (next, id) = (next + 1, events.id.clone());
                if next == COUNT {
                    break;
                }
            }
        }
    });
}

#[test]
fn a_client_whose_calls_are_gone_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::default().with_segment_bytes(1 << 20);
    let journal = Journal::open(folder.path().join("orders"), options).unwrap();
    let server = start(folder.path());
    place(&server, 0..3);
    let refused = |id: &str| {
        let header = format!("Last-Event-ID: {id}\r\n");
        let Answer { status, body, .. } = client(&server).request("GET /feeds/orders", &header, "");
        (status, body)
    };
    let mut events = connect(&server, "begin");
    let id = expect(&mut events, 0, 2);
    let (lineage, _) = id.split_once('-').unwrap();
    assert_eq!(
        refused("7x"),
        (400, "\"7x\" is no id of an event of this feed\n".into())
    );
    let beyond = "the id 17 is after the end of the journal: its next record is 4\n";
    assert_eq!(refused("17"), (410, beyond.into()));
    let other = format!("{}-1", "0".repeat(31) + "1");
    let line = format!("the id {other} is of another journal\n");
    assert_eq!(refused(&other), (410, line));

    // Segments are pruned.
    let mut publisher = publisher::<dyn Orders>(&journal).unwrap();
    let long = "x".repeat(1000);
    (0..3000).for_each(|quantity| publisher.place(&long, quantity));
    drop(connect_after(&server, journal.next().unwrap() - 1));
    let retention = Retention {
        bytes: Some(0),
        ..Retention::default()
    };
    journal.prune(&retention).unwrap();
    let first = journal.first().unwrap();
    assert!(first > 4, "{first}");
    let line = format!("the records after the id {lineage}-1 were pruned; the oldest is {first}\n");
    assert_eq!(refused(&format!("{lineage}-1")), (410, line));
    server.wait(Duration::ZERO).unwrap();
}

#[test]
fn a_client_learns_that_the_journal_has_lost_its_last_call() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders");
    let server = start(folder.path());
    place(&server, 0..4);
    let mut events = connect(&server, "begin");
    let kept = expect(&mut events, 0, 1);
    let lost = expect(&mut events, 2, 3);
    drop((events, server));
    let exclusive = Options {
        exclusive: true,
        ..Options::default()
    };
    Journal::open(&path, exclusive).unwrap().cut(3).unwrap();

    let refused = |server: &GatewayServer| {
        let header = format!("Last-Event-ID: {lost}\r\n");
        let Answer { status, body, .. } = client(server).request("GET /feeds/orders", &header, "");
        (status, body)
    };
    let server = start(folder.path());
    let line = format!("the id {lost} is after the end of the journal: its next record is 3\n");
    assert_eq!(refused(&server), (410, line));
    // Other calls get the numbers of those that are lost.
    place(&server, 10..15);
    let reason = "the journal has lost its end, and another record has this number";
    let remedy = "load the state anew, and connect without an id";
    let line = format!("the id {lost} is of a record that is lost: {reason}; {remedy}\n");
    assert_eq!(refused(&server), (410, line));
    expect(&mut connect(&server, &kept), 10, 14);
    // The number alone says nothing of the record.
    expect(&mut connect(&server, number(&lost)), 11, 14);
}
