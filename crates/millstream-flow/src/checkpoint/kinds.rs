//! The meaning of a step's saved state, and whether it is still the same.
//!
//! Two steps are compared by their kinds with details, and by the names of the fields and streams that they read. A
//! function cannot be compared: where one of two steps reads by a function, nothing is.

use std::collections::BTreeSet;

use super::record::StepMark;
use crate::node::{Node, NodeId, reads};

impl StepMark {
    /// The step of this number, whose states have this layout.
    pub(super) fn of(nodes: &[Node], step: NodeId, layout: &[&str]) -> Self {
        let node = &nodes[step];
        let kind = match &*node.detail {
            "" => node.kind.to_owned(),
            detail => format!("{} ({detail})", node.kind),
        };
        StepMark {
            step: node.name.clone(),
            fields: reads::fields(nodes, step),
            kind,
            sides: reads::sides(nodes, step),
            layout: layout.iter().copied().map(str::to_owned).collect(),
        }
    }

    /// Both steps in the words in which they differ, if the state of `was` has another meaning than one of this step.
    pub(super) fn differs(&self, was: &StepMark, nodes: &[Node]) -> Option<[String; 2]> {
        let both = [self, was];
        if self.kind != was.kind {
            return Some(both.map(|mark| with_article(&mark.kind)));
        }
        for (role, now) in &self.fields {
            let before = was
                .fields
                .get(role)
                .filter(|before| before.is_disjoint(now));
            if let Some(before) = before {
                let kind = with_article(&self.kind);
                let with = if role == "of" {
                    "of"
                } else {
                    &format!("with {role} of")
                };
                return Some([now, before].map(|names| format!("{kind} {with} {}", quoted(names))));
            }
        }
        let number = self.sides.len().min(was.sides.len());
        (0..number)
            .any(|side| self.has_another(side, was, nodes))
            .then(|| both.map(StepMark::joined))
    }

    /// Whether a side of a join is another one: what told the saved side from the others is in the flow, and no longer
    /// before this side.
    fn has_another(&self, side: usize, was: &StepMark, nodes: &[Node]) -> bool {
        let is_other = |name: &str| self.sides.iter().flatten().any(|other| other == name);
        let is_source = |name: &str| {
            nodes
                .iter()
                .any(|node| node.name == name && node.kind == "source")
        };
        let known = was.telling(side);
        let kept = known
            .iter()
            .filter(|name| is_other(name) || is_source(name));
        let mut kept = kept.peekable();
        kept.peek().is_some() && !kept.any(|name| self.sides[side].contains(name))
    }

    /// The names before a side of a join that are before no other side.
    fn telling(&self, side: usize) -> Vec<&String> {
        let others = self
            .sides
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != side);
        let others: BTreeSet<&String> = others.flat_map(|(_, names)| names).collect();
        self.sides[side]
            .iter()
            .filter(|name| !others.contains(name))
            .collect()
    }

    /// The join in words, with its sides.
    fn joined(&self) -> String {
        let sides = (0..self.sides.len()).map(|side| {
            let telling = self.telling(side);
            let names = if telling.is_empty() {
                self.sides[side].iter().collect()
            } else {
                telling
            };
            names
                .first()
                .map_or_else(|| "?".to_owned(), |name| format!("\"{name}\""))
        });
        let sides: Vec<String> = sides.collect();
        format!("{} of {}", with_article(&self.kind), sides.join(" with "))
    }
}

fn quoted(names: &BTreeSet<String>) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    names.join(" and ")
}

fn with_article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {kind}")
}
