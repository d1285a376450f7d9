//! Following the machine that leads, until it does not any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::Duration;

use millstream_journal::clock::boot_ns;
use millstream_journal::context;
use millstream_replication::arbiter::LeaseRecord;
use millstream_replication::{FollowOptions, Reason, Rejoin, RejoinOptions, ReplicationError};
use tracing::{info, warn};

use super::fitness::{Copy, note_beat};
use super::machine::{Machine, Next};
use super::options::{LOOK, LOOKS, PairOptions, rest};
use crate::error::Cause;
use crate::replica::{follow_into, rebuild_from_changes};
use crate::storage::CHANGES;

impl Machine<'_> {
    /// Follows the machine that the record names, until there is another one, or this one takes over.
    pub(super) fn follow(&mut self, record: &LeaseRecord) -> Result<Next, Cause> {
        let options = self.options;
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let thread = Builder::new().name("follower".to_owned());
            let following =
                thread.spawn_scoped(scope, || follow_leader(options, record, &ended))?;
            let next = self.watch(record, || following.is_finished());
            ended.store(true, Ordering::Relaxed);
            let followed = following.join().map_err(|_| "the follower has failed")?;
            match next? {
                // Whatever it has failed of is over.
                Next::Look => followed.map(|()| Next::Look),
                next => Ok(next),
            }
        })
    }

    /// Watches the record while this machine follows.
    fn watch(
        &mut self,
        record: &LeaseRecord,
        is_finished: impl Fn() -> bool,
    ) -> Result<Next, Cause> {
        info!("{} leads: following {}", record.holder, record.address);
        self.is_well();
        let interval = self.options.times.lease / LOOKS;
        let mut looked_at = Duration::ZERO;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(Next::Stop);
            }
            if is_finished() {
                return Ok(Next::Look);
            }
            let now = Duration::from_nanos(boot_ns());
            if now - looked_at < interval {
                rest(LOOK.min(interval));
                continue;
            }
            looked_at = now;
            match self.candidate.look() {
                Err(error) => self.say(error.to_string()),
                Ok(None) => return Ok(Next::Look),
                Ok(Some(seen)) => {
                    let seen = seen.record.clone();
                    if (seen.term, &seen.address) != (record.term, &record.address) {
                        return Ok(Next::Look);
                    }
                    // An earlier renewal may be from before the directory was restored.
                    if seen.beat > record.beat {
                        self.note_beat(&seen)?;
                    }
                    if let Some(next) = self.try_take(&seen)? {
                        return Ok(next);
                    }
                }
            }
        }
    }

    /// Notes the renewal that was seen, if this copy had all that was answered at it.
    fn note_beat(&mut self, record: &LeaseRecord) -> Result<(), Cause> {
        let dir = self.options.dir();
        if self.noted == record.beat {
            return Ok(());
        }
        let has_all =
            |copy: Copy| record.is_in_sync(&self.options.name, copy.own) && copy.next >= record.at;
        if Copy::of(dir)?.is_some_and(has_all) {
            match note_beat(dir, record.beat).and_then(|file| file.sync_data()) {
                Ok(()) => self.noted = record.beat,
                Err(error) => self.say(format!("{}: {error}", dir.display())),
            }
        }
        Ok(())
    }
}

/// Follows until `ended`. What only this machine has, as one that led, is set aside first.
fn follow_leader(
    options: &PairOptions,
    record: &LeaseRecord,
    ended: &AtomicBool,
) -> Result<(), Cause> {
    let follow = FollowOptions {
        leader: record.leader()?,
        name: options.name.clone(),
        ..options.follow.clone()
    };
    let mut must_rejoin = Copy::of(options.dir())?.is_some_and(|copy| copy.has_led);
    while !ended.load(Ordering::Relaxed) {
        let outcome = if must_rejoin {
            rejoin(options, &follow, ended).map(|()| must_rejoin = false)
        } else {
            follow_into(options.dir(), &follow, ended).map(drop)
        };
        let Err(cause) = outcome else { continue };
        match cause.downcast_ref() {
            Some(
                ReplicationError::Refused {
                    reason: Reason::Diverged,
                    ..
                }
                | ReplicationError::WasLeader { .. },
            ) if !must_rejoin => {
                must_rejoin = true;
            }
            // The machine that leads now will be known.
            Some(
                ReplicationError::Refused {
                    reason: Reason::Superseded,
                    ..
                }
                | ReplicationError::OlderTerm { .. },
            ) => rest(LOOK),
            Some(error) if error.may_pass() => rest(LOOK),
            _ => return Err(context(options.dir().display(), cause)),
        }
    }
    Ok(())
}

/// Makes the queues of this machine a copy.
fn rejoin(options: &PairOptions, follow: &FollowOptions, ended: &AtomicBool) -> Result<(), Cause> {
    let rejoin = RejoinOptions {
        leader: follow.leader.clone(),
        journals: vec![(String::new(), options.dir().join(CHANGES))],
        secret: follow.secret.clone(),
        tls: follow.tls.clone(),
    };
    let rejoin = Rejoin::plan(&rejoin, ended)?;
    for plan in rejoin.plans() {
        if let Some(aside) = plan.aside {
            warn!(
                "{} changes of this machine that the others do not have are set aside in {}",
                plan.next - plan.keep,
                aside.display()
            );
        }
    }
    rebuild_from_changes(options.dir())?;
    Ok(rejoin.carry_out()?)
}
