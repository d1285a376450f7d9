//! Passes the log events of the native half to Python's `logging`.
//!
//! Invariant: a thread that logs never waits for the interpreter. An event below the level of the loggers costs one
//! comparison; one above it is text in a queue, from which a separate thread passes it to Python. A full queue drops
//! events and logs their number.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use millstream_observe::log_levels::{Levels, MODULES};
use millstream_observe::log_line::{Format, Line, plain};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::gil::unlocked;

/// Events that wait for Python.
const QUEUED_MAX: usize = 4096;
/// The level of `logging` that nothing reaches.
const OFF: u8 = 51;
/// How long the end of a run waits until its events are logged.
const FLUSH: Duration = Duration::from_secs(2);

/// The level at which Python listens: 0 is nothing, 5 is everything.
static LEVEL: AtomicU8 = AtomicU8::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// The queue, and the process whose thread reads it: a child of a fork has none.
static QUEUE: Mutex<Option<(u32, SyncSender<LogMessage>)>> = Mutex::new(None);

enum LogMessage {
    Record(LogRecord),
    /// A request to report when all earlier records have been passed on.
    Flush(std::sync::mpsc::Sender<()>),
}

/// Names and values.
type Fields = Vec<(&'static str, String)>;

#[derive(Default)]
struct LogRecord {
    target: &'static str,
    level: u8,
    message: String,
    fields: Fields,
    file: &'static str,
    line: u32,
}

/// A line of a log, as every program of Millstream writes it, without its end.
#[pyfunction]
pub(crate) fn log_line(
    time_ns: u64,
    level: &str,
    target: &str,
    message: &str,
    fields: Vec<(String, Bound<'_, PyAny>)>,
    json: bool,
) -> String {
    let fields = fields.into_iter();
    let fields: Vec<_> = fields.map(|(name, of)| (name, value(&of))).collect();
    let line = Line {
        time_ns,
        level,
        target,
        message,
        fields: &fields,
    };
    line.written(if json { Format::Json } else { Format::Text })
}

/// The levels of loggers by their names, as the option `--log-level` has them: `millstream` is for all that have none.
#[pyfunction]
pub(crate) fn log_levels(text: &str) -> PyResult<Vec<(String, u8)>> {
    let levels: Levels = text.parse().map_err(PyValueError::new_err)?;
    let number = |level: LevelFilter| level.into_level().map_or(OFF, to_python);
    let all = levels.all.unwrap_or(LevelFilter::INFO);
    let modules = levels.modules.into_iter();
    let modules = modules.map(|(name, level)| (format!("millstream.{name}"), number(level)));
    Ok(std::iter::once(("millstream".to_owned(), number(all)))
        .chain(modules)
        .collect())
}

/// The modules that may have a level of their own.
#[pyfunction]
pub(crate) fn log_modules() -> Vec<&'static str> {
    MODULES.to_vec()
}

/// A text whose control characters are escaped, as in the lines of a log.
#[pyfunction]
pub(crate) fn plain_text(text: &str) -> String {
    plain(text)
}

/// The value of a field: a number or a truth, else a text.
fn value(of: &Bound<'_, PyAny>) -> Value {
    if of.is_none() {
        return Value::Null;
    }
    if let Ok(flag) = of.cast::<PyBool>() {
        return Value::from(flag.is_true());
    }
    if let Ok(number) = of.extract::<i64>() {
        return Value::from(number);
    }
    if let Ok(float) = of.cast::<PyFloat>() {
        return Value::from(float.value());
    }
    let text = of.str().map(|text| text.to_string_lossy().into_owned());
    Value::from(text.unwrap_or_else(|_| "(it cannot be shown)".to_owned()))
}

fn level() -> LevelFilter {
    match LEVEL.load(Ordering::Relaxed) {
        0 => LevelFilter::OFF,
        1 => LevelFilter::ERROR,
        2 => LevelFilter::WARN,
        3 => LevelFilter::INFO,
        4 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// The level of `tracing` for one of `logging`.
fn from_python(level: i64) -> u8 {
    match level {
        ..=5 => 5,
        6..=10 => 4,
        11..=20 => 3,
        21..=30 => 2,
        31..=40 => 1,
        _ => 0,
    }
}

fn to_python(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

/// Reads the level at which Python listens, and begins to log there if no other subscriber does.
pub(crate) fn refresh(py: Python<'_>) -> PyResult<()> {
    let logs = py.import(intern!(py, "millstream._run.logs"))?;
    let wanted = from_python(logs.call_method0(intern!(py, "level"))?.extract()?);
    begin()?;
    if LEVEL.swap(wanted, Ordering::Relaxed) != wanted {
        tracing::callsite::rebuild_interest_cache();
    }
    Ok(())
}

/// Makes the queue and its reader, once in each process.
fn begin() -> PyResult<()> {
    let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if queue.as_ref().is_some_and(|(of, _)| *of == process) {
        return Ok(());
    }
    let (sender, receiver) = sync_channel(QUEUED_MAX);
    std::thread::Builder::new()
        .name("millstream-logs".to_owned())
        .spawn(move || read(&receiver))?;
    *queue = Some((process, sender));
    // The program `millstream` may have a subscriber of its own, which then stays.
    let _ = tracing::subscriber::set_global_default(Bridge);
    Ok(())
}

/// Does native work without the interpreter lock, and waits until its events have reached Python.
pub(crate) fn flushed<R>(work: impl FnOnce() -> R) -> R {
    let done = unlocked(work);
    flush();
    done
}

fn flush() {
    let (done, flushed) = channel();
    let queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    let sender = queue.as_ref().map(|(_, sender)| sender.clone());
    drop(queue);
    if let Some(sender) = sender {
        unlocked(|| {
            if sender.send(LogMessage::Flush(done)).is_ok() {
                let _ = flushed.recv_timeout(FLUSH);
            }
        });
    }
}

fn read(messages: &Receiver<LogMessage>) {
    for message in messages {
        match message {
            LogMessage::Record(record) => {
                pass_on(&record);
                let dropped = DROPPED.swap(0, Ordering::Relaxed);
                if dropped > 0 {
                    pass_on(&LogRecord {
                        target: "millstream",
                        level: to_python(Level::WARN),
                        message: format!(
                            "{dropped} lines were not logged: there were too many at once"
                        ),
                        ..LogRecord::default()
                    });
                }
            }
            LogMessage::Flush(done) => {
                let _ = done.send(());
            }
        }
    }
}

fn pass_on(record: &LogRecord) {
    // Nothing where the interpreter is ending.
    let _ = Python::try_attach(|py| {
        if let Err(error) = emit(py, record) {
            error.write_unraisable(py, None);
        }
    });
}

fn emit(py: Python<'_>, record: &LogRecord) -> PyResult<()> {
    let fields = PyDict::new(py);
    for (name, value) in &record.fields {
        fields.set_item(name, value)?;
    }
    let logs = py.import(intern!(py, "millstream._run.logs"))?;
    let about = (
        record.target,
        record.level,
        &record.message,
        fields,
        record.file,
        record.line,
    );
    logs.call_method1(intern!(py, "emit"), about).map(drop)
}

/// The spans that are open, such as that of each worker, with their fields.
#[derive(Default)]
struct Spans {
    last: u64,
    fields: BTreeMap<u64, Fields>,
}

static SPANS: Mutex<Spans> = Mutex::new(Spans {
    last: 0,
    fields: BTreeMap::new(),
});

thread_local! {
    /// The spans that this thread is in, the outermost first.
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Adds to an event the fields of the spans that its thread is in, unless it has them itself.
fn add_fields_of_spans(line: &mut LogRecord) {
    let entered = ENTERED.with_borrow(Vec::clone);
    if entered.is_empty() {
        return;
    }
    let spans = SPANS.lock().unwrap_or_else(PoisonError::into_inner);
    for (name, value) in entered
        .iter()
        .rev()
        .filter_map(|id| spans.fields.get(id))
        .flatten()
    {
        if line.fields.iter().all(|(known, _)| known != name) {
            line.fields.push((name, value.clone()));
        }
    }
}

/// The subscriber of the whole process.
struct Bridge;

impl Subscriber for Bridge {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        *about.level() <= level() && about.target().starts_with("millstream")
    }
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(level())
    }
    fn new_span(&self, about: &Attributes<'_>) -> Id {
        let mut fields = LogRecord::default();
        about.record(&mut fields);
        let mut spans = SPANS.lock().unwrap_or_else(PoisonError::into_inner);
        spans.last += 1;
        let id = spans.last;
        spans.fields.insert(id, fields.fields);
        Id::from_u64(id)
    }
    fn try_close(&self, id: Id) -> bool {
        let mut spans = SPANS.lock().unwrap_or_else(PoisonError::into_inner);
        spans.fields.remove(&id.into_u64()).is_some()
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let about = event.metadata();
        let mut line = LogRecord {
            target: about.target(),
            level: to_python(*about.level()),
            file: about.file().unwrap_or_default(),
            line: about.line().unwrap_or_default(),
            ..LogRecord::default()
        };
        event.record(&mut line);
        add_fields_of_spans(&mut line);
        let queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, sender)) = &*queue
            && let Err(TrySendError::Full(_)) = sender.try_send(LogMessage::Record(line))
        {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn enter(&self, id: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(id.into_u64()));
    }
    fn exit(&self, id: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.retain(|other| *other != id.into_u64()));
    }
}

impl Visit for LogRecord {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.push((field.name(), value.to_owned()));
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Text in memory takes all that is written.
            let _ = write!(self.message, "{value:?}");
        } else {
            self.fields.push((field.name(), format!("{value:?}")));
        }
    }
}
