//! What the native half logs, on its way to Python's `logging`.
//!
//! Invariant: nobody who logs waits for the interpreter. An event below the level of the loggers costs one comparison; one
//! above it is text in a queue, from which a thread of its own hands it to Python. A full queue drops events and says how many.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::gil::unlocked;

/// Events that wait for Python.
const QUEUED_MAX: usize = 4096;
/// How long the end of a run waits for what it has logged.
const FLUSH: Duration = Duration::from_secs(2);

/// The level at which Python listens: 0 is nothing, 5 is everything.
static LEVEL: AtomicU8 = AtomicU8::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// The queue, and the process whose thread reads it: a child of a fork has none.
static QUEUE: Mutex<Option<(u32, SyncSender<Said>)>> = Mutex::new(None);

enum Said {
    Line(Line),
    /// All that was said before has been handed over.
    Flush(std::sync::mpsc::Sender<()>),
}

#[derive(Default)]
struct Line {
    target: &'static str,
    level: u8,
    message: String,
    fields: Vec<(&'static str, String)>,
    file: &'static str,
    line: u32,
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

/// The level of `logging` as one of ours.
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

/// Looks at which level Python listens, and begins to log there if nobody else does yet.
pub(crate) fn refresh(py: Python<'_>) -> PyResult<()> {
    let logs = py.import(intern!(py, "millstream._logs"))?;
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
    // The program `millstream` may have a log of its own: then that is where it goes.
    let _ = tracing::subscriber::set_global_default(Bridge);
    Ok(())
}

/// Does native work without the interpreter lock, and waits until Python has what it logged.
pub(crate) fn flushed<R>(work: impl FnOnce() -> R) -> R {
    let done = unlocked(work);
    flush();
    done
}

fn flush() {
    let (teller, told) = channel();
    let queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    let sender = queue.as_ref().map(|(_, sender)| sender.clone());
    drop(queue);
    if let Some(sender) = sender {
        unlocked(|| {
            if sender.send(Said::Flush(teller)).is_ok() {
                let _ = told.recv_timeout(FLUSH);
            }
        });
    }
}

fn read(said: &Receiver<Said>) {
    for said in said {
        match said {
            Said::Line(line) => {
                hand_over(&line);
                let dropped = DROPPED.swap(0, Ordering::Relaxed);
                if dropped > 0 {
                    hand_over(&Line {
                        target: "millstream",
                        level: to_python(Level::WARN),
                        message: format!(
                            "{dropped} lines were not logged: there were too many at once"
                        ),
                        ..Line::default()
                    });
                }
            }
            Said::Flush(done) => {
                let _ = done.send(());
            }
        }
    }
}

fn hand_over(line: &Line) {
    // Nothing where the interpreter is ending.
    let _ = Python::try_attach(|py| {
        if let Err(error) = emit(py, line) {
            error.write_unraisable(py, None);
        }
    });
}

fn emit(py: Python<'_>, line: &Line) -> PyResult<()> {
    let fields = PyDict::new(py);
    for (name, value) in &line.fields {
        fields.set_item(name, value)?;
    }
    let logs = py.import(intern!(py, "millstream._logs"))?;
    let about = (
        line.target,
        line.level,
        &line.message,
        fields,
        line.file,
        line.line,
    );
    logs.call_method1(intern!(py, "emit"), about).map(drop)
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
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let about = event.metadata();
        let mut line = Line {
            target: about.target(),
            level: to_python(*about.level()),
            file: about.file().unwrap_or_default(),
            line: about.line().unwrap_or_default(),
            ..Line::default()
        };
        event.record(&mut line);
        let queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, sender)) = &*queue
            && let Err(TrySendError::Full(_)) = sender.try_send(Said::Line(line))
        {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Visit for Line {
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
