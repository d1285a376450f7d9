//! The graph of a flow with its layout: as JSON for the page, and as a picture for notebooks.

use std::fmt::Write;

use millstream_flow::graph::Description;
use serde_json::{Value, json};

use crate::layout::{NODE_HEIGHT, NODE_WIDTH, layout};

/// The number of characters of a text that fit into a node.
const TEXT_MAX: usize = 26;

/// An edge from the right side of one node to the left side of another, as an SVG path.
fn path(from: (usize, usize), to: (usize, usize)) -> String {
    let x1 = from.0 + NODE_WIDTH;
    let y1 = from.1 + NODE_HEIGHT / 2;
    let x2 = to.0;
    let y2 = to.1 + NODE_HEIGHT / 2;
    let middle = x1 + x2.saturating_sub(x1) / 2;
    format!("M{x1},{y1} C{middle},{y1} {middle},{y2} {x2},{y2}")
}

/// `{flow, run, width, height, node: {width, height}, nodes: [{name, kind, detail, exchanged, x, y}], edges: [{from,
/// to, exchanged, path}]}`
pub(crate) fn graph_json(graph: &Description, run: &str) -> Value {
    let layout = layout(graph);
    let nodes = graph.nodes.iter().zip(&layout.nodes).map(|(node, (x, y))| {
        json!({
            "name": node.name, "kind": node.kind, "detail": node.detail,
            "exchanged": node.exchanged, "x": x, "y": y,
        })
    });
    let mut edges = Vec::new();
    for (id, node) in graph.nodes.iter().enumerate() {
        for &input in &node.inputs {
            let path = path(layout.nodes[input], layout.nodes[id]);
            edges.push(json!({"from": input, "to": id, "exchanged": node.exchanged, "path": path}));
        }
    }
    json!({
        "flow": graph.flow, "run": run, "width": layout.width, "height": layout.height,
        "node": {"width": NODE_WIDTH, "height": NODE_HEIGHT},
        "nodes": nodes.collect::<Vec<_>>(), "edges": edges,
    })
}

/// Returns a picture of a flow as SVG: a thick line is an edge on which items may move to another worker.
///
/// ```
/// use millstream_flow::{Flow, testing};
///
/// let flow = Flow::new("words");
/// flow.source("a < b", testing::items([1])).sink("out", testing::Collected::new().sink());
/// let picture = millstream_observe::svg(&flow.describe());
/// assert!(picture.starts_with("<svg") && picture.contains("a &lt; b"));
/// ```
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn svg(graph: &Description) -> String {
    let layout = layout(graph);
    let width = layout.width;
    let height = layout.height;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\" font-family=\"sans-serif\" font-size=\"13\"><title>{}</title>",
        escape(&format!("flow {}", graph.flow))
    );
    for (id, node) in graph.nodes.iter().enumerate() {
        let thickness = if node.exchanged { 3 } else { 1 };
        for &input in &node.inputs {
            let path = path(layout.nodes[input], layout.nodes[id]);
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "<path d=\"{path}\" fill=\"none\" stroke=\"#6b7785\" stroke-width=\"{thickness}\"/>"
            );
        }
    }
    for (node, (x, y)) in graph.nodes.iter().zip(&layout.nodes) {
        let lines = [
            (24, "bold", "#10202f", &node.name),
            (46, "normal", "#44566a", &node.kind.to_owned()),
            (68, "normal", "#44566a", &node.detail),
        ];
        let _ = write!(
            text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{NODE_WIDTH}\" height=\"{NODE_HEIGHT}\" rx=\"6\" fill=\"#f4f7fa\" stroke=\"#6b7785\"/>"
        );
        for (down, weight, colour, line) in lines {
            let _ = write!(
                text,
                "<text x=\"{}\" y=\"{}\" font-weight=\"{weight}\" fill=\"{colour}\">{}</text>",
                x + 10,
                y + down,
                escape(&shortened(line))
            );
        }
    }
    text + "</svg>"
}

fn shortened(text: &str) -> String {
    if text.chars().count() > TEXT_MAX {
        text.chars().take(TEXT_MAX - 1).chain(['…']).collect()
    } else {
        text.to_owned()
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            // No XML has these, however they are written.
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}
