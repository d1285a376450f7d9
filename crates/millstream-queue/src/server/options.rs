//! How a server is started.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::address::Address;
use crate::config::{Config, Sync};
use crate::error::QueueError;
use crate::session::Compat;

/// How a server runs.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Addresses, and whose replies clients expect there. Those that systemd hands over come first.
    pub listen: Vec<(Address, Compat)>,
    /// Where the queues are.
    pub dir: PathBuf,
    /// The configuration. It is read again at SIGHUP and by `reload`, and so are credentials and certificates.
    pub config: Option<PathBuf>,
    /// What holds where the configuration says nothing.
    pub sync: Sync,
    /// A file with a line `name:password` for each who may come in, as memcached reads it.
    pub credentials: Option<PathBuf>,
    /// Certificates and key as PEM files: then all connections are TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Whether clients may stop the server.
    pub shutdown: bool,
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
        }
    }

    pub(super) fn read_config(&self) -> Result<Config, QueueError> {
        let config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        Ok(config.or_sync(self.sync))
    }
}
