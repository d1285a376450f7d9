//! What a run begins with: the last commit, checked against the flow.

use std::collections::HashMap;
use std::sync::Arc;

use super::Recovery;
use super::record::{self, Commit, SourceMark};
use super::sinks::Sinks;
use super::store::{Saved, SavedKey, Store};
use crate::describe::graph::{Node, NodeId, open_error};
use crate::error::{Cause, FlowError};
use crate::key::worker_of;
use crate::source::{Begin, Beginning, Position, Recording};
use crate::state::codec::Codecs;
use crate::time::BEFORE_ALL;

/// What a run resumes from.
pub(crate) struct Resume {
    /// What is saved, in a run that saves what its steps know.
    saved: Option<Saved>,
    positions: HashMap<(String, String), u64>,
    places: HashMap<(String, String), Vec<u8>>,
    watermarks: HashMap<(String, String), i64>,
    /// How far processing time had come: it does not go back from one run to the next.
    pub(crate) processing_ns: i64,
    /// The epoch before the first of this run.
    pub(crate) epoch: u64,
    /// True when the run before was killed between its last commit and its end: this one is its end.
    pub(crate) ends_here: bool,
    /// True when shards are on other workers than before.
    pub(crate) moved: bool,
    /// True when each source reads one batch in an epoch.
    pub(crate) lockstep: bool,
    /// The types whose values can be saved.
    pub(crate) codecs: Codecs,
}

impl Resume {
    /// For a run that begins with nothing and saves nothing, and still goes from epoch to epoch.
    pub(crate) fn nothing(codecs: Codecs) -> Self {
        Resume {
            saved: None,
            positions: HashMap::new(),
            places: HashMap::new(),
            watermarks: HashMap::new(),
            processing_ns: BEFORE_ALL,
            epoch: 0,
            ends_here: false,
            moved: false,
            lockstep: true,
            codecs,
        }
    }

    /// Whether steps save what they know.
    pub(crate) fn saves(&self) -> bool {
        self.saved.is_some()
    }

    fn keys(&self, step: &str, wanted: impl Fn(usize) -> bool) -> Result<Vec<SavedKey>, FlowError> {
        match &self.saved {
            Some(saved) => saved.keys(step, wanted),
            None => Ok(Vec::new()),
        }
    }

    /// Where a partition of a source stood.
    pub(crate) fn position(&self, source: &str, partition: &str) -> Option<u64> {
        let key = (source.to_owned(), partition.to_owned());
        self.positions.get(&key).copied()
    }

    /// Gives partitions of a source that were saved under other names those names, so that they resume.
    pub(crate) fn rename(
        &self,
        source: &str,
        names: &mut [String],
        is_same: impl Fn(&str, &str) -> bool,
    ) {
        let saved = self.positions.keys().filter(|(of, _)| of == source);
        let mut saved: Vec<&String> = saved.map(|(_, partition)| partition).collect();
        saved.sort_unstable();
        for at in 0..names.len() {
            if saved.contains(&&names[at]) {
                continue;
            }
            let known = saved
                .iter()
                .find(|known| !names.contains(known) && is_same(&names[at], known));
            if let Some(known) = known {
                names[at] = (*known).clone();
            }
        }
    }

    /// The same where a number cannot say it.
    pub(crate) fn place(&self, source: &str, partition: &str) -> Option<&[u8]> {
        let key = (source.to_owned(), partition.to_owned());
        self.places.get(&key).map(Vec::as_slice)
    }

    /// How far event time had come for a step, or for a partition to which it gives times.
    pub(crate) fn watermark(&self, step: &str, partition: &str) -> i64 {
        let key = (step.to_owned(), partition.to_owned());
        self.watermarks.get(&key).copied().unwrap_or(BEFORE_ALL)
    }
}

/// What a step finds of itself when a run begins.
pub struct Restore<'a> {
    pub(crate) resume: &'a Resume,
    pub(crate) step: &'a str,
    pub(crate) worker: usize,
    pub(crate) workers: usize,
}

impl Restore<'_> {
    /// The name of the step.
    #[must_use]
    pub fn step(&self) -> &str {
        self.step
    }

    /// The types whose values can be saved.
    #[must_use]
    pub fn codecs(&self) -> &Codecs {
        &self.resume.codecs
    }

    /// True when the run has another number of workers than the one before, so that what each of them has
    /// is no longer what it had.
    #[must_use]
    pub fn moved(&self) -> bool {
        self.resume.moved
    }

    /// How far event time had come for the step; nanoseconds.
    #[must_use]
    pub fn watermark(&self) -> i64 {
        self.resume.watermark(self.step, "")
    }

    /// This worker, and how many there are.
    #[must_use]
    pub fn place(&self) -> (usize, usize) {
        (self.worker, self.workers)
    }

    /// The step's keys that belong to this worker, in the order of their numbers.
    ///
    /// # Errors
    /// A damaged state directory.
    pub fn keys(&self) -> Result<Vec<SavedKey>, FlowError> {
        let mine = |shard| worker_of(shard, self.workers) == self.worker;
        self.resume.keys(self.step, mine)
    }

    /// All keys of the step, those of other workers too.
    ///
    /// # Errors
    /// A damaged state directory.
    pub fn all_keys(&self) -> Result<Vec<SavedKey>, FlowError> {
        self.resume.keys(self.step, |_| true)
    }

    /// The state of this step cannot be saved.
    #[must_use]
    pub fn unsaved(&self, cause: Cause) -> FlowError {
        FlowError::Unsaved {
            step: self.step.to_owned(),
            cause,
        }
    }

    /// A key of this step cannot be read.
    #[must_use]
    pub fn unreadable(&self, key: &SavedKey, cause: impl Into<Cause>) -> FlowError {
        FlowError::Unreadable {
            step: self.step.to_owned(),
            key: crate::key::show(&key.key),
            cause: cause.into(),
        }
    }
}

/// The sources of a flow, as recovery sees them.
pub(crate) type Sources = Vec<(NodeId, Arc<dyn Begin>)>;
/// Those of them that are to be told of commits, and what to tell.
pub(crate) type Recordings = Vec<(NodeId, Arc<dyn Recording>)>;

/// A flow, as recovery sees it.
pub(crate) struct Parts<'a> {
    pub(crate) nodes: &'a [Node],
    pub(crate) sources: &'a Sources,
    pub(crate) sinks: &'a Sinks,
    pub(crate) codecs: &'a Codecs,
}

/// What a run with a state directory begins with.
pub(crate) struct Begun {
    pub(crate) store: Store,
    pub(crate) resume: Resume,
    pub(crate) commit: Commit,
    pub(crate) recordings: Recordings,
}

/// Opens the state directory, checks that it is of this flow, and takes the sinks back to the last commit.
/// A first run commits an epoch of its own before it reads anything, so that sinks know where they began. A flow that was
/// killed between its last commit and telling its sinks and sources is settled here, and that is its end.
pub(crate) fn resume(
    flow: &str,
    parts: &Parts<'_>,
    options: &Recovery,
    workers: usize,
    time_ns: i64,
) -> Result<Begun, FlowError> {
    let mut store = Store::open(&options.dir, options.sync)?;
    let mut commit = store.saved().commit().cloned().unwrap_or_default();
    let first = store.saved().commit().is_none();
    // What an earlier version wrote has no name, and is of the flow that opens it first.
    let adopted = !first && commit.flow.is_empty();
    own(flow, &mut commit, options)?;
    let mut changes = Vec::new();
    for step in &options.drop {
        changes.push(record::drop_step(step));
        forget(&mut commit, step);
    }
    check(flow, parts, &store, &commit, options)?;
    if options.fresh {
        changes.extend(forget_all(&mut commit, store.saved().steps()));
    }
    let recordings = begin(parts, &commit, options, (workers, time_ns))?;
    // A sink that has resumed has one state, whatever each worker had prepared.
    let sinks = parts.sinks.resume(parts.nodes, &commit)?;
    // Where a sink began that has joined the flow has to be known before it is written to.
    let joined = sinks
        .iter()
        .any(|new| commit.sinks.iter().all(|mark| mark.sink != new.sink));
    commit.sinks = sinks;
    let ends_here = commit.unsettled;
    let moved = !first && workers != commit.workers;
    if first || adopted || joined || options.fresh || !changes.is_empty() {
        commit.epoch += 1;
        commit.time_ns = time_ns;
        commit.workers = workers;
        store.append(changes, &commit)?;
    }
    if commit.unsettled {
        tell_sources(&recordings, parts.nodes, &commit)?;
        commit.unsettled = false;
        store.append(Vec::new(), &commit)?;
    }
    let of = |mark: &SourceMark| (mark.source.clone(), mark.partition.clone());
    let sources = commit.sources.iter();
    let positions = sources.clone().map(|mark| (of(mark), mark.position));
    let places = sources.filter_map(|mark| Some((of(mark), mark.place.clone()?)));
    let watermarks = commit
        .watermarks
        .iter()
        .map(|mark| ((mark.step.clone(), mark.partition.clone()), mark.at));
    let resume = Resume {
        saved: Some(store.saved().clone()),
        positions: positions.collect(),
        places: places.collect(),
        watermarks: watermarks.collect(),
        processing_ns: commit.processing_ns,
        epoch: commit.epoch,
        ends_here,
        moved,
        lockstep: options.epoch.is_zero(),
        codecs: parts.codecs.clone(),
    };
    Ok(Begun {
        store,
        resume,
        commit,
        recordings,
    })
}

/// Forgets all that is saved; gives the records that say so.
fn forget_all<'a>(commit: &mut Commit, steps: impl Iterator<Item = &'a str>) -> Vec<Vec<u8>> {
    commit.sources.clear();
    commit.sinks.clear();
    commit.watermarks.clear();
    (commit.finished, commit.unsettled) = (false, false);
    commit.processing_ns = 0;
    steps.map(record::drop_step).collect()
}

/// Forgets what a commit says of a step.
fn forget(commit: &mut Commit, step: &str) {
    commit.sources.retain(|mark| mark.source != step);
    commit.sinks.retain(|mark| mark.sink != step);
    commit.watermarks.retain(|mark| mark.step != step);
}

fn positions<'a>(marks: impl IntoIterator<Item = &'a SourceMark>) -> Vec<(&'a str, Position)> {
    let marks = marks.into_iter();
    marks.map(|m| (m.partition.as_str(), m.position)).collect()
}

/// Tells the sources that an epoch counts.
pub(crate) fn tell_sources(
    recordings: &Recordings,
    nodes: &[Node],
    commit: &Commit,
) -> Result<(), FlowError> {
    for (node, recording) in recordings {
        let this = &nodes[*node];
        let marks = commit.sources.iter();
        let marks = marks.filter(|mark| mark.source == this.name);
        recording
            .commit(&positions(marks))
            .map_err(|cause| open_error(this, cause))?;
    }
    Ok(())
}

/// Tells the sources that a run begins.
fn begin(
    parts: &Parts<'_>,
    commit: &Commit,
    options: &Recovery,
    (workers, time_ns): (usize, i64),
) -> Result<Recordings, FlowError> {
    let mut recordings = Vec::new();
    for (node, source) in parts.sources {
        let this = &parts.nodes[*node];
        let marks = commit.sources.iter();
        let marks = marks.filter(|mark| mark.source == this.name);
        let (recorded, committed): (Vec<_>, Vec<_>) = marks.partition(|mark| mark.recorded);
        let [recorded, committed] = [recorded, committed].map(positions);
        let run = Beginning {
            source: &this.name,
            recovery: Some(options),
            committed: &committed,
            recorded: &recorded,
            workers,
            had_ended: commit.finished,
            forget: options.fresh || options.drop.contains(&this.name),
            time_ns,
        };
        let recording = source.begin(&run);
        let recording = recording.map_err(|cause| open_error(this, cause))?;
        if !recorded.is_empty() && !recording.as_ref().is_some_and(|it| it.is_durable()) {
            let cause = format!(
                "it was durable, and where it stood is known of its recorded input only; make it durable again, or forget the \
                 source with --drop-state \"{}\"",
                this.name
            );
            return Err(open_error(this, cause.into()));
        }
        recordings.extend(recording.map(|recording| (*node, recording)));
    }
    Ok(recordings)
}

/// Finds whether the state is of another flow, which may have steps of the same names.
fn own(flow: &str, commit: &mut Commit, options: &Recovery) -> Result<(), FlowError> {
    if commit.flow.is_empty() {
        flow.clone_into(&mut commit.flow);
    }
    if commit.flow == flow {
        return Ok(());
    }
    let cause = format!(
        "it is the state of flow \"{}\", not of \"{flow}\"; give each flow a directory of its own, or name this one as before",
        commit.flow
    );
    Err(FlowError::State {
        path: options.dir.clone(),
        cause: cause.into(),
    })
}

/// Finds what is saved and no longer in the flow.
fn check(
    flow: &str,
    parts: &Parts<'_>,
    store: &Store,
    commit: &Commit,
    options: &Recovery,
) -> Result<(), FlowError> {
    let nodes = parts.nodes;
    let is_dropped = |name: &str| options.drop.iter().any(|dropped| dropped == name);
    let has = |name: &str, fits: fn(&Node) -> bool| {
        nodes.iter().any(|node| node.name == name && fits(node))
    };
    let is_sink = |name: &str| parts.sinks.names(nodes).any(|known| known == name);
    let steps = store.saved().steps().map(|name| ("step", name));
    let times = commit.watermarks.iter().map(|mark| match &*mark.partition {
        "" => ("step", mark.step.as_str()),
        _ => ("source", mark.step.as_str()),
    });
    let sources = commit.sources.iter().map(|m| ("source", m.source.as_str()));
    let sinks = commit.sinks.iter().map(|m| ("sink", m.sink.as_str()));
    for (kind, name) in steps.chain(times).chain(sources).chain(sinks) {
        let is_there = match kind {
            "source" => has(name, |node| node.kind == "source"),
            "sink" => is_sink(name),
            _ => has(name, |node| node.kind != "source" && node.kind != "sink"),
        };
        if !is_there && !is_dropped(name) {
            return Err(FlowError::Vanished {
                path: options.dir.clone(),
                flow: flow.to_owned(),
                kind,
                step: name.to_owned(),
            });
        }
    }
    Ok(())
}
