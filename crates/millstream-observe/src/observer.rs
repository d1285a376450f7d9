//! The server of a flow, and the thread that samples it.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use millstream_flow::clock::{Clock, WallClock};
use millstream_flow::graph::Description;
use millstream_flow::metrics::Report;
use millstream_flow::watch::Watch;
use millstream_flow::{Flow, FlowError, Options, Running};
use millstream_http::pages::{Pages, PagesServer, pages};
use serde::Deserialize;
use serde_json::Value;

use crate::answers::Answers;
use crate::error::ObserveError;
use crate::expected::Expected;
use crate::lock;
use crate::metrics_text::open_metrics;
use crate::processes::{News, Shown};
use crate::sampler::Sampler;
use crate::sections::Section;
use crate::snapshot::{Down, Mark, Restart, Snapshot, State};
use crate::stacks::{StackOf, Stacks};
use crate::user;

/// The time between two snapshots, and between two publications of a worker.
const INTERVAL: Duration = Duration::from_secs(1);

/// The address of a page, and its readers. See [`http`].
#[derive(Clone, Debug)]
pub struct Http {
    pages: Pages,
    framed: bool,
    stack: Option<StackOf>,
    #[cfg(feature = "otlp")]
    traces: Option<String>,
}

/// Serves the page of a flow at `address`, `host:port` or `unix:PATH`. With port 0 the system chooses the port.
///
/// Without a token only this machine may read: another address than a loopback one is refused.
#[must_use]
pub fn http(address: &str) -> Http {
    Http {
        pages: pages(address),
        framed: false,
        stack: None,
        #[cfg(feature = "otlp")]
        traces: std::env::var(crate::otlp::ENDPOINT).ok(),
    }
}

impl Http {
    /// Requires a token for everything but the page itself, `/healthz` and `/readyz`: the header `Authorization: Bearer
    /// TOKEN`, or the page as `/#token=TOKEN`.
    #[must_use]
    pub fn token(mut self, token: &str) -> Self {
        self.pages = self.pages.token(token);
        self
    }

    /// Lets other machines read without a token.
    #[must_use]
    pub fn open(mut self, open: bool) -> Self {
        self.pages = self.pages.open(open);
        self
    }

    /// Lets other pages, such as a notebook, show this one in a frame: with a token that only they know.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn framed(mut self, framed: bool) -> Self {
        self.framed = framed;
        self
    }

    /// Sends a trace of each epoch, and of sampled calls of services, to a collector of OpenTelemetry at `endpoint`,
    /// over OTLP/HTTP: `http://127.0.0.1:4318`. The default is the environment variable `OTEL_EXPORTER_OTLP_ENDPOINT`;
    /// without one there are no traces.
    #[cfg(feature = "otlp")]
    #[must_use]
    pub fn otlp(mut self, endpoint: &str) -> Self {
        self.traces = Some(endpoint.to_owned());
        self
    }

    /// Asks `stack` what a worker does that has been inside one call for seconds: for the end of the stack of its
    /// thread, by the number of the thread in the operating system. It may wait: it is called on a thread of its own,
    /// once for each such call.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn stacks(mut self, stack: StackOf) -> Self {
        self.stack = Some(stack);
        self
    }

    /// Sets the time in which a client sends a header, or reads; a slower one is disconnected. The default is 15 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.pages = self.pages.timeout(timeout);
        self
    }

    /// Binds the address and starts to answer. There is no flow to show before [`Observer::watch`].
    ///
    /// # Errors
    /// [`ObserveError::Bind`]: the address is in use, is none, or may not be bound without a token.
    pub fn bind(self) -> Result<Observer, ObserveError> {
        #[cfg(feature = "otlp")]
        let traces = self.traces.as_deref();
        #[cfg(feature = "otlp")]
        let traces = traces.map(crate::otlp::Exporter::start).transpose()?;
        let has_token = self.pages.has_token();
        let bound = self.pages.bind().map_err(ObserveError::Bind)?;
        let address = bound
            .address()
            .map_err(|error| ObserveError::Bind(error.into()))?;
        let answers = Answers::new(has_token, self.framed);
        #[cfg(feature = "otlp")]
        let answers = answers.with_traces(traces.clone());
        let answers = Arc::new(answers);
        let subject = Arc::new(Mutex::new(None));
        let process = Arc::new(Process::new());
        let sampling = sample(
            Arc::clone(&subject),
            Arc::clone(&answers),
            Arc::clone(&process),
        );
        let server = bound
            .serve(Arc::clone(&answers), sampling)
            .map_err(ObserveError::Bind)?;
        let url = if address.starts_with("unix:") {
            address.clone()
        } else {
            format!("http://{address}/")
        };
        tracing::info!(address = address.as_str(), "page: {url}");
        Ok(Observer {
            address,
            subject,
            answers,
            process,
            stack: self.stack,
            server: Mutex::new(Some(server)),
            #[cfg(feature = "otlp")]
            traces,
        })
    }
}

/// What is sampled.
enum Subject {
    /// A flow that starts.
    Expected(Expected),
    /// A run.
    Run(Box<Observed>),
    /// A flow that has ended or failed, with its last figures.
    Over(Box<Snapshot>),
}

impl Subject {
    fn take(&mut self, answers: &Answers) {
        match self {
            Subject::Expected(expected) => {
                if let Some(mut snapshot) = expected.snapshot() {
                    answers.complete(&mut snapshot);
                    answers.set(expected.shown(snapshot));
                }
            }
            Subject::Run(run) => {
                let last = run.take(answers);
                if run.watch.moment().ended && is_over(&last) {
                    answers.end_run();
                    *self = Subject::Over(Box::new(without_workers(last)));
                    self.take(answers);
                }
            }
            Subject::Over(last) => {
                let mut snapshot = Snapshot {
                    time_ms: time_ms(),
                    ..Snapshot::clone(last)
                };
                answers.complete(&mut snapshot);
                answers.set(Shown::alone(snapshot));
            }
        }
    }
}

/// A run that is sampled.
struct Observed {
    sampler: Sampler,
    watch: Watch,
    clock: WallClock,
    stacks: Option<Stacks>,
    #[cfg(feature = "otlp")]
    traces: Option<crate::otlp::Exporter>,
}

/// What a process keeps for the page after it.
#[derive(Deserialize)]
struct Kept {
    graph: Value,
    snapshot: Snapshot,
}

/// A process without a flow.
struct Process {
    run: String,
    started: Instant,
    clock: WallClock,
}

impl Process {
    fn new() -> Self {
        let clock = WallClock::default();
        Process {
            run: format!("{:x}-{:x}", clock.time_ns(), std::process::id()),
            started: crate::now(),
            clock,
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            run: self.run.clone(),
            time_ms: (self.clock.time_ns() / 1_000_000).max(0) as u64,
            seconds: self.started.elapsed().as_secs_f64(),
            state: State::Running,
            user: user::snapshots(),
            ..Snapshot::default()
        }
    }
}

/// A server that shows a flow. It stops when it is dropped.
pub struct Observer {
    address: String,
    subject: Arc<Mutex<Option<Subject>>>,
    answers: Arc<Answers>,
    process: Arc<Process>,
    stack: Option<StackOf>,
    server: Mutex<Option<PagesServer>>,
    #[cfg(feature = "otlp")]
    traces: Option<crate::otlp::Exporter>,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Observer({})", self.address)
    }
}

impl Observer {
    /// Returns the address, with the port that the system has chosen if it was 0.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the options of a run that this observer watches: its workers publish their metrics once a second.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn options(&self, options: Options) -> Options {
        let publish = options.publish.map_or(INTERVAL, |at| at.min(INTERVAL));
        Options {
            publish: Some(publish),
            ..options
        }
    }

    /// Starts a flow and shows it from the beginning of its start: while it waits for other processes, or for the
    /// server of a source, the page names them.
    ///
    /// # Errors
    /// The flow cannot start.
    pub fn start(&self, flow: &Flow, options: Options) -> Result<Running, FlowError> {
        let mut subject = Subject::Expected(Expected::new(flow.name(), &options));
        subject.take(&self.answers);
        *lock(&self.subject) = Some(subject);
        let running = flow.start(self.options(options))?;
        self.watch(flow.describe(), running.watch());
        Ok(running)
    }

    /// Shows a run, which has the [options](Self::options) of this observer, from now on.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn watch(&self, graph: Description, watch: Watch) {
        let clock = WallClock::default();
        let run = format!("{:x}-{:x}", clock.time_ns(), std::process::id());
        self.answers.begin(&graph, &run, watch.clone());
        let subject = Observed {
            sampler: Sampler::new(graph, run),
            watch,
            clock,
            stacks: self.stack.clone().map(Stacks::new),
            #[cfg(feature = "otlp")]
            traces: self.traces.clone(),
        };
        let mut current = lock(&self.subject);
        let subject = current.insert(Subject::Run(Box::new(subject)));
        subject.take(&self.answers);
    }

    /// Shows how often a supervisor has started the flow again, and why: the last `restarts`, the newest first.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn show_restarts(&self, count: u64, restarts: Vec<Restart>) {
        self.answers.set_restarts(count, restarts);
    }

    /// Shows more of what the process is, as names and values.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn show_about(&self, facts: Vec<(String, String)>) {
        self.answers.add_about(facts);
    }

    /// Writes each snapshot to a file from now on, for [`show_down`](Self::show_down) in another process.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn keep_in(&self, path: &Path) {
        self.answers.keep_in(path.to_owned());
    }

    /// Shows a flow that has failed, from now on: with its last figures, which are those of this server, or those that
    /// another process has [kept](Self::keep_in) in a file. Where its end does not name the processes that are
    /// `missing`, they are those for which its start has waited.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn show_down(&self, flow: &str, mut down: Down, missing: Vec<usize>, kept: Option<&Path>) {
        let kept = kept.and_then(|path| std::fs::read(path).ok());
        let kept = kept.and_then(|text| serde_json::from_slice::<Kept>(&text).ok());
        let last = match kept {
            Some(kept) => {
                self.answers.begin_kept(&kept.graph);
                kept.snapshot
            }
            None => {
                // What has happened since the last second counts too.
                if let Some(Subject::Run(run)) = &mut *lock(&self.subject) {
                    run.take(&self.answers);
                }
                let last = self.answers.snapshot();
                down.since_ms = last.down.as_ref().map_or(down.since_ms, |one| one.since_ms);
                last
            }
        };
        self.answers.end_run();
        let mut subject = Subject::Over(Box::new(failed(last, flow, down, missing)));
        subject.take(&self.answers);
        *lock(&self.subject) = Some(subject);
    }

    /// Shows a section from now on, besides a flow or without one.
    pub fn show(&self, section: impl Section) {
        self.answers.add(Arc::new(section));
        if lock(&self.subject).is_none() {
            self.answers.set_alone(self.process.snapshot());
        }
    }

    /// Runs a flow to its end and shows it.
    ///
    /// # Errors
    /// [`ObserveError::Flow`]: the flow cannot start, or has failed.
    pub fn run(&self, flow: &Flow, options: Options) -> Result<Report, ObserveError> {
        let running = self.start(flow, options)?;
        let report = running.wait()?;
        self.refresh();
        Ok(report)
    }

    /// Stops the server and waits for its thread, as dropping it does.
    pub fn stop(&self) {
        self.answers.end();
        let server = lock(&self.server).take();
        drop(server);
    }

    /// Makes a snapshot now, for instance of a run that has ended.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn refresh(&self) {
        if let Some(subject) = &mut *lock(&self.subject) {
            subject.take(&self.answers);
        }
    }
}

impl Observed {
    /// Shows the run as it is now; returns the snapshot, on the page of process 0 that of all processes.
    fn take(&mut self, answers: &Answers) -> Snapshot {
        let moment = self.watch.moment();
        let time_ns = self.clock.time_ns();
        let mut snapshot = self.sampler.sample(&moment, time_ns);
        snapshot.user = user::snapshots();
        let news = News::of(&self.watch);
        news.add_to(&mut snapshot);
        if let Some(stacks) = &mut self.stacks {
            stacks.add(&mut snapshot.workers);
        }
        #[cfg(feature = "otlp")]
        if let Some(traces) = &mut self.traces {
            traces.export(&snapshot.flow, &snapshot.run, &moment, time_ns);
        }
        if is_over(&snapshot) {
            without_rates(&mut snapshot);
        }
        if let Some(down) = snapshot.down.as_mut().filter(|_| !answers.is_kept()) {
            down.is_restarted = Some(false);
        }
        answers.complete(&mut snapshot);
        let metrics = |own: &Arc<Snapshot>| open_metrics(own).unwrap_or_default();
        answers.set(Shown::of(snapshot, &self.watch, news, metrics));
        answers.snapshot()
    }
}

/// Whether a flow has ended or failed.
fn is_over(snapshot: &Snapshot) -> bool {
    matches!(snapshot.state, State::Ended | State::Failed)
}

/// The last snapshot of a flow that has failed.
fn failed(last: Snapshot, flow: &str, down: Down, missing: Vec<usize>) -> Snapshot {
    let missing = if missing.is_empty() {
        last.missing.clone()
    } else {
        missing
    };
    let mut snapshot = Snapshot {
        flow: flow.to_owned(),
        state: State::Failed,
        down: Some(down),
        waiting: None,
        ending_seconds: None,
        missing,
        ..last
    };
    without_rates(&mut snapshot);
    without_workers(snapshot)
}

/// Of a flow that is over, what is a rate, or of a moment, is not known any more.
fn without_rates(snapshot: &mut Snapshot) {
    (snapshot.sources_paused, snapshot.bottleneck) = (false, None);
    for step in &mut snapshot.steps {
        (step.in_rate, step.out_rate, step.ages) = (None, None, None);
        (step.busy, step.mark) = (0.0, Mark::None);
    }
}

fn without_workers(last: Snapshot) -> Snapshot {
    Snapshot {
        processes: Vec::new(),
        workers: Vec::new(),
        actions: Vec::new(),
        ..last
    }
}

fn time_ms() -> u64 {
    (WallClock::default().time_ns() / 1_000_000)
        .max(0)
        .unsigned_abs()
}

/// Makes a snapshot each second.
async fn sample(
    subject: Arc<Mutex<Option<Subject>>>,
    answers: Arc<Answers>,
    process: Arc<Process>,
) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        #[cfg(feature = "otlp")]
        answers.export_calls();
        match &mut *lock(&subject) {
            Some(subject) => subject.take(&answers),
            None if answers.has_sections() => answers.set_alone(process.snapshot()),
            None => {}
        }
    }
}
