//! Where the items of several sources, or of parts of one source, meet.
//!
//! Steps that depend on the order of their items are warned of where parts of one source meet again. A batch is divided
//! where a stream parts, and each part travels by itself, so that the order between them is lost. Steps that process
//! items by their times are not affected.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::node::{Node, NodeId};

/// The order of the items of a key on which the output of a step depends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The order in which they arrive.
    Arrival,
    /// That of their times, in which the step processes them.
    Times,
}

/// Where an order is lost.
struct Meeting<'a> {
    source: &'a Node,
    /// The nodes from which two of the parts come.
    parts: [&'a Node; 2],
}

/// Logs a warning for each step that depends on an order which is lost.
pub(crate) fn warn(nodes: &[Node], orders: &HashMap<NodeId, Order>) {
    for (id, node) in nodes.iter().enumerate() {
        if orders.get(&id) != Some(&Order::Arrival) {
            continue;
        }
        let Some(meeting) = before(nodes, orders, id) else {
            continue;
        };
        let [one, other] = meeting.parts.map(|part| part.name.as_str());
        let ways = if one == other {
            format!("both by \"{one}\"")
        } else {
            format!("by \"{one}\" and by \"{other}\"")
        };
        tracing::warn!(
            step = node.name.as_str(),
            "step \"{}\" receives items of source \"{}\" on two ways, {ways}, between which their order is lost: {}, or let the step \
             read one stream",
            node.name,
            meeting.source.name,
            remedy(node.kind),
        );
    }
}

/// How a step of this kind processes items in their order.
fn remedy(kind: &str) -> &'static str {
    match kind {
        "join" | "join_all" => {
            "values with times (event_time, before the streams part) are processed in their order"
        }
        "stateful" => {
            "give the items times (event_time, before the streams part) and process them in their order (ordered=True; in Rust \
             stateful_in_order)"
        }
        _ => {
            "give the items times (event_time, before the streams part) and use stateful with ordered=True (in Rust stateful_in_order), \
             which processes them in their order"
        }
    }
}

/// Where parts of one source meet before this step, and no other step that depends on an order is between.
fn before<'a>(
    nodes: &'a [Node],
    orders: &HashMap<NodeId, Order>,
    step: NodeId,
) -> Option<Meeting<'a>> {
    let mut at = step;
    loop {
        let node = &nodes[at];
        if at != step && orders.contains_key(&at) {
            return None;
        }
        match node.inputs[..] {
            [] => return None,
            [only] => at = only,
            _ => break,
        }
    }
    let mut seen: Vec<(NodeId, BTreeSet<NodeId>)> = Vec::new();
    for &part in &nodes[at].inputs {
        let sources = sources(nodes, part);
        for (other, earlier) in &seen {
            if let Some(source) = sources.intersection(earlier).next() {
                return Some(Meeting {
                    source: &nodes[*source],
                    parts: [&nodes[*other], &nodes[part]],
                });
            }
        }
        seen.push((part, sources));
    }
    None
}

/// The other sources whose items meet those of this one at a step.
pub(crate) fn others(nodes: &[Node], source: NodeId) -> Vec<NodeId> {
    let mut reached = vec![false; nodes.len()];
    reached[source] = true;
    let mut found = BTreeSet::new();
    // A node comes after its inputs.
    for (id, node) in nodes.iter().enumerate() {
        if !node.inputs.iter().any(|input| reached[*input]) {
            continue;
        }
        reached[id] = true;
        if node.kind != "sink" && node.inputs.len() > 1 {
            found.extend(sources(nodes, id));
        }
    }
    found.remove(&source);
    found.into_iter().collect()
}

/// The sources from which the items of a node come.
fn sources(nodes: &[Node], of: NodeId) -> BTreeSet<NodeId> {
    let mut found = BTreeSet::new();
    let mut seen = HashSet::new();
    let mut left = vec![of];
    while let Some(at) = left.pop() {
        if !seen.insert(at) {
            continue;
        }
        if nodes[at].kind == "source" {
            found.insert(at);
        }
        left.extend(&nodes[at].inputs);
    }
    found
}
