//! A service of this process, or the services of a system: their progress, and what their journals say.
//!
//! A service publishes its counts anyway, in a system to a file. A thread of its own reads the journals once a second,
//! as any reader does.

mod calls;
mod look;
mod service;
mod system;
mod traced;
mod watched;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_http::pages::{Page, PageRequest};

pub use self::service::{Progress, ServiceOf};
use self::system::System;
#[doc(hidden)] // For the other crates of Millstream.
pub use self::system::SystemStatus;
use self::traced::CALLS_MAX;
use self::watched::{Looked, Watched};
use super::service_figures::{CallTrace, ServiceSnapshot, ServiceState};
use super::tracks::Tracks;
use super::{Section, json};
use crate::error::ObserveError;
use crate::lock;
use crate::snapshot::Snapshot;
use crate::stacks::StackOf;

/// The time between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// The section of a service, or of a system. Its thread ends when it is dropped.
pub struct Services {
    shared: Arc<Shared>,
    history: Mutex<Tracks<3>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    newest: Mutex<Option<Looked>>,
    /// Whether calls are traced: they have been asked for.
    traces: AtomicBool,
    /// The traced calls that were not taken yet.
    calls: Mutex<Vec<CallTrace>>,
    stops: Mutex<bool>,
    stopped: Condvar,
}

/// What is looked at.
enum Subject {
    One(Box<Watched>),
    System(System),
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
        Self::watch_with(service, None)
    }

    /// Watches a service; `stacks` is asked what its thread does that has been inside one call for seconds.
    ///
    /// # Errors
    /// As [`watch`](Self::watch).
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn watch_with(service: ServiceOf, stacks: Option<StackOf>) -> Result<Self, ObserveError> {
        Self::look_at(Subject::One(Box::new(Watched::new(service, stacks))))
    }

    /// Watches the services of a system by the files that its supervisor, `millstream service up`, and its processes
    /// write to the directory `state`.
    ///
    /// # Errors
    /// [`ObserveError::Bind`]: the thread cannot be started.
    pub fn watch_system(state: &Path) -> Result<Self, ObserveError> {
        Self::look_at(Subject::System(System::new(state)))
    }

    fn look_at(subject: Subject) -> Result<Self, ObserveError> {
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("service page".to_owned())
            .spawn(move || for_thread.run(subject))
            .map_err(|error| ObserveError::Bind(error.into()))?;
        Ok(Services {
            shared,
            history: Mutex::new(Tracks::new(["busy", "call_rate", "lag_records"])),
            thread: Some(thread),
        })
    }
}

impl Subject {
    fn look(&mut self) -> Looked {
        match self {
            Subject::One(one) => Looked {
                services: vec![one.look.at(&one.service)],
                ..Looked::default()
            },
            Subject::System(system) => system.look(),
        }
    }

    /// The traced calls of all services since the last time.
    fn calls(&mut self) -> Vec<CallTrace> {
        match self {
            Subject::One(one) => one.traced.next(&one.service),
            Subject::System(system) => system.calls(),
        }
    }
}

impl Shared {
    fn run(&self, mut subject: Subject) {
        loop {
            let looked = subject.look();
            let most = CALLS_MAX * looked.services.len().max(1);
            *lock(&self.newest) = Some(looked);
            if self.traces.load(Ordering::Relaxed) {
                let new = subject.calls();
                let mut calls = lock(&self.calls);
                calls.extend(new);
                let late = calls.len().saturating_sub(most);
                calls.drain(..late);
            }
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
        let Some(looked) = lock(&self.shared.newest).clone() else {
            return;
        };
        let tracks = looked.services.iter().map(|service| {
            let lag: u64 = service.inputs.iter().map(|input| input.lag_records).sum();
            let known = |value: Option<f64>| value.map_or(f32::NAN, |value| value as f32);
            let values = [known(service.busy), known(service.call_rate), lag as f32];
            (service.name.as_str(), values)
        });
        lock(&self.history).add(snapshot.time_ms, tracks);
        let all = snapshot.services.get_or_insert_default();
        all.services.extend(looked.services);
        all.processes.extend(looked.processes);
        all.error = all.error.take().or(looked.error);
    }

    fn answer(&self, request: &PageRequest<'_>) -> Option<Page> {
        if request.path() != "/api/history.json" || request.parameter("of")? != "service" {
            return None;
        }
        let name = request.parameter("name").unwrap_or_default();
        Some(json(&lock(&self.history).of(&name)))
    }

    fn take_calls(&self) -> Vec<CallTrace> {
        self.shared.traces.store(true, Ordering::Relaxed);
        std::mem::take(&mut lock(&self.shared.calls))
    }

    fn obstacle(&self) -> Option<String> {
        let newest = lock(&self.shared.newest);
        let Some(looked) = newest.as_ref() else {
            return Some("the service starts".to_owned());
        };
        if let Some(error) = &looked.error {
            return Some(error.clone());
        }
        let starts = |service: &&ServiceSnapshot| service.state == ServiceState::Starting;
        let starting = looked.services.iter().find(starts)?;
        Some(format!("the service \"{}\" starts", starting.name))
    }
}
