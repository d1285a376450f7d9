//! Ends: by a stop, by a client, by the drop of the handle.

use millstream_queue::server::{Server, ServerOptions};

use crate::client::{Client, options, start};

#[test]
fn a_stop_answers_clients_and_requeues_their_items() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let mut idle = Client::of(&server);
    let mut waits = Client::of(&server);
    let mut opens = Client::of(&server);
    idle.put("jobs", "first");
    idle.put("jobs", "second");
    assert_eq!(opens.get("jobs/open").as_deref(), Some("first"));
    waits.send("set done 0 0 1\r\nx\r\nget empty/t=60000\r\n");
    assert_eq!(waits.line(), "STORED");
    server.stop();
    // The wait ends, and so do all connections.
    assert_eq!((waits.line(), waits.line()), ("END".into(), String::new()));
    assert_eq!((idle.line(), opens.line()), (String::new(), String::new()));
    server.wait().unwrap();
    let server = start(folder.path());
    assert_eq!(Client::of(&server).drain("jobs"), ["first", "second"]);
}

#[test]
fn another_thread_stops_a_server_that_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let control = server.control();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| server.wait());
        control.stop();
        control.stop();
        waits.join().unwrap().unwrap();
    });
    control.stop();
}

#[test]
fn a_client_that_may_stops_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(ServerOptions {
        shutdown: true,
        ..options(folder.path())
    });
    let server = server.unwrap();
    Client::of(&server).send("shutdown\r\n");
    server.wait().unwrap();
}

#[test]
fn the_drop_of_the_handle_stops_it_and_waits() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let address = server.addresses()[0].clone();
    let mut client = Client::of(&server);
    client.put("jobs", "x");
    drop(server);
    assert_eq!(client.line(), "");
    assert!(address.connect().is_err());
    let server = start(folder.path());
    assert_eq!(Client::of(&server).drain("jobs"), ["x"]);
}
