//! The answers of the server, each made at most once for a snapshot: a flood of requests costs no more than their
//! bytes.

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use flate2::Compression;
use flate2::write::GzEncoder;
use millstream_flow::graph::Description;
use millstream_flow::watch::Watch;
use millstream_http::pages::{Bytes, Page, PageHandler, PageRequest, PendingPage};
use serde_json::Value;
use tokio::sync::watch;

use crate::about::{self, Fact};
use crate::actions;
use crate::assets;
use crate::conditions::{self, Evaluator};
use crate::drawing::graph_json;
use crate::history::History;
use crate::lock;
use crate::metrics_text::{OPEN_METRICS, PROMETHEUS, open_metrics, prometheus};
use crate::processes::{Shown, labelled};
use crate::sections::Section;
use crate::snapshot::{Restart, Snapshot, State};

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// The newest snapshot, with its text in each format.
struct Newest {
    shown: Shown,
    json: Bytes,
    metrics: OnceLock<[Metrics; 2]>,
}

impl Newest {
    fn new(shown: Shown) -> Self {
        let json = serde_json::to_string(&*shown.all).unwrap_or_default();
        Newest {
            shown,
            json: json.into(),
            metrics: OnceLock::new(),
        }
    }

    /// Returns the metrics in OpenMetrics, and in the older format.
    fn metrics(&self) -> &[Metrics; 2] {
        self.metrics.get_or_init(|| {
            let mut text = open_metrics(&self.shown.own).unwrap_or_default();
            if let Some(process) = self.shown.process {
                let others = self.shown.others.iter();
                let mut texts = vec![(process, &*text)];
                texts.extend(others.map(|(process, text)| (*process, &**text)));
                text = labelled(&texts);
            }
            let older = prometheus(&text);
            [Metrics::new(text), Metrics::new(older)]
        })
    }
}

/// The metrics in one format, and compressed once they are asked for.
struct Metrics {
    text: Bytes,
    compressed: OnceLock<Bytes>,
}

impl Metrics {
    fn new(text: String) -> Self {
        Metrics {
            text: text.into(),
            compressed: OnceLock::new(),
        }
    }

    fn page(&self, kind: &'static str, is_compressed: bool) -> Page {
        if !is_compressed {
            return Page::new(kind, self.text.clone());
        }
        let compressed = self.compressed.get_or_init(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            // Memory takes all that is written.
            let _ = encoder.write_all(&self.text);
            encoder.finish().unwrap_or_default().into()
        });
        Page::new(kind, compressed.clone()).with("content-encoding", "gzip")
    }
}

/// What the server answers.
pub(crate) struct Answers {
    newest: Mutex<Arc<Newest>>,
    graph: Mutex<Bytes>,
    history: Mutex<History>,
    evaluator: Mutex<Evaluator>,
    /// The run that is shown, for actions.
    watch: Mutex<Option<Watch>>,
    /// Whether readers have a token, with which they may act.
    has_token: bool,
    /// Whether other pages may show the page in a frame.
    framed: bool,
    /// What the process is.
    about: Mutex<Vec<Fact>>,
    /// The last restarts of the flow by its supervisor, and their number.
    restarts: Mutex<(u64, Vec<Restart>)>,
    sections: Mutex<Vec<Arc<dyn Section>>>,
    /// The file that has the newest snapshot and the graph, for a page after this process.
    kept_in: Mutex<Option<PathBuf>>,
    /// To the collector of traces of calls.
    #[cfg(feature = "otlp")]
    traces: Option<crate::otlp::Exporter>,
    /// None after the end.
    events: Mutex<Option<watch::Sender<Bytes>>>,
}

impl Answers {
    pub(crate) fn new(has_token: bool, framed: bool) -> Self {
        Answers {
            watch: Mutex::default(),
            has_token,
            framed,
            #[cfg(feature = "otlp")]
            traces: None,
            about: Mutex::new(about::facts()),
            restarts: Mutex::default(),
            newest: Mutex::new(Arc::new(Newest::new(Shown::alone(Snapshot::default())))),
            graph: Mutex::new(Bytes::from_static(b"null")),
            history: Mutex::default(),
            evaluator: Mutex::default(),
            sections: Mutex::default(),
            kept_in: Mutex::default(),
            events: Mutex::new(Some(watch::Sender::new(Bytes::new()))),
        }
    }

    /// Sends traces of the calls of services.
    #[cfg(feature = "otlp")]
    pub(crate) fn with_traces(self, traces: Option<crate::otlp::Exporter>) -> Self {
        Answers { traces, ..self }
    }

    /// Exports the calls that were traced since the last time.
    #[cfg(feature = "otlp")]
    pub(crate) fn export_calls(&self) {
        if let Some(traces) = &self.traces {
            for section in self.sections() {
                traces.export_calls(&section.take_calls());
            }
        }
    }

    /// Begins to show another run.
    pub(crate) fn begin(&self, graph: &Description, run: &str, watch: Watch) {
        *lock(&self.watch) = Some(watch);
        *lock(&self.graph) = graph_json(graph, run).to_string().into();
        *lock(&self.history) = History::default();
        *lock(&self.evaluator) = Evaluator::default();
    }

    /// Shows the restarts of the flow, the newest first.
    pub(crate) fn set_restarts(&self, count: u64, restarts: Vec<Restart>) {
        *lock(&self.restarts) = (count, restarts);
    }

    /// Shows more of what the process is.
    pub(crate) fn add_about(&self, facts: Vec<Fact>) {
        lock(&self.about).extend(facts);
    }

    /// Adds to a snapshot what is known here: restarts, the figures of all sections, what a reader may ask for, and
    /// what needs attention.
    pub(crate) fn complete(&self, snapshot: &mut Snapshot) {
        snapshot.about.clone_from(&lock(&self.about));
        (snapshot.restart_count, snapshot.restarts) = lock(&self.restarts).clone();
        let is_over = matches!(snapshot.state, State::Ended | State::Failed);
        if self.has_token && !snapshot.flow.is_empty() && !is_over {
            let possible = actions::possible(snapshot).iter();
            snapshot.actions = possible.map(|name| (*name).into()).collect();
        }
        for section in self.sections() {
            section.add(snapshot);
            if self.has_token {
                let possible = section.actions().iter();
                snapshot.actions.extend(possible.map(|name| (*name).into()));
            }
        }
        lock(&self.evaluator).complete(snapshot);
    }

    /// Shows a section from now on.
    pub(crate) fn add(&self, section: Arc<dyn Section>) {
        lock(&self.sections).push(section);
    }

    /// Whether there is something to show besides a flow.
    pub(crate) fn has_sections(&self) -> bool {
        !lock(&self.sections).is_empty()
    }

    fn sections(&self) -> Vec<Arc<dyn Section>> {
        lock(&self.sections).clone()
    }

    /// Shows the snapshot of a process without a flow.
    pub(crate) fn set_alone(&self, mut snapshot: Snapshot) {
        self.complete(&mut snapshot);
        self.set(Shown::alone(snapshot));
    }

    /// Shows a snapshot.
    pub(crate) fn set(&self, shown: Shown) {
        lock(&self.history).add(&shown.all);
        let newest = Arc::new(Newest::new(shown));
        self.keep(&newest.json);
        let event = [b"data: ", &newest.json[..], b"\n\n"].concat();
        *lock(&self.newest) = newest;
        if let Some(events) = &*lock(&self.events) {
            events.send_replace(event.into());
        }
    }

    /// Writes each snapshot to this file from now on.
    pub(crate) fn keep_in(&self, path: PathBuf) {
        *lock(&self.kept_in) = Some(path);
    }

    /// Whether another process shows the flow after this one.
    pub(crate) fn is_kept(&self) -> bool {
        lock(&self.kept_in).is_some()
    }

    fn keep(&self, snapshot: &Bytes) {
        if let Some(path) = &*lock(&self.kept_in) {
            let graph = lock(&self.graph).clone();
            let parts: [&[u8]; 5] = [b"{\"graph\":", &graph, b",\"snapshot\":", snapshot, b"}"];
            let unfinished = path.with_extension("new");
            let written = std::fs::write(&unfinished, parts.concat());
            // Without it the page of the supervisor has no figures.
            let _ = written.and_then(|()| std::fs::rename(&unfinished, path));
        }
    }

    /// Begins to show a run that has ended, as another process has kept it.
    pub(crate) fn begin_kept(&self, graph: &Value) {
        *lock(&self.graph) = graph.to_string().into();
    }

    /// The run has ended: nothing can be asked of it.
    pub(crate) fn end_run(&self) {
        *lock(&self.watch) = None;
    }

    /// The newest snapshot.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::clone(&self.newest().shown.all)
    }

    /// Ends the events of all clients, so that the server does not wait for them.
    pub(crate) fn end(&self) {
        lock(&self.events).take();
    }

    fn newest(&self) -> Arc<Newest> {
        Arc::clone(&lock(&self.newest))
    }

    fn ready(&self) -> Page {
        let newest = self.newest();
        let snapshot = &newest.shown.own;
        let sections = self.sections();
        if let Some(condition) = conditions::obstacle(&snapshot.conditions) {
            return Page::unavailable(&condition.words);
        }
        if let Some(line) = sections.iter().find_map(|section| section.obstacle()) {
            return Page::unavailable(&line);
        }
        match snapshot.state {
            State::Running => Page::new(TEXT, "ready\n"),
            State::Starting if snapshot.waiting.is_some() => {
                Page::unavailable(snapshot.waiting.as_deref().unwrap_or_default())
            }
            State::Starting if !sections.is_empty() => Page::unavailable("the process starts"),
            State::Starting => Page::unavailable("the flow starts: not every connector is open"),
            State::Ending => Page::unavailable("the flow ends"),
            State::Ended => Page::unavailable("the flow has ended"),
            State::Failed => Page::unavailable("the flow has failed"),
        }
    }

    fn history(&self, request: &PageRequest<'_>) -> Option<Page> {
        let of = request.parameter("of")?;
        let name = request.parameter("name").unwrap_or_default();
        let newest = self.newest();
        if let Some(history) = lock(&self.history).of(&newest.shown.all, &of, &name) {
            return Some(Page::new(JSON, history.to_string()));
        }
        self.of_section(request)
    }

    fn of_section(&self, request: &PageRequest<'_>) -> Option<Page> {
        let sections = self.sections();
        sections.iter().find_map(|section| section.answer(request))
    }
}

impl PageHandler for Answers {
    const NAME: &'static str = "page";

    fn is_public(&self, path: &str) -> bool {
        assets::find(path, self.framed).is_some() || path == "/healthz" || path == "/readyz"
    }

    fn is_probe(&self, path: &str) -> bool {
        matches!(path, "/healthz" | "/readyz" | "/metrics")
    }

    fn is_action(&self, path: &str) -> bool {
        let sections = self.sections();
        let of_section = |name| sections.iter().any(|one| one.actions().contains(&name));
        let name = path.strip_prefix(actions::PATH);
        name.is_some_and(|name| actions::is_of_flow(name) || of_section(name))
    }

    fn act(&self, request: &PageRequest<'_>) -> Option<PendingPage> {
        let name = request.path().strip_prefix(actions::PATH)?;
        let page = if actions::is_of_flow(name) {
            actions::ask(name, lock(&self.watch).clone().as_ref()).ready()
        } else {
            let sections = self.sections();
            sections.iter().find_map(|one| one.act(name, request))?
        };
        Some(Box::pin(async {
            page.await.with("x-content-type-options", "nosniff")
        }))
    }

    fn answer(&self, request: &PageRequest<'_>) -> Option<Page> {
        let page = match request.path() {
            "/api/graph.json" => Page::new(JSON, lock(&self.graph).clone()),
            "/api/snapshot.json" => Page::new(JSON, self.newest().json.clone()),
            "/api/history.json" => self.history(request)?,
            "/events" => match &*lock(&self.events) {
                Some(events) => Page::events(events.subscribe()),
                None => Page::unavailable("the server ends"),
            },
            "/metrics" => {
                let newest = self.newest();
                let [open, older] = newest.metrics();
                let is_compressed = request.header_contains("accept-encoding", "gzip");
                let page = if request.header_contains("accept", "application/openmetrics-text") {
                    open.page(OPEN_METRICS, is_compressed)
                } else {
                    older.page(PROMETHEUS, is_compressed)
                };
                page.with("vary", "accept, accept-encoding")
            }
            "/healthz" => Page::new(TEXT, "alive\n"),
            "/readyz" => self.ready(),
            path => match assets::find(path, self.framed) {
                Some(page) => page,
                None => self.of_section(request)?,
            },
        };
        Some(page.with("x-content-type-options", "nosniff"))
    }
}
