//! A server beside a runtime of `tokio`, also one of a single thread.

use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use millstream_queue::server::{Ending, Server, ServerControl};

use crate::client::{Client, options, start};

fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// Starts a server, uses it beside the task that waits for it, and stops it.
async fn serves(folder: &Path) {
    let server = start(folder);
    let control = server.control();
    let address = server.addresses()[0].clone();
    let client = tokio::task::spawn_blocking(move || {
        let mut client = Client::connect(&address);
        client.put("jobs", "x");
        let items = client.drain("jobs");
        control.stop();
        items
    });
    server.await.unwrap();
    assert_eq!(client.await.unwrap(), ["x"]);
}

#[test]
fn it_runs_beside_a_runtime_of_one_thread() {
    let folder = tempfile::tempdir().unwrap();
    current_thread().block_on(async {
        serves(folder.path()).await;
        // What blocks works there too.
        let server = start(folder.path());
        server.reload().unwrap();
        assert_eq!(server.watch().reload().await.unwrap(), [] as [String; 0]);
        server.stop();
        server.wait().unwrap();
        drop(start(folder.path()));
    });
}

#[test]
fn it_runs_on_the_local_set_of_a_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&current_thread(), serves(folder.path()));
}

#[test]
fn an_end_that_is_dropped_stops_the_server_and_waits_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let mut client = Client::of(&server);
    client.put("jobs", "x");
    {
        let mut ending = pin!(server.into_future());
        let polled = ending
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending));
    }
    assert_eq!(client.line(), "");
    // It ends soon.
    while Server::start(options(folder.path())).is_err() {
        std::thread::yield_now();
    }
}

#[test]
fn handles_cross_threads() {
    fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<Server>();
    is_shared::<ServerControl>();
    is_shared::<Ending>();
}
