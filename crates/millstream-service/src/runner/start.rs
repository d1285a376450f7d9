//! The start of a runner: it reads the records of the service and brings the component to its last input.

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
use crate::recorded::resume::{self, Resume};
use crate::recorded::schedule::{Legacy, Schedule, old_timers};
use crate::recorded::snapshot::Snapshots;
use crate::settings::Settings;
use crate::timers::Timer;

impl<C: 'static> Setup<C> {
    /// Finds the position of the service, rebuilds the state of the component, and moves to the record after the last input.
    ///
    /// # Errors
    /// Inputs that are needed have been pruned; two inputs are one journal; the component fails, or does not do again what it did; what
    /// an earlier version recorded by path or number can mean more than one thing.
    pub fn start(self, settings: Settings) -> Result<Runner<C>, ServiceError> {
        let Self {
            service,
            component,
            mut inlets,
            timers,
            renamed,
            own,
            snapshotter,
        } = self;
        let Service {
            current,
            output,
            mut replay,
        } = service;
        let written = output.as_ref().map(|output| &output.journal);
        admit_inputs(&inlets, written, &settings)?;
        check_names(&timers)?;
        let several = inlets.len() > 1 || !timers.is_empty();
        let again = replay.as_mut().and_then(|replay| replay.schedule.take());
        let mut recorded = Recorded::of(written, again, several, &timers, &settings)?;
        if let (Some(schedule), true, Some(_)) = (&recorded.schedule, several, written) {
            current.add_input(&schedule.journal);
        }
        let names = recorded.names(&inlets)?;
        let Recorded {
            schedule,
            resume,
            legacy,
        } = recorded;
        for inlet in &mut inlets {
            inlet.skip_pruned = settings.skip_pruned;
        }
        // A state that is not brought back is not worth keeping.
        let snapshotter = snapshotter.filter(|_| settings.rebuild);
        let snapshots = snapshots_of(snapshotter.is_some(), written)?;
        let needs = Needs::of(snapshotter.is_some(), own.is_some(), settings.rebuild);
        let dead = written.map(Journal::lineage).transpose()?;
        let dead = DeadLetters::new(&settings.on_error, dead)?;
        let following = Following::of(written, &settings)?;
        let durable = written.is_some_and(|journal| journal.sync_mode() == Sync::Always);
        let mut runner = Runner {
            component,
            inlets,
            timers,
            renamed,
            schedule,
            progress: Progress::new(current, resume.clone(), settings.on_error.clone(), dead),
            durable,
            following,
            settings,
            host: Host::real(),
            output,
            own,
            snapshotter,
            snapshots,
            legacy,
            needs,
            announced: Vec::new(),
            announced_ns: 0,
            last_snapshot: None,
            gone: Vec::new(),
            warnings: Vec::new(),
            replay,
            spins: 0,
        };
        runner.begin(resume.as_ref(), names)?;
        Ok(runner)
    }
}

impl<C> Runner<C> {
    /// Brings the component to the position of the service, and records the start.
    fn begin(&mut self, resume: Option<&Resume>, mut names: Names) -> Result<(), ServiceError> {
        for timer in &mut self.timers {
            let now = self.host.time_ns() as i64;
            timer.pass(now);
        }
        self.begin_replay()?;
        self.catch_up(resume, &mut names)?;
        self.own = None;
        self.legacy.inputs = names.legacy;
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

/// The snapshots of a component, if it has any.
fn snapshots_of(keeps: bool, output: Option<&Journal>) -> Result<Option<Snapshots>, ServiceError> {
    match (keeps, output) {
        (true, Some(output)) => Ok(Some(Snapshots::beside(output)?)),
        (true, None) => Err(ServiceError::NoOutput),
        (false, _) => Ok(None),
    }
}

/// The records about a service.
#[derive(Default)]
struct Recorded {
    schedule: Option<Schedule>,
    resume: Option<Resume>,
    legacy: Legacy,
}

impl Recorded {
    /// The records beside an output, or the order of a replay.
    fn of<C>(
        output: Option<&Journal>,
        again: Option<Schedule>,
        several: bool,
        timers: &[Timer<C>],
        settings: &Settings,
    ) -> Result<Self, ServiceError> {
        match (output, again) {
            (Some(output), _) => Self::beside(output, several, timers, settings),
            (None, Some(again)) => Self::again(again, timers, settings),
            (None, None) => Ok(Self::default()),
        }
    }

    /// Reads the schedule beside an output journal, and the end of that journal.
    fn beside<C>(
        output: &Journal,
        several: bool,
        timers: &[Timer<C>],
        settings: &Settings,
    ) -> Result<Self, ServiceError> {
        let schedule = Schedule::beside(output, several)?;
        Ok(Self {
            resume: resume::find(output)?,
            ..Self::again(schedule, timers, settings)?
        })
    }

    /// The contents of a schedule, for a replay of all of it.
    fn again<C>(
        schedule: Schedule,
        timers: &[Timer<C>],
        settings: &Settings,
    ) -> Result<Self, ServiceError> {
        let legacy = match schedule.last()? {
            Some(last) => last.legacy,
            // The first start of this version finds out what numbers of timers mean.
            None => {
                let known = timers.iter().map(|it| (it.name.as_str(), it.period_ns));
                let known: Vec<(&str, i64)> = known.collect();
                Legacy {
                    timers: old_timers(&schedule, &known, settings.old_timers.as_deref())?,
                    ..Legacy::default()
                }
            }
        };
        Ok(Self {
            schedule: Some(schedule),
            resume: None,
            legacy,
        })
    }

    /// Which input each recorded journal is. The input of the last output gets the number that it has now.
    fn names<C>(&mut self, inlets: &[Inlet<C>]) -> Result<Names, ServiceError> {
        let journals = inlets.iter().map(|inlet| &inlet.journal);
        let mut names = Names::new(journals, self.legacy.inputs.clone())?;
        if let (Some(resume), Some(schedule)) = (&mut self.resume, &self.schedule) {
            resume.lineage.input = number_of(resume, schedule, inlets, &mut names)?;
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

/// The number that the input of the last output has now; the schedule's is the one after those of the inputs.
fn number_of<C>(
    resume: &Resume,
    schedule: &Schedule,
    inlets: &[Inlet<C>],
    names: &mut Names,
) -> Result<u32, ServiceError> {
    let input = &resume.input;
    let ours = inlets.len() as u32;
    let (sequence, time_ns) = (resume.lineage.sequence, resume.time_ns);
    let found = match input.identity {
        Some(identity) if identity == schedule.journal.lineage()? => Some(ours),
        Some(_) => names.find(std::slice::from_ref(input))[0],
        None if input.path.ends_with(".schedule") => Some(ours),
        None => names.resolve(std::slice::from_ref(input), |_, at| {
            inlets[at].may_have_caused(sequence, time_ns)
        })?[0],
    };
    Ok(found.unwrap_or(GONE))
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
