//! The processes of a flow, as `millstream/_run/cluster.py` describes them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millstream_cluster::{Auth, Processes, Secret, Settings, Tls};
use millstream_flow::cluster::{Cluster, Joined, Membership, Missing, Offer};
use millstream_flow::error::{Cause, chain};
use pyo3::prelude::*;

use crate::error::usage;
use crate::stopper::Stopper;

/// The place of this process among several, whose options are checked.
#[derive(FromPyObject)]
pub(crate) struct Place {
    process: usize,
    hosts: Vec<String>,
    secret_file: Option<PathBuf>,
    tls: Option<(PathBuf, PathBuf, PathBuf, Option<String>)>,
    listen: Option<String>,
    dead_after: f64,
    meet_within: f64,
}

impl Place {
    fn settings(self) -> Result<Settings, Cause> {
        let auth = match (self.secret_file, self.tls) {
            (Some(file), _) => Auth::Secret(Secret::read(&file)?),
            (None, Some((certificate, key, authorities, name))) => Auth::Tls(Tls {
                certificate,
                key,
                authorities,
                name,
            }),
            (None, None) => Auth::None,
        };
        let hosts = self.hosts.iter().map(|host| host.parse());
        let mut settings = Settings::new(self.process, hosts.collect::<Result<_, _>>()?, auth);
        settings.listen = self.listen.map(|address| address.parse()).transpose()?;
        settings.dead_after = Duration::try_from_secs_f64(self.dead_after)?;
        settings.meet_within = Duration::try_from_secs_f64(self.meet_within)?;
        settings.heartbeat = settings.heartbeat.min(settings.dead_after / 4);
        Ok(settings)
    }

    /// The cluster that this place is in; the wait for the others ends when `stopper` is asked to stop.
    pub(crate) fn cluster(self, stopper: &Bound<'_, Stopper>) -> PyResult<Arc<dyn Cluster>> {
        let py = stopper.py();
        let settings = self
            .settings()
            .map_err(|error| usage(py, &chain(&*error).to_string()))?;
        let processes =
            Processes::new(settings).map_err(|error| usage(py, &chain(&error).to_string()))?;
        Ok(Arc::new(Attentive {
            processes,
            stopper: stopper.clone().unbind(),
        }))
    }
}

/// A cluster whose wait for the other processes ends when this one is asked to stop.
struct Attentive {
    processes: Processes,
    stopper: Py<Stopper>,
}

impl Attentive {
    /// Whether a signal has asked this process to stop; Python's handlers of signals run meanwhile.
    fn is_stopped(&self) -> bool {
        Python::attach(|py| self.stopper.get().was_asked(py))
    }
}

impl Cluster for Attentive {
    fn membership(&self) -> Membership {
        self.processes.membership()
    }

    fn join(&self, offer: Offer, stopping: &dyn Fn() -> bool) -> Result<Joined, Cause> {
        self.processes
            .join(offer, &|| stopping() || self.is_stopped())
    }

    fn missing(&self) -> Vec<Missing> {
        self.processes.missing()
    }
}
