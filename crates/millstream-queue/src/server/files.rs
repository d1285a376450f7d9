//! The files of a server: configuration, passwords, certificates. They are read at the start and at each reload.
//!
//! The invariant: all files are read and checked before anything changes. An error in one of them changes nothing.

use std::path::Path;
use std::sync::Arc;

use millstream_journal::named::Named;
use tokio_rustls::TlsAcceptor;
use tracing::warn;

use super::descriptors;
use super::error::ServerError;
use super::options::ServerOptions;
use super::tls;
use crate::broker::BrokerLimits;
use crate::config::{Config, ServerLimits};
use crate::protocol::Limits;
use crate::session::{Compat, Credentials, Rights, SessionOptions};

/// The file of names and passwords.
const CREDENTIALS: Named = Named(["ServerOptions::credentials", "--auth-file", "--auth-file"]);

/// The contents of all files, checked.
pub(super) struct LoadedSettings {
    pub(super) config: Config,
    pub(super) live: LiveSettings,
}

/// The current settings of connections.
pub(super) struct LiveSettings {
    pub(super) limits: ServerLimits,
    pub(super) tls: Option<TlsAcceptor>,
    memcached: Arc<SessionOptions>,
    kestrel: Arc<SessionOptions>,
}

impl LiveSettings {
    /// Logs the names whose rights may not be as intended.
    pub(super) fn warn_of_rights(&self) {
        let SessionOptions {
            credentials,
            rights,
            ..
        } = &*self.memcached;
        let Some(credentials) = credentials else {
            return;
        };
        if rights.names().next().is_none() {
            return;
        }
        for name in credentials.names() {
            if !rights.names().any(|known| known == name) {
                warn!("\"{name}\" has no rights, since there is no [user.{name:?}]");
            }
        }
        for name in rights.names() {
            if !credentials.names().any(|known| known == name) {
                warn!("user.{name}: there is no such name in the file of passwords");
            }
        }
    }

    /// Whether clients must authenticate.
    pub(super) fn authenticates(&self) -> bool {
        self.memcached.credentials.is_some()
    }

    /// The options of connections with these replies.
    #[inline]
    pub(super) fn session(&self, compat: Compat) -> &Arc<SessionOptions> {
        match compat {
            Compat::Memcached => &self.memcached,
            Compat::Kestrel => &self.kestrel,
        }
    }
}

impl LoadedSettings {
    /// Reads all files.
    ///
    /// # Errors
    /// The first file that is missing or invalid, and where.
    pub(super) fn read(options: &ServerOptions) -> Result<Self, ServerError> {
        let config = options.read_config()?;
        let limits = config.limits();
        let tls = options
            .tls
            .as_ref()
            .map(|(certificates, key)| tls::acceptor(certificates, key))
            .transpose()?;
        let credentials = options
            .credentials
            .as_deref()
            .map(credentials)
            .transpose()?;
        let rights = config.rights().clone();
        if let (None, Some(name), Some(path)) =
            (&credentials, rights.names().next(), &options.config)
        {
            return Err(ServerError::Secret {
                path: path.clone(),
                message: format!("user.{name}: rights need names and passwords ({CREDENTIALS})"),
            });
        }
        let live = LiveSettings::new(limits, tls, (credentials, rights), options.shutdown);
        Ok(LoadedSettings { config, live })
    }
}

impl LiveSettings {
    /// The same settings with another limit on items, while the open journals take no larger records.
    pub(super) fn with_item_bytes(self, item_bytes: usize, shutdown: bool) -> Self {
        let limits = ServerLimits {
            item_bytes,
            ..self.limits
        };
        let SessionOptions {
            credentials,
            rights,
            ..
        } = &*self.memcached;
        LiveSettings::new(
            limits,
            self.tls,
            (credentials.clone(), rights.clone()),
            shutdown,
        )
    }

    fn new(
        limits: ServerLimits,
        tls: Option<TlsAcceptor>,
        (credentials, rights): (Option<Credentials>, Rights),
        shutdown: bool,
    ) -> Self {
        let session = |compat| {
            Arc::new(SessionOptions {
                compat,
                limits: Limits {
                    line_bytes: limits.line_bytes,
                    item_bytes: limits.item_bytes,
                },
                output_bytes: limits.output_bytes,
                credentials: credentials.clone(),
                rights: rights.clone(),
                shutdown,
            })
        };
        LiveSettings {
            memcached: session(Compat::Memcached),
            kestrel: session(Compat::Kestrel),
            limits,
            tls,
        }
    }
}

/// The limits of all queues together.
pub(super) fn broker_limits(limits: &ServerLimits, descriptors_max: u64) -> BrokerLimits {
    BrokerLimits {
        queues: limits.queues,
        opens_per_connection: limits.opens_per_connection,
        memory_bytes: limits.memory_items(),
        open_logs: descriptors::open_logs_max(descriptors_max),
        ..BrokerLimits::default()
    }
}

fn credentials(path: &Path) -> Result<Credentials, ServerError> {
    let text = std::fs::read_to_string(path).map_err(|source| ServerError::File {
        path: path.to_owned(),
        source,
    })?;
    text.parse().map_err(|message| ServerError::Secret {
        path: path.to_owned(),
        message,
    })
}
