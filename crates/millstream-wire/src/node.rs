//! YAML text as a tree of nodes that know their lines. Parsed by `saphyr-parser`.
//!
//! Nodes hold text, not values: what `1` means depends on the type that is expected there, so it is never guessed.
//! Anchors and aliases are refused (a few lines of them can mean gigabytes), and so is a key that is there twice.

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use crate::error::{Result, WireError};
use crate::limits::DEPTH_MAX;

/// How deep the nodes of a document may be: a variant with fields is two mappings, and the call and its arguments are
/// around all.
const NODES_DEPTH_MAX: usize = 2 * DEPTH_MAX + 4;

#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Where it begins, from 1.
    pub line: usize,
    pub content: Content,
}

#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// `plain` is without quotes: only then may it mean nothing.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

/// A document of a stream: the line of its `---`, if it has one, and its root.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub marker: Option<usize>,
    pub root: Node,
}

impl Node {
    /// Whether this is an empty value or `null`.
    pub fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null"))
    }

    /// The text of a scalar.
    pub fn scalar(&self) -> Result<&str> {
        match &self.content {
            Content::Scalar { text, .. } => Ok(text),
            Content::List(_) => Err(self.fault("expected a single value, found a list")),
            Content::Map(_) => Err(self.fault("expected a single value, found a mapping")),
        }
    }

    /// The pairs of a mapping.
    pub fn pairs(&self) -> Result<&[(Self, Self)]> {
        match &self.content {
            Content::Map(pairs) => Ok(pairs),
            Content::List(_) => Err(self.fault("expected a mapping, found a list")),
            Content::Scalar { text, .. } => {
                Err(self.fault(format_args!("expected a mapping, found {text:?}")))
            }
        }
    }

    /// Whether both mean the same, on whatever lines they are.
    pub fn same(&self, other: &Self) -> bool {
        match (&self.content, &other.content) {
            (
                Content::Scalar { text, plain },
                Content::Scalar {
                    text: other,
                    plain: other_plain,
                },
            ) => text == other && plain == other_plain,
            (Content::List(items), Content::List(others)) => {
                let mut pairs = items.iter().zip(others);
                items.len() == others.len() && pairs.all(|(item, other)| item.same(other))
            }
            (Content::Map(pairs), Content::Map(others)) => {
                let same = |((key, value), other): (&(Self, Self), &(Self, Self))| {
                    key.same(&other.0) && value.same(&other.1)
                };
                pairs.len() == others.len() && pairs.iter().zip(others).all(same)
            }
            _ => false,
        }
    }

    pub fn fault(&self, reason: impl std::fmt::Display) -> Box<WireError> {
        WireError::text(self.line, reason)
    }
}

/// Parses a stream of documents.
pub(crate) fn parse(text: &str) -> Result<Vec<Parsed>> {
    let mut events = Events(Parser::new_from_str(text));
    let mut documents = Vec::new();
    loop {
        let (event, span) = events.next()?;
        match event {
            Event::StreamEnd => return Ok(documents),
            Event::DocumentStart(explicit) => {
                let (event, root) = events.next()?;
                documents.push(Parsed {
                    marker: explicit.then_some(span.start.line()),
                    root: events.node(event, root, 0)?,
                });
            }
            _ => {}
        }
    }
}

struct Events<'a>(Parser<'a, saphyr_parser::StrInput<'a>>);

impl<'a> Events<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span)> {
        match self.0.next_event() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => Err(WireError::text(error.marker().line(), error.info())),
            None => Err(WireError::text(1, "the text ends within a document")),
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node> {
        let line = span.start.line();
        let fault = |reason| WireError::text(line, reason);
        if depth == NODES_DEPTH_MAX {
            return Err(fault("values are nested too deep"));
        }
        let content = match event {
            Event::Scalar(text, style, 0, _) => Content::Scalar {
                plain: style == ScalarStyle::Plain,
                text: text.into_owned(),
            },
            Event::SequenceStart(0, _) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break Content::List(items),
                        (event, span) => items.push(self.node(event, span, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(0, _) => {
                let mut pairs: Vec<(Node, Node)> = Vec::new();
                loop {
                    let (event, span) = self.next()?;
                    if event == Event::MappingEnd {
                        break Content::Map(pairs);
                    }
                    let key = self.node(event, span, depth + 1)?;
                    let (event, span) = self.next()?;
                    let value = self.node(event, span, depth + 1)?;
                    pairs.push((key, value));
                }
            }
            _ => return Err(fault("anchors and aliases are not supported")),
        };
        let node = Node { line, content };
        unique_keys(&node)?;
        Ok(node)
    }
}

fn unique_keys(node: &Node) -> Result<()> {
    let Content::Map(pairs) = &node.content else {
        return Ok(());
    };
    let mut seen = std::collections::HashSet::new();
    for (key, _) in pairs {
        let text = key.scalar()?;
        if !seen.insert(text) {
            return Err(key.fault(format_args!("the key {text} is there twice")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn documents_know_their_lines() {
        let parsed = parse("# first\na: 1\n---\n# second\nb: [1,\n 2]\n").unwrap();
        assert_eq!(parsed.len(), 2);
        assert_eq!((parsed[0].marker, parsed[0].root.line), (None, 2));
        assert_eq!((parsed[1].marker, parsed[1].root.line), (Some(3), 5));
    }

    #[test]
    fn what_is_refused_says_the_line() {
        assert_eq!(error("a: 1\na: 2"), "line 2: the key a is there twice");
        assert_eq!(
            error("a: &x 1\nb: *x"),
            "line 1: anchors and aliases are not supported"
        );
        let deep = "[".repeat(1_000);
        assert!(error(&deep).starts_with("line 1: "), "{}", error(&deep));
        assert!(error("a: [").starts_with("line "));
    }
}
