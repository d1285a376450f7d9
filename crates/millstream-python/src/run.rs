//! Running a flow from Python.
//!
//! The thread that calls `run` waits without the interpreter lock and checks every 50 ms whether a
//! signal came, so that Python's own handlers run as usual. `start` returns a [`Handle`], whose waiting is that of
//! `millstream/_run/running.py`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millstream_flow::checkpoint::Crash;
use millstream_flow::clock::{Clock, now_ns};
use millstream_flow::control::Control;
use millstream_flow::key::Shards;
use millstream_flow::starting::Starting;
use millstream_flow::{OnMetrics, Options, Recovery, Running};
use pyo3::prelude::*;

use crate::clock::VirtualClock;
use crate::cluster::Place;
use crate::error::{to_python, traceback, usage};
use crate::flow::Flow;
use crate::gil;
use crate::logs;
use crate::observer::Observer;
use crate::rehearsal::Rehearsal;
use crate::replica::ServedAt;
use crate::report::Report;
use crate::stopper::Stopper;

/// How often the waiting thread checks for signals.
const TICK: Duration = Duration::from_millis(50);

/// The options of a run, as `millstream/_run/options.py` has them checked.
#[derive(FromPyObject)]
pub(crate) struct RunOptions {
    workers: usize,
    spin: bool,
    clock: Option<Py<VirtualClock>>,
    state: Option<PathBuf>,
    epoch: f64,
    sync: bool,
    drop_state: Vec<String>,
    fresh: bool,
    reset_clock: bool,
    on_metrics: Option<Py<PyAny>>,
    metrics_interval: f64,
    cluster: Option<Place>,
    shards: Option<usize>,
    replica: Option<ServedAt>,
    commit_on_replica: bool,
}

/// The point at which a test crashes the run: after a commit, or at a named moment of it.
#[derive(FromPyObject)]
pub(crate) enum Moment {
    After(u64),
    Named(String, u64),
}

impl Moment {
    fn read(self, py: Python<'_>) -> PyResult<Crash> {
        match self {
            Moment::After(commit) => Ok(Crash::After(commit)),
            Moment::Named(name, commit) => match &*name {
                "before" => Ok(Crash::Before(commit)),
                "within" => Ok(Crash::Within(commit)),
                "after" => Ok(Crash::After(commit)),
                _ => Err(usage(
                    py,
                    &format!("there is no moment \"{name}\" of a commit"),
                )),
            },
        }
    }
}

impl RunOptions {
    /// Where the state is saved, if it is; the waits of a start end when `stopper` is asked to stop.
    fn recovery(
        &mut self,
        stopper: &Bound<'_, Stopper>,
        crash: Option<Moment>,
    ) -> PyResult<Option<Recovery>> {
        let Some(dir) = &self.state else {
            return Ok(None);
        };
        let mut recovery = Recovery::new(dir)
            .epoch(Duration::try_from_secs_f64(self.epoch)?)
            .sync(self.sync);
        for step in &self.drop_state {
            recovery = recovery.drop_state(step);
        }
        if self.fresh {
            recovery = recovery.fresh();
        }
        if self.reset_clock {
            recovery = recovery.reset_clock();
        }
        if let Some(served) = self.replica.take() {
            recovery = recovery.replica(served.replica(stopper)?);
        }
        if let Some(crash) = crash {
            recovery = recovery.crash(crash.read(stopper.py())?);
        }
        Ok(Some(recovery.commit_on_replica(self.commit_on_replica)))
    }

    /// As the engine has them.
    fn engine(
        &mut self,
        on_metrics: Option<(Duration, OnMetrics)>,
        stopper: &Bound<'_, Stopper>,
        crash: Option<Moment>,
    ) -> PyResult<Options> {
        let recovery = self.recovery(stopper, crash)?;
        let cluster = self.cluster.take().map(|place| place.cluster(stopper));
        let clock = self.clock.as_ref();
        Ok(Options {
            workers: self.workers,
            spin: self.spin,
            on_metrics,
            cluster: cluster.transpose()?,
            shards: checked_shards(stopper.py(), self.shards)?,
            around: Some(gil::around_worker()),
            hold: Some(gil::around_turn()),
            release: Some(gil::around_wait()),
            signals: false,
            traceback: Some(Arc::new(traceback)),
            recovery,
            clock: clock.map(|clock| -> Arc<dyn Clock> { Arc::new(clock.get().clock.clone()) }),
            ..Options::default()
        })
    }
}

/// Runs `flow` to its end. A rehearsal with one worker runs on this thread.
#[pyfunction]
#[pyo3(signature = (flow, options, stopper, rehearsal=None, observer=None, crash=None))]
pub(crate) fn run(
    flow: &Bound<'_, Flow>,
    options: &Bound<'_, PyAny>,
    stopper: &Bound<'_, Stopper>,
    rehearsal: Option<&Bound<'_, Rehearsal>>,
    observer: Option<&Bound<'_, Observer>>,
    crash: Option<Moment>,
) -> PyResult<Report> {
    let py = flow.py();
    let mut given: RunOptions = options.extract()?;
    let interval = Duration::try_from_secs_f64(given.metrics_interval)?;
    let on_metrics = given.on_metrics.as_ref().map(|call| call.bind(py).clone());
    let nothing: OnMetrics = Arc::new(|_| {});
    let published = on_metrics.as_ref().map(|_| (interval, nothing));
    let options = Options {
        rehearsal: rehearsal.map(|rehearsal| Arc::clone(&rehearsal.get().engine)),
        ..given.engine(published, stopper, crash)?
    };
    logs::refresh(py)?;
    let engine = flow.get().engine.clone();
    if rehearsal.is_some() && given.workers == 1 {
        // On this thread a debugger sees the steps, and signals come as they always do.
        let ended = logs::flushed(|| engine.run_here(options));
        return ended.map(Report::new).map_err(|error| to_python(py, error));
    }
    let asked = stopper.clone().unbind();
    let options = Options {
        starting: Starting::default().until(move || Python::attach(|py| asked.get().was_asked(py))),
        ..options
    };
    let running = begin(py, &engine, options, observer)?;
    let stopper = stopper.get();
    stopper.watch(running.control());
    stopper.note_start(py)?;
    let mut raised: Option<PyErr> = None;
    let mut due = now_ns() + interval.as_nanos() as u64;
    while !gil::ended_within(&running, TICK.min(interval.max(Duration::from_millis(1)))) {
        let mut outcome = py.check_signals().and_then(|()| logs::refresh(py));
        if let (Some(call), Ok(()), true) = (&on_metrics, &outcome, now_ns() >= due) {
            due = now_ns() + interval.as_nanos() as u64;
            outcome = call.call1((Report::new(running.report()),)).map(drop);
        }
        match (outcome, &raised) {
            (Ok(()), _) => {}
            // What was asked to stop and is asked again does not wait.
            (Err(error), None) if !stopper.is_stopped() => {
                raised = Some(error);
                running.stop();
            }
            (Err(error), _) => {
                gil::unlocked(|| running.abandon());
                return Err(error);
            }
        }
    }
    let report = wait(py, running, stopper, raised)?;
    with_last_call(report, on_metrics.as_ref())
}

/// Waits for a run whose part here has ended. `raised` is what a handler of signals has raised; handlers run meanwhile,
/// and stop the flow by raising.
fn wait(
    py: Python<'_>,
    running: Running,
    stopper: &Stopper,
    raised: Option<PyErr>,
) -> PyResult<Report> {
    let raised = Mutex::new(raised);
    let control = running.control();
    let looks = || {
        if let Err(error) = Python::attach(|py| py.check_signals()) {
            let mut raised = raised.lock().unwrap_or_else(PoisonError::into_inner);
            if !stopper.is_stopped() {
                raised.get_or_insert(error);
            }
            control.stop();
        }
    };
    let ended = logs::flushed(|| running.wait_with(&looks));
    match raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => ended.map(Report::new).map_err(|error| to_python(py, error)),
    }
}

/// The report at the end, with which `call` is called last.
fn with_last_call(report: Report, call: Option<&Bound<'_, PyAny>>) -> PyResult<Report> {
    if let Some(call) = call {
        call.call1((report.clone(),))?;
    }
    Ok(report)
}

/// The number of shards, if one was given.
fn checked_shards(py: Python<'_>, count: Option<usize>) -> PyResult<Option<Shards>> {
    let shards = count.map(Shards::new).transpose();
    shards.map_err(|error| to_python(py, error))
}

/// Starts a flow, and shows it if it has a page.
fn begin(
    py: Python<'_>,
    engine: &millstream_flow::Flow,
    options: Options,
    observer: Option<&Bound<'_, Observer>>,
) -> PyResult<Running> {
    let observer = observer.map(|observer| &observer.get().engine);
    let started = gil::unlocked(|| match observer {
        Some(observer) => observer.start(engine, options),
        None => engine.start(options),
    });
    started.map_err(|error| to_python(py, error))
}

/// How often the metrics of a flow that was started are published.
const PUBLISH: Duration = Duration::from_millis(100);

/// The interval at which the end of a flow that was started is looked for.
const LOOK: Duration = Duration::from_secs(60);
/// How long after its end a failure is expected to be returned by a wait.
const UNNOTICED: Duration = Duration::from_secs(1);

/// Logs the failure of a flow that no wait returns soon after its end.
fn watch_failure(name: String, control: Arc<Control>, waited: Arc<AtomicBool>) -> PyResult<()> {
    let watch = move || {
        while !control.ended_within(LOOK) {}
        std::thread::park_timeout(UNNOTICED);
        if !waited.load(Ordering::Relaxed)
            && let Some(failure) = control.failure_text()
        {
            tracing::error!(
                target: "millstream_flow::run",
                flow = name.as_str(),
                "flow \"{name}\" has failed, which wait() raises: {failure}"
            );
        }
    };
    let thread = std::thread::Builder::new().name("millstream failure".to_owned());
    thread.spawn(watch)?;
    Ok(())
}

/// A flow that runs on threads of its own.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct Handle {
    control: Arc<Control>,
    /// Whether a wait has seen the end.
    waited: Arc<AtomicBool>,
    /// Empty after a wait that has seen the end.
    running: Mutex<Option<Running>>,
}

impl Handle {
    fn running(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Handle {
    /// Asks the flow to end.
    fn stop(&self) {
        self.control.stop();
    }

    /// Waits at most this many seconds for the end; true when the flow has ended.
    fn ended_within(&self, seconds: f64) -> PyResult<bool> {
        let limit = Duration::try_from_secs_f64(seconds)?;
        Ok(gil::unlocked(|| self.control.ended_within(limit)))
    }

    /// The metrics as last published; none after a wait that has seen the end.
    fn report(&self) -> Option<Report> {
        let running = gil::unlocked(|| self.running().as_ref().map(Running::report));
        running.map(Report::new)
    }

    /// The report of a flow that has ended, or its error; none if it was returned before.
    fn finish(&self, py: Python<'_>) -> PyResult<Option<Report>> {
        self.waited.store(true, Ordering::Relaxed);
        let Some(running) = gil::unlocked(|| self.running().take()) else {
            return Ok(None);
        };
        let ended = logs::flushed(|| running.wait());
        let report = ended.map_err(|error| to_python(py, error))?;
        Ok(Some(Report::new(report)))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Workers that are waited for want the interpreter lock.
        let running = self.running().take();
        gil::unlocked(move || drop(running));
    }
}

/// Whether a handler of a signal raises, now or before; what it raises is kept in `raised`.
fn raises(py: Python<'_>, raised: &Mutex<Option<PyErr>>) -> bool {
    let now = py.check_signals().err();
    let mut raised = raised.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = now {
        raised.get_or_insert(error);
    }
    raised.is_some()
}

/// Starts `flow`, and returns the handle that stops it and waits for it.
#[pyfunction]
pub(crate) fn start(
    flow: &Bound<'_, Flow>,
    options: &Bound<'_, PyAny>,
    stopper: &Bound<'_, Stopper>,
    observer: Option<&Bound<'_, Observer>>,
) -> PyResult<Handle> {
    let py = flow.py();
    let raised: Arc<Mutex<Option<PyErr>>> = Arc::default();
    let noted = Arc::clone(&raised);
    let mut given: RunOptions = options.extract()?;
    let nothing: OnMetrics = Arc::new(|_| {});
    let options = Options {
        starting: Starting::default().until(move || Python::attach(|py| raises(py, &noted))),
        ..given.engine(Some((PUBLISH, nothing)), stopper, None)?
    };
    logs::refresh(py)?;
    let engine = flow.get().engine.clone();
    let running = begin(py, &engine, options, observer)?;
    if let Some(error) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        gil::unlocked(move || drop(running));
        return Err(error);
    }
    let control = running.control();
    let waited = Arc::default();
    let name = running.watch().flow().to_owned();
    watch_failure(name, Arc::clone(&control), Arc::clone(&waited))?;
    Ok(Handle {
        control,
        waited,
        running: Mutex::new(Some(running)),
    })
}
