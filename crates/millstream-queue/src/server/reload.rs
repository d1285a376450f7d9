//! What a server reads from its files: configuration, passwords, certificates; at the start and again while it runs.
//!
//! The invariant: all files are read and checked before anything changes. A mistake in one of them leaves everything as it was.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use super::clock;
use super::core::{Core, State};
use super::descriptors;
use super::limits::ServerLimits;
use super::{ServerError, ServerOptions, tls};
use crate::config::Config;
use crate::protocol::Limits;
use crate::queues::QueuesLimits;
use crate::session::{Compat, Credentials, SessionOptions};

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
        let credentials = options.credentials.as_deref().map(credentials);
        let live = Live::new(limits, tls, credentials.transpose()?, options.shutdown);
        Ok(Loaded { config, live })
    }
}

impl Live {
    fn new(
        limits: ServerLimits,
        tls: Option<TlsAcceptor>,
        credentials: Option<Credentials>,
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
pub(super) fn queues_limits(limits: &ServerLimits, descriptors_max: u64) -> QueuesLimits {
    QueuesLimits {
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
            let credentials = memcached.credentials.clone();
            loaded.live = Live::new(limits, tls, credentials, self.options.shutdown);
        }
        state
            .queues
            .set_limits(queues_limits(&loaded.live.limits, state.descriptors_max));
        state.queues.configure(loaded.config, clock::now());
        state.live = loaded.live;
        // Every connection looks at what holds now, also one that waits.
        for place in state.places.iter().flatten() {
            place.waker.wake_by_ref();
        }
        self.settle(state);
        self.spin_changed.notify_one();
        info!("configuration read");
        fixed.iter().for_each(|line| warn!("{line}"));
        Ok(fixed)
    }
}
