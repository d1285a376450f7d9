//! Processes that meet over real sockets, each on a thread of its own: joins, deaths, partitions, and peers that are no
//! processes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![expect(
    clippy::disallowed_methods,
    reason = "a relay has threads of its own, and a slow peer waits"
)]

mod deaths;
mod joins;
mod peers;
mod proxy;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use millstream_cluster::{Address, Auth, Processes, Secret, Settings};
use millstream_flow::cluster::{Cluster, Event, Joined, Offer, OfferedSource, StateOffer};
use millstream_flow::error::Cause;

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Addresses of the loopback interface that are free now.
fn free(processes: usize) -> Vec<Address> {
    let listeners: Vec<_> = (0..processes)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let addresses = listeners
        .iter()
        .map(|listener| listener.local_addr().unwrap().into());
    addresses.collect()
}

/// Paths of sockets in a directory.
fn paths(folder: &tempfile::TempDir, processes: usize) -> Vec<Address> {
    let path = |process| Address::Unix(folder.path().join(format!("{process}.sock")));
    (0..processes).map(path).collect()
}

fn secret() -> Auth {
    Auth::Secret(Secret::new(b"a secret of all processes").unwrap())
}

fn settings(process: usize, hosts: &[Address], auth: &Auth) -> Settings {
    let mut settings = Settings::new(process, hosts.to_vec(), auth.clone());
    settings.heartbeat = Duration::from_millis(100);
    settings
}

fn offer() -> Offer {
    Offer {
        flow: "orders".to_owned(),
        version: vec![("version".to_owned(), "1".to_owned())],
        graph: vec!["read".to_owned(), "count".to_owned()],
        workers: 2,
        sources: vec![OfferedSource {
            name: "read".to_owned(),
            partitions: vec!["0".to_owned()],
            ..OfferedSource::default()
        }],
        state: Some(StateOffer::default()),
    }
}

type Joining<'scope> = ScopedJoinHandle<'scope, Result<Joined, Cause>>;

/// Joins on a thread.
fn join<'scope>(
    scope: &'scope Scope<'scope, '_>,
    settings: Settings,
    offer: Offer,
) -> Joining<'scope> {
    scope.spawn(move || Processes::new(settings)?.join(offer, &|| false))
}

/// All processes of a run.
fn meet(hosts: &[Address], auth: &Auth) -> Vec<Joined> {
    meet_with(hosts, auth, |_| ())
}

fn meet_with(hosts: &[Address], auth: &Auth, change: impl Fn(&mut Settings)) -> Vec<Joined> {
    std::thread::scope(|scope| {
        let one = |process| {
            let mut settings = settings(process, hosts, auth);
            change(&mut settings);
            join(scope, settings, offer())
        };
        let all: Vec<_> = (0..hosts.len()).map(one).collect();
        all.into_iter()
            .map(|one| one.join().unwrap().unwrap())
            .collect()
    })
}

fn next(joined: &Joined) -> Event {
    joined.events.recv_timeout(PATIENCE).expect("an event")
}

/// Skips other events until the death.
fn death(joined: &Joined) -> (usize, String) {
    loop {
        if let Event::Died { process, cause } = next(joined) {
            return (process, cause);
        }
    }
}

/// The error of a join.
fn error_of(outcome: Result<Joined, Cause>) -> String {
    match outcome {
        Ok(_) => panic!("it has joined"),
        Err(error) => error.to_string(),
    }
}

/// A flag that a join looks at.
struct Stopping(AtomicBool);

/// Stops a join also when the test fails meanwhile.
struct StopAtEnd<'a>(&'a Stopping);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Stopping {
    fn new() -> Self {
        Stopping(AtomicBool::new(false))
    }

    fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Certificates of one authority for processes on 127.0.0.1, and one of another authority.
fn certificates(folder: &std::path::Path) -> impl Fn(&str) -> PathBuf {
    let script = "
        new='openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2'
        printf 'subjectAltName=IP:127.0.0.1,DNS:localhost' > names
        for name in right other; do
            $new -x509 -subj /CN=authority-$name -keyout ca-$name.key -out ca-$name.pem
            $new -subj /CN=process -keyout $name.key -out request.pem
            openssl x509 -req -CA ca-$name.pem -CAkey ca-$name.key -CAcreateserial -days 2 -in request.pem -extfile names -out $name.pem
        done";
    let made = std::process::Command::new("sh")
        .args(["-ec", script])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let folder = folder.to_owned();
    move |name| folder.join(name)
}
