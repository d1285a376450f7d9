//! The start of a runner: it reads the records of the service and brings the component to its last input.

use std::time::Duration;

use millstream_journal::{Host, Journal, Sync};

use super::following::Following;
use super::needs::Needs;
use super::service::Service;
use super::setup::Setup;
use super::state::{GONE, Runner};
use crate::error::ServiceError;
use crate::inputs::admit;
use crate::inputs::inlet::Inlet;
use crate::inputs::names::Names;
use crate::inputs::sampler::Sampler;
use crate::outputs::dead::DeadLetters;
use crate::outputs::progress::Progress;
use crate::recorded::finished;
use crate::recorded::resume::{self, Resume};
use crate::recorded::schedule::Schedule;
use crate::recorded::snapshot::Snapshots;
use crate::settings::Settings;
use crate::timers::{Timer, Wall};

impl<C: 'static> Setup<C> {
    /// Finds the position of the service, rebuilds the state of the component, and moves to the record after the last
    /// input.
    ///
    /// # Errors
    /// Inputs that are needed have been pruned; two inputs are one journal; the component fails, or does not do again
    /// what it did.
    pub fn start(self, settings: Settings) -> Result<Runner<C>, ServiceError> {
        let Self {
            service,
            component,
            mut inlets,
            timers,
            renamed,
            own,
            snapshotter,
            asked,
            queries,
        } = self;
        let Service {
            current,
            output,
            mut replay,
        } = service;
        let written = output.as_ref().map(|output| &output.journal);
        admit_inputs(&inlets, written, &settings)?;
        check_timers(&timers, settings.rebuild && own.is_none())?;
        let several = inlets.len() > 1 || !timers.is_empty();
        let again = replay.as_mut().and_then(|replay| replay.schedule.take());
        let mut recorded = Recorded::of(written, again, several)?;
        if let (Some(schedule), true, Some(_)) = (&recorded.schedule, several, written) {
            current.add_input(&schedule.journal);
        }
        let names = recorded.names(&inlets)?;
        let finished = recorded.finish(written)?;
        let Recorded { schedule, resume } = recorded;
        let skips = |inlet: &mut Inlet<C>| inlet.skip_pruned = settings.skip_pruned;
        inlets.iter_mut().for_each(skips);
        // A state that is not brought back is not worth keeping.
        let snapshotter = snapshotter.filter(|_| settings.rebuild);
        let snapshots = snapshots_of(snapshotter.is_some(), written)?;
        let needs = Needs::of(snapshotter.is_some(), own.is_some(), settings.rebuild);
        let dead = dead_letters_of(written, &settings)?;
        let durable = written.is_some_and(|journal| journal.sync_mode() == Sync::Always);
        let host = Host::real();
        let mut runner = Runner {
            component,
            inlets,
            timers,
            renamed,
            schedule,
            progress: Progress::new(current, settings.on_error.clone(), dead),
            durable,
            following: Following::of(written, &settings)?,
            settings,
            wall: Wall::new(&host),
            host,
            output,
            own,
            snapshotter,
            snapshots,
            needs,
            announced: Vec::new(),
            announced_at: Duration::ZERO,
            last_snapshot: None,
            unreadable: None,
            gone: Vec::new(),
            warnings: Vec::new(),
            replay,
            questions: None,
            spins: 0,
            asked,
        };
        runner.begin(resume.as_ref(), finished, &names)?;
        runner.listen(queries)?;
        Ok(runner)
    }
}

impl<C> Runner<C> {
    /// Brings the component to the position of the service, and records the start.
    fn begin(
        &mut self,
        resume: Option<&Resume>,
        finished: Option<u64>,
        names: &Names,
    ) -> Result<(), ServiceError> {
        self.check_silence()?;
        self.begin_replay()?;
        self.catch_up(resume, finished, names)
            .map_err(|error| self.without_state(error))?;
        self.resume_timers();
        self.own = None;
        if let Some(snapshotter) = &mut self.snapshotter {
            snapshotter.since = self.progress.report.calls + self.progress.report.ticks;
        }
        self.announce()?;
        // With several inputs or timers the schedule says when each was taken.
        if self.inlets.len() == 1 && self.timers.is_empty() && self.replay.is_none() {
            self.progress.sampler = Some(Sampler::new(self.host.clone()));
        }
        self.protect_inputs()
    }
}

impl<C> Runner<C> {
    /// Inputs that are missing where the snapshot cannot be read.
    fn without_state(&self, error: ServiceError) -> ServiceError {
        match (&self.unreadable, &self.snapshots, error) {
            (Some(fault), Some(snapshots), error @ ServiceError::Pruned { .. }) => {
                ServiceError::NoState {
                    fault: fault.clone(),
                    cause: Box::new(error),
                    snapshots: snapshots.name.clone(),
                }
            }
            (_, _, error) => error,
        }
    }
}

/// The snapshots of a component, if it has any.
fn snapshots_of(keeps: bool, output: Option<&Journal>) -> Result<Option<Snapshots>, ServiceError> {
    match (keeps, output) {
        (true, Some(output)) => Ok(Some(Snapshots::beside(output)?)),
        (true, None) => Err(ServiceError::NoOutput),
        (false, _) => Ok(None),
    }
}

/// The dead letters of a service, if it has a journal for them.
fn dead_letters_of(
    output: Option<&Journal>,
    settings: &Settings,
) -> Result<Option<DeadLetters>, ServiceError> {
    let identity = output.map(Journal::lineage).transpose()?;
    DeadLetters::new(&settings.on_error, identity)
}

/// The records about a service.
struct Recorded {
    schedule: Option<Schedule>,
    resume: Option<Resume>,
}

impl Recorded {
    /// The schedule beside an output and the end of that journal, or the order of a replay.
    fn of(
        output: Option<&Journal>,
        again: Option<Schedule>,
        several: bool,
    ) -> Result<Self, ServiceError> {
        Ok(match output {
            Some(output) => Self {
                schedule: Some(Schedule::beside(output, several)?),
                resume: resume::find(output)?,
            },
            None => Self {
                schedule: again,
                resume: None,
            },
        })
    }

    /// The last announcement of which no output is lost. A last input before it needs no repetition: all its effects
    /// are recorded.
    fn finish(&mut self, output: Option<&Journal>) -> Result<Option<u64>, ServiceError> {
        let (Some(schedule), Some(output)) = (&self.schedule, output) else {
            return Ok(None);
        };
        let finished = finished::find(schedule, output)?;
        let is_left = |resume: &mut Resume| finished.is_none_or(|it| resume.last >= it.outputs);
        self.resume.take_if(|resume| !is_left(resume));
        Ok(finished.map(|it| it.announcement))
    }

    /// The current inputs. The input of the last output gets the number that it has now.
    fn names<C>(&mut self, inlets: &[Inlet<C>]) -> Result<Names, ServiceError> {
        let names = Names::new(inlets.iter().map(|inlet| &inlet.journal))?;
        if let (Some(resume), Some(schedule)) = (&mut self.resume, &self.schedule) {
            // The number after those of the inputs is that of the schedule.
            let found = if resume.input.identity == schedule.journal.lineage()? {
                Some(inlets.len() as u32)
            } else {
                names.find(&resume.input)
            };
            resume.lineage.input = found.unwrap_or(GONE);
        }
        Ok(names)
    }
}

/// Timers are recorded by their names.
fn check_names<C>(timers: &[Timer<C>]) -> Result<(), ServiceError> {
    for (at, timer) in timers.iter().enumerate() {
        if timers[..at].iter().any(|other| other.name == timer.name) {
            return Err(ServiceError::SameTimer {
                name: timer.name.clone(),
            });
        }
    }
    Ok(())
}

/// Timers are recorded by their names. One-off timers are known from the calls that started them, or from a snapshot.
fn check_timers<C>(timers: &[Timer<C>], rebuilds: bool) -> Result<(), ServiceError> {
    check_names(timers)?;
    match timers.iter().find(|timer| timer.is_one_off()) {
        Some(timer) if !rebuilds => Err(ServiceError::ForgetsTimers {
            name: timer.name.clone(),
        }),
        _ => Ok(()),
    }
}

/// Refuses inputs that the service writes, and those without a call for it.
fn admit_inputs<C>(
    inlets: &[Inlet<C>],
    written: Option<&Journal>,
    settings: &Settings,
) -> Result<(), ServiceError> {
    let inputs = inlets.iter().map(|inlet| &inlet.journal);
    admit::not_written(inputs, written, &settings.on_error)?;
    inlets.iter().try_for_each(Inlet::check_calls)
}
