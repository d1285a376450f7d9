//! Starts: where a server listens, and why it does not start.

use std::net::{SocketAddr, TcpListener};

use millstream_queue::address::Address;
use millstream_queue::server::{Server, ServerError, ServerOptions};
use millstream_queue::session::Compat;

use crate::client::{Client, options, start};

#[test]
fn what_was_put_is_there_after_a_stop_and_a_start() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..5 {
        let server = start(folder.path());
        let mut client = Client::of(&server);
        client.put("jobs", &number.to_string());
        client.put(&format!("new{number}"), "x");
        server.stop();
        server.wait().unwrap();
    }
    let server = start(folder.path());
    let items = Client::of(&server).drain("jobs");
    assert_eq!(items, ["0", "1", "2", "3", "4"]);
}

#[test]
fn two_servers_run_at_once() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [one, other] = folders.each_ref().map(|folder| start(folder.path()));
    assert_ne!(one.addresses(), other.addresses());
    let mut of_one = Client::of(&one);
    let mut of_other = Client::of(&other);
    of_one.put("jobs", "one");
    of_other.put("jobs", "other");
    assert_eq!(of_one.drain("jobs"), ["one"]);
    one.stop();
    one.wait().unwrap();
    assert_eq!(of_other.drain("jobs"), ["other"]);
}

#[test]
fn each_address_is_the_bound_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::start(ServerOptions {
        listen: vec![
            (any.into(), Compat::Memcached),
            (Address::Unix(path.clone()), Compat::Memcached),
            (any.into(), Compat::Kestrel),
        ],
        ..ServerOptions::new(folder.path().join("queues"))
    });
    let server = server.unwrap();
    let [Address::Tcp(first), unix, Address::Tcp(last)] = server.addresses() else {
        panic!("{:?}", server.addresses());
    };
    assert!(first.port() != 0 && last.port() != 0 && first != last);
    assert_eq!(unix, &Address::Unix(path.clone()));
    for (number, address) in server.addresses().iter().enumerate() {
        Client::connect(address).put("jobs", &number.to_string());
    }
    assert_eq!(Client::of(&server).drain("jobs"), ["0", "1", "2"]);
    server.stop();
    server.wait().unwrap();
    assert!(!path.exists());
}

#[test]
fn the_error_names_an_address_that_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let refused = Server::start(ServerOptions {
        listen: vec![(address.into(), Compat::Memcached)],
        ..ServerOptions::new(folder.path())
    });
    let error = refused.unwrap_err();
    assert!(
        matches!(&error, ServerError::Listen { address: named, .. } if *named == address.to_string()),
        "{error:?}"
    );
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    // Nothing of it is left.
    drop(start(folder.path()));
}

#[test]
fn the_error_names_a_directory_that_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let error = Server::start(options(folder.path())).unwrap_err();
    assert!(
        matches!(&error, ServerError::File { path, .. } if path == folder.path()),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.starts_with(&folder.path().display().to_string()),
        "{text}"
    );
    // The first one is not affected.
    let mut client = Client::of(&server);
    client.put("jobs", "x");
    assert_eq!(client.drain("jobs"), ["x"]);
}

#[test]
fn a_reload_reads_the_configuration_or_names_its_fault() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("queues.toml");
    std::fs::write(&config, "").unwrap();
    let of = |config| ServerOptions {
        config: Some(config),
        ..options(&folder.path().join("queues"))
    };
    let server = Server::start(of(config.clone())).unwrap();
    std::fs::write(&config, "[limits]\nitem_bytes = 100000000\n").unwrap();
    assert_eq!(server.reload().unwrap().len(), 1);
    std::fs::write(&config, "[limits]\nitem_byte = 1\n").unwrap();
    let control = server.control();
    let error = control.reload().unwrap_err();
    assert!(
        matches!(&error, ServerError::Reload(text) if text.contains("queues.toml")),
        "{error}"
    );
    server.stop();
    server.wait().unwrap();
    assert!(matches!(control.reload(), Err(ServerError::NotRunning)));
    let error = Server::start(of(config)).unwrap_err();
    assert!(error.to_string().contains("queues.toml"), "{error}");
}

#[test]
fn figures_are_published_once_something_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let first = server.watch().newest();
    assert_eq!((first.number, first.status), (1, "up"));
    Client::of(&server).put("jobs", "x");
    let watch = server.watch().clone();
    let mut newest = first;
    while newest.queues.is_empty() {
        std::thread::yield_now();
        newest = watch.newest();
    }
    assert_eq!(
        (&*newest.queues[0].name, newest.counters.cmd_set),
        ("jobs", 1)
    );
}
