//! Runs in which lists stand in for sources and sinks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use millstream_flow::batch::Batch;
use millstream_flow::checkpoint::{Saved, json};
use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use millstream_flow::poller::Io;
use millstream_flow::replay::{Point, Replay};
use millstream_flow::source::{Events, Next, Partition, Position, Source};
use millstream_flow::state::codec::MESSAGE_PACK;
use millstream_flow::{FlowError, Rehearsal as Engine, forward_partition, forward_source};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::batch::PyBatch;
use crate::cli::show_state;
use crate::error::{cause, to_python};
use crate::gil::locked;
use crate::key::load_key;
use crate::sink::{AnySink, ListSink, NamedSink, append_frame};
use crate::source::Script;

/// The input of a replay: the source (none for a state directory), the directory, and whether that is a plain
/// journal; its first and last record, and how batches are divided.
type ReplayInput = (
    Vec<(Option<String>, PathBuf, bool)>,
    Option<(bool, u64)>,
    Option<(bool, u64)>,
    Option<usize>,
);

/// Substitutes for the sources and sinks of a flow: scripts by the name of the source, or recorded input;
/// sinks that are created at their first use.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct Rehearsal {
    pub(crate) engine: Arc<Engine>,
    /// The lists that stand in for sinks, by the name of the sink.
    lists: Lists,
}

type Lists = Arc<Mutex<BTreeMap<String, Arc<ListSink>>>>;

#[pymethods]
impl Rehearsal {
    #[new]
    #[pyo3(signature = (inputs, make_sink, replay, copies=false))]
    fn new(
        py: Python<'_>,
        inputs: Vec<(String, Bound<'_, Script>)>,
        make_sink: Py<PyAny>,
        replay: Option<ReplayInput>,
        copies: bool,
    ) -> PyResult<Self> {
        let mut engine = if copies {
            Engine::new().copies()
        } else {
            Engine::new()
        };
        for (name, script) in inputs {
            let script = script.get().clone();
            // A source of bytes keeps its decoder.
            let frames = Framed(script.clone());
            engine = engine.source::<PyBatch>(&name, script);
            engine = engine.source::<Frames>(&name, frames);
        }
        let lists = Lists::default();
        let made = Arc::clone(&lists);
        let mut engine = engine.other_sinks::<PyBatch, _>(move |name| {
            let stand_in = NamedSink::made(name, &make_sink)?;
            if let AnySink::List(list) = &stand_in.sink {
                let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
                made.insert(name.to_owned(), Arc::clone(list));
            }
            Ok(stand_in)
        });
        if let Some(described) = replay {
            let opened = read_replay(described).and_then(|replay| engine.replay(&replay));
            engine = opened.map_err(|error| to_python(py, error))?;
        }
        let engine = Arc::new(engine);
        Ok(Rehearsal { engine, lists })
    }

    /// How many items of each list are committed, as confirmed by a later commit, by the name of the sink.
    fn committed(&self) -> BTreeMap<String, usize> {
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let committed = lists
            .iter()
            .map(|(name, list)| (name.clone(), list.committed()));
        committed.collect()
    }
}

fn read_replay((recordings, from, to, batch): ReplayInput) -> Result<Replay, FlowError> {
    let mut replay = Replay::new();
    for (source, path, plain) in recordings {
        replay = match (source, plain) {
            (None, _) => Replay::of_state(path)?,
            (Some(source), true) => replay.journal(&source, path),
            (Some(source), false) => replay.recorded(&source, path),
        };
    }
    let at = |(is_time, number)| {
        if is_time {
            Point::Time(number)
        } else {
            Point::Sequence(number)
        }
    };
    if let Some(from) = from {
        replay = replay.from(at(from));
    }
    if let Some(to) = to {
        replay = replay.to(at(to));
    }
    if let Some(items) = batch {
        replay = replay.batch_size(items);
    }
    Ok(replay)
}

/// A script whose items are the frames of a source of bytes.
struct Framed(Script);

impl Source<Frames> for Framed {
    forward_source!(this => this.0; describe partitions);
    fn open(
        &self,
        partition: usize,
        resume: Option<&Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<Frames>>, Cause> {
        Ok(Box::new(FramedPartition {
            script: self.0.open(partition, resume, io)?,
            items: PyBatch::default(),
        }))
    }
}

struct FramedPartition {
    script: Box<dyn Partition<PyBatch>>,
    items: PyBatch,
}

#[warn(clippy::missing_trait_methods)]
impl Partition<Frames> for FramedPartition {
    fn next_batch(&mut self, batch: &mut Frames, events: &mut Events<'_>) -> Result<Next, Cause> {
        let next = self.script.next_batch(&mut self.items, events)?;
        if next == Next::Batch {
            batch.data.clear();
            locked(|py| {
                let items = self.items.take_values(py);
                let mut items = items.iter();
                items
                    .try_for_each(|item| append_frame(&item, None, false, "source of bytes", batch))
            })
            .map_err(cause)?;
            self.items.clear();
        }
        Ok(next)
    }
    forward_partition!(this => this.script);
}

/// A saved state as text, read as `how` says; None for an unknown format.
#[pyfunction]
pub(crate) fn shown_state(how: u8, written: &[u8]) -> Option<String> {
    match how {
        MESSAGE_PACK => json::state(written, &show_state).map(|value| value.to_string()),
        _ => show_state(how, written),
    }
}

/// The step, the key, how its state is written, and the state.
type SavedState = (String, Py<PyAny>, u8, Py<PyBytes>);

/// The saved states in a state directory.
#[pyfunction]
pub(crate) fn saved_states(py: Python<'_>, dir: PathBuf) -> PyResult<Vec<SavedState>> {
    let failed = |error| to_python(py, error);
    let saved = Saved::open(&dir).map_err(failed)?;
    let mut states = Vec::new();
    for step in saved.steps() {
        for found in saved.keys(step, |_| true).map_err(failed)? {
            let key = match millstream_flow::key::AnyKey::load(&mut &found.key[..]) {
                Some(key) => load_key(py, &key)?,
                None => PyBytes::new(py, &found.key).into_any(),
            };
            let state = PyBytes::new(py, &found.state).unbind();
            states.push((step.to_owned(), key.unbind(), found.tag, state));
        }
    }
    Ok(states)
}
