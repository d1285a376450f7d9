//! How a machine of a group is started, and what an operator may change.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_journal::{Host, context};
use millstream_replication::FollowOptions;
use millstream_replication::arbiter::{
    ArbiterAddress, ArbiterTls, Candidate, LeaseRecord, LeaseTimes,
};
use tracing::info;

use super::fitness::{Copy, beat, lacks};
use super::group::Group;
use crate::error::Cause;
use crate::replica::changes_of;
use crate::server::ServerOptions;
use crate::storage::JournalStorage;

/// How often a machine looks whether it must stop, and tries again after a failure.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// How often it looks at the record: so many times in each lease.
pub(super) const LOOKS: u32 = 8;

/// One of several machines that serve the same queues.
#[derive(Clone, Debug)]
pub struct PairOptions {
    /// Its name, which no other one has.
    pub name: String,
    /// Where the leading machine is recorded.
    pub arbiter: ArbiterAddress,
    /// How the arbiter is recognised.
    pub arbiter_tls: ArbiterTls,
    /// The length of the lease.
    pub times: LeaseTimes,
    /// Where other machines reach the followers' address of this one.
    pub advertise: String,
    /// How it serves; with `replica`.
    pub server: ServerOptions,
    /// How it follows; leader and name are those of the record and of this machine.
    pub follow: FollowOptions,
}

/// What an operator has changed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TakenOver {
    /// The machine that may serve now.
    pub name: String,
    /// The term of the record.
    pub term: u64,
    /// The term before, or 0.
    pub before: u64,
}

impl PairOptions {
    pub(super) fn candidate(&self) -> Result<Candidate, Cause> {
        let timeout = self.times.lease / LOOKS * 2;
        let arbiter = self.arbiter.connect(&self.arbiter_tls, timeout)?;
        Ok(Candidate::new(arbiter, self.times))
    }

    pub(super) fn dir(&self) -> &Path {
        &self.server.dir
    }

    /// Lets this machine serve from now on, as an operator says since those that led will not come back. Waits until
    /// the lease is over that they had.
    ///
    /// # Errors
    /// The directory is in use; the arbiter does not answer; a machine renews the lease; without `yes` also where this
    /// copy may lack what was answered.
    pub fn take_over(&self, yes: bool, stop: &AtomicBool) -> Result<TakenOver, Cause> {
        let dir = self.dir().display();
        changes_of(self.dir()).map_err(|cause| context(&dir, cause))?;
        let _lock = JournalStorage::open_copy(self.dir())
            .map_err(|error| format!("{dir}: {error}: stop it first"))?;
        let copy = Copy::of(self.dir())?.ok_or("its changes are gone")?;
        let mut candidate = self.candidate()?;
        let first = candidate.look()?.map(|seen| seen.record.clone());
        if let Some(record) = &first {
            self.check_group(record)?;
            let lacks = lacks(Some(&copy), (self.dir(), &self.name), record)?;
            if let Some(lacks) = lacks.filter(|_| !yes) {
                return Err(format!(
                    "{dir}: {lacks}; nothing was changed, --yes lets it serve all the same"
                )
                .into());
            }
            info!("waiting until the lease of {} is over", record.holder);
        }
        while candidate.over_for().is_none() {
            if stop.load(Ordering::Relaxed) {
                return Err(
                    "stopped while it waited for the end of the lease: nothing was changed".into(),
                );
            }
            rest(LOOK);
            if candidate.look()?.map(|seen| &seen.record) != first.as_ref() {
                return Err(format!(
                    "{} has changed the record meanwhile, and is alive: stop all machines first; nothing was changed",
                    candidate.seen().map_or("another machine", |seen| &seen.record.holder)
                )
                .into());
            }
        }
        self.take_over_from(&mut candidate, first, &copy)
    }

    fn take_over_from(
        &self,
        candidate: &mut Candidate,
        before: Option<LeaseRecord>,
        copy: &Copy,
    ) -> Result<TakenOver, Cause> {
        let term = copy.next_term(before.as_ref());
        let known = Group::of(self.dir())?.map(|group| group.number);
        let group = before.as_ref().map(|record| record.group).or(known);
        let group = group.unwrap_or_else(|| Host::real().random());
        // Beats are counted on: those that machines have noted are compared with them.
        let beat = before
            .as_ref()
            .map_or(beat(self.dir())?, |record| record.beat);
        // Where followers connect is not known before it serves.
        let taken = candidate.take(|record| {
            *record = LeaseRecord {
                beat,
                ..self.record(group, term, copy.own, "")
            };
        })?;
        if taken.is_none() {
            return Err(
                "another machine has taken the lease meanwhile: nothing was changed".into(),
            );
        }
        self.note_group(group)?;
        candidate.release()?;
        Ok(TakenOver {
            name: self.name.clone(),
            term,
            before: before.map_or(0, |record| record.term),
        })
    }

    /// The record of a machine that is the only one to have all.
    pub(super) fn record(&self, group: u64, term: u64, own: u64, address: &str) -> LeaseRecord {
        LeaseRecord {
            group,
            term,
            holder: self.name.clone(),
            address: address.to_owned(),
            in_sync: [(self.name.clone(), own)].into(),
            ..LeaseRecord::default()
        }
    }

    /// Whether the queues belong to a group, which is that of the record.
    pub(super) fn check_group(&self, record: &LeaseRecord) -> Result<bool, Cause> {
        match Group::of(self.dir())? {
            Some(group) if group.number != record.group => Err(format!(
                "{}: these queues belong to group {:016x} of {}, and {} has the record of group {:016x}: give the arbiter of the group, or delete .group \
                 to let them follow another one",
                self.dir().display(),
                group.number,
                group.arbiter,
                self.arbiter,
                record.group
            )
            .into()),
            group => Ok(group.is_some()),
        }
    }

    pub(super) fn note_group(&self, number: u64) -> Result<(), Cause> {
        let arbiter = self.arbiter.to_string();
        Group { number, arbiter }.note(self.dir())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells that the record at an arbiter has changed"
)]
pub(super) fn rest(time: Duration) {
    std::thread::sleep(time);
}
