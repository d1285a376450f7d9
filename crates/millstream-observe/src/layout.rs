//! Where the page draws the nodes of a flow: in layers from left to right, each node one layer after its last input
//! (Sugiyama et al., "Methods for Visual Understanding of Hierarchical System Structures", 1981). Within a layer nodes
//! are ordered by the mean row of their neighbours.

use millstream_flow::graph::Description;

/// The size of a node, and the space between nodes; pixels.
pub(crate) const NODE_WIDTH: usize = 196;
pub(crate) const NODE_HEIGHT: usize = 84;
const GAP_X: usize = 56;
const GAP_Y: usize = 24;
pub(crate) const MARGIN: usize = 12;
/// The number of sweeps that order the nodes of layers.
const SWEEPS: usize = 4;

/// The place of each node, and the size of the whole; pixels.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The upper left corner of each node.
    pub(crate) nodes: Vec<(usize, usize)>,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// Lays out a flow.
pub(crate) fn layout(graph: &Description) -> Layout {
    let layers = ordered(graph, layers(graph));
    let rows = layers.iter().map(Vec::len).max().unwrap_or(0);
    let height = |rows: usize| (rows * (NODE_HEIGHT + GAP_Y)).saturating_sub(GAP_Y);
    let mut nodes = vec![(0, 0); graph.nodes.len()];
    for (layer, members) in layers.iter().enumerate() {
        let top = (height(rows) - height(members.len())) / 2;
        for (row, &node) in members.iter().enumerate() {
            nodes[node] = (
                MARGIN + layer * (NODE_WIDTH + GAP_X),
                MARGIN + top + row * (NODE_HEIGHT + GAP_Y),
            );
        }
    }
    Layout {
        nodes,
        width: 2 * MARGIN + (layers.len() * (NODE_WIDTH + GAP_X)).saturating_sub(GAP_X),
        height: 2 * MARGIN + height(rows),
    }
}

/// The nodes of each layer. An input has a lower number than the node that reads it.
fn layers(graph: &Description) -> Vec<Vec<usize>> {
    let mut layer_of = vec![0; graph.nodes.len()];
    let mut layers: Vec<Vec<usize>> = Vec::new();
    for (id, node) in graph.nodes.iter().enumerate() {
        let layer = node.inputs.iter().map(|&input| layer_of[input] + 1).max();
        layer_of[id] = layer.unwrap_or(0);
        while layers.len() <= layer_of[id] {
            layers.push(Vec::new());
        }
        layers[layer_of[id]].push(id);
    }
    layers
}

/// Orders the nodes of each layer so that few edges cross.
fn ordered(graph: &Description, mut layers: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    let mut neighbours: Vec<(Vec<usize>, Vec<usize>)> =
        vec![(Vec::new(), Vec::new()); graph.nodes.len()];
    for (id, node) in graph.nodes.iter().enumerate() {
        for &input in &node.inputs {
            neighbours[id].0.push(input);
            neighbours[input].1.push(id);
        }
    }
    let mut row = vec![0.0; graph.nodes.len()];
    for sweep in 0..SWEEPS {
        for layer in &layers {
            place(layer, &mut row);
        }
        let forward = sweep % 2 == 0;
        let count = layers.len();
        for step in 0..count {
            let layer = if forward { step } else { count - 1 - step };
            let mean = |node: &usize| {
                let (before, after) = &neighbours[*node];
                let others = if forward { before } else { after };
                match others.len() {
                    0 => row[*node],
                    count => others.iter().map(|other| row[*other]).sum::<f64>() / count as f64,
                }
            };
            let mut keyed: Vec<(f64, usize)> = layers[layer]
                .iter()
                .map(|node| (mean(node), *node))
                .collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            layers[layer] = keyed.into_iter().map(|(_, node)| node).collect();
            place(&layers[layer], &mut row);
        }
    }
    layers
}

/// Notes the rows of the nodes of a layer, from the middle of the layer.
fn place(layer: &[usize], row: &mut [f64]) {
    for (index, &node) in layer.iter().enumerate() {
        row[node] = index as f64 - (layer.len() as f64 - 1.0) / 2.0;
    }
}

#[cfg(test)]
mod tests {
    use millstream_flow::{Flow, testing};

    use super::*;

    #[test]
    fn a_node_is_after_its_inputs_and_none_covers_another() {
        let flow = Flow::new("two");
        let one = flow.source("one", testing::items([1])).map(|n| n + 1);
        let two = flow.source("two", testing::items([2]));
        one.merge(&[two])
            .sink("out", testing::Collected::new().sink());
        let graph = flow.describe();
        let layout = layout(&graph);
        for (id, node) in graph.nodes.iter().enumerate() {
            for &input in &node.inputs {
                assert!(layout.nodes[input].0 + NODE_WIDTH < layout.nodes[id].0);
            }
            let (x, y) = layout.nodes[id];
            assert!(x + NODE_WIDTH < layout.width && y + NODE_HEIGHT < layout.height);
            let covers = |other: &(usize, usize)| other.0 == x && other.1.abs_diff(y) < NODE_HEIGHT;
            assert_eq!(layout.nodes.iter().filter(|other| covers(other)).count(), 1);
        }
    }

    #[test]
    fn neighbours_are_in_the_same_order() {
        let flow = Flow::new("parallel");
        let sources: Vec<_> = (0..4)
            .map(|n| flow.source(&format!("s{n}"), testing::items([n])))
            .collect();
        for (n, source) in sources.iter().enumerate().rev() {
            source.sink(&format!("k{n}"), testing::Collected::new().sink());
        }
        let graph = flow.describe();
        let layout = layout(&flow.describe());
        for (id, node) in graph.nodes.iter().enumerate() {
            for &input in &node.inputs {
                assert_eq!(layout.nodes[input].1, layout.nodes[id].1);
            }
        }
    }

    #[test]
    fn a_flow_without_nodes_has_a_layout() {
        let layout = layout(&Flow::new("none").describe());
        assert_eq!((layout.width, layout.height), (2 * MARGIN, 2 * MARGIN));
    }
}
