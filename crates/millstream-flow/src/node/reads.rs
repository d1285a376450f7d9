//! What a step reads, followed from it to the sources: the clock, the fields and the streams that give its saved state
//! its meaning.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Node, NodeId};

/// What is known of what a node reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reads {
    /// The field of an item, if it was given the name of one and not a function.
    pub(crate) field: Option<String>,
    /// Whether its saved state depends on the times of items.
    pub(crate) times: bool,
    /// The nodes of the streams that it joins, by their sides.
    pub(crate) sides: Vec<Vec<NodeId>>,
}

/// The nodes of these kinds give items their times.
const CLOCKS: [&str; 2] = ["event_time", "processing_time"];
/// The nodes of these kinds give items their keys, or take them away.
const KEYS: [&str; 3] = ["key_by", "items", "values"];

/// The nodes before these, and themselves, the nearest first. Those before one for which `ends` is true are left out.
fn before(nodes: &[Node], from: &[NodeId], ends: impl Fn(&Node) -> bool) -> Vec<NodeId> {
    let mut is_known = vec![false; nodes.len()];
    let mut all = Vec::new();
    let mut next = VecDeque::from_iter(from.iter().copied());
    while let Some(id) = next.pop_front() {
        if std::mem::replace(&mut is_known[id], true) {
            continue;
        }
        all.push(id);
        if !ends(&nodes[id]) {
            next.extend(&nodes[id].inputs);
        }
    }
    all
}

/// The last nodes before a step for which `ends` is true.
fn last(nodes: &[Node], step: NodeId, ends: fn(&Node) -> bool) -> Vec<&Node> {
    let all = before(nodes, &nodes[step].inputs, ends);
    let all = all.iter().map(|id| &nodes[*id]);
    all.filter(|node| ends(node)).collect()
}

fn gives_times(node: &Node) -> bool {
    CLOCKS.contains(&node.kind)
}

fn sets_keys(node: &Node) -> bool {
    KEYS.contains(&node.kind)
}

/// The kinds of the times of a step's items, in words; nothing if they have none.
pub(crate) fn clock(nodes: &[Node], step: NodeId) -> String {
    let kinds: BTreeSet<&str> = last(nodes, step, gives_times)
        .iter()
        .map(|node| node.kind)
        .collect();
    let words: Vec<String> = kinds.iter().map(|kind| kind.replace('_', " ")).collect();
    words.join(" and ")
}

/// The fields that give the state of a step its meaning, by what they are to it. A function cannot be compared with
/// another one: what may be read by a function has no fields.
pub(crate) fn fields(nodes: &[Node], step: NodeId) -> BTreeMap<String, BTreeSet<String>> {
    let mut read = vec![
        ("of", vec![&nodes[step]]),
        ("keys", last(nodes, step, sets_keys)),
    ];
    if nodes[step].reads.times {
        read.push(("times", last(nodes, step, gives_times)));
    }
    let fields = read.into_iter().filter_map(|(role, readers)| {
        let names: Option<BTreeSet<String>> = readers
            .iter()
            .map(|node| node.reads.field.clone())
            .collect();
        Some((role.to_owned(), names.filter(|names| !names.is_empty())?))
    });
    fields.collect()
}

/// The names that the user gave to what is before each of the streams that a step joins, the nearest first.
pub(crate) fn sides(nodes: &[Node], step: NodeId) -> Vec<Vec<String>> {
    let is_given = |id: &NodeId| nodes[*id].name != default_name(nodes[*id].kind, *id);
    let names = |side: &Vec<NodeId>| {
        let all = before(nodes, side, |_| false);
        all.iter()
            .filter(|id| is_given(id))
            .map(|id| nodes[*id].name.clone())
            .collect()
    };
    nodes[step].reads.sides.iter().map(names).collect()
}

/// The name of a node to which the user gave none.
pub(crate) fn default_name(kind: &str, id: NodeId) -> String {
    format!("{kind}-{id}")
}
