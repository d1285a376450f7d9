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

/// Those of them that are to be told of commits, and what to tell.
pub(crate) type Recordings = Vec<(NodeId, Arc<dyn Recording>)>;

/// A flow, as recovery sees it.
pub(crate) struct FlowParts<'a> {
    pub(crate) nodes: &'a [Node],
    pub(crate) sources: &'a Sources,
    pub(crate) sinks: &'a Sinks,
    pub(crate) codecs: &'a Codecs,
}

/// What a run with a state directory begins with.
pub(crate) struct ResumedRun {
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
    parts: &FlowParts<'_>,
    options: &Recovery,
    workers: usize,
    time_ns: i64,
) -> Result<ResumedRun, FlowError> {
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
    let positions = marks.map(|mark| (mark.partition.as_str(), mark.position.clone()));
    positions.collect()
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
        // The position that a source had before it became durable is none of its recorded input.
        let marks = marks.filter(|mark| mark.recorded == recording.is_durable());
        recording
            .commit(&positions(marks))
            .map_err(|cause| open_error(this, cause))?;
    }
    Ok(())
}

/// Tells the sources that a run begins.
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
