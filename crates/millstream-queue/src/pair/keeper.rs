//! The keeper of the lease, a thread of one that leads: it renews the lease, and records which followers have all that
//! is answered.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_journal::clock::boot_ns;
use millstream_journal::{Journal, chain};
use millstream_replication::arbiter::{Candidate, Held};
use tracing::{error, info, warn};

use super::fitness::note_beat;
use super::members::{Change, Members};
use super::standing::Standing;
use crate::error::Cause;

/// How often it looks at the followers, and tries again after a failure.
const LOOK: Duration = Duration::from_millis(100);
/// How often it renews the lease: so many times in each.
const BEATS: u32 = 5;

/// Renews the lease until it is dropped.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Keeper {
    shared: Arc<Shared>,
    /// Whether the process is to end.
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    standing: Standing,
    orders: Mutex<Orders>,
    ordered: Condvar,
}

/// What the thread is asked to do.
#[derive(Default)]
struct Orders {
    /// The journal whose followers it looks at from now on.
    journal: Option<Journal>,
    /// The followers are as the record says.
    is_level: bool,
    stops: bool,
    releases: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Orders> {
        // Each order is complete at every moment.
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper {
    /// Keeps the lease that `candidate` has just taken for the machine `name`.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(super) fn start(
        kept: Kept,
        candidate: Candidate,
        held: Held,
        stop: Arc<AtomicBool>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        shared.standing.hold_until(held.until);
        let mut keeping = Keeping {
            kept,
            was_over: false,
            candidate,
            members: None,
            shared: Arc::clone(&shared),
            last_failure: String::new(),
        };
        let thread = std::thread::Builder::new().name("millstream-lease".to_owned());
        let thread = thread.spawn(move || keeping.run())?;
        Ok(Keeper {
            shared,
            stop,
            thread: Some(thread),
        })
    }

    pub(crate) fn standing(&self) -> &Standing {
        &self.shared.standing
    }

    /// Looks at the followers of this journal from now on. Nothing may be answered before the keeper [is
    /// ready](Self::is_ready).
    pub(crate) fn attach(&self, journal: Journal) {
        self.shared.lock().journal = Some(journal);
        self.shared.ordered.notify_one();
    }

    /// Whether the arbiter's record names only followers that are waited for.
    pub(crate) fn is_ready(&self) -> bool {
        self.shared.lock().is_level
    }

    /// Whether the process was asked to end, perhaps before there was a server.
    pub(crate) fn must_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Gives the lease back: nothing is answered any more.
    pub(crate) fn release(&self) {
        self.shared.standing.hold_until(Duration::ZERO);
        self.shared.lock().releases = true;
    }
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keeper({:?})", self.shared.standing)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.lock().stops = true;
        self.shared.ordered.notify_one();
        // A panic of it was reported.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The machine that has the lease.
pub(super) struct Kept {
    pub name: String,
    /// The directory of its queues.
    pub dir: PathBuf,
    pub lease: Duration,
}

/// The thread.
struct Keeping {
    kept: Kept,
    /// The lease was over, at the last look.
    was_over: bool,
    candidate: Candidate,
    members: Option<Members>,
    shared: Arc<Shared>,
    /// The same failure is logged once, however often it is repeated.
    last_failure: String,
}

fn now() -> Duration {
    Duration::from_nanos(boot_ns())
}

impl Keeping {
    fn run(&mut self) {
        let mut beat_at = now() + self.kept.lease / BEATS;
        loop {
            let orders = self.shared.lock();
            let waited = self
                .shared
                .ordered
                .wait_timeout(orders, LOOK.min(self.kept.lease / BEATS / 2));
            let (orders, _) = waited.unwrap_or_else(PoisonError::into_inner);
            let (stops, releases, journal) =
                (orders.stops, orders.releases, orders.journal.clone());
            drop(orders);
            if stops {
                return self.end(releases);
            }
            match self.step(journal, now() >= beat_at) {
                Ok(true) => beat_at = now() + self.kept.lease / BEATS,
                Ok(false) => {}
                Err(cause) => self.failed(&cause),
            }
            if self.shared.standing.is_lost() {
                return;
            }
            let is_over = !self.shared.standing.may_answer();
            if is_over && !self.was_over {
                error!("the lease is over: nothing is answered until it can be renewed");
            }
            self.was_over = is_over;
        }
    }

    fn failed(&mut self, cause: &Cause) {
        let text = chain(&**cause).to_string();
        if text != self.last_failure {
            warn!("{text}; trying again");
            self.last_failure = text;
        }
    }

    fn end(&mut self, releases: bool) {
        if releases && !self.shared.standing.is_lost() {
            match self.candidate.release() {
                Ok(true) => info!("the lease was given back"),
                Ok(false) => {}
                Err(error) => error!("the lease was not given back: {error}"),
            }
        }
    }

    /// Looks at the followers, and renews the lease when it is time to, or when something has changed. Returns whether
    /// it was renewed.
    fn step(&mut self, journal: Option<Journal>, is_due: bool) -> Result<bool, Cause> {
        let Some(record) = self.candidate.seen().map(|seen| seen.record.clone()) else {
            return Ok(false);
        };
        let is_level = self.shared.lock().is_level;
        // Without a look the lease is renewed all the same.
        let looked = self.look(journal, &record.in_sync, is_level);
        let change = looked.unwrap_or_else(|cause| {
            self.failed(&cause);
            None
        });
        let is_change = |change: &Change| {
            !is_level || !change.dismissed.is_empty() || change.in_sync != record.in_sync
        };
        if !is_due && !change.as_ref().is_some_and(is_change) {
            return Ok(false);
        }
        if !self.renew(change.as_ref())? {
            return Ok(false);
        }
        if let (Some(change), Some(members)) = (&change, &self.members) {
            let is_alone = members.dismiss(&change.dismissed)? && change.in_sync.len() == 1;
            self.shared.standing.set_alone(is_alone);
            self.tell(&record.in_sync, change);
            self.shared.lock().is_level = true;
        }
        Ok(true)
    }

    /// What is to change, where there is a journal whose followers are looked at.
    fn look(
        &mut self,
        journal: Option<Journal>,
        named: &BTreeMap<String, u64>,
        is_level: bool,
    ) -> Result<Option<Change>, Cause> {
        if let (None, Some(journal)) = (&self.members, journal) {
            let own = (self.kept.name.clone(), journal.identity()?.own);
            self.members = Some(Members::new(own, journal, self.kept.lease)?);
        }
        let Some(members) = &mut self.members else {
            return Ok(None);
        };
        if !is_level {
            return Ok(Some(members.first(named)?));
        }
        let change = members.look(named, now())?;
        if members.counts_any()? {
            self.shared.standing.set_alone(false);
        }
        Ok(Some(change))
    }

    fn renew(&mut self, change: Option<&Change>) -> Result<bool, Cause> {
        let beat = self.candidate.seen().map_or(0, |seen| seen.record.beat);
        let noted = note_beat(&self.kept.dir, beat + 1);
        let held = self.candidate.renew(|record| {
            if let Some(change) = change {
                record.in_sync.clone_from(&change.in_sync);
                record.at = change.at;
            }
        })?;
        let Some(held) = held else {
            self.shared.standing.lose();
            match self.candidate.seen() {
                Some(seen) => error!(
                    "{} has taken the lease: nothing is answered here any more",
                    seen.record.holder
                ),
                None => error!("the arbiter has no record any more: nothing is answered here"),
            }
            return Ok(false);
        };
        self.shared.standing.hold_until(held.until);
        if let Err(error) = noted.and_then(|file| file.sync_data()) {
            self.failed(&format!("{}: {error}", self.kept.dir.display()).into());
            return Ok(true);
        }
        if !std::mem::take(&mut self.last_failure).is_empty() {
            info!("the lease is renewed again");
        }
        Ok(true)
    }

    fn tell(&self, before: &BTreeMap<String, u64>, change: &Change) {
        for name in change
            .in_sync
            .keys()
            .filter(|name| !before.contains_key(*name))
        {
            info!("{name} has all that is answered from now on, and may take over");
        }
        for name in before
            .keys()
            .filter(|name| !change.in_sync.contains_key(*name))
        {
            warn!(
                "{name} does not acknowledge: the server goes on without it, and it may not take over until it has caught up"
            );
        }
    }
}
