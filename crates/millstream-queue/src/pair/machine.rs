//! One machine of a group: it follows, or takes the lease and leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_journal::{Host, chain};
use millstream_replication::arbiter::{Candidate, Held, LeaseRecord};
use millstream_replication::lead;
use tracing::{error, info, warn};

use super::fitness::{Copy, has_others, lacks, note_beat, others_of};
use super::group::Group;
use super::keeper::{Keeper, Kept};
use super::options::{LOOK, PairOptions, rest};
use crate::error::Cause;
use crate::replica::{complete, make_changes};
use crate::server::watch::Following;
use crate::server::{ReplicaOptions, Server, ServerOptions};
use crate::storage::CHANGES;

/// What a machine does next.
pub(super) enum Next {
    /// Look at the record again.
    Look,
    /// Lead: it has the lease.
    Lead(Keeper, u64),
    Stop,
}

/// How many texts are remembered, which are not logged again.
const SAID_MAX: usize = 16;

/// One machine.
pub(super) struct Machine<'a> {
    pub(super) options: &'a PairOptions,
    pub(super) stop: &'a Arc<AtomicBool>,
    pub(super) candidate: Candidate,
    /// What was logged since it led last, and is not repeated; the last one is shown.
    said: Vec<String>,
    /// The renewal that was noted last.
    pub(super) noted: u64,
    /// Whether others have all that was answered, and may lead in its place.
    has_others: bool,
}

impl<'a> Machine<'a> {
    pub(super) fn new(options: &'a PairOptions, stop: &'a Arc<AtomicBool>) -> Result<Self, Cause> {
        Ok(Machine {
            options,
            stop,
            candidate: options.candidate()?,
            said: Vec::new(),
            noted: 0,
            has_others: false,
        })
    }

    /// Looks at the record, and does what follows from it.
    pub(super) fn next(&mut self) -> Result<Next, Cause> {
        if let Err(error) = self.candidate.look() {
            self.say(error.to_string());
            rest(LOOK);
            return Ok(Next::Look);
        }
        let Some(record) = self.candidate.seen().map(|seen| seen.record.clone()) else {
            return self.begin_group();
        };
        match self.options.check_group(&record) {
            Ok(true) => {}
            Ok(false) => self.join_group(&record)?,
            Err(cause) => {
                self.say(chain(&*cause).to_string());
                rest(LOOK);
                return Ok(Next::Look);
            }
        }
        if record.holder != self.options.name && !record.address.is_empty() {
            return self.follow(&record);
        }
        // There is none that could be followed.
        let taken = self.try_take(&record)?;
        if taken.is_none() && record.address.is_empty() {
            self.say(format!(
                "{} was promoted, and does not serve yet: start it",
                record.holder
            ));
        } else if taken.is_none() && self.candidate.over_for().is_none() {
            self.say(format!(
                "an earlier process of {} has the lease: waiting until it is over; if it does not end, another machine has the same name (--as)",
                record.holder
            ));
        }
        Ok(taken.unwrap_or_else(|| {
            rest(LOOK);
            Next::Look
        }))
    }

    /// Logs what keeps it from leading, once.
    pub(super) fn say(&mut self, text: String) {
        if !self.said.contains(&text) {
            warn!("{text}");
            if self.said.len() == SAID_MAX {
                self.said.remove(0);
            }
            self.said.push(text);
            self.show();
        }
    }

    /// It follows another one: nothing is the matter any more.
    pub(super) fn is_well(&mut self) {
        self.said.clear();
        self.show();
    }

    /// Shows on the page what this machine does while it does not serve.
    fn show(&self) {
        let Some(watch) = &self.options.server.watch else {
            return;
        };
        let record = self.candidate.seen().map(|seen| &seen.record);
        watch.follow(Following {
            leader: record.map_or_else(String::new, |record| record.holder.clone()),
            trouble: self.said.last().cloned().unwrap_or_default(),
        });
    }

    /// The queues belong to no group yet.
    fn join_group(&self, record: &LeaseRecord) -> Result<(), Cause> {
        let dir = self.options.dir();
        std::fs::create_dir_all(dir)?;
        let is_foreign =
            |copy: &Copy| copy.has_led && !record.is_in_sync(&self.options.name, copy.own);
        if Copy::of(dir)?.as_ref().is_some_and(is_foreign) {
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
            rest(LOOK);
            return Ok(Next::Look);
        }
        let copy = Copy::of(options.dir())?;
        if copy.is_some_and(|copy| !copy.has_led) {
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
        let term = copy.map_or(1, |copy| copy.next_term(None));
        let taken = self
            .candidate
            .take(|record| *record = options.record(number, term, own, &options.advertise));
        match taken? {
            Some(held) => {
                options.note_group(number)?;
                self.keep(held, term)
            }
            None => Ok(Next::Look),
        }
    }

    /// Takes the lease, if it is over and this copy has all that was answered.
    pub(super) fn try_take(&mut self, record: &LeaseRecord) -> Result<Option<Next>, Cause> {
        let Some(over) = self.candidate.over_for() else {
            return Ok(None);
        };
        let options = self.options;
        let name = &options.name;
        let others = has_others(record, name);
        // One that led may have lost its last changes with its power, where it does not sync: the others have them, and
        // come first.
        if &record.holder == name && others && record.lease_ms > 0 && over < record.lease() {
            return Ok(None);
        }
        let copy = Copy::of(options.dir())?;
        let lacks = lacks(copy.as_ref(), (options.dir(), name), record)?;
        let (Some(copy), None) = (copy, &lacks) else {
            self.say(self.not_in_sync(record, copy.is_some(), &lacks.unwrap_or_default()));
            return Ok(None);
        };
        let term = copy.next_term(Some(record));
        if let Err(error) = note_beat(options.dir(), record.beat + 1) {
            self.say(format!("{}: {error}", options.dir().display()));
            return Ok(None);
        }
        self.has_others = others;
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

    fn not_in_sync(&self, record: &LeaseRecord, has_copy: bool, lacks: &str) -> String {
        let options = self.options;
        let others = others_of(record, &options.name);
        let by_hand = if has_copy {
            format!(
                ", or, if it will not come back, stop this machine and let it serve by `millstream queue promote {} --arbiter {} --as {} --yes`",
                options.dir().display(),
                options.arbiter,
                options.name
            )
        } else {
            String::new()
        };
        format!(
            "{} led last, and does not any more; {lacks}, so that it does not take over: start {others}{by_hand}",
            record.holder
        )
    }

    /// Keeps the lease that was taken.
    fn keep(&mut self, held: Held, term: u64) -> Result<Next, Cause> {
        let options = self.options;
        info!("{} has the lease, in term {term}", options.name);
        let candidate = std::mem::replace(&mut self.candidate, options.candidate()?);
        let kept = Kept {
            name: options.name.clone(),
            dir: options.dir().to_owned(),
            lease: options.times.lease,
        };
        let keeper = Keeper::start(kept, candidate, held, Arc::clone(self.stop))?;
        self.said.clear();
        Ok(Next::Lead(keeper, term))
    }

    /// Leads, until another machine has the lease, or a signal comes. Whatever ends it, others need not wait for the
    /// end of the lease.
    pub(super) fn lead(
        &self,
        keeper: Keeper,
        term: u64,
        ready: &mut impl FnMut(&Server),
    ) -> Result<(), Cause> {
        let keeper = Arc::new(keeper);
        let served = self.serve(&keeper, term, ready);
        keeper.release();
        served
    }

    /// Makes the copy the queues, and serves them.
    fn serve(
        &self,
        keeper: &Arc<Keeper>,
        term: u64,
        ready: &mut impl FnMut(&Server),
    ) -> Result<(), Cause> {
        let dir = self.options.dir();
        if !Copy::of(dir)?.is_some_and(|copy| copy.has_led) {
            complete(dir)?;
        }
        lead(&dir.join(CHANGES), term)?;
        if self.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let replica = self.options.server.replica.clone();
        let server = ServerOptions {
            replica: replica.map(|replica| ReplicaOptions {
                keeper: Some(Arc::clone(keeper)),
                waits: true,
                ..replica
            }),
            ..self.options.server.clone()
        };
        let server = Server::start(server)?;
        ready(&server);
        // The keeper of the lease stops it when `stop` is raised.
        Ok(server.wait()?)
    }

    /// It could not serve. Where others may take over, it waits for that, and tries again.
    pub(super) fn has_failed(&mut self, cause: Cause) -> Result<(), Cause> {
        if !self.has_others {
            return Err(cause);
        }
        error!(
            "{} cannot serve, and gives the lease back: {}",
            self.options.name,
            chain(&*cause)
        );
        self.say(format!("it could not serve: {}", chain(&*cause)));
        // Others come first.
        let rests = self.options.times.lease.as_millis() / LOOK.as_millis();
        for _ in 0..rests {
            if !self.stop.load(Ordering::Relaxed) {
                rest(LOOK);
            }
        }
        Ok(())
    }
}
