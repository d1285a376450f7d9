//! Whether the saved state is that of the flow: of its name, its steps, sources and sinks, and the kinds of its steps.

use std::collections::BTreeSet;

use super::record::{Commit, StepMark};
use super::recovery::Recovery;
use super::sinks::Sinks;
use super::sources::Sources;
use super::store::{Store, failed};
use crate::error::FlowError;
use crate::key::Shards;
use crate::named::{did_you_mean, drop_state};
use crate::node::Node;
use crate::saved::codec::Codecs;

/// How the sources end that `millstream redrive` adds to a flow: the step's name is before it. Their positions stay in
/// the state while the flow runs without them.
const REDRIVEN: &str = ".redriven";

/// The parts of a flow that recovery needs.
pub(crate) struct FlowParts<'a> {
    pub(crate) nodes: &'a [Node],
    pub(crate) sources: &'a Sources,
    pub(crate) sinks: &'a Sinks,
    pub(crate) codecs: &'a Codecs,
    /// The number of shards that the run was asked for.
    pub(crate) shards: Option<Shards>,
}

/// Checks that the state belongs to this flow, and not to another one that may have steps of the same names.
pub(super) fn check_owner(
    flow: &str,
    commit: &Commit,
    options: &Recovery,
) -> Result<(), FlowError> {
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

/// What has saved state, of these steps and a commit, with its kind.
pub(super) fn saved_names<'a>(
    steps: impl Iterator<Item = &'a str>,
    commit: &'a Commit,
) -> impl Iterator<Item = (&'static str, &'a str)> {
    let steps = steps.map(|name| ("step", name));
    let times = commit.watermarks.iter().map(|mark| match &*mark.partition {
        "" => ("step", mark.step.as_str()),
        _ => ("source", mark.step.as_str()),
    });
    let sources = commit.sources.iter().map(|m| ("source", m.source.as_str()));
    let sinks = commit.sinks.iter().map(|m| ("sink", m.sink.as_str()));
    steps.chain(times).chain(sources).chain(sinks)
}

/// The names that the options may drop: those of what has state, and of what is in the flow.
pub(super) fn known_names<'a>(
    saved: impl Iterator<Item = &'a str>,
    parts: &FlowParts<'_>,
) -> BTreeSet<String> {
    let nodes = parts.nodes.iter().map(|node| node.name.clone());
    let present = nodes.chain(parts.sinks.names(parts.nodes));
    saved.map(str::to_owned).chain(present).collect()
}

/// Checks that what the options drop is known: a name that is misspelt would drop nothing. Several processes, of which
/// each knows a part of the state only, have compared their names when they met.
pub(super) fn check_dropped(
    flow: &str,
    parts: &FlowParts<'_>,
    store: &Store,
    commit: &Commit,
    options: &Recovery,
) -> Result<(), FlowError> {
    let saved = || saved_names(store.saved().steps(), commit).map(|(_, name)| name);
    let known = known_names(saved(), parts);
    let Some(unknown) = options.drop.iter().find(|name| !known.contains(*name)) else {
        return Ok(());
    };
    let asked = drop_state(unknown);
    let meant = did_you_mean(unknown, known.iter());
    let names: BTreeSet<&str> = saved().collect();
    let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let has = match &names[..] {
        [] => "has no state yet".to_owned(),
        names => format!("has state of {}", names.join(", ")),
    };
    let dir = options.dir.display();
    Err(FlowError::Usage(format!(
        "{asked}: flow \"{flow}\" has nothing of that name{meant}; {dir} {has}"
    )))
}

/// Checks that every step, source and sink with saved state is still in the flow, apart from sources of redriven letters,
/// and that the steps are of the kinds that they were.
pub(super) fn check(
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
    let is_there = |kind: &str, name: &str| match kind {
        "source" => name.ends_with(REDRIVEN) || has(name, |node| node.kind == "source"),
        "sink" => is_sink(name),
        _ => has(name, |node| node.kind != "source" && node.kind != "sink"),
    };
    let missing: BTreeSet<(&'static str, &str)> = saved_names(store.saved().steps(), commit)
        .filter(|(kind, name)| !is_there(kind, name) && !is_dropped(name))
        .collect();
    if !missing.is_empty() {
        let missing = missing.into_iter();
        let missing = missing.map(|(kind, name)| (kind, name.to_owned()));
        return Err(FlowError::Vanished {
            path: options.dir.clone(),
            flow: flow.to_owned(),
            missing: missing.collect(),
        });
    }
    if options.fresh {
        return Ok(());
    }
    check_kinds(flow, nodes, commit).map_err(|cause| failed(&options.dir, cause))
}

/// Checks that the state of each step has the meaning that it was saved with: the state of a `count` can be read as that
/// of a `sum`, and is another number.
fn check_kinds(flow: &str, nodes: &[Node], commit: &Commit) -> Result<(), String> {
    for was in &commit.steps {
        let Some(step) = nodes.iter().position(|node| node.name == was.step) else {
            continue;
        };
        let now = StepMark::of(nodes, step, &[]);
        let Some([now, was]) = now.differs(was, nodes) else {
            continue;
        };
        return Err(format!(
            "step \"{}\" of flow \"{flow}\" is {now} now, and its state is that of {was}; remove that state with {}, or give the new \
             step another name and keep the old one",
            nodes[step].name,
            drop_state(&nodes[step].name),
        ));
    }
    Ok(())
}
