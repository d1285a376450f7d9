//! Runs with a state directory: an acknowledged request has its effect once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_flow::testing::Collected;
use millstream_flow::{Flow, codec};
use millstream_http::listen;

use crate::support::{Client, options, start, start_into};

const HERE: &str = "127.0.0.1:0";

#[test]
fn what_was_acknowledged_and_not_processed_is_processed_by_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let items = Collected::new();
    for run in 0..3 {
        let flow = start_into(listen(HERE), Some(folder.path()), items.clone());
        let mut client = flow.client();
        for n in 0..10 {
            assert_eq!(client.post(&format!("[{run}, {n}]")).status, 200);
        }
        flow.running.stop();
        flow.running.wait().unwrap();
    }
    let items = start_into(listen(HERE).requests(30), Some(folder.path()), items).end();
    let expected = (0..3).flat_map(|run| (0..10).flat_map(move |n| [run, n]));
    let expected: Vec<String> = expected.map(|n: i32| n.to_string()).collect();
    assert_eq!(items, expected);
}

#[test]
fn a_run_that_is_abandoned_loses_no_request_and_the_records_are_pruned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let state = folder.path().join("state");
    let run = |requests: u64, from: u32, posts: u32| {
        let (bound, address) = std::sync::mpsc::channel();
        let source = listen(HERE)
            .requests(requests)
            .on_bound(move |address| bound.send(address.to_owned()).unwrap());
        let flow = Flow::new("abandoned");
        flow.source("in", source)
            .sink("out", millstream_flow::files::write(&path));
        let running = flow.start(options(Some(&state))).unwrap();
        let address = address.recv().unwrap();
        let mut client = None;
        for n in from..from + posts {
            let client = client.get_or_insert_with(|| Client::new(&address));
            assert_eq!(client.post(&n.to_string()).status, 200);
        }
        match posts {
            0 => drop(running.wait().unwrap()),
            _ => running.abandon(),
        }
    };
    for n in 0..4 {
        run(10_000, n * 500, 500);
    }
    run(2000, 2000, 0);
    let text = std::fs::read_to_string(&path).unwrap();
    let expected: Vec<String> = (0..2000).map(|n| n.to_string()).collect();
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_state_directory_without_the_requests_of_the_last_commit_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let flow = start(listen(HERE).requests(1), Some(folder.path()));
    assert_eq!(flow.client().post("1").status, 200);
    let items = flow.items.clone();
    flow.running.wait().unwrap();
    std::fs::remove_dir_all(folder.path().join("http")).unwrap();
    let flow = Flow::new("posts");
    flow.source("in", codec::decode(listen(HERE), codec::text))
        .sink("out", items.sink());
    let error = flow.run(options(Some(folder.path()))).unwrap_err();
    let text = format!("{error}: {:?}", std::error::Error::source(&error));
    assert!(text.contains("the last commit is at 1"), "{text}");
}

#[test]
fn requests_in_flight_at_a_stop_are_answered_and_processed_once() {
    let folder = tempfile::tempdir().unwrap();
    let flow = start(listen(HERE), Some(folder.path()));
    let stopped = AtomicBool::new(false);
    let address = flow.address.clone();
    let items = flow.items.clone();
    let acknowledged = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let address = &address;
                let stopped = &stopped;
                scope.spawn(move || post_until(address, client, stopped))
            })
            .collect();
        std::thread::park_timeout(Duration::from_millis(100));
        flow.running.stop();
        flow.running.wait().unwrap();
        stopped.store(true, Ordering::SeqCst);
        let joined = clients
            .into_iter()
            .flat_map(|client| client.join().unwrap());
        let mut acknowledged: Vec<String> = joined.collect();
        acknowledged.sort();
        acknowledged
    });
    let count = acknowledged.len() as u64;
    let mut seen = start_into(listen(HERE).requests(count), Some(folder.path()), items).end();
    seen.sort();
    assert_eq!(seen, acknowledged);
    assert!(!seen.is_empty());
}

/// Posts numbers until the server is gone; returns those that were acknowledged.
fn post_until(address: &str, client: usize, stopped: &AtomicBool) -> Vec<String> {
    let mut acknowledged = Vec::new();
    let mut connection = Client::new(address);
    for n in 0.. {
        let body = format!("\"{client}-{n}\"");
        connection.send_if_open(&body);
        match connection.read() {
            Some(answer) if answer.status == 200 => acknowledged.push(body),
            Some(answer) => assert_eq!(answer.status, 503),
            None => break,
        }
        if stopped.load(Ordering::SeqCst) {
            break;
        }
    }
    acknowledged
}
