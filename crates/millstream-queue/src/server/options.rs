//! How a server is started.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use millstream_replication::ServeOptions;

use super::watch::ServerWatch;
use crate::address::Address;
use crate::config::{Config, Sync};
use crate::error::QueueError;
use crate::pair::Keeper;
use crate::session::Compat;

/// How followers are served.
#[derive(Clone, Debug)]
pub struct ReplicaOptions {
    /// Where, and how both sides authenticate; its journals are left out.
    pub serve: ServeOptions,
    /// Whether each answer waits until all followers that count have what was done before it.
    pub waits: bool,
    /// What keeps the lease, where an arbiter decides which machine serves.
    #[doc(hidden)] // For the other crates of Millstream.
    pub keeper: Option<Arc<Keeper>>,
}

/// The options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Addresses, and the style of replies there.
    pub listen: Vec<(Address, Compat)>,
    /// The directory of the queues.
    pub dir: PathBuf,
    /// The configuration file. A reload reads it again, with credentials and certificates.
    pub config: Option<PathBuf>,
    /// The sync policy where the configuration does not say.
    pub sync: Sync,
    /// A file with a line `name:password` for each client, in the format of memcached.
    pub credentials: Option<PathBuf>,
    /// Certificates and key as PEM files: with them, all TCP connections use TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Whether clients may stop the server.
    pub shutdown: bool,
    /// Where followers get the changes of all queues, if anywhere.
    pub replica: Option<ReplicaOptions>,
    /// Where the server publishes its figures once a second, if anywhere; else [`Server::watch`](super::Server::watch)
    /// makes it begin.
    pub watch: Option<ServerWatch>,
    /// Whether this process only serves, as `millstream queue serve` does: the server then takes the sockets that
    /// systemd passes, in place of `listen`, and raises the limit on open files. Otherwise this is left to the program.
    pub owns_process: bool,
}

impl ServerOptions {
    /// Defaults: 127.0.0.1:22133, everything durable before it is acknowledged.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        ServerOptions {
            listen: vec![(
                SocketAddr::from(([127, 0, 0, 1], 22133)).into(),
                Compat::Memcached,
            )],
            dir: dir.into(),
            config: None,
            sync: Sync::Always,
            credentials: None,
            tls: None,
            shutdown: false,
            replica: None,
            watch: None,
            owns_process: false,
        }
    }

    /// The length of the longest item.
    pub(crate) fn item_bytes(&self) -> Result<usize, QueueError> {
        Ok(self.read_config()?.limits().item_bytes)
    }

    pub(super) fn read_config(&self) -> Result<Config, QueueError> {
        let config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        Ok(config.or_sync(self.sync))
    }
}
