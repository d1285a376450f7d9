//! A real etcd, which is stopped and started.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use rustix::net;
use tempfile::TempDir;

use super::*;

struct Etcd {
    folder: TempDir,
    address: SocketAddr,
    is_tls: bool,
    child: Option<Child>,
}

impl Etcd {
    fn start(is_tls: bool) -> Self {
        let mut etcd = Etcd {
            folder: tempfile::tempdir().unwrap(),
            address: free_address(),
            is_tls,
            child: None,
        };
        if is_tls {
            make_certificates(etcd.folder.path(), etcd.address.ip());
        }
        etcd.resume();
        etcd
    }

    /// Starts it, also again after it was killed.
    fn resume(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"));
        let log = log.unwrap();
        let scheme = if self.is_tls { "https" } else { "http" };
        let url = format!("{scheme}://{}", self.address);
        let mut command = Command::new("etcd");
        command
            .current_dir(self.folder.path())
            .env_clear()
            .args([
                "--data-dir",
                "data",
                "--listen-peer-urls",
                "http://127.0.0.1:0",
            ])
            // It is part of what names the cluster.
            .args(["--initial-cluster-token", &url])
            .args([
                "--listen-client-urls",
                &url,
                "--advertise-client-urls",
                &url,
            ])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        if self.is_tls {
            command.args(["--cert-file", "server.pem", "--key-file", "server.key"]);
            command.args(["--client-cert-auth", "--trusted-ca-file", "ca.pem"]);
        }
        self.child = Some(command.spawn().expect("etcd is installed by tests/setup"));
        let arbiter = self.connect();
        wait_until("etcd does not answer", || arbiter.read().is_ok());
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn tls(&self) -> ArbiterTls {
        let file = |name: &str| self.folder.path().join(name);
        if self.is_tls {
            ArbiterTls {
                ca: Some(file("ca.pem")),
                certificate: Some((file("client.pem"), file("client.key"))),
            }
        } else {
            ArbiterTls::default()
        }
    }

    fn connect_to(&self, endpoints: &[SocketAddr], timeout: Duration) -> Box<dyn Arbiter> {
        let address = ArbiterAddress::Etcd {
            endpoints: endpoints.iter().map(SocketAddr::to_string).collect(),
            key: "a key/\"of\"/orders".to_owned(),
            is_tls: self.is_tls,
        };
        address.connect(&self.tls(), timeout).unwrap()
    }

    fn connect(&self) -> Box<dyn Arbiter> {
        self.connect_to(&[self.address], PLENTY)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

fn four(etcd: &Etcd) -> Vec<Box<dyn Arbiter>> {
    (0..4).map(|_| etcd.connect()).collect()
}

#[test]
fn one_of_several_replaces_a_version_in_etcd() {
    behaves(&four(&Etcd::start(false)));
}

#[test]
fn one_of_several_replaces_a_version_in_etcd_over_tls() {
    let etcd = Etcd::start(true);
    behaves(&four(&etcd));

    let address: ArbiterAddress = format!("etcds://{}/orders", etcd.address).parse().unwrap();
    let refused = |tls: &ArbiterTls| {
        let arbiter = address.connect(tls, PLENTY).unwrap();
        let error = arbiter.read().unwrap_err().to_string();
        assert!(
            error.starts_with(&format!(
                "the arbiter {address}: https://{}: ",
                etcd.address
            )),
            "{error}"
        );
        error
    };
    let without = ArbiterTls {
        certificate: None,
        ..etcd.tls()
    };
    refused(&without);
    for other in [None, Some(etcd.folder.path().join("other.pem"))] {
        let error = refused(&ArbiterTls {
            ca: other,
            ..etcd.tls()
        });
        assert!(error.contains("UnknownIssuer"), "{error}");
    }
}

#[test]
fn an_etcd_that_is_down_is_named_and_found_again() {
    let mut etcd = Etcd::start(false);
    let arbiter = etcd.connect();
    let version = arbiter.replace(None, &record(1, 0)).unwrap().unwrap();
    etcd.kill();
    let begin = format!(
        "the arbiter etcd://{0}/a key/\"of\"/orders: http://{0}: ",
        etcd.address
    );
    for _ in 0..3 {
        for error in [
            arbiter.read().unwrap_err(),
            arbiter.replace(Some(&version), &record(1, 1)).unwrap_err(),
        ] {
            assert!(error.to_string().starts_with(&begin), "{error}");
        }
    }
    etcd.resume();
    wait_until("it is not found again", || arbiter.read().is_ok());
    assert_eq!(
        arbiter.read().unwrap(),
        Some((version.clone(), record(1, 0)))
    );
    assert!(
        arbiter
            .replace(Some(&version), &record(1, 1))
            .unwrap()
            .is_some()
    );
}

#[test]
fn the_next_endpoint_of_etcd_is_asked_when_one_is_down() {
    let mut etcd = Etcd::start(false);
    let down = free_address();
    let up = etcd.address;
    let connect = || etcd.connect_to(&[down, up], PLENTY);
    // Each begins at the first endpoint.
    let version = connect().replace(None, &record(1, 0)).unwrap().unwrap();
    assert_eq!(
        connect().read().unwrap(),
        Some((version.clone(), record(1, 0)))
    );
    let arbiter = connect();
    let version = arbiter
        .replace(Some(&version), &record(1, 1))
        .unwrap()
        .unwrap();
    assert_eq!(arbiter.read().unwrap(), Some((version, record(1, 1))));
    etcd.kill();
    let error = arbiter.read().unwrap_err().to_string();
    for endpoint in [down, up] {
        assert!(error.contains(&format!("http://{endpoint}: ")), "{error}");
    }
}

#[test]
fn an_endpoint_of_etcd_that_hangs_is_left() {
    let etcd = Etcd::start(false);
    // Connections to it are made, by the system, and nothing is answered.
    let hung = TcpListener::bind(free_address()).unwrap();
    let hung = hung.local_addr().unwrap();
    let short = Duration::from_secs(1);
    let alone = etcd.connect_to(&[hung], short);
    let error = alone.replace(None, &record(1, 0)).unwrap_err().to_string();
    assert!(error.contains("no answer within "), "{error}");
    let arbiter = etcd.connect_to(&[hung, etcd.address], short);
    wait_until("the other endpoint is not asked", || arbiter.read().is_ok());
}

#[test]
fn an_endpoint_of_etcd_that_takes_no_connections_leaves_time_for_the_next_one() {
    let etcd = Etcd::start(false);
    let (full, _connections) = full_listener();
    let full = full.local_addr().unwrap();
    wait_until("the next endpoint is not asked", || {
        // Each begins at the first endpoint.
        let arbiter = etcd.connect_to(&[full, etcd.address], Duration::from_secs(2));
        arbiter.replace(None, &record(1, 0)).is_ok()
    });
    assert_eq!(etcd.connect().read().unwrap().unwrap().1, record(1, 0));
}

/// One whose queue of connections is full: the system does not answer to further ones.
fn full_listener() -> (TcpListener, Vec<TcpStream>) {
    let SocketAddr::V4(address) = free_address() else {
        panic!("no address of IPv4");
    };
    let socket = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None).unwrap();
    net::bind(&socket, &address).unwrap();
    net::listen(&socket, 0).unwrap();
    let connect = || TcpStream::connect_timeout(&address.into(), Duration::from_millis(200)).ok();
    let connections = std::iter::from_fn(connect).collect();
    (socket.into(), connections)
}

#[test]
fn what_an_endpoint_of_etcd_may_have_done_is_not_asked_of_the_next_one() {
    let etcd = Etcd::start(false);
    // It reads each request, and ends the connection without an answer.
    let closes = TcpListener::bind(free_address()).unwrap();
    let address = closes.local_addr().unwrap();
    let close = move || {
        for stream in closes.incoming() {
            let _ = BufReader::new(stream.unwrap()).read_line(&mut String::new());
        }
    };
    std::thread::Builder::new().spawn(close).unwrap();
    let connect = || etcd.connect_to(&[address, etcd.address], PLENTY);
    let arbiter = connect();
    let error = arbiter.replace(None, &record(1, 0)).unwrap_err();
    assert!(!error.text.contains(&etcd.address.to_string()), "{error}");
    // The next request begins at the next one.
    assert!(arbiter.replace(None, &record(1, 1)).unwrap().is_some());
    // A read may be asked of both.
    assert_eq!(connect().read().unwrap().unwrap().1, record(1, 1));
}

#[test]
fn endpoints_of_two_clusters_are_not_one_arbiter() {
    let mut one = Etcd::start(false);
    let other = Etcd::start(false);
    let arbiter = one.connect_to(&[one.address, other.address], PLENTY);
    let version = arbiter.replace(None, &record(1, 0)).unwrap().unwrap();
    one.kill();
    let error = arbiter.read().unwrap_err().to_string();
    assert!(
        error.contains(&format!("http://{}: it is of the cluster ", other.address)),
        "{error}"
    );
    one.resume();
    wait_until("it is not found again", || arbiter.read().is_ok());
    assert_eq!(arbiter.read().unwrap(), Some((version, record(1, 0))));
}
