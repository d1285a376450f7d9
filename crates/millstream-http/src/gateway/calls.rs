//! The interfaces of a gateway, and the journals of their calls.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::StatusCode;
use millstream_flow::error::Cause;
use millstream_journal::{Error, Journal, Options, Sync, Writer};
use millstream_service::{Followers, Outlet};
use millstream_wire::{Call, Schema, Transport};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::answers::{Output, Received, Registration};
use super::queries::STATE;
use crate::group_sync::GroupSync;
use crate::lock;
use crate::refusal::Refusal;

/// The first part of the paths of feeds.
pub(super) const FEEDS: &str = "feeds";

/// How many requests wait for the followers of a journal at once; others wait for their turn.
const FOLLOWED_MAX: usize = 64;

/// The interfaces of a gateway, by name.
pub(super) struct Interfaces {
    interfaces: BTreeMap<String, Interface>,
    intakes: Vec<Arc<Intake>>,
}

struct Interface {
    schema: Arc<Schema>,
    intake: Arc<Intake>,
}

/// A journal of calls.
struct Intake {
    /// The last part of its path.
    name: String,
    outlet: Mutex<Outlet>,
    writer: Writer,
    /// Where the answers of its calls are.
    outputs: Vec<Arc<Output>>,
    /// Places for requests that wait for followers.
    followed: Semaphore,
    /// `None` if calls are not synced, or not one by one.
    syncs: Option<GroupSync>,
}

/// A method of an interface.
pub(super) struct Route<'a> {
    interface: &'a Interface,
    method: &'a str,
}

/// A call that is recorded.
pub(super) struct Recorded<'a> {
    pub(super) journal: &'a str,
    pub(super) sequence: u64,
    intake: &'a Arc<Intake>,
    /// The answer, if it is waited for.
    pub(super) answer: Option<Pending<'a>>,
}

/// An answer that a request waits for. It ends the wait when it is dropped.
pub(super) struct Pending<'a> {
    pub(super) received: Received,
    outputs: &'a [Arc<Output>],
    /// The identity of the journal of the call, and its number.
    call: (u128, u64),
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let (journal, sequence) = self.call;
        self.outputs
            .iter()
            .for_each(|output| output.forget(journal, sequence));
    }
}

/// Why a call is not recorded.
pub(super) enum NotRecorded {
    /// The request is at fault.
    Refused(Refusal),
    /// The journal is.
    Failed(Cause),
}

impl Interfaces {
    /// Opens the journals, each with the schemas of its calls.
    pub(super) fn open(
        journals: &[(PathBuf, Vec<Schema>)],
        answers: &[(PathBuf, Arc<Output>)],
        sync: Sync,
    ) -> Result<Self, Cause> {
        check_names(journals)?;
        let mut interfaces = BTreeMap::new();
        let mut intakes = Vec::new();
        for (path, schemas) in journals {
            let answering = answers.iter().filter(|(calls, _)| calls == path);
            let outputs = answering.map(|(_, output)| Arc::clone(output)).collect();
            let intake = Arc::new(Intake::open(path, schemas, outputs, sync)?);
            for schema in schemas {
                let interface = Interface {
                    schema: Arc::new(schema.clone()),
                    intake: Arc::clone(&intake),
                };
                interfaces.insert(schema.interface().to_owned(), interface);
            }
            intakes.push(intake);
        }
        Ok(Interfaces {
            interfaces,
            intakes,
        })
    }

    /// Syncs the journals whenever there are new calls.
    pub(super) async fn keep_synced(&self) {
        for intake in &self.intakes {
            let intake = Arc::clone(intake);
            tokio::spawn(async move {
                let writer = Arc::clone(&intake);
                let sync = Arc::new(move || writer.writer.sync());
                if let Some(syncs) = &intake.syncs {
                    syncs.keep_synced(sync).await;
                }
            });
        }
    }

    /// Finds a method.
    pub(super) fn route<'a>(&'a self, name: &str, method: &'a str) -> Result<Route<'a>, Refusal> {
        let not_found = |line: String| Refusal::new(StatusCode::NOT_FOUND, line);
        let Some(interface) = self.interfaces.get(name) else {
            let known: Vec<&str> = self.interfaces.keys().map(String::as_str).collect();
            return Err(not_found(format!(
                "there is no interface {name}; there is {}",
                list(&known)
            )));
        };
        if interface.schema.method_named(method).is_err() {
            let known: Vec<&str> = { interface.schema.methods().iter() }
                .map(|method| method.name.as_str())
                .collect();
            return Err(not_found(format!(
                "the interface {name} has no method {method}; it has {}",
                list(&known)
            )));
        }
        Ok(Route { interface, method })
    }
}

/// Each interface has one journal, and no name of another path.
fn check_names(journals: &[(PathBuf, Vec<Schema>)]) -> Result<(), Cause> {
    let mut known: BTreeMap<&str, &Path> = BTreeMap::new();
    for (path, schemas) in journals {
        for name in schemas.iter().map(Schema::interface) {
            if [FEEDS, STATE].contains(&name) {
                return Err(format!("an interface of a gateway is not called {name}").into());
            }
            if let Some(other) = known.insert(name, path) {
                let (path, other) = (path.display(), other.display());
                return Err(format!(
                    "the interface {name} is of {other} and of {path}; a gateway records its calls in one journal"
                )
                .into());
            }
        }
    }
    Ok(())
}

fn list(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}

impl<'a> Route<'a> {
    /// Records a call with these arguments, an object of JSON; returns when it survives what it must. If the caller waits, the answer is
    /// waited for from now on.
    pub(super) async fn record(
        &self,
        arguments: &[u8],
        answered: bool,
    ) -> Result<Recorded<'a>, NotRecorded> {
        let Interface { schema, intake } = self.interface;
        let contents = Call::from_json(self.method, arguments, schema)
            .and_then(|call| call.contents(schema))
            .map_err(|error| {
                let line = error.to_string();
                NotRecorded::Refused(Refusal::new(StatusCode::BAD_REQUEST, line))
            })?;
        let (sequence, answer) = intake.append_call(&contents, answered)?;
        if let Some(syncs) = &intake.syncs {
            let durable = syncs.wait_durable(sequence).await;
            durable.map_err(NotRecorded::Failed)?;
        }
        Ok(Recorded {
            journal: &intake.name,
            sequence,
            intake,
            answer,
        })
    }
}

impl Recorded<'_> {
    /// Waits until so many followers on other machines have the call, for `limit` at most; else says why they have it not.
    pub(super) async fn wait_followed(&self, count: usize, limit: Duration) -> Result<(), String> {
        let (intake, sequence) = (Arc::clone(self.intake), self.sequence);
        // Syncs need a thread, too: not all may wait for followers.
        let waited = match timeout(limit, intake.followed.acquire()).await {
            Err(_) => return Err(format!("{FOLLOWED_MAX} other requests wait for followers")),
            Ok(place) => {
                let journal = intake.writer.journal().clone();
                let wait = move || Followers::of(&journal).wait(sequence, count, Some(limit));
                let waited = tokio::task::spawn_blocking(wait).await;
                drop(place);
                waited
            }
        };
        match waited {
            Ok(followed) => followed.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Intake {
    fn open(
        path: &Path,
        schemas: &[Schema],
        outputs: Vec<Arc<Output>>,
        sync: Sync,
    ) -> Result<Self, Cause> {
        // Requests wait for a sync themselves, many for one.
        let grouped = sync == Sync::Always;
        let of_journal = if grouped { Sync::Never } else { sync };
        let journal = Journal::open(path, Options::default().with_sync(of_journal))?;
        let mut outlet = Outlet::outside(&journal)?;
        for schema in schemas {
            outlet.announce(&Arc::new(schema.clone()))?;
        }
        let name = path.file_name().unwrap_or(path.as_os_str());
        Ok(Intake {
            name: name.to_string_lossy().into_owned(),
            outlet: Mutex::new(outlet),
            writer: journal.writer()?,
            outputs,
            followed: Semaphore::new(FOLLOWED_MAX),
            syncs: grouped.then(GroupSync::default),
        })
    }

    /// Appends a call. Returns the number of its record, and its answer if that is waited for.
    fn append_call(
        &self,
        contents: &[u8],
        answered: bool,
    ) -> Result<(u64, Option<Pending<'_>>), NotRecorded> {
        if !answered {
            return Ok((self.append(contents)?, None));
        }
        if self.outputs.is_empty() {
            let line = format!(
                "the gateway knows no output with answers to calls in {}",
                self.name
            );
            return Err(NotRecorded::Refused(Refusal::new(
                StatusCode::BAD_REQUEST,
                line,
            )));
        }
        let registration = Registration::begin(&self.outputs).map_err(NotRecorded::Failed)?;
        let sequence = self.append(contents)?;
        let journal = self.writer.journal().lineage();
        let journal = journal.map_err(|error| NotRecorded::Failed(error.into()))?;
        let pending = Pending {
            received: registration.end(journal, sequence),
            outputs: &self.outputs,
            call: (journal, sequence),
        };
        Ok((sequence, Some(pending)))
    }

    /// Appends a call. Returns the number of its record.
    fn append(&self, contents: &[u8]) -> Result<u64, NotRecorded> {
        let mut outlet = lock(&self.outlet);
        let published = outlet.publish(contents.len(), |out| out.raw(contents));
        if let Err(cause) = published {
            return Err(match cause.downcast_ref() {
                Some(error @ Error::RecordTooLarge { .. }) => {
                    let line = error.to_string();
                    NotRecorded::Refused(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, line))
                }
                _ => NotRecorded::Failed(cause),
            });
        }
        outlet
            .last()
            .ok_or_else(|| NotRecorded::Failed("the call has no record".into()))
    }
}
