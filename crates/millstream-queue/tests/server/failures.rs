//! Failures of the thread of the server: here those that a subscriber of the program's log causes, which runs on it.

use std::path::Path;
use std::sync::Mutex;

use millstream_queue::server::{Server, ServerError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::client::{Client, options, start};

/// The lines of level ERROR.
static ERRORS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps errors, and panics at a line that contains this text.
struct PanicsAt(&'static str);

impl PanicsAt {
    fn install(self) {
        // Each test is a process of its own.
        tracing::subscriber::set_global_default(self).unwrap();
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for PanicsAt {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        if *event.metadata().level() == Level::ERROR {
            ERRORS.lock().unwrap().push(message.0.clone());
        }
        assert!(!message.0.contains(self.0), "the subscriber is broken");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn check(error: &ServerError, folder: &Path) {
    let ServerError::Panicked { dir, message } = error else {
        panic!("{error:?}");
    };
    assert_eq!(
        (dir.as_path(), message.as_str()),
        (folder, "the subscriber is broken")
    );
}

fn fail(server: &Server) {
    let mut client = Client::of(server);
    client.put("jobs", "x");
    assert!(matches!(server.reload(), Err(ServerError::NotRunning)));
    assert_eq!(client.line(), "", "no client is served any more");
}

#[test]
fn a_failure_is_the_result_of_the_wait() {
    PanicsAt("configuration read").install();
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    fail(&server);
    check(&server.wait().unwrap_err(), folder.path());
    assert_eq!(*ERRORS.lock().unwrap(), [] as [String; 0]);
    // Its directory is free.
    drop(start(folder.path()));
}

#[test]
fn a_failure_that_nothing_waits_for_is_logged_once() {
    PanicsAt("configuration read").install();
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    fail(&server);
    drop(server);
    let errors = ERRORS.lock().unwrap();
    let [error] = &errors[..] else {
        panic!("{errors:?}");
    };
    let dir = folder.path().display().to_string();
    assert!(
        error.starts_with(&dir) && error.contains("the subscriber is broken"),
        "{error}"
    );
}

#[test]
fn a_failure_at_the_start_is_its_error() {
    PanicsAt("queues in").install();
    let folder = tempfile::tempdir().unwrap();
    check(
        &Server::start(options(folder.path())).unwrap_err(),
        folder.path(),
    );
}
