//! What a server reads from its files: configuration, passwords, certificates; at the start and again while it runs.
//!
//! The invariant: all files are read and checked before anything changes. A mistake in one of them leaves everything as it was.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use super::core::{Core, State};
use super::descriptors;
use super::{ServerError, ServerOptions, tls};
use crate::broker::BrokerLimits;
use crate::clock;
use crate::config::{Config, ServerLimits};
use crate::protocol::Limits;
use crate::session::{Compat, Credentials, Rights, SessionOptions};

/// What all files said, checked.
pub(super) struct Loaded {
    pub(super) config: Config,
    pub(super) live: Live,
}

/// What holds for connections at present.
pub(super) struct Live {
    pub(super) limits: ServerLimits,
    pub(super) tls: Option<TlsAcceptor>,
    memcached: Arc<SessionOptions>,
    kestrel: Arc<SessionOptions>,
}

impl Live {
    /// Say in the log whose rights are not as somebody may think.
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

    /// The options of connections whose clients expect these replies.
    #[inline]
    pub(super) fn session(&self, compat: Compat) -> &Arc<SessionOptions> {
        match compat {
            Compat::Memcached => &self.memcached,
            Compat::Kestrel => &self.kestrel,
        }
    }
}

impl Loaded {
    /// Read all files.
    ///
    /// # Errors
    /// The first file that is missing or wrong, and where.
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
                message: format!("user.{name}: rights need names and passwords (--auth-file)"),
            });
        }
        let live = Live::new(limits, tls, (credentials, rights), options.shutdown);
        Ok(Loaded { config, live })
    }
}

impl Live {
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
        Live {
            memcached: session(Compat::Memcached),
            kestrel: session(Compat::Kestrel),
            limits,
            tls,
        }
    }
}

/// What holds for the queues together.
pub(super) fn broker_limits(limits: &ServerLimits, descriptors_max: u64) -> BrokerLimits {
    BrokerLimits {
        queues: limits.queues,
        opens_per_connection: limits.opens_per_connection,
        memory_bytes: limits.memory_items(),
        open_logs: descriptors::open_logs_max(descriptors_max),
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

impl Core {
    /// Read all files again; what they say holds from now on, for connections that are there too. The settings that cannot
    /// change while the server runs are returned, each with the reason.
    ///
    /// # Errors
    /// The first file that is wrong. Everything stays as it was.
    pub(super) fn reload(&self, state: &mut State) -> Result<Vec<String>, String> {
        let mut loaded = Loaded::read(&self.options).map_err(|error| {
            warn!("the old configuration holds: {error}");
            format!("the old configuration holds: {error}")
        })?;
        let mut fixed = Vec::new();
        let limits = &mut loaded.live.limits;
        if limits.item_bytes > state.item_bytes_max {
            fixed.push(format!(
                "limits.item_bytes = {} takes effect at the next start: until then it is {}, the largest record of the open journals",
                limits.item_bytes, state.item_bytes_max
            ));
            limits.item_bytes = state.item_bytes_max;
            let Live {
                limits,
                tls,
                memcached,
                ..
            } = loaded.live;
            let who = (memcached.credentials.clone(), memcached.rights.clone());
            loaded.live = Live::new(limits, tls, who, self.options.shutdown);
        }
        state
            .broker
            .set_limits(broker_limits(&loaded.live.limits, state.descriptors_max));
        state.broker.configure(loaded.config, clock::now());
        state.live = loaded.live;
        // Every connection looks at what holds now, also one that waits.
        for place in state.places.iter().flatten() {
            place.waker.wake_by_ref();
        }
        self.settle(state);
        self.spin_changed.notify_one();
        info!("configuration read");
        state.live.warn_of_rights();
        fixed.iter().for_each(|line| warn!("{line}"));
        Ok(fixed)
    }
}
