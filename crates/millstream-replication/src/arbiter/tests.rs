//! What all arbiters do, and what those over a network do besides: a real etcd, and an API server of Kubernetes that
//! is imitated.

mod etcd;
mod kubernetes;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::time::Duration;

use super::*;

/// No test waits for so long: what answers does so earlier also on a busy machine.
const PLENTY: Duration = Duration::from_secs(60);

fn record(process: u64, beat: u64) -> LeaseRecord {
    LeaseRecord {
        holder: format!("machine \"{process}\""),
        process,
        term: 1,
        beat,
        lease_ms: 5_000,
        ..LeaseRecord::default()
    }
}

/// What each arbiter does, here with several of them for one record that is not there yet.
fn behaves(arbiters: &[Box<dyn Arbiter>]) {
    for arbiter in arbiters {
        assert!(arbiter.read().unwrap().is_none());
    }
    let mut version = replaced_by_one(arbiters, None, 0);
    for beat in 1..12 {
        let next = replaced_by_one(arbiters, Some(&version), beat);
        for arbiter in arbiters {
            for stale in [None, Some(&version)] {
                let replaced = arbiter.replace(stale, &record(99, 99)).unwrap();
                assert_eq!(replaced, None, "{stale:?} is not {next:?}");
            }
        }
        version = next;
    }
    // One that replaces again and again what it has put there.
    let arbiter = &arbiters[0];
    for beat in 12..24 {
        version = arbiter
            .replace(Some(&version), &record(0, beat))
            .unwrap()
            .unwrap();
    }
    for arbiter in arbiters {
        assert_eq!(
            arbiter.read().unwrap(),
            Some((version.clone(), record(0, 23)))
        );
    }
}

/// All of them replace a version at a time, and one of them has. Returns the new version.
fn replaced_by_one(arbiters: &[Box<dyn Arbiter>], before: Option<&Version>, beat: u64) -> Version {
    let barrier = Barrier::new(arbiters.len());
    let replaced: Vec<_> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..)
            .zip(arbiters)
            .map(|(process, arbiter)| {
                let barrier = &barrier;
                let mine = record(process, beat);
                scope.spawn(move || {
                    barrier.wait();
                    arbiter
                        .replace(before, &mine)
                        .unwrap()
                        .map(|version| (version, mine))
                })
            })
            .collect();
        writers
            .into_iter()
            .filter_map(|writer| writer.join().unwrap())
            .collect()
    });
    assert_eq!(replaced.len(), 1, "{replaced:?} have replaced {before:?}");
    for arbiter in arbiters {
        assert_eq!(arbiter.read().unwrap().as_ref(), replaced.first());
    }
    replaced[0].0.clone()
}

#[test]
fn one_of_several_replaces_a_version_in_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let address = ArbiterAddress::File(folder.path().to_owned());
    let connect = |_| address.connect(&ArbiterTls::default(), PLENTY).unwrap();
    behaves(&(0..4).map(connect).collect::<Vec<_>>());
}

#[test]
fn a_client_certificate_needs_its_key() {
    let folder = tempfile::tempdir().unwrap();
    make_certificates(folder.path(), Ipv4Addr::LOCALHOST.into());
    let file = |name: &str| folder.path().join(name);
    let address: ArbiterAddress = "etcds://127.0.0.1:2379/orders".parse().unwrap();
    let connect = |certificate: &str, key: &str| {
        let tls = ArbiterTls {
            ca: Some(file("ca.pem")),
            certificate: Some((file(certificate), file(key))),
        };
        address
            .connect(&tls, PLENTY)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    connect("client.pem", "client.key").unwrap();
    let error = connect("client.pem", "server.key").unwrap_err();
    assert!(error.contains("server.key: not the key of "), "{error}");
    let error = connect("client.pem", "client.pem").unwrap_err();
    assert!(error.contains("client.pem: "), "{error}");
    let error = connect("client.key", "client.key").unwrap_err();
    assert!(
        error.contains("client.key: no certificate in this file"),
        "{error}"
    );
}

/// An address of this machine, which other processes do not take: one of its own in 127.0.0.0/8, and a port that is
/// free there.
fn free_address() -> SocketAddr {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let own = Ipv4Addr::new(127, a + 1, b, c);
    TcpListener::bind((own, 0)).unwrap().local_addr().unwrap()
}

/// Waits for what other processes do.
#[expect(
    clippy::disallowed_methods,
    reason = "a process of its own does the work"
)]
fn wait_until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("after a minute: {what}");
}

/// Certificates of one authority for a server of this address and for a client, and another authority.
fn make_certificates(folder: &Path, server: IpAddr) {
    let script = "
        new='openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2'
        for name in ca other; do
            $new -x509 -subj /CN=authority-$name -keyout $name.key -out $name.pem
        done
        printf \"subjectAltName=IP:$1\" > names
        for name in server client; do
            $new -subj /CN=$name -keyout $name.key -out request.pem
            openssl x509 -req -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -in request.pem -extfile names \\
                -out $name.pem
        done";
    let made = Command::new("sh")
        .args(["-ec", script, "sh", &server.to_string()])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}
