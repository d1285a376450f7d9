//! The links between processes: sockets and threads around the state machines of [`protocol`](crate::protocol).
//!
//! Each process listens at one address for control links (process 0 only) and data links; what a connection is for is
//! part of its handshake. Of two processes the one with the higher number connects. Threads block in reads and writes,
//! as those of replication.

mod call;
mod handshake;
mod hub;
mod link;
mod listen;
mod meet;
mod outbox;
mod reader;
mod settings;
#[cfg(test)]
mod tests;

pub use settings::{Auth, Settings, Tls};

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millstream_flow::cluster::{Cluster, Joined, Membership, Missing, Offer};
use millstream_flow::error::Cause;
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::ClusterError;
use crate::protocol::Ids;
use hub::{Hub, Machine};
use link::MemberOfRun;
use settings::Identity;

/// The processes of one flow, as one of them sees the others.
pub struct Processes {
    settings: Settings,
    identity: Arc<Identity>,
    /// What this process shares while it waits for the others.
    waiting: Mutex<Option<Arc<Hub>>>,
}

impl Processes {
    /// Checks the settings and reads certificates. Nothing is opened on the network.
    ///
    /// # Errors
    /// A number without an address; addresses that other machines reach, without a secret and without certificates; a
    /// file that cannot be read.
    pub fn new(settings: Settings) -> Result<Self, ClusterError> {
        let identity = Arc::new(Identity::new(&settings)?);
        Ok(Processes {
            settings,
            identity,
            waiting: Mutex::default(),
        })
    }

    /// Shows which processes this one waits for, until the wait ends.
    fn show_waiting(&self, hub: &Arc<Hub>) -> Waiting<'_> {
        *self.waiting() = Some(Arc::clone(hub));
        Waiting(self)
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Arc<Hub>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meet(&self, offer: Offer, stopping: &dyn Fn() -> bool) -> Result<Joined, Cause> {
        let ids = Ids {
            run: random()?,
            cluster: random()?,
        };
        let (events, received) = channel();
        let machine = Machine::new(&self.settings, &offer, ids)?;
        let hub = Hub::new(
            self.settings.clone(),
            Arc::clone(&self.identity),
            machine,
            events,
        );
        // Closes everything on each way out.
        let member = MemberOfRun::new(Arc::clone(&hub));
        let (start, links) = {
            let _waiting = self.show_waiting(&hub);
            listen::begin(&hub, stopping)?;
            hub::begin_ticks(&hub)?;
            let start = match self.settings.process {
                0 => meet::wait_for_all(&hub, stopping)?,
                _ => meet::join_zero(&hub, &offer, stopping)?,
            };
            let links = meet::make_data_links(&hub, start.run, stopping)?;
            (start, links)
        };
        tracing::info!(
            process = self.settings.process,
            "process {} of {} has joined the run {:016x}",
            self.settings.process,
            self.settings.hosts.len(),
            start.run
        );
        Ok(Joined {
            run: start.run,
            links,
            cluster: start.cluster,
            keeps_prepared: start.keeps_prepared,
            epoch: start.epoch,
            member: Arc::new(member),
            events: received,
        })
    }
}

impl Cluster for Processes {
    fn membership(&self) -> Membership {
        Membership {
            process: self.settings.process,
            processes: self.settings.hosts.len(),
        }
    }

    fn join(&self, offer: Offer, stopping: &dyn Fn() -> bool) -> Result<Joined, Cause> {
        self.meet(offer, stopping)
    }

    fn missing(&self) -> Vec<Missing> {
        let hub = self.waiting().clone();
        hub.map_or_else(Vec::new, |hub| meet::missing(&hub))
    }
}

/// The wait of a process for the others.
struct Waiting<'a>(&'a Processes);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        *self.0.waiting() = None;
    }
}

/// A random number, not 0.
fn random() -> Result<u64, ClusterError> {
    let mut bytes = [0; 8];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| ClusterError::Usage("the system returns no random numbers".to_owned()))?;
    Ok(u64::from_le_bytes(bytes).max(1))
}
