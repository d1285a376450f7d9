//! A service before it runs: its output, its component, the inputs, timers and states that are added to it, and its start.

use std::sync::Arc;
use std::time::Duration;

use millstream_journal::{Cursor, Error as JournalError, Host, Journal, Share, Sync};
use millstream_wire::{Cause, Dispatch, Interface, Publisher, Schema, Unpacker};

use super::announce::Needs;
use super::following::Following;
use super::replay::Replay;
use super::{GONE, OWN, Runner};
use crate::admit;
use crate::current::{Clock, Current};
use crate::dead::DeadLetters;
use crate::error::ServiceError;
use crate::inlet::{self, Inlet};
use crate::names::{Names, same_directory};
use crate::outlet::Outlet;
use crate::progress::Progress;
use crate::resume::{self, Resume};
use crate::schedule::{Legacy, Schedule, old_timers};
use crate::settings::Settings;
use crate::snapshot::{Keeper, Snapshot, Snapshots};
use crate::timers::Timer;

/// A service before it has a component: the outputs that the component is made with.
pub struct Service {
    pub(super) current: Arc<Current>,
    pub(super) output: Option<Output>,
    /// What is done again, if that is all.
    pub(super) replay: Option<Replay>,
}

/// The output journal; the cursor keeps out other services.
pub(super) struct Output {
    pub journal: Journal,
    pub cursor: Cursor,
}

impl Service {
    /// A service that writes to this journal.
    ///
    /// # Errors
    /// Another one does already.
    pub fn new(output: &Journal) -> Result<Self, ServiceError> {
        let cursor = output.cursor("service", Share::Exclusive);
        let cursor = cursor.map_err(|error| match error {
            JournalError::CursorTaken { path, .. } => ServiceError::Taken {
                output: path.display().to_string(),
            },
            other => other.into(),
        })?;
        let journal = output.clone();
        Ok(Self {
            current: Arc::default(),
            output: Some(Output { journal, cursor }),
            replay: None,
        })
    }

    /// A service whose outputs go nowhere or to a [`Recorder`](millstream_wire::Recorder): to replay inputs. It takes all that there are.
    #[must_use]
    pub fn without_output() -> Self {
        Self {
            current: Arc::default(),
            output: None,
            replay: None,
        }
    }

    /// A publisher for the component: what it calls is recorded in the output journal.
    ///
    /// # Errors
    /// The journal cannot be written; the interface contradicts itself; there is no output.
    pub fn publisher<I: Interface + ?Sized>(&self) -> Result<Publisher<I, Outlet>, Cause> {
        Publisher::new(self.outlet()?)
    }

    /// A publisher's end of the output journal.
    ///
    /// # Errors
    /// The journal cannot be written; there is no output.
    pub fn outlet(&self) -> Result<Outlet, Cause> {
        let output = self
            .output
            .as_ref()
            .ok_or("a service without output has no publishers")?;
        Ok(Outlet::new(&output.journal, Arc::clone(&self.current))?)
    }

    /// The time that the component may see.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock {
            current: Arc::clone(&self.current),
        }
    }

    /// The component that is to run.
    pub fn component<C>(self, component: C) -> Setup<C> {
        Setup {
            service: self,
            component,
            inlets: Vec::new(),
            timers: Vec::new(),
            renamed: Vec::new(),
            own: None,
            keeper: None,
        }
    }
}

/// A service with its component, to which inputs are added.
pub struct Setup<C> {
    service: Service,
    component: C,
    inlets: Vec<Inlet<C>>,
    timers: Vec<Timer<C>>,
    /// Earlier names of timers, and those of today.
    renamed: Vec<(String, String)>,
    own: Option<Inlet<C>>,
    keeper: Option<Keeper<C>>,
}

impl<C: 'static> Setup<C> {
    /// Calls the component with the records of this journal that are calls of the interface. Several inputs are merged by time.
    ///
    /// # Errors
    /// The journal cannot be read; the interface contradicts itself.
    pub fn input<I: Dispatch<C> + ?Sized + 'static>(
        self,
        journal: &Journal,
    ) -> Result<Self, ServiceError> {
        self.input_with(journal, I::schema()?, I::dispatch)
    }

    /// As [`input`](Self::input) for an interface that is known only now: `dispatch` gets the number of a method of the schema and its
    /// arguments.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn input_with(
        mut self,
        journal: &Journal,
        schema: Schema,
        dispatch: impl FnMut(&mut C, u64, Unpacker<'_>) -> Result<(), millstream_wire::CallError>
        + Send
        + 'static,
    ) -> Result<Self, ServiceError> {
        if let Some(output) = &self.service.output {
            admit::not_own_output(journal, &output.journal)?;
        }
        let dispatch: inlet::Dispatch<C> = Box::new(dispatch);
        let path = journal.path();
        let same = |inlet: &&mut Inlet<C>| same_directory(&inlet.journal.path(), &path);
        if let Some(inlet) = self.inlets.iter_mut().find(same) {
            inlet.also(schema, dispatch);
            return Ok(self);
        }
        let number = self.service.current.add_input(journal);
        let mut inlet = Inlet::new(number, journal)?;
        inlet.also(schema, dispatch);
        self.inlets.push(inlet);
        Ok(self)
    }

    /// Keeps the state of the component each time that it was called `every` times, and when the service is stopped, in a journal
    /// beside the output journal (`replies.snapshots`). A start goes on from there and repeats only the inputs behind it.
    #[must_use]
    pub fn snapshots(self, every: u64) -> Self
    where
        C: Snapshot,
    {
        self.snapshots_with(every, |component| component.snapshot(), C::restore)
    }

    /// As [`snapshots`](Self::snapshots) with two functions.
    #[must_use]
    pub fn snapshots_with(
        mut self,
        every: u64,
        save: impl FnMut(&mut C) -> Result<Vec<u8>, Cause> + Send + 'static,
        restore: impl FnMut(&mut C, &[u8]) -> Result<(), Cause> + Send + 'static,
    ) -> Self {
        self.keeper = Some(Keeper {
            every: every.max(1),
            since: 0,
            save: Box::new(save),
            restore: Box::new(restore),
        });
        self
    }

    /// Rebuilds the state from what the component has put out: at a start, whatever `listener` gives, the component itself or a part of
    /// it, is called with all recorded calls of the interface. Only the last input is repeated, as some of its outputs may be missing. For
    /// components whose outputs say all that their state is.
    ///
    /// # Errors
    /// There is no output; the interface contradicts itself.
    pub fn rebuild_from<I: Dispatch<T> + ?Sized + 'static, T: ?Sized>(
        self,
        listener: impl Fn(&mut C) -> &mut T + Send + 'static,
    ) -> Result<Self, ServiceError> {
        self.rebuild_from_with(I::schema()?, move |component, method, arguments| {
            I::dispatch(listener(component), method, arguments)
        })
    }

    /// As [`rebuild_from`](Self::rebuild_from) for an interface that is known only now; `dispatch` is as in
    /// [`input_with`](Self::input_with).
    ///
    /// # Errors
    /// There is no output.
    pub fn rebuild_from_with(
        mut self,
        schema: Schema,
        dispatch: impl FnMut(&mut C, u64, Unpacker<'_>) -> Result<(), millstream_wire::CallError>
        + Send
        + 'static,
    ) -> Result<Self, ServiceError> {
        let output = self.service.output.as_ref().ok_or(ServiceError::NoOutput)?;
        let own = match self.own.take() {
            Some(own) => own,
            None => Inlet::new(OWN, &output.journal)?,
        };
        self.own.insert(own).also(schema, Box::new(dispatch));
        Ok(self)
    }

    /// Calls the component again and again, `period` apart, with the recorded time in ns since 1970. After a pause it is called once,
    /// however many periods have passed.
    ///
    /// The calls are recorded under the `name`, which no other timer of the component has: timers may be added, taken away and put in
    /// another order. Recorded calls of one that was taken away are not repeated.
    #[must_use]
    pub fn every(
        mut self,
        name: &str,
        period: Duration,
        call: impl FnMut(&mut C, i64) -> Result<(), Cause> + Send + 'static,
    ) -> Self {
        self.timers.push(Timer::new(name, period, call));
        self
    }

    /// What was recorded of the timer `old` is repeated by the timer `new`, which was called `old` before.
    #[must_use]
    pub fn renamed_timer(mut self, old: &str, new: &str) -> Self {
        self.renamed.push((old.to_owned(), new.to_owned()));
        self
    }

    /// Finds out how far the service had come, rebuilds the state of the component, and goes to the record after the last input.
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
            keeper,
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
        let keeper = keeper.filter(|_| settings.rebuild);
        let snapshots = snapshots_of(keeper.is_some(), written)?;
        let needs = Needs::of(keeper.is_some(), own.is_some(), settings.rebuild);
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
            keeper,
            snapshots,
            legacy,
            needs,
            announced: Vec::new(),
            announced_ns: 0,
            kept: None,
            gone: Vec::new(),
            warnings: Vec::new(),
            replay,
            spins: 0,
        };
        runner.begin(resume.as_ref(), names)?;
        Ok(runner)
    }
}

/// Where the state of a component is kept, if it is.
fn snapshots_of(keeps: bool, output: Option<&Journal>) -> Result<Option<Snapshots>, ServiceError> {
    match (keeps, output) {
        (true, Some(output)) => Ok(Some(Snapshots::beside(output)?)),
        (true, None) => Err(ServiceError::NoOutput),
        (false, _) => Ok(None),
    }
}

/// What is written down about a service.
#[derive(Default)]
struct Recorded {
    schedule: Option<Schedule>,
    resume: Option<Resume>,
    legacy: Legacy,
}

impl Recorded {
    /// What is written down beside an output, or what a replay goes by.
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

    /// Reads what stands beside an output journal, and its end.
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

    /// What a schedule says, for a replay of all that is in it.
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
