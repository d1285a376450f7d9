//! Where the processes are, and how they recognise each other.

use std::path::PathBuf;
use std::time::Duration;

use millstream_link::{
    Address, CallerSide, CallerTls, ListenerSide, ListenerTls, Protocol, Secret,
};

use crate::error::ClusterError;
use crate::protocol::Times;

/// The words of the cluster, and the labels of its proofs.
pub(super) static PROTOCOL: Protocol = Protocol {
    label: "cluster 1",
    listener: "listening process",
    caller: "calling process",
    client_authorities: "--tls-ca",
    closed_early: " while TLS was set up: it may be another program, or a process that ends",
};

/// How the processes recognise each other.
#[derive(Clone, Debug)]
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
    /// The authorities that sign for processes of this cluster, and for nothing else: a process with any certificate of theirs may join.
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
            auth,
            heartbeat: Duration::from_secs(1),
            dead_after: Duration::from_secs(10),
            greeting: Duration::from_secs(10),
            meet_within: Duration::from_secs(300),
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
        let (process, processes) = (settings.process, settings.hosts.len());
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

/// Without authentication all addresses must be those of this machine.
fn check_is_local(settings: &Settings) -> Result<(), ClusterError> {
    match settings.hosts.iter().find(|host| !host.is_local()) {
        None => Ok(()),
        Some(host) => Err(ClusterError::Usage(format!(
            "{host} is reached from other machines, and batches between processes may be Python objects: the processes need a shared secret \
             (--secret-file) or certificates (--tls-cert, --tls-key, --tls-ca)"
        ))),
    }
}
