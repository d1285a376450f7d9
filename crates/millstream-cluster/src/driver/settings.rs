//! Where the processes are, and how they recognise each other.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use millstream_link::{
    Address, CallerSide, CallerTls, ListenerSide, ListenerTls, Protocol, Secret,
};

use crate::error::{CERTIFICATES, ClusterError, SECRET};
use crate::protocol::{Times, VERSION};

/// The words of the cluster, and the labels of its proofs.
pub(super) static PROTOCOL: Protocol = Protocol {
    magic: b"MSPROCES",
    version: VERSION,
    label: "cluster 1",
    listener: "listening process",
    caller: "calling process",
    client_authorities: "--tls-ca",
    closed_early: " while TLS was set up: it may be another program, or a process that ends",
};

/// How the processes recognise each other.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Auth {
    /// Not at all: for Unix sockets and addresses of the loopback interface only.
    None,
    /// They prove a shared secret to each other, over TLS.
    Secret(Secret),
    /// By certificates, on both sides (mutual TLS).
    Tls(Tls),
}

/// The certificates of a process, as PEM files.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificate of this process, and those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities that sign for processes of this cluster, and for nothing else: a process with any certificate of
    /// theirs may join.
    pub authorities: PathBuf,
    /// The name in the certificates of the others; the host of each address when there is none.
    pub name: Option<String>,
}

/// One of several processes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The number of this process.
    pub process: usize,
    /// The addresses of all processes, by number.
    pub hosts: Vec<Address>,
    /// Where this process listens. `None`: with a secret or certificates at all addresses of the machine, with the port
    /// of its own address, because the name of a machine may be one of the loopback interface there; otherwise, and
    /// where its address is a Unix socket, `localhost` or a number of the loopback interface, at its own address.
    pub listen: Option<Address>,
    /// How they recognise each other.
    pub auth: Auth,
    /// The interval of heartbeats: a second.
    pub heartbeat: Duration,
    /// A process that is silent for so long is considered dead: ten seconds.
    pub dead_after: Duration,
    /// The longest time of a handshake: ten seconds.
    pub greeting: Duration,
    /// How long this process waits for the others at the start: five minutes.
    pub meet_within: Duration,
}

impl Settings {
    /// Process `process` of those at `hosts`.
    #[must_use]
    pub fn new(process: usize, hosts: Vec<Address>, auth: Auth) -> Self {
        Settings {
            process,
            hosts,
            listen: None,
            auth,
            heartbeat: Duration::from_secs(1),
            dead_after: Duration::from_secs(10),
            greeting: Duration::from_secs(10),
            meet_within: Duration::from_secs(300),
        }
    }

    /// The addresses at which this process may listen; the first that can be used counts.
    pub(super) fn listens(&self) -> Vec<Address> {
        let own = &self.hosts[self.process];
        match (&self.listen, own, &self.auth) {
            (Some(listen), ..) => vec![listen.clone()],
            (None, Address::Tcp { host, port }, Auth::Secret(_) | Auth::Tls(_))
                if !is_loopback(host) =>
            {
                // Without IPv6 there is only the second one.
                let all = ["::", "0.0.0.0"].map(|host| Address::Tcp {
                    host: host.to_owned(),
                    port: *port,
                });
                all.to_vec()
            }
            _ => vec![own.clone()],
        }
    }

    pub(super) fn times(&self) -> Times {
        Times {
            heartbeat_ms: self.heartbeat.as_millis() as u64,
            dead_after_ms: self.dead_after.as_millis() as u64,
            ..Times::default()
        }
    }
}

/// What this process shows, and expects of the others.
pub(super) struct Identity {
    pub(super) secret: Option<Secret>,
    pub(super) listener: ListenerSide,
    /// By process.
    pub(super) callers: Vec<Option<CallerSide>>,
}

impl Identity {
    pub(super) fn new(settings: &Settings) -> Result<Self, ClusterError> {
        let process = settings.process;
        let processes = settings.hosts.len();
        if process >= processes {
            return Err(ClusterError::Usage(format!(
                "process {process} has no address: there are {processes}, numbered from 0"
            )));
        }
        let (secret, listens, calls) = match &settings.auth {
            Auth::None => {
                check_is_local(settings)?;
                (None, None, None)
            }
            Auth::Secret(secret) => (Some(secret.clone()), None, None),
            Auth::Tls(tls) => {
                let listens = ListenerTls {
                    certificate: tls.certificate.clone(),
                    key: tls.key.clone(),
                    client_authorities: Some(tls.authorities.clone()),
                };
                let calls = CallerTls {
                    authorities: tls.authorities.clone(),
                    name: tls.name.clone(),
                    certificate: Some((tls.certificate.clone(), tls.key.clone())),
                };
                (None, Some(listens), Some(calls))
            }
        };
        let has_secret = secret.is_some();
        let caller =
            |host: &Address| CallerSide::new(&PROTOCOL, host.host(), calls.as_ref(), has_secret);
        let callers = settings.hosts.iter().map(caller);
        Ok(Identity {
            listener: ListenerSide::new(&PROTOCOL, listens.as_ref(), has_secret)?,
            callers: callers.collect::<Result<_, _>>()?,
            secret,
        })
    }
}

/// Whether a host means this machine alone by what it is called. Names that are resolved here may be resolved to other
/// addresses elsewhere.
fn is_loopback(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(number) => number.to_canonical().is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// Without authentication all addresses must be those of this machine.
fn check_is_local(settings: &Settings) -> Result<(), ClusterError> {
    let mut addresses = settings.hosts.iter().chain(&settings.listen);
    match addresses.find(|host| !host.is_local()) {
        None => Ok(()),
        Some(host) => Err(ClusterError::Usage(format!(
            "{host} is reached from other machines, and batches between processes may be Python objects: the processes need a shared secret \
             ({SECRET}) or certificates ({CERTIFICATES})"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_listens_at_all_addresses_where_peers_must_authenticate() {
        let secret = || Auth::Secret(Secret::new(b"a secret of all processes").unwrap());
        let listens = |own: &str, auth: Auth, listen: Option<&str>| {
            let mut settings = Settings::new(0, vec![own.parse().unwrap()], auth);
            settings.listen = listen.map(|address| address.parse().unwrap());
            let all: Vec<String> = settings.listens().iter().map(Address::to_string).collect();
            all.join(" ")
        };
        // On Debian the name of a machine is one of 127.0.1.1 there.
        for own in [
            "n1:7700",
            "n1.example:7700",
            "10.0.0.1:7700",
            "[fd00::1]:7700",
        ] {
            assert_eq!(listens(own, secret(), None), "[::]:7700 0.0.0.0:7700");
            assert_eq!(
                listens(own, secret(), Some("10.0.0.2:7701")),
                "10.0.0.2:7701"
            );
        }
        for own in [
            "127.0.0.1:7700",
            "127.0.1.1:7700",
            "localhost:7700",
            "[::1]:7700",
            "/run/0.sock",
        ] {
            assert_eq!(listens(own, secret(), None), own);
            assert_eq!(listens(own, Auth::None, None), own);
        }
        assert_eq!(listens("n1:7700", Auth::None, None), "n1:7700");
    }

    #[test]
    fn without_proof_no_other_machine_is_listened_to() {
        let mut settings = Settings::new(0, vec!["127.0.0.1:7700".parse().unwrap()], Auth::None);
        settings.listen = Some("0.0.0.0:7700".parse().unwrap());
        let error = Identity::new(&settings).err().unwrap().to_string();
        assert!(
            error.contains("0.0.0.0:7700") && error.contains("Auth::Secret"),
            "{error}"
        );
    }
}
