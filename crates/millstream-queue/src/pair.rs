//! Queues on several machines, of which one serves them at a time: an arbiter decides which.
//!
//! ```text
//!            +--------- arbiter: who leads, until when, who has all ---------+
//!            |                                                               |
//!       renews, names those                                          looks; takes the lease
//!       that have all                                                when it is over
//!            |                                                               |
//!        machine a: serves clients  ---- all changes ---->  machine b: follows
//! ```
//!
//! The one that leads answers when all followers have a change that the arbiter's record names. It lets one not count any more only after the record
//! does not name it, and only one that the record names may take over: so what was answered is always there. A take-over begins a new term of the
//! changes, by which an old leader is refused everywhere, also where it knows nothing of the arbiter.

mod follow;
mod group;
mod keeper;
mod members;
mod standing;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_journal::{Host, Journal, Options};
use millstream_replication::arbiter::{
    ArbiterAddress, ArbiterTls, Candidate, Held, LeaseRecord, LeaseTimes,
};
use millstream_replication::{FollowOptions, lead};
use tracing::{info, warn};

pub use self::group::Group;
pub use self::keeper::Keeper;
pub(crate) use self::standing::Standing;
use crate::error::Cause;
use crate::replica::{changes_of, complete, make_changes};
use crate::server::watch::Following;
use crate::server::{self, ReplicaOptions, ServerError, ServerOptions};
use crate::storage::CHANGES;

/// How often a machine looks whether it must stop, and tries again after a failure.
const LOOK: Duration = Duration::from_millis(100);
/// How often it looks at the record: so many times in each lease.
const LOOKS: u32 = 8;

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
pub struct TakenOver {
    /// The machine that may serve now.
    pub name: String,
    /// The term of the record.
    pub term: u64,
    /// The term before, or 0.
    pub before: u64,
}

/// What a machine does next.
enum Next {
    /// Look at the record again.
    Look,
    /// Lead: it has the lease.
    Lead(Keeper, u64),
    Stop,
}

/// Serves the queues or follows the machine that does, until `stop` is raised or a client stops the server. `ready` is called with each address at which
/// clients are served, whenever that begins.
///
/// # Errors
/// The directory cannot be used, or belongs to another group; this copy cannot follow; the server fails.
pub fn run(
    options: &PairOptions,
    stop: &AtomicBool,
    mut ready: impl FnMut(&str),
) -> Result<(), Cause> {
    let mut machine = Machine {
        options,
        stop,
        candidate: options.candidate()?,
        last_said: String::new(),
    };
    while !stop.load(Ordering::Relaxed) {
        match machine.next()? {
            Next::Look => {}
            Next::Stop => break,
            Next::Lead(keeper, term) => {
                match machine.lead(keeper, term, &mut ready) {
                    Ok(()) => break,
                    Err(cause) if was_taken_over(&cause) => warn!("{cause}"),
                    Err(cause) => return Err(cause),
                }
                machine.candidate = options.candidate()?;
            }
        }
    }
    Ok(())
}

fn was_taken_over(cause: &Cause) -> bool {
    matches!(cause.downcast_ref(), Some(ServerError::Superseded(_)))
}

impl PairOptions {
    fn candidate(&self) -> Result<Candidate, Cause> {
        let timeout = self.times.lease / LOOKS * 2;
        let arbiter = self.arbiter.connect(&self.arbiter_tls, timeout)?;
        Ok(Candidate::new(arbiter, self.times))
    }

    fn dir(&self) -> &Path {
        &self.server.dir
    }

    /// Lets this machine serve from now on, as an operator says since those that led will not come back. Waits until the present lease is over.
    ///
    /// # Errors
    /// The arbiter does not answer, or another machine has the lease; without `yes` also where this copy may lack what was answered.
    pub fn take_over(&self, yes: bool, stop: &AtomicBool) -> Result<TakenOver, Cause> {
        let mut candidate = self.candidate()?;
        let (own, _) = own(self.dir())?;
        loop {
            let before = candidate.look()?.map(|seen| seen.record.clone());
            if let Some(record) = &before
                && !record.is_in_sync(&self.name, own)
                && !yes
            {
                return Err(format!(
                    "{}: {} had all that was answered, and this copy may lack some of it; nothing was changed, --yes does it",
                    self.dir().display(),
                    others_of(record, &self.name)
                )
                .into());
            }
            if candidate.over_for().is_some() {
                return self.take_over_from(&mut candidate, before, own);
            }
            if stop.load(Ordering::Relaxed) {
                return Err(
                    "stopped while it waited for the end of the lease: nothing was changed".into(),
                );
            }
            rest();
        }
    }

    fn take_over_from(
        &self,
        candidate: &mut Candidate,
        before: Option<LeaseRecord>,
        own: u64,
    ) -> Result<TakenOver, Cause> {
        let term = term_after(self.dir(), before.as_ref())?;
        let group = before
            .as_ref()
            .map_or_else(|| Host::real().random(), |record| record.group);
        let taken = candidate.take(|record| *record = self.record(group, term, own))?;
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
    fn record(&self, group: u64, term: u64, own: u64) -> LeaseRecord {
        LeaseRecord {
            group,
            term,
            holder: self.name.clone(),
            address: self.advertise.clone(),
            in_sync: [(self.name.clone(), own)].into(),
            ..LeaseRecord::default()
        }
    }

    fn note_group(&self, number: u64) -> Result<(), Cause> {
        let arbiter = self.arbiter.to_string();
        Group { number, arbiter }.note(self.dir())
    }
}

/// The number of this copy of the changes, and the number of its next one.
fn own(dir: &Path) -> Result<(u64, u64), Cause> {
    let journal = Journal::open(changes_of(dir)?, Options::read_only())?;
    Ok((journal.identity()?.own, journal.next()?))
}

/// A term that is newer than all that are known.
fn term_after(dir: &Path, record: Option<&LeaseRecord>) -> Result<u64, Cause> {
    let journal = Journal::open(changes_of(dir)?, Options::read_only())?;
    let leadership = journal.leadership()?;
    let newest = leadership.superseded_by.unwrap_or(leadership.term);
    Ok(newest.max(record.map_or(0, |record| record.term)) + 1)
}

/// One machine.
struct Machine<'a> {
    options: &'a PairOptions,
    stop: &'a AtomicBool,
    candidate: Candidate,
    /// What was logged last, which is not repeated.
    last_said: String,
}

impl Machine<'_> {
    /// Looks at the record, and does what follows from it.
    fn next(&mut self) -> Result<Next, Cause> {
        if let Err(error) = self.candidate.look() {
            self.say(error.to_string());
            rest();
            return Ok(Next::Look);
        }
        let Some(record) = self.candidate.seen().map(|seen| seen.record.clone()) else {
            return self.begin_group();
        };
        self.check_group(&record)?;
        if record.holder == self.options.name {
            // There is none that could be followed.
            self.say(format!(
                "an earlier process of {} has the lease: waiting until it is over; if it does not end, another machine has the same name (--as)",
                record.holder
            ));
            let taken = self.try_take(&record)?;
            return Ok(taken.unwrap_or_else(|| {
                rest();
                Next::Look
            }));
        }
        self.follow(&record)
    }

    /// Logs what keeps it from leading, once.
    fn say(&mut self, text: String) {
        if text != self.last_said {
            warn!("{text}");
            self.last_said = text;
            self.show();
        }
    }

    /// Shows on the page what this machine does while it does not serve.
    fn show(&self) {
        let Some(watch) = &self.options.server.watch else {
            return;
        };
        let record = self.candidate.seen().map(|seen| &seen.record);
        watch.follow(Following {
            leader: record.map_or_else(String::new, |record| record.holder.clone()),
            trouble: self.last_said.clone(),
        });
    }

    fn check_group(&self, record: &LeaseRecord) -> Result<(), Cause> {
        let dir = self.options.dir();
        match Group::of(dir)? {
            Some(group) if group.number != record.group => Err(format!(
                "{}: these queues belong to group {:016x} of {}, and {} has the record of group {:016x}: give the arbiter of the group, or delete .group \
                 to let them follow another one",
                dir.display(),
                group.number,
                group.arbiter,
                self.options.arbiter,
                record.group
            )
            .into()),
            Some(_) => Ok(()),
            None => self.join_group(record),
        }
    }

    /// The queues belong to no group yet.
    fn join_group(&self, record: &LeaseRecord) -> Result<(), Cause> {
        let dir = self.options.dir();
        std::fs::create_dir_all(dir)?;
        if has_led(dir)? && !record.is_in_sync(&self.options.name, own(dir)?.0) {
            return Err(format!(
                "{}: these queues were served outside of the group that {} leads: `millstream queue rejoin {} --leader {}` makes them a copy, \
                 and says what that drops",
                dir.display(),
                record.holder,
                dir.display(),
                record.address
            )
            .into());
        }
        self.options.note_group(record.group)
    }

    /// There is no record: this machine is the first one, unless there was one.
    fn begin_group(&mut self) -> Result<Next, Cause> {
        let options = self.options;
        if let Some(group) = Group::of(options.dir())? {
            self.say(format!(
                "{}: these queues belong to group {:016x}, of which {} has no record: it is another one, or has lost it; where no other machine \
                 serves them, `millstream queue promote {} --arbiter {} --as {}` writes a new one",
                options.dir().display(),
                group.number,
                options.arbiter,
                options.dir().display(),
                options.arbiter,
                options.name
            ));
            rest();
            return Ok(Next::Look);
        }
        if options.dir().join(CHANGES).exists() && !has_led(options.dir())? {
            return Err(format!(
                "{}: these queues are a copy, and {} has no record: start the machine first that has served them, or `millstream queue promote {}` \
                 makes them the queues",
                options.dir().display(),
                options.arbiter,
                options.dir().display()
            )
            .into());
        }
        let own = make_changes(options.dir(), options.server.item_bytes()?)?;
        let number = Host::real().random();
        let term = term_after(options.dir(), None)?;
        let taken = self
            .candidate
            .take(|record| *record = options.record(number, term, own));
        match taken? {
            Some(held) => {
                options.note_group(number)?;
                self.keep(held, term)
            }
            None => Ok(Next::Look),
        }
    }

    /// Takes the lease, if it is over and this copy has all that was answered.
    fn try_take(&mut self, record: &LeaseRecord) -> Result<Option<Next>, Cause> {
        let Some(over) = self.candidate.over_for() else {
            return Ok(None);
        };
        let options = self.options;
        let name = &options.name;
        let others = record.in_sync.keys().any(|other| other != name);
        // One that led may have lost its last changes with its power, where it does not sync: the others have them, and come first.
        if &record.holder == name && others && record.lease_ms > 0 && over < record.lease() {
            return Ok(None);
        }
        let found = changes_of(options.dir()).and_then(|_| own(options.dir()));
        let is_in_sync = found
            .as_ref()
            .is_ok_and(|(own, _)| record.is_in_sync(name, *own));
        let Ok((_, next)) = found else {
            self.say(self.not_in_sync(record));
            return Ok(None);
        };
        if !is_in_sync {
            self.say(self.not_in_sync(record));
            return Ok(None);
        }
        if next < record.at && others {
            self.say(format!(
                "this copy ends before record {next} of the changes, and had those before {}: it was restored, or has lost them with its power; it waits for {}",
                record.at,
                others_of(record, name)
            ));
            return Ok(None);
        }
        let term = term_after(options.dir(), Some(record))?;
        let taken = self.candidate.take(|record| {
            record.term = term;
            record.holder.clone_from(name);
            record.address.clone_from(&options.advertise);
        });
        match taken {
            Ok(Some(held)) => self.keep(held, term).map(Some),
            Ok(None) => Ok(Some(Next::Look)),
            Err(error) => {
                self.say(error.to_string());
                Ok(None)
            }
        }
    }

    fn not_in_sync(&self, record: &LeaseRecord) -> String {
        format!(
            "{} led last and has no lease any more; this copy may lack what it answered and does not take over: start {}, or, if it will not come back, \
             `millstream queue promote {} --arbiter {} --as {}`",
            record.holder,
            others_of(record, &self.options.name),
            self.options.dir().display(),
            self.options.arbiter,
            self.options.name
        )
    }

    /// Keeps the lease that was taken.
    fn keep(&mut self, held: Held, term: u64) -> Result<Next, Cause> {
        let options = self.options;
        info!("{} has the lease, in term {term}", options.name);
        let candidate = std::mem::replace(&mut self.candidate, options.candidate()?);
        let keeper = Keeper::start(&options.name, candidate, held, options.times.lease)?;
        self.last_said.clear();
        Ok(Next::Lead(keeper, term))
    }

    /// Leads: makes the copy the queues, and serves them until another machine has the lease, or a signal comes.
    fn lead(&self, keeper: Keeper, term: u64, ready: &mut impl FnMut(&str)) -> Result<(), Cause> {
        let dir = self.options.dir();
        if !has_led(dir)? {
            complete(dir)?;
        }
        lead(&dir.join(CHANGES), term)?;
        let keeper = Arc::new(keeper);
        let server = ServerOptions {
            replica: self
                .options
                .server
                .replica
                .clone()
                .map(|replica| ReplicaOptions {
                    keeper: Some(Arc::clone(&keeper)),
                    waits: true,
                    ..replica
                }),
            ..self.options.server.clone()
        };
        server::run(server, ready)?;
        keeper.release();
        Ok(())
    }
}

/// Whether the changes are those of a machine that has led.
fn has_led(dir: &Path) -> Result<bool, Cause> {
    let changes = dir.join(CHANGES);
    if !changes.exists() {
        return Ok(false);
    }
    Ok(!Journal::open(changes, Options::read_only())?
        .leadership()?
        .is_copy)
}

fn others_of(record: &LeaseRecord, name: &str) -> String {
    let others = record.in_sync.keys().filter(|other| *other != name);
    let others: Vec<_> = others.map(String::as_str).collect();
    others.join(" or ")
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells that the record at an arbiter has changed"
)]
fn rest() {
    std::thread::sleep(LOOK);
}
