//! The state of a flow for followers on other machines, as `millstream/_run/replica.py` describes it.

use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::Arc;

use millstream_flow::checkpoint::{Replica, Serving};
use millstream_flow::error::{Cause, chain};
use millstream_journal::Journal;
use millstream_replication::{LeaderTls, Secret, ServeOptions, StateReplica};
use pyo3::prelude::*;

use crate::error::usage;
use crate::stopper::Stopper;

/// Where the state is served, with checked options.
#[derive(FromPyObject)]
pub(crate) struct ServedAt {
    address: String,
    secret_file: Option<PathBuf>,
    tls: Option<(PathBuf, PathBuf, Option<PathBuf>)>,
}

impl ServedAt {
    fn options(self) -> Result<ServeOptions, Cause> {
        let mut addresses = self.address.to_socket_addrs()?;
        let address = addresses.next().ok_or("its host has no address")?;
        let secret = self.secret_file.as_deref().map(Secret::read).transpose()?;
        let tls = self
            .tls
            .map(|(certificate, key, client_authorities)| LeaderTls {
                certificate,
                key,
                client_authorities,
            });
        Ok(ServeOptions {
            secret,
            tls,
            ..ServeOptions::new(address, [])
        })
    }

    /// The replica; the start of a run does not wait for a follower any more when `stopper` is asked to stop.
    pub(crate) fn replica(self, stopper: &Bound<'_, Stopper>) -> PyResult<Arc<dyn Replica>> {
        let address = self.address.clone();
        let options = self.options().map_err(|error| {
            let message = format!("replica {address}: {}", chain(&*error));
            usage(stopper.py(), &message)
        })?;
        Ok(Arc::new(Attentive {
            served: StateReplica::new(options),
            stopper: stopper.clone().unbind(),
        }))
    }
}

/// A replica that attends to signals.
#[derive(Debug)]
struct Attentive {
    served: StateReplica,
    stopper: Py<Stopper>,
}

impl Replica for Attentive {
    fn serve(&self, journals: Vec<(String, Journal)>) -> Result<Box<dyn Serving>, Cause> {
        self.served.serve(journals)
    }

    fn stopping(&self) -> bool {
        Python::attach(|py| self.stopper.get().was_asked(py))
    }
}
