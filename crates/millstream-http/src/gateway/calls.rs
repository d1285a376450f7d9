//! The interfaces of a gateway, and the journals of their calls.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use millstream_flow::error::{Cause, chain};
use millstream_journal::Sync;
use millstream_service::{Followers, Key, Once};
use millstream_wire::{Call, Schema};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::answers::{Again, Output, Pending, answer_again};
use super::intake::{FOLLOWED_MAX, Intake, NotRecorded};
use super::once::is_same;
use super::queries::STATE;
use super::search::Answer;
use crate::refusal::Refusal;

/// The first part of the paths of feeds.
pub(super) const FEEDS: &str = "feeds";

/// How often records are looked for whose keys are not kept any more.
const RELEASE: Duration = Duration::from_secs(60);

/// The interfaces of a gateway, by name.
pub(super) struct Interfaces {
    interfaces: BTreeMap<String, Interface>,
    intakes: Vec<Arc<Intake>>,
}

struct Interface {
    schema: Arc<Schema>,
    intake: Arc<Intake>,
}

/// A method of an interface.
pub(super) struct Route<'a> {
    interface: &'a Interface,
    method: &'a str,
}

/// What a request asks for besides the record of its call.
pub(super) struct Asked {
    /// The call with this key is recorded once.
    pub(super) key: Option<Key>,
    /// The answer of the call.
    pub(super) answer: bool,
}

/// A call that is recorded.
pub(super) struct Recorded<'a> {
    pub(super) journal: &'a str,
    pub(super) sequence: u64,
    /// Whether an earlier request has recorded it.
    pub(super) is_repeated: bool,
    intake: &'a Arc<Intake>,
    /// The answer of a new call, if it is waited for.
    answer: Option<Pending>,
}

impl Interfaces {
    /// Opens the journals, each with the schemas of its calls.
    pub(super) fn open(
        journals: &[(PathBuf, Vec<Schema>)],
        answers: &[(PathBuf, Arc<Output>)],
        sync: Sync,
        keep: Duration,
    ) -> Result<Self, Cause> {
        check_names(journals)?;
        let mut interfaces = BTreeMap::new();
        let mut intakes = Vec::new();
        for (path, schemas) in journals {
            let answering = answers.iter().filter(|(calls, _)| calls == path);
            let mut outputs: Vec<_> = answering.map(|(_, output)| Arc::clone(output)).collect();
            // All requests lock them in one order.
            outputs.sort_unstable_by(|a, b| a.path().cmp(b.path()));
            let intake = Arc::new(Intake::open(path, schemas, outputs.into(), sync, keep)?);
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

    /// Lets go of the records whose keys are not kept any more, also while there are no requests.
    pub(super) async fn release_keys(&self) {
        loop {
            sleep(RELEASE).await;
            for intake in &self.intakes {
                while !intake.release_keys() {
                    yield_now().await;
                }
            }
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
                let path = path.display();
                let other = other.display();
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
    /// Records a call with these arguments, an object of JSON; returns when it survives what it must. If the caller
    /// waits, the answer is waited for from now on.
    pub(super) async fn record(
        &self,
        arguments: &[u8],
        asked: &Asked,
    ) -> Result<Recorded<'a>, NotRecorded> {
        let intake = &self.interface.intake;
        intake.check_answered(asked.answer)?;
        let (once, pending) = match &asked.key {
            None => intake.append_call(&self.contents(arguments)?, asked.answer)?,
            Some(key) => self.record_once(key, arguments, asked.answer).await?,
        };
        let (Once::Recorded(sequence) | Once::Repeated(sequence)) = once;
        if let Some(syncs) = &intake.syncs {
            let durable = syncs.wait_durable(sequence).await;
            durable.map_err(NotRecorded::Failed)?;
        }
        Ok(Recorded {
            journal: &intake.name,
            sequence,
            is_repeated: once == Once::Repeated(sequence),
            intake,
            answer: pending,
        })
    }

    /// Records a call with a key, or finds the record of an earlier request.
    async fn record_once(
        &self,
        key: &Key,
        arguments: &[u8],
        answered: bool,
    ) -> Result<(Once, Option<Pending>), NotRecorded> {
        let intake = &self.interface.intake;
        // The first time these are the records of a day: other requests are served meanwhile.
        while !intake.catch_up()? {
            yield_now().await;
        }
        let (once, pending) = match intake.find(key) {
            // Also a call that another version of the interface has recorded, and this one would refuse.
            Some(sequence) => (Once::Repeated(sequence), None),
            None => intake.append_once(key, &self.contents(arguments)?, answered)?,
        };
        if let Once::Repeated(sequence) = once {
            self.check_same(key, sequence, arguments)?;
        }
        Ok((once, pending))
    }

    /// The call as it is recorded.
    fn contents(&self, arguments: &[u8]) -> Result<Vec<u8>, NotRecorded> {
        let schema = &self.interface.schema;
        let contents = Call::from_json(self.method, arguments, schema);
        let contents = contents.and_then(|call| call.contents(schema));
        contents.map_err(|error| {
            let line = error.to_string();
            NotRecorded::Refused(Refusal::new(StatusCode::BAD_REQUEST, line))
        })
    }

    /// Refuses a key that another call has.
    fn check_same(&self, key: &Key, sequence: u64, arguments: &[u8]) -> Result<(), NotRecorded> {
        let Interface { schema, intake } = self.interface;
        let journal = intake.writer.journal();
        let is_same = is_same(journal, sequence, self.method, arguments, schema);
        if is_same.map_err(NotRecorded::Failed)? {
            return Ok(());
        }
        let line = format!(
            "the key {} is of another call, record {sequence} of {}; a new call needs a new key",
            key.text(),
            intake.name
        );
        let refusal = Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, line);
        Err(NotRecorded::Refused(refusal))
    }
}

impl Recorded<'_> {
    /// Waits until so many followers on other machines have the call, for `limit` at most; else says why they have it
    /// not.
    pub(super) async fn wait_followed(&self, count: usize, limit: Duration) -> Result<(), String> {
        let intake = Arc::clone(self.intake);
        let sequence = self.sequence;
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
            Ok(followed) => followed.map_err(|error| chain(&error).to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Waits for the answer of the call, an output or none. An error of the outer result says that the gateway stops.
    pub(super) async fn answer(self) -> Result<Result<Answer, Cause>, Stopped> {
        let intake = Arc::clone(self.intake);
        let sequence = self.sequence;
        let mut pending = match self.answer {
            Some(pending) => pending,
            // Syncs need a thread, too: not all may search.
            None => {
                let place = intake.searched.acquire().await.map_err(|_| Stopped)?;
                let searching = Arc::clone(&intake);
                let search = move || {
                    let calls = searching.writer.journal();
                    answer_again(&searching.outputs, calls, sequence)
                };
                let found = tokio::task::spawn_blocking(search).await;
                drop(place);
                match found.map_err(|_| Stopped)? {
                    Ok(Again::Pending(pending)) => pending,
                    Ok(Again::Answered(answer)) => return Ok(Ok(answer)),
                    Err(cause) => return Ok(Err(cause)),
                }
            }
        };
        let answer = (&mut pending.received).await.map_err(|_| Stopped)?;
        Ok(Ok(answer))
    }
}

/// The gateway stops before there is an answer.
pub(super) struct Stopped;
