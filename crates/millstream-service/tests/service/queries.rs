//! Queries to a component that runs.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use millstream_journal::{Journal, Options};
use millstream_service::json::json;
use millstream_service::{
    Arguments, Fault, QueryError, Service, ServiceError, Settings, Stop, ask,
};

use crate::desk::{Desk, Folder, Orders, Replies, calls};

const LONG: Duration = Duration::from_secs(20);

/// Runs a desk with queries on `output` while `work` runs.
fn while_asked(folder: &Folder, output: &Path, work: impl FnOnce()) {
    let stop = Stop::default();
    std::thread::scope(|scope| {
        let runner = scope.spawn(|| {
            let journal = Journal::open(output, Options::default()).unwrap();
            let service = Service::new(&journal).unwrap();
            let desk = Desk::new(service.publisher::<dyn Replies>().unwrap(), service.clock());
            let setup = service
                .component(desk)
                .input::<dyn Orders>(&folder.journal("orders"))
                .unwrap()
                .query("accepted", |desk, arguments| {
                    match arguments.get("times").map(|times| times.as_u64()) {
                        None => Ok(json!(desk.accepted)),
                        Some(Some(times)) => Ok(json!(desk.accepted * times)),
                        Some(None) => Err(QueryError::arguments("times is a number")),
                    }
                })
                .query("panicking", |desk, _| {
                    assert!(desk.accepted > 1_000, "thirteen");
                    Ok(json!(null))
                })
                .query("calling", |desk, _| {
                    desk.replies.summary(7, 7);
                    let failed = desk.replies.check();
                    failed.map_err(|cause| QueryError::failed(cause.to_string()))?;
                    Ok(json!(null))
                });
            setup
                .start(Settings::default())
                .unwrap()
                .run(&stop)
                .unwrap();
        });
        while ask(output, "accepted", Arguments::new(), LONG).is_err() {
            assert!(!runner.is_finished(), "the service has ended");
            std::thread::yield_now();
        }
        work();
        stop.stop();
        runner.join().unwrap();
    });
}

fn fault(asked: Result<millstream_service::json::Value, ServiceError>) -> (Fault, String) {
    match asked {
        Err(ServiceError::Asked { fault, reason, .. }) => (fault, reason),
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn a_component_that_runs_is_asked_and_nothing_is_recorded() {
    // The second path is longer than that of a socket may be.
    for name in ["x", &"x".repeat(120)] {
        let folder = Folder::new();
        folder.orders(0..5);
        std::fs::create_dir(folder.path(name)).unwrap();
        let output = folder.path(name).join("replies");
        let asked = |query: &str, arguments| ask(&output, query, arguments, LONG);
        let (kind, reason) = fault(asked("accepted", Arguments::new()));
        assert_eq!(kind, Fault::Absent, "{reason}");
        while_asked(&folder, &output, || {
            while asked("accepted", Arguments::new()).unwrap() != json!(5) {}
            let times = |value| Arguments::from_iter([("times".to_owned(), value)]);
            assert_eq!(asked("accepted", times(json!(3))).unwrap(), json!(15));
            let recorded = calls(&Journal::open(&output, Options::read_only()).unwrap()).len();
            let (kind, reason) = fault(asked("accepted", times(json!("x"))));
            assert_eq!(
                (kind, reason.as_str()),
                (Fault::Arguments, "times is a number")
            );
            let (kind, reason) = fault(asked("total", Arguments::new()));
            assert_eq!(kind, Fault::Unknown);
            assert_eq!(
                reason,
                "the component has no query total; it has accepted, panicking, calling"
            );
            let (kind, reason) = fault(asked("calling", Arguments::new()));
            assert_eq!(kind, Fault::Failed);
            assert!(reason.contains("a query makes no calls"), "{reason}");
            let (kind, reason) = fault(asked("panicking", Arguments::new()));
            assert_eq!(kind, Fault::Failed);
            assert!(reason.ends_with(" panicked: thirteen"), "{reason}");
            // The service goes on.
            folder.orders(5..6);
            while asked("accepted", Arguments::new()).unwrap() != json!(6) {}
            let after = calls(&Journal::open(&output, Options::read_only()).unwrap()).len();
            assert!(after <= recorded + 2, "{after}");
        });
        assert_eq!(fault(asked("accepted", Arguments::new())).0, Fault::Absent);
    }
}

#[test]
fn clients_that_send_rubbish_or_nothing_block_no_other() {
    let folder = Folder::new();
    folder.orders(0..3);
    let output = folder.path("replies");
    while_asked(&folder, &output, || {
        let connect = || UnixStream::connect(folder.path("replies.queries")).unwrap();
        let silent: Vec<UnixStream> = (0..20).map(|_| connect()).collect();
        for rubbish in [
            &b"\xff\xff\xff\xff"[..],
            b"\0\0\0\x02{}",
            b"\0\0\0\x09nonsense!",
            b"\0",
        ] {
            let mut client = connect();
            client.write_all(rubbish).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            let _ = client.read_to_end(&mut answer);
            assert!(answer.is_empty(), "{answer:?}");
        }
        let later = b"\0\0\0\x2b{\"version\":2,\"query\":\"\",\"arguments\":{\"a\":1}}";
        let mut client = connect();
        client
            .write_all(&[&((later.len() - 4) as u32).to_be_bytes()[..], &later[4..]].concat())
            .unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(
            answer.contains("a query of version 2; this service answers 1"),
            "{answer}"
        );
        while ask(&output, "accepted", Arguments::new(), LONG).unwrap() != json!(3) {}
        drop(silent);
    });
}

#[test]
fn a_service_without_output_cannot_be_asked() {
    let folder = Folder::new();
    folder.orders(0..1);
    let setup = Service::without_output()
        .component(())
        .query("none", |(), _| Ok(json!(null)));
    let error = setup.start(Settings::default()).err().unwrap();
    assert!(matches!(error, ServiceError::NoOutput), "{error}");
}
