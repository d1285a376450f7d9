//! The public errors under a crate that collects causes: each cause is in the line once, and the error of the system
//! can be found.

#![cfg(all(
    feature = "cluster",
    feature = "flow",
    feature = "observe",
    feature = "queue-server",
    feature = "replication",
    feature = "service"
))]

use std::error::Error;
use std::io;

use millstream::cluster::ClusterError;
use millstream::flow::{Failure, FlowError};
use millstream::journal::{self, chain};
use millstream::observe::ObserveError;
use millstream::queue::QueueError;
use millstream::queue::server::ServerError;
use millstream::replication::ReplicationError;
use millstream::service::ServiceError;
use millstream::service::testing::TestError;
use millstream::wire::CallError;
use millstream_link::LinkError;

const SYSTEM: &str = "the disk failed";

fn system() -> io::Error {
    io::Error::other(SYSTEM)
}

fn of_journal() -> journal::Error {
    journal::Error::Io {
        verb: "sync",
        path: "orders".into(),
        source: system(),
    }
}

/// What a caller of the crate does with an error.
fn passed_on<E: Error + Send + Sync + 'static>(error: E) -> anyhow::Error {
    let call = || -> anyhow::Result<()> { Err(error)? };
    call().expect_err("it returns the error")
}

fn check<E: Error + Send + Sync + 'static>(error: E, line: &str) {
    assert_eq!(chain(&error).to_string(), line);
    assert_eq!(format!("{error:?}"), line);
    let displayed = error.to_string();
    let error = passed_on(error);
    assert_eq!(format!("{error:#}"), line);
    for cause in error.chain() {
        let text = cause.to_string();
        assert_eq!(line.matches(&text).count(), 1, "{text} in {line}");
    }
    let mut causes = error.chain();
    assert!(causes.any(|cause| cause.is::<io::Error>()), "{line}");
    assert!(
        !displayed.contains(SYSTEM) && !line.contains('\n'),
        "{line}"
    );
}

#[test]
fn errors_of_journals() {
    check(of_journal(), "orders: cannot sync: the disk failed");
    let path = "orders/segment-0000000003.log";
    let fault = journal::Error::Fault {
        path: path.into(),
        offset: 64,
        source: system(),
    };
    let line = format!(
        "{path}: the file system failed at offset 64; close the journal and open it again: {SYSTEM}"
    );
    check(fault, &line);
}

#[test]
fn errors_of_flows() {
    let failure = Failure::new("out", of_journal());
    check(
        failure,
        "step \"out\": orders: cannot sync: the disk failed",
    );
    let failed = FlowError::Failed(Failure::new("out", system()));
    check(failed, "step \"out\": the disk failed");
    let open = FlowError::Open {
        what: "source \"in\"".to_owned(),
        cause: of_journal().into(),
    };
    check(open, "source \"in\": orders: cannot sync: the disk failed");
    let state = FlowError::State {
        path: "state".into(),
        cause: of_journal().into(),
    };
    check(
        state,
        "state in state: orders: cannot sync: the disk failed",
    );
    let apart = FlowError::Cluster {
        process: 1,
        cause: system().into(),
    };
    check(apart, "process 1 of the cluster: the disk failed");
}

#[test]
fn errors_of_queues() {
    let storage = || QueueError::Storage {
        queue: "q".to_owned(),
        cause: of_journal().into(),
    };
    let line = "queue \"q\": orders: cannot sync: the disk failed";
    check(storage(), line);
    check(ServerError::Broker(storage()), line);
    let partly = QueueError::Partly {
        stored: 2,
        cause: Box::new(storage()),
    };
    let partly_line = format!("the first 2 items are stored, and the next one is not: {line}");
    check(partly, &partly_line);
    let listen = ServerError::Listen {
        address: "127.0.0.1:11211".to_owned(),
        source: system(),
    };
    check(listen, "cannot listen on 127.0.0.1:11211: the disk failed");
    let replica = ServerError::Replica(of_journal().into());
    check(replica, "orders: cannot sync: the disk failed");
}

#[test]
fn errors_of_services() {
    let journal = ServiceError::Journal(of_journal());
    check(journal, "orders: cannot sync: the disk failed");
    let failed = CallError::Component {
        method: "place".to_owned(),
        cause: system().into(),
    };
    let input = ServiceError::Input {
        journal: "orders".to_owned(),
        sequence: 7,
        cause: failed.into(),
    };
    check(input, "orders, record 7: place: the disk failed");
    let file = TestError::File {
        path: "out.yaml".into(),
        source: system(),
    };
    check(file, "out.yaml: cannot be read or written: the disk failed");
}

#[test]
fn errors_of_connections_and_of_the_page() {
    let connection = || {
        let error = LinkError::connection("cannot connect to 10.0.0.7:7600", system());
        ReplicationError::Link(error)
    };
    let line = "cannot connect to 10.0.0.7:7600: the disk failed";
    check(connection(), line);
    let followers = ServiceError::Followers {
        output: "replies".to_owned(),
        cause: connection(),
    };
    let followers_line = format!("replies: the positions of its followers cannot be read: {line}");
    check(followers, &followers_line);
    let listen = ClusterError::Listen {
        process: 0,
        address: "10.0.0.7:7700".parse().unwrap(),
        source: system(),
    };
    let line = listen.to_string() + ": the disk failed";
    check(listen, &line);
    let bind = ObserveError::Bind(system().into());
    check(bind, "the page cannot be served: the disk failed");
}

#[cfg(feature = "kafka")]
#[test]
fn an_error_without_causes_is_its_text() {
    let error = millstream::kafka::Error::Format("it ends too early");
    assert_eq!(format!("{error:?}"), error.to_string());
}
