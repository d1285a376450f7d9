//! Commits of several processes: the part of one of them.
//!
//! When all operators of this process have completed an epoch, its changes are appended with a *prepared* record.
//! Process 0 appends its commit record once all processes have prepared the epoch, which commits it; the others append
//! theirs, and then notify their sinks and sources. Epochs are raised by process 0, and only when the one before is
//! committed: so each directory has at most one prepared record without a commit.
//!
//! Invariant: no sink, source or forwarder is notified of an epoch before the commit record of process 0 is durable.

use std::sync::Arc;

use super::{Committer, CompleteEpoch, PendingParts};
use crate::checkpoint::Crash;
use crate::checkpoint::record::Commit;

use crate::cluster::{Event, Member, Raise};
use crate::error::FlowError;

/// The state of the commits that this process makes with others.
pub(crate) struct SharedCommits {
    member: Arc<dyn Member>,
    process: usize,
    prepared: Option<Prepared>,
    /// Whether process 0 knows that the sources of this process have ended.
    said_drained: bool,
    /// Process 0: the sources of all processes have ended, and whether the flow has output at its end.
    drained: Option<bool>,
    /// Process 0: a raise is on its way.
    is_raising: bool,
    /// No process has parts of a later epoch.
    is_over: bool,
}

/// An epoch that this process has prepared.
struct Prepared {
    epoch: u64,
    /// What is committed then, if the process has changes.
    next: Option<Commit>,
}

impl SharedCommits {
    pub(crate) fn new(member: Arc<dyn Member>, process: usize) -> Self {
        SharedCommits {
            member,
            process,
            prepared: None,
            said_drained: false,
            drained: None,
            is_raising: false,
            is_over: false,
        }
    }

    /// Whether this process may end the running epoch.
    pub(super) fn may_raise(&self) -> bool {
        self.process == 0 && self.prepared.is_none() && !self.is_raising
    }

    /// Whether the next epoch may be prepared.
    pub(super) fn may_prepare(&self) -> bool {
        self.prepared.is_none()
    }

    /// Whether all epochs of all processes are committed.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Process 0: whether the flow has output at its end, once the sources of all processes have ended.
    pub(super) fn take_drained(&mut self) -> Option<bool> {
        self.drained.take()
    }

    /// Ends the running epoch everywhere.
    pub(super) fn raise(&mut self, raise: Raise) {
        self.is_raising = true;
        self.member.raise(raise);
    }

    /// The sources of this process have ended.
    pub(super) fn say_drained(&mut self, has_output: bool) {
        if !self.said_drained {
            self.said_drained = true;
            self.member.drained(has_output);
        }
    }
}

impl Committer {
    /// Prepares an epoch that is complete in this process.
    pub(super) fn prepare(
        &mut self,
        complete: CompleteEpoch,
        pending: &mut PendingParts,
    ) -> Result<(), FlowError> {
        let CompleteEpoch {
            epoch,
            next,
            changes,
            is_last,
        } = complete;
        let is_changed = next.is_some();
        if let Some(next) = &next {
            self.sync_outputs()?;
            pending.commits += 1;
            self.crash(Crash::Before(pending.commits))?;
            self.store.prepare(changes, next)?;
            self.crash(Crash::Prepared(pending.commits))?;
            if !self.await_replica(epoch)? {
                return Ok(());
            }
        }
        if let Some(shared) = &mut self.shared {
            shared.prepared = Some(Prepared { epoch, next });
            shared.member.prepared(epoch, is_changed, is_last);
        }
        self.timer.prepared();
        Ok(())
    }

    /// Handles an event of the run.
    pub(super) fn on_event(
        &mut self,
        event: Event,
        pending: &mut PendingParts,
    ) -> Result<(), FlowError> {
        let Some(shared) = &mut self.shared else {
            return Ok(());
        };
        match event {
            Event::Raise(raise) => {
                shared.is_raising = false;
                self.apply(raise);
                Ok(())
            }
            Event::Drained { has_input } => {
                shared.drained = Some(has_input);
                Ok(())
            }
            // Nothing is committed after a failure, here or elsewhere.
            _ if self.control.aborted() => Ok(()),
            Event::AllPrepared {
                epoch,
                changed,
                last,
            } => self.commit_for_all(epoch, &changed, last, pending),
            Event::Committed { epoch, last } => self.commit_as_others(epoch, last, pending),
            // They concern the workers.
            Event::Go
            | Event::Handled(_)
            | Event::Status { .. }
            | Event::Stop
            | Event::Ended
            | Event::Died { .. } => Ok(()),
        }
    }

    /// Process 0: commits an epoch that all processes have prepared.
    fn commit_for_all(
        &mut self,
        epoch: u64,
        changed: &[bool],
        is_last: bool,
        pending: &mut PendingParts,
    ) -> Result<(), FlowError> {
        let prepared = self.take_prepared(epoch, is_last, pending);
        let is_own = prepared.is_some();
        if changed.contains(&true) {
            if is_own {
                self.crash(Crash::Decided(pending.commits))?;
            }
            let mut next = prepared.unwrap_or_else(|| Commit {
                epoch,
                ..self.commit.clone()
            });
            next.note_changes(changed);
            next.time_ns = self.clock.time_ns();
            // The commit point.
            self.store.commit_prepared(&next, true)?;
            self.commit = next;
            if is_own {
                self.crash(Crash::Within(pending.commits))?;
            }
            if !self.await_replica(epoch)? {
                return Ok(());
            }
        }
        if let Some(shared) = &self.shared {
            shared.member.committed(epoch);
        }
        if is_own { self.notify(pending) } else { Ok(()) }
    }

    /// Another process: appends the commit record of an epoch that process 0 has committed.
    fn commit_as_others(
        &mut self,
        epoch: u64,
        is_last: bool,
        pending: &mut PendingParts,
    ) -> Result<(), FlowError> {
        let Some(next) = self.take_prepared(epoch, is_last, pending) else {
            return Ok(());
        };
        self.crash(Crash::Decided(pending.commits))?;
        // The next start restores this record from the prepared one, if a loss of power takes it.
        self.store.commit_prepared(&next, false)?;
        self.commit = next;
        self.crash(Crash::Within(pending.commits))?;
        self.notify(pending)
    }

    /// Takes what this process has prepared of an epoch that is committed; the next epoch may be prepared then.
    fn take_prepared(
        &mut self,
        epoch: u64,
        is_last: bool,
        pending: &mut PendingParts,
    ) -> Option<Commit> {
        let shared = self.shared.as_mut()?;
        shared.is_over |= is_last;
        let prepared = shared
            .prepared
            .take_if(|prepared| prepared.epoch == epoch)?;
        pending.epoch_of_run += 1;
        self.timer.decided();
        if prepared.next.is_none() {
            self.control.figures.progress.epoch_ended(None);
        }
        prepared.next
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "a process is a thread that waits for the others"
)]
mod tests;
