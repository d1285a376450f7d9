//! Runs a component: takes its inputs in order, one thread for each service.

mod announce;
mod following;
mod meter;
mod rebuild;
mod replay;
mod setup;

use std::time::Duration;

use millstream_journal::{Host, Wait};
use millstream_wire::Lineage;

use self::announce::Needs;
use self::following::Following;
pub use self::meter::Meter;
use self::replay::Replay;
use self::setup::Output;
pub use self::setup::{Service, Setup};
use super::error::ServiceError;
use super::inlet::{Inlet, Taken};
use super::names::Names;
use super::progress::Progress;
use super::resume::Resume;
use super::sampler::Sampler;
use super::schedule::{Entry, Legacy, Place, Schedule};
use super::settings::{Report, Settings, Stop};
use super::snapshot::{Keeper, Position, Snapshots};
use super::timers::{self, Timer};

/// The number of the output journal among the inputs: what is heard from there has no effects.
const OWN: u32 = u32::MAX - 1;
/// The number of an input that the service has no longer.
const GONE: u32 = u32::MAX - 2;
/// The longest wait before a runner looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// How often a runner that spins finds nothing before it looks at the clock.
const SPINS: u32 = 1 << 20;

/// A service that runs.
pub struct Runner<C> {
    component: C,
    inlets: Vec<Inlet<C>>,
    timers: Vec<Timer<C>>,
    renamed: Vec<(String, String)>,
    /// Where the order is recorded that several inputs and timers are taken in, and how far each has come.
    schedule: Option<Schedule>,
    progress: Progress,
    settings: Settings,
    /// An input survives a loss of power before the component is called with it.
    durable: bool,
    following: Option<Following>,
    host: Host,
    output: Option<Output>,
    /// The component's own outputs, until its state has been rebuilt from them.
    own: Option<Inlet<C>>,
    keeper: Option<Keeper<C>>,
    snapshots: Option<Snapshots>,
    legacy: Legacy,
    needs: Needs,
    /// What the last announcement said, and when it was made.
    announced: Vec<Place>,
    announced_ns: i64,
    /// Where the inputs were at the last snapshot.
    kept: Option<Vec<Place>>,
    /// Inputs that the service had before.
    gone: Vec<Place>,
    /// What the start found that users should know.
    warnings: Vec<String>,
    /// What is done again, if that is all.
    replay: Option<Replay>,
    /// How often a runner that spins has found nothing.
    spins: u32,
}

impl<C> Drop for Runner<C> {
    fn drop(&mut self) {
        // A clock that outlives the service keeps no journal open.
        self.progress.current.forget_inputs();
    }
}

impl<C> Runner<C> {
    /// Comes to where the service was, and writes down that it has started.
    fn begin(&mut self, resume: Option<&Resume>, mut names: Names) -> Result<(), ServiceError> {
        for timer in &mut self.timers {
            let now = self.host.time_ns() as i64;
            timer.pass(now);
        }
        self.begin_replay()?;
        self.catch_up(resume, &mut names)?;
        self.own = None;
        self.legacy.inputs = names.legacy;
        if let Some(keeper) = &mut self.keeper {
            keeper.since = self.progress.report.calls + self.progress.report.ticks;
        }
        self.announce()?;
        // With several inputs or timers the schedule says when each was taken.
        if self.inlets.len() == 1 && self.timers.is_empty() && self.replay.is_none() {
            self.progress.sampler = Some(Sampler::new(self.host.clone()));
        }
        self.hold_inputs()
    }

    /// The timer that was recorded under this name.
    fn timer_named(&self, name: &str) -> Option<usize> {
        let named = |name: &str| self.timers.iter().position(|timer| timer.name == name);
        let renamed = || {
            let new = self.renamed.iter().find(|(old, _)| old == name);
            new.and_then(|(_, new)| named(new))
        };
        named(name).or_else(renamed)
    }

    /// What the start found that is no error, a sentence each: an input that may only be read, so that no cursor keeps its records from being
    /// pruned; ticks of a timer that was taken away, which the state is without.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn tick(&mut self, timer: usize, lineage: Lineage, time_ns: i64) -> Result<(), ServiceError> {
        let Some(timer) = self.timers.get_mut(timer) else {
            return Ok(());
        };
        self.progress.begin(lineage, time_ns.max(0) as u64);
        let called = (timer.call)(&mut self.component, self.progress.time_ns());
        let journal = self
            .schedule
            .as_ref()
            .map_or("timers", |schedule| &schedule.name);
        let ended = match called {
            Ok(()) => self.progress.end(journal, lineage.sequence),
            Err(cause) => self.progress.failed(journal, lineage.sequence, &[], cause),
        };
        self.progress.report.ticks += 1;
        self.progress.report.calls -= 1; // `end` has counted it as a record
        ended
    }

    /// Takes one input, if there is one.
    ///
    /// # Errors
    /// The input cannot be taken and the policy is to fail; what the component called cannot be recorded.
    #[inline]
    pub fn turn(&mut self) -> Result<Taken, ServiceError> {
        let taken = match (&mut self.inlets[..], &self.timers[..]) {
            ([inlet], []) => {
                if self.durable {
                    inlet.make_durable()?;
                }
                let taken = inlet.take(&mut self.component, &mut self.progress)?;
                if let (Taken::Nothing, Some(sampler)) = (taken, &mut self.progress.sampler) {
                    sampler.idle();
                }
                taken
            }
            _ => self.turn_of_several()?,
        };
        if taken == Taken::Call {
            if let Some(following) = &mut self.following {
                following.took();
            }
            if let Some(keeper) = &mut self.keeper {
                keeper.since += 1;
                if keeper.since >= keeper.every {
                    self.keep()?;
                }
            } else if self.progress.report.calls.is_multiple_of(announce::CALLS) {
                self.announce()?;
            }
        }
        Ok(taken)
    }

    /// Makes a snapshot, if the component has been called since the last one.
    #[cold]
    fn keep(&mut self) -> Result<(), ServiceError> {
        let since = self.keeper.as_mut().map(|keeper| &mut keeper.since);
        if since.map_or(0, std::mem::take) == 0 {
            return Ok(());
        }
        // A start from here finds the inputs and timers right there.
        let schedule = self.announce()?;
        let (Some(keeper), Some(snapshots), Some(output)) =
            (&mut self.keeper, &mut self.snapshots, &self.output)
        else {
            return Ok(());
        };
        let places = self.announced.iter();
        let position = Position {
            time_ns: self.progress.time_ns(),
            outputs: output.journal.next()?,
            schedule,
            inputs: places
                .map(|place| (place.input.clone(), place.next))
                .collect(),
        };
        let state = (keeper.save)(&mut self.component).map_err(|cause| ServiceError::Unkept {
            output: output.journal.path().display().to_string(),
            cause,
        })?;
        snapshots.append(&position, &state)?;
        // The last but one is needed when a loss of power has taken outputs away that the last one has seen.
        if let Some(before) = self.kept.replace(self.announced.clone()) {
            for (inlet, place) in self.inlets.iter().zip(before) {
                inlet.hold(place.next)?;
            }
        }
        Ok(())
    }

    fn turn_of_several(&mut self) -> Result<Taken, ServiceError> {
        let is_replay = self.replay.is_some();
        let mut next: Option<(u64, usize)> = None;
        for (at, inlet) in self.inlets.iter_mut().enumerate() {
            if let Some(time) = inlet.peek_time()? {
                next = next.into_iter().chain([(time, at)]).min();
            }
        }
        if is_replay {
            return match next {
                Some((_, at)) => self.take_from(at),
                None => Ok(Taken::Nothing),
            };
        }
        let due = timers::next_due(&self.timers);
        let now = self.host.time_ns() as i64;
        if let Some((due_ns, timer)) = due
            && due_ns <= now
            && next.is_none_or(|(time, _)| due_ns as u64 <= time)
        {
            self.timers[timer].pass(now);
            let (timer, time_ns) = (timer as u32, due_ns.max(self.progress.time_ns()));
            let sequence = match &self.schedule {
                Some(schedule) => schedule.append(Entry::Timer { timer, time_ns })?,
                None => 0,
            };
            let input = self.inlets.len() as u32;
            self.tick(timer as usize, Lineage { input, sequence }, time_ns)?;
            return Ok(Taken::Call);
        }
        let Some((_, at)) = next else {
            return Ok(Taken::Nothing);
        };
        let (input, sequence) = (at as u32, self.inlets[at].position());
        if self.durable {
            self.inlets[at].make_durable()?;
        }
        if !self.inlets[at].named && self.schedule.is_some() {
            // It was empty at the last announcement, and has an identity now.
            self.announce()?;
        }
        if let Some(schedule) = &self.schedule {
            schedule.append(Entry::Record { input, sequence })?;
        }
        self.inlets[at].take(&mut self.component, &mut self.progress)
    }

    /// Takes inputs until there are none.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub fn drain(&mut self) -> Result<Report, ServiceError> {
        self.follow(&Stop::default())?;
        while self.turn()? != Taken::Nothing {
            if self.is_ahead() {
                self.follow(&Stop::default())?;
            }
        }
        self.follow(&Stop::default())?;
        self.keep()?;
        self.announce_end()?;
        self.settle()?;
        Ok(self.progress.report)
    }

    /// Takes inputs, and waits for more, until it is stopped.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub fn run(&mut self, stop: &Stop) -> Result<Report, ServiceError> {
        self.follow(stop)?;
        while !stop.is_set() {
            let taken = self.turn()?;
            if taken == Taken::Nothing || self.is_ahead() {
                self.follow(stop)?;
            }
            if taken == Taken::Nothing {
                self.rest()?;
            }
        }
        self.keep()?;
        self.announce_end()?;
        self.settle()?;
        Ok(self.progress.report)
    }

    /// Moves the cursor that stands for this service, so that it does not keep retention from removing old outputs.
    fn settle(&mut self) -> Result<(), ServiceError> {
        if let (Some(output), true) = (&self.output, self.settings.wait != Wait::Spin) {
            let next = output.journal.next()?;
            if output.cursor.position()? != next {
                output.cursor.set(next)?;
            }
        }
        Ok(())
    }

    /// Waits until there may be an input, a twentieth of a second at most.
    ///
    /// # Errors
    /// A journal cannot be read.
    pub fn rest(&mut self) -> Result<(), ServiceError> {
        self.settle()?;
        self.spins = self.spins.wrapping_add(1);
        if self.settings.wait != Wait::Spin || self.spins.is_multiple_of(SPINS) {
            self.announce_idle()?;
        }
        let due = timers::next_due(&self.timers).map(|(due, _)| due);
        let left = |due| Duration::from_nanos(i64::max(due - self.host.time_ns() as i64, 0) as u64);
        let mut limit = due.map_or(LOOK, left).min(LOOK);
        let mut wait = self.settings.wait;
        if self.inlets.len() > 1 && wait != Wait::Spin {
            (wait, limit) = (Wait::BackOff, limit.min(Duration::from_millis(1)));
        }
        match (wait, self.inlets.first_mut()) {
            (Wait::Spin, _) => std::hint::spin_loop(),
            (wait, Some(inlet)) => {
                inlet.wait(wait, limit)?;
            }
            (_, None) => std::thread::park_timeout(limit),
        }
        Ok(())
    }

    /// What has been done so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.progress.report
    }

    /// The component.
    pub fn component(&mut self) -> &mut C {
        &mut self.component
    }
}
