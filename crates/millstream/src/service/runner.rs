//! Runs a component: takes its inputs in order, one thread for each service.

mod announce;
mod following;
mod meter;
mod rebuild;
mod replay;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use millstream_journal::{Cursor, Error as JournalError, Host, Journal, Share, Sync, Wait};
use millstream_wire::{Cause, Dispatch, Interface, Lineage, Publisher, Schema, Unpacker};

use self::announce::Needs;
use self::following::Following;
pub use self::meter::Meter;
use self::replay::Replay;
use super::admit;
use super::current::{Clock, Current};
use super::dead::DeadLetters;
use super::error::ServiceError;
use super::inlet::{self, Inlet, Taken};
use super::names::{Names, same_directory};
use super::outlet::Outlet;
use super::progress::Progress;
use super::resume::{self, Resume};
use super::schedule::{Entry, Legacy, Place, Schedule, old_timers};
use super::snapshot::{Keeper, Position, Snapshot, Snapshots};
use super::timers::{self, Timer};

/// The number of the output journal among the inputs: what is heard from there has no effects.
const OWN: u32 = u32::MAX - 1;
/// The number of an input that the service has no longer.
const GONE: u32 = u32::MAX - 2;
/// The longest wait before a runner looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// How often a runner that spins finds nothing before it looks at the clock.
const SPINS: u32 = 1 << 20;

/// What becomes of an input that does not fit its schema, or with which the component fails.
#[derive(Clone, Default)]
pub enum OnError {
    /// The service ends with the error.
    #[default]
    Fail,
    /// It is counted.
    Skip,
    /// It is counted and set aside in this journal.
    DeadLetter(Journal),
}

/// How a service runs.
#[derive(Clone)]
pub struct Settings {
    /// How it waits for input. With several inputs, `Block` backs off, as it cannot sleep on all of them.
    pub wait: Wait,
    /// What becomes of an input that cannot be taken.
    pub on_error: OnError,
    /// Whether the state depends on earlier inputs. Then a start brings it back: from a [snapshot](Setup::snapshots), from the component's
    /// [own outputs](Setup::rebuild_from), else by calling it with all inputs again. Without, it goes on at once.
    pub rebuild: bool,
    /// Do without records that were pruned before they were taken, or that the state is to be rebuilt from. The service starts with the oldest
    /// records that are left; its state is what these make of it.
    pub skip_pruned: bool,
    /// The timers that an earlier version has counted, in alphabetical order for a component in Python, else in the order in which they
    /// were added: for the first start of this version, if the timers have changed.
    pub old_timers: Option<Vec<String>>,
    /// How many followers on other machines must have acknowledged the outputs: the service is never more than 256 inputs ahead of them, and
    /// takes none after a start, and none after it has slept, before they have all outputs. It waits for them without a limit.
    pub followers: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            wait: Wait::Block,
            on_error: OnError::Fail,
            rebuild: true,
            skip_pruned: false,
            old_timers: None,
            followers: 0,
        }
    }
}

/// What a runner has done since it was started, the rebuilding of state included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls of the component by records.
    pub calls: u64,
    /// Calls of the component by timers.
    pub ticks: u64,
    /// Records that were skipped.
    pub skipped: u64,
    /// Records that were set aside.
    pub dead_letters: u64,
}

/// Tells a runner on another thread to stop.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// The runner finishes the input that it is taking and returns.
    pub fn stop(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether it was told.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// A service before it has a component: the outputs that the component is made with.
pub struct Service {
    current: Arc<Current>,
    output: Option<Output>,
    /// What is done again, if that is all.
    replay: Option<Replay>,
}

/// The output journal; the cursor keeps out other services.
struct Output {
    journal: Journal,
    cursor: Cursor,
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
        admit::check(&inlets, written, &settings.on_error)?;
        check_names(&timers)?;
        let several = inlets.len() > 1 || !timers.is_empty();
        let again = replay.as_mut().and_then(|replay| replay.schedule.take());
        let recorded = Recorded::of(written, again, several, &timers, &settings)?;
        let Recorded {
            schedule,
            mut resume,
            legacy,
        } = recorded;
        if let Some(schedule) = schedule.as_ref().filter(|_| several && output.is_some()) {
            current.add_input(&schedule.journal);
        }
        let journals = inlets.iter().map(|inlet| &inlet.journal);
        let mut names = Names::new(journals, legacy.inputs.clone())?;
        if let (Some(resume), Some(schedule)) = (&mut resume, &schedule) {
            resume.lineage.input = number_of(resume, schedule, &inlets, &mut names)?;
        }
        for inlet in &mut inlets {
            inlet.skip_pruned = settings.skip_pruned;
        }
        // A state that is not brought back is not worth keeping.
        let keeper = keeper.filter(|_| settings.rebuild);
        let snapshots = snapshots_of(keeper.is_some(), written)?;
        let needs = Needs::of(keeper.is_some(), own.is_some(), settings.rebuild);
        let service = output.as_ref().map(|output| output.journal.lineage());
        let dead = DeadLetters::new(&settings.on_error, service.transpose()?)?;
        let following = Following::of(output.as_ref().map(|output| &output.journal), &settings)?;
        let mut runner = Runner {
            component,
            inlets,
            timers,
            renamed,
            schedule,
            progress: Progress::new(current, resume.clone(), settings.on_error.clone(), dead),
            durable: output
                .as_ref()
                .is_some_and(|output| output.journal.sync_mode() == Sync::Always),
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
            unheld: Vec::new(),
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

fn lost(output: Option<std::path::PathBuf>, resume: &Resume) -> ServiceError {
    ServiceError::Lost {
        output: output.unwrap_or_default().display().to_string(),
        journal: resume.input.path.clone(),
        sequence: resume.lineage.sequence,
    }
}

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
    /// Inputs without a cursor.
    unheld: Vec<String>,
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

    /// Inputs that may only be read: no cursor keeps their records from being pruned before the service has taken them.
    #[must_use]
    pub fn unheld_inputs(&self) -> &[String] {
        &self.unheld
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
                inlet.take(&mut self.component, &mut self.progress)?
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
