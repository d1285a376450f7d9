//! A journal of calls, as a gateway writes it.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::StatusCode;
use millstream_flow::error::{Cause, chain};
use millstream_journal::{Error, Journal, Options, Sync, Writer};
use millstream_service::{Key, Keys, Once, Outlet};
use millstream_wire::{Schema, Transport};
use tokio::sync::Semaphore;

use super::answers::{Output, Pending, Registration};
use crate::group_sync::GroupSync;
use crate::lock;
use crate::refusal::Refusal;

/// How many requests wait for the followers of a journal at once; others wait for their turn.
pub(super) const FOLLOWED_MAX: usize = 64;
/// How many requests search the outputs at once.
const SEARCHED_MAX: usize = 4;
/// How many records are read for their keys before other requests have their turn.
const READ_MAX: usize = 4096;

/// A journal of calls.
pub(super) struct Intake {
    /// The last part of its path.
    pub(super) name: String,
    outlet: Mutex<Outlet>,
    pub(super) writer: Writer,
    /// Where the answers of its calls are.
    pub(super) outputs: Arc<[Arc<Output>]>,
    /// The keys of calls that are recorded once.
    keys: Mutex<Keys>,
    /// Places for requests that wait for followers, and for those that search outputs.
    pub(super) followed: Semaphore,
    pub(super) searched: Semaphore,
    /// `None` if calls are not synced, or not one by one.
    pub(super) syncs: Option<GroupSync>,
}

/// Why a call is not recorded.
pub(super) enum NotRecorded {
    /// The request is at fault.
    Refused(Refusal),
    /// The journal is.
    Failed(Cause),
}

impl Intake {
    pub(super) fn open(
        path: &Path,
        schemas: &[Schema],
        outputs: Arc<[Arc<Output>]>,
        sync: Sync,
        keep: Duration,
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
            keys: Mutex::new(Keys::of(&journal, keep)?),
            followed: Semaphore::new(FOLLOWED_MAX),
            searched: Semaphore::new(SEARCHED_MAX),
            syncs: grouped.then(GroupSync::default),
        })
    }

    /// Refuses a request for an answer that no output has.
    pub(super) fn check_answered(&self, answered: bool) -> Result<(), NotRecorded> {
        if !answered || !self.outputs.is_empty() {
            return Ok(());
        }
        let line = format!(
            "the gateway knows no output with answers to calls in {}",
            self.name
        );
        let refusal = Refusal::new(StatusCode::BAD_REQUEST, line);
        Err(NotRecorded::Refused(refusal))
    }

    /// Appends a call. Returns the number of its record, and its answer if that is waited for.
    pub(super) fn append_call(
        &self,
        contents: &[u8],
        answered: bool,
    ) -> Result<(Once, Option<Pending>), NotRecorded> {
        self.registered(answered, || {
            let mut outlet = lock(&self.outlet);
            outlet.publish(contents.len(), |out| out.raw(contents))?;
            let sequence = outlet.last().ok_or("the call has no record")?;
            Ok(Once::Recorded(sequence))
        })
    }

    /// Appends a call, unless one with this key is recorded already. Only a new one has an answer that is waited for.
    pub(super) fn append_once(
        &self,
        key: &Key,
        contents: &[u8],
        answered: bool,
    ) -> Result<(Once, Option<Pending>), NotRecorded> {
        let append = || lock(&self.outlet).publish_once(key, contents, &mut lock(&self.keys));
        self.registered(answered, append)
    }

    /// Appends a call, and begins to wait for its answer before.
    fn registered(
        &self,
        answered: bool,
        append: impl FnOnce() -> Result<Once, Cause>,
    ) -> Result<(Once, Option<Pending>), NotRecorded> {
        let registration = answered.then(|| Registration::begin(&self.outputs));
        let registration = registration.transpose().map_err(NotRecorded::Failed)?;
        let once = append().map_err(not_appended)?;
        let (Some(registration), Once::Recorded(sequence)) = (registration, once) else {
            return Ok((once, None));
        };
        let journal = self.writer.journal().lineage();
        let journal = journal.map_err(|error| NotRecorded::Failed(error.into()))?;
        Ok((once, Some(registration.end(journal, sequence))))
    }

    /// Reads keys of new records. Returns whether there are no more.
    pub(super) fn catch_up(&self) -> Result<bool, NotRecorded> {
        let done = lock(&self.keys).catch_up(READ_MAX);
        done.map_err(|error| NotRecorded::Failed(error.into()))
    }

    /// Lets go of records whose keys are not kept any more. Returns whether all are read.
    pub(super) fn release_keys(&self) -> bool {
        lock(&self.keys).release(READ_MAX).unwrap_or_else(|error| {
            // A call with a key has the same error.
            tracing::warn!(
                "{}: the keys of calls cannot be read: {}",
                self.name,
                chain(&error)
            );
            true
        })
    }

    /// The record of the call with this key.
    pub(super) fn find(&self, key: &Key) -> Option<u64> {
        lock(&self.keys).find(key)
    }
}

fn not_appended(cause: Cause) -> NotRecorded {
    match cause.downcast_ref() {
        Some(error @ Error::RecordTooLarge { .. }) => {
            let line = error.to_string();
            NotRecorded::Refused(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, line))
        }
        _ => NotRecorded::Failed(cause),
    }
}
