//! The services of a system, by the files in its state directory: which processes run, and the position of each
//! service.
//!
//! The supervisor writes `status.json` when something changes, and the process of a service writes `SERVICE.json`. Both
//! are replaced as a whole, so that a reader finds a complete file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millstream_service::system::Status as Written;
use millstream_service::{Reading, Report};
use serde::{Deserialize, Serialize};

use super::service::{Progress, ServiceOf};
use super::watched::{Looked, Watched};
use crate::sections::service_figures::{CallTrace, PartSnapshot, ServiceState};

/// The file of the supervisor.
const FILE: &str = "status.json";

/// The contents of `status.json`: what the supervisor of a system writes.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct SystemStatus {
    /// The supervisor.
    pid: u32,
    /// The directory to which the paths of the journals are relative.
    folder: PathBuf,
    processes: BTreeMap<String, PartSnapshot>,
    services: Vec<Described>,
}

/// A service of the system.
#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct Described {
    name: String,
    process: String,
    inputs: Vec<String>,
    out: Option<String>,
    dead_letters: Option<String>,
}

impl SystemStatus {
    /// Writes the file into the state directory.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, state: &Path) -> io::Result<()> {
        let path = state.join(FILE);
        let unfinished = path.with_extension("json.new");
        std::fs::write(&unfinished, serde_json::to_vec(self)?)?;
        std::fs::rename(&unfinished, &path)
    }
}

/// A system that is watched.
pub(super) struct System {
    state: PathBuf,
    services: Vec<Member>,
}

struct Member {
    described: Described,
    /// The process that runs it now; 0 where none does.
    pid: Arc<AtomicU32>,
    watched: Watched,
}

impl System {
    pub(super) fn new(state: &Path) -> Self {
        System {
            state: state.to_owned(),
            services: Vec::new(),
        }
    }

    pub(super) fn look(&mut self) -> Looked {
        let status = match self.read() {
            Ok(status) => status,
            Err(error) => {
                return Looked {
                    error: Some(error),
                    ..Looked::default()
                };
            }
        };
        self.update(&status);
        let services = self.services.iter_mut().map(|member| {
            let process = status.processes.get(&member.described.process);
            let running = process.filter(|process| process.is_running());
            let pid = running.and_then(|process| process.pid).unwrap_or(0);
            member.pid.store(pid, Ordering::Relaxed);
            let mut snapshot = member.watched.look.at(&member.watched.service);
            snapshot.process = Some(member.described.process.clone());
            if running.is_none() {
                snapshot.state = ServiceState::Down;
            }
            snapshot
        });
        Looked {
            services: services.collect(),
            processes: named(&status.processes),
            error: None,
        }
    }

    pub(super) fn calls(&mut self) -> Vec<CallTrace> {
        let services = self.services.iter_mut().map(|member| &mut member.watched);
        let calls = services.flat_map(|watched| watched.traced.next(&watched.service));
        calls.collect()
    }

    /// Reads the file of the supervisor.
    fn read(&self) -> Result<SystemStatus, String> {
        let path = self.state.join(FILE);
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read(&path).map_err(|error| named(&error))?;
        serde_json::from_slice(&text).map_err(|error| named(&error))
    }

    /// Takes the services of the file: those that are as before keep what is remembered of them.
    fn update(&mut self, status: &SystemStatus) {
        let mut before = std::mem::take(&mut self.services);
        for described in &status.services {
            let known = before.iter().position(|one| one.described == *described);
            let member = match known {
                Some(index) => before.swap_remove(index),
                None => Member::new(described.clone(), &self.state, &status.folder),
            };
            self.services.push(member);
        }
    }
}

impl Member {
    fn new(described: Described, state: &Path, folder: &Path) -> Self {
        let pid = Arc::new(AtomicU32::new(0));
        let file = state.join(format!("{}.json", described.name));
        let within = |path: &String| folder.join(path);
        let service = ServiceOf {
            name: described.name.clone(),
            progress: progress(file, described.inputs.clone(), Arc::clone(&pid)),
            inputs: described.inputs.iter().map(within).collect(),
            output: described.out.as_ref().map(within),
            dead_letters: described.dead_letters.as_ref().map(within),
        };
        Member {
            described,
            pid,
            watched: Watched::new(service, None),
        }
    }
}

/// The progress in a file. That of an earlier process holds only while none runs.
fn progress(file: PathBuf, inputs: Vec<String>, pid: Arc<AtomicU32>) -> Progress {
    Box::new(move || {
        let text = std::fs::read(&file).unwrap_or_default();
        let Ok(written) = serde_json::from_slice::<Written>(&text) else {
            return Reading::default();
        };
        let pid = pid.load(Ordering::Relaxed);
        if pid != 0 && pid != written.pid {
            return Reading::default();
        }
        let report = Report {
            calls: written.calls,
            ticks: written.ticks,
            skipped: written.skipped,
            dead_letters: written.dead_letters,
        };
        let positions = inputs
            .iter()
            .map(|path| written.positions.get(path).copied());
        Reading {
            report,
            positions: positions.collect(),
            // That of a process that has ended is none.
            call: written.call.clone().filter(|_| pid != 0),
            busy: written.busy.filter(|_| pid != 0),
            waits_for: None,
        }
    })
}

/// The processes with their names.
fn named(processes: &BTreeMap<String, PartSnapshot>) -> Vec<PartSnapshot> {
    let named = processes.iter().map(|(name, process)| PartSnapshot {
        name: name.clone(),
        ..process.clone()
    });
    named.collect()
}
