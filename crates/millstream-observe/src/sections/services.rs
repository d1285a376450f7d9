//! A service of this process: its progress, and what its journals say.
//!
//! The service publishes its counts anyway. A thread of its own reads the journals once a second, as any reader does.

mod calls;
mod look;
mod service;

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_http::pages::{Page, PageRequest};

use self::look::Look;
pub use self::service::{Progress, ServiceOf};
use super::service_figures::{ServiceSnapshot, ServiceState, ServicesSnapshot};
use super::tracks::Tracks;
use super::{Section, json};
use crate::error::ObserveError;
use crate::lock;
use crate::snapshot::Snapshot;

/// The time between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// The section of a service. Its thread ends when it is dropped.
pub struct Services {
    shared: Arc<Shared>,
    history: Mutex<Tracks<2>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    newest: Mutex<Option<ServiceSnapshot>>,
    stops: Mutex<bool>,
    stopped: Condvar,
}

impl Drop for Services {
    fn drop(&mut self) {
        *lock(&self.shared.stops) = true;
        self.shared.stopped.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Services {
    /// Watches a service.
    ///
    /// # Errors
    /// [`ObserveError::Bind`]: the thread cannot be started.
    pub fn watch(service: ServiceOf) -> Result<Self, ObserveError> {
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("service page".to_owned())
            .spawn(move || for_thread.run(&service))
            .map_err(|error| ObserveError::Bind(error.into()))?;
        Ok(Services {
            shared,
            history: Mutex::new(Tracks::new(["call_rate", "lag_records"])),
            thread: Some(thread),
        })
    }
}

impl Shared {
    fn run(&self, service: &ServiceOf) {
        let mut look = Look::default();
        loop {
            let snapshot = look.at(service);
            *lock(&self.newest) = Some(snapshot);
            let stops = lock(&self.stops);
            let waited = self
                .stopped
                .wait_timeout_while(stops, EVERY, |stops| !*stops)
                .unwrap_or_else(PoisonError::into_inner);
            if *waited.0 {
                return;
            }
        }
    }
}

impl Section for Services {
    fn add(&self, snapshot: &mut Snapshot) {
        let Some(service) = lock(&self.shared.newest).clone() else {
            return;
        };
        let lag: u64 = service.inputs.iter().map(|input| input.lag_records).sum();
        let values = [service.call_rate as f32, lag as f32];
        lock(&self.history).add(snapshot.time_ms, [(service.name.as_str(), values)]);
        let all = snapshot.services.get_or_insert_default();
        all.services.push(service);
        all.attention = attention(all);
    }

    fn answer(&self, request: &PageRequest<'_>) -> Option<Page> {
        if request.path() != "/api/history.json" || request.parameter("of")? != "service" {
            return None;
        }
        let name = request.parameter("name").unwrap_or_default();
        Some(json(&lock(&self.history).of(&name)))
    }

    fn obstacle(&self) -> Option<String> {
        let newest = lock(&self.shared.newest);
        match newest.as_ref().map(|service| service.state) {
            None | Some(ServiceState::Starting) => Some("the service starts".to_owned()),
            Some(_) => None,
        }
    }
}

fn attention(all: &ServicesSnapshot) -> Option<String> {
    let in_state = |state| all.services.iter().find(|service| service.state == state);
    if let Some(service) = in_state(ServiceState::Lagging) {
        let slowest = service
            .inputs
            .iter()
            .max_by(|one, other| one.lag_seconds.total_cmp(&other.lag_seconds))?;
        return Some(format!(
            "Service \"{}\" does not keep up with \"{}\": {} records wait, the first for {:.0} s.",
            service.name, slowest.name, slowest.lag_records, slowest.lag_seconds
        ));
    }
    let service = in_state(ServiceState::Skipping)?;
    let (skipped, dead) = (service.skipped, service.dead_letters);
    Some(format!(
        "Service \"{}\" has skipped {skipped} records and set {dead} aside as dead letters.",
        service.name
    ))
}
