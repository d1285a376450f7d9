//! The start of a run with a state directory: checks the last commit against the flow, and rolls sinks and sources back to it.

use std::sync::Arc;

use super::Recovery;
use super::record::{self, Commit, SourceMark};
use super::resume::Resume;
use super::sinks::Sinks;
use super::sources::Sources;
use super::store::Store;
use crate::describe::node::{Node, NodeId, open_error};
use crate::error::FlowError;
use crate::source::{Beginning, Position, Recording};
use crate::state::codec::Codecs;

/// The recordings of the sources of a run, which are notified of commits, with the nodes of their sources.
pub(crate) type Recordings = Vec<(NodeId, Arc<dyn Recording>)>;

/// The parts of a flow that recovery needs.
pub(crate) struct FlowParts<'a> {
    pub(crate) nodes: &'a [Node],
    pub(crate) sources: &'a Sources,
    pub(crate) sinks: &'a Sinks,
    pub(crate) codecs: &'a Codecs,
}

/// The state with which a run with a state directory begins.
pub(crate) struct ResumedRun {
    pub(crate) store: Store,
    pub(crate) resume: Resume,
    pub(crate) commit: Commit,
    pub(crate) recordings: Recordings,
}

/// Opens the state directory, checks that it belongs to this flow, and rolls the sinks back to the last commit.
///
/// A first run commits an epoch of its own before it reads any input, so that sinks know their initial state.
/// If a flow was killed between its last commit and the notification of its sinks and sources, they are
/// notified here, and this run ends.
pub(crate) fn resume(
    flow: &str,
    parts: &FlowParts<'_>,
    options: &Recovery,
    workers: usize,
    time_ns: i64,
) -> Result<ResumedRun, FlowError> {
    let mut store = Store::open(&options.dir, options.sync)?;
    let mut commit = store.saved().commit().cloned().unwrap_or_default();
    let first = store.saved().commit().is_none();
    // Earlier versions wrote no name: such a state belongs to the flow that opens it first.
    let adopted = !first && commit.flow.is_empty();
    check_owner(flow, &mut commit, options)?;
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
    // The initial state of a sink that is new in the flow must be committed before the sink is written to.
    let joined = sinks
        .iter()
        .any(|new| commit.sinks.iter().all(|mark| mark.sink != new.sink));
    commit.sinks = sinks;
    let ends_here = commit.notify_pending;
    let moved = !first && workers != commit.workers;
    if first || adopted || joined || options.fresh || !changes.is_empty() {
        commit.epoch += 1;
        commit.time_ns = time_ns;
        commit.workers = workers;
        store.commit(changes, &commit)?;
    }
    if commit.notify_pending {
        notify_sources(&recordings, parts.nodes, &commit)?;
        commit.notify_pending = false;
        store.commit(Vec::new(), &commit)?;
    }
    let codecs = parts.codecs.clone();
    let mut resume = Resume::of_commit(&commit, store.saved().clone(), codecs);
    resume.ends_here = ends_here;
    resume.moved = moved;
    resume.lockstep = options.epoch.is_zero();
    Ok(ResumedRun {
        store,
        resume,
        commit,
        recordings,
    })
}

/// Removes all saved state from a commit; returns the records that remove it from the journal.
fn forget_all<'a>(commit: &mut Commit, steps: impl Iterator<Item = &'a str>) -> Vec<Vec<u8>> {
    commit.sources.clear();
    commit.sinks.clear();
    commit.watermarks.clear();
    (commit.finished, commit.notify_pending) = (false, false);
    commit.processing_ns = 0;
    steps.map(record::drop_step).collect()
}

/// Removes the state of a step, source or sink from a commit.
fn forget(commit: &mut Commit, step: &str) {
    commit.sources.retain(|mark| mark.source != step);
    commit.sinks.retain(|mark| mark.sink != step);
    commit.watermarks.retain(|mark| mark.step != step);
}

fn positions<'a>(marks: impl IntoIterator<Item = &'a SourceMark>) -> Vec<(&'a str, Position)> {
    let marks = marks.into_iter();
    let positions = marks.map(|mark| (mark.partition.as_str(), mark.position.clone()));
    positions.collect()
}

/// Notifies the sources that an epoch is committed.
pub(crate) fn notify_sources(
    recordings: &Recordings,
    nodes: &[Node],
    commit: &Commit,
) -> Result<(), FlowError> {
    for (node, recording) in recordings {
        let this = &nodes[*node];
        let marks = commit.sources.iter();
        let marks = marks.filter(|mark| mark.source == this.name);
        // The position that a source had before it became durable is none of its recorded input.
        let marks = marks.filter(|mark| mark.recorded == recording.is_durable());
        recording
            .commit(&positions(marks))
            .map_err(|cause| open_error(this, cause))?;
    }
    Ok(())
}

/// Notifies the sources that a run begins.
fn begin(
    parts: &FlowParts<'_>,
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
            state_dir: Some(&options.dir),
            sync: options.sync,
            committed: &committed,
            recorded: &recorded,
            partitions: &|| source.partitions(workers),
            had_ended: commit.finished,
            forget: options.fresh || options.drop.contains(&this.name),
            time_ns,
        };
        let recording = source.begin(&run);
        let recording = recording.map_err(|cause| open_error(this, cause))?;
        if !recorded.is_empty() && !recording.as_ref().is_some_and(|it| it.is_durable()) {
            let cause = format!(
                "it was durable, and its position is known in its recorded input only; make it durable again, or forget the \
                 source with --drop-state \"{}\"",
                this.name
            );
            return Err(open_error(this, cause.into()));
        }
        recordings.extend(recording.map(|recording| (*node, recording)));
    }
    Ok(recordings)
}

/// Checks that the state belongs to this flow, and not to another one that may have steps of the same names. A
/// state without a name takes the name of this flow.
fn check_owner(flow: &str, commit: &mut Commit, options: &Recovery) -> Result<(), FlowError> {
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

/// Checks that every step, source and sink with saved state is still in the flow.
fn check(
    flow: &str,
    parts: &FlowParts<'_>,
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
