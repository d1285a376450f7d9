//! The documents of a YAML file as text with their comments, for programs that read calls from it and rewrite it.
//!
//! An unchanged document is written back as it was. In a changed one, [`carry_comments`] puts each comment where its
//! field is now; a comment whose field is gone moves to the end, so that none is ever lost.
//!
//! ```
//! use millstream_wire::{carry_comments, documents};
//! let old = documents("# why\nplace:\n  price: 72.5  # in pounds\n")?;
//! let new = carry_comments(&old[0], "place:\n  symbol: VOD.L\n  price: 73.0\n")?;
//! assert_eq!(new, "# why\nplace:\n  symbol: VOD.L\n  price: 73.0  # in pounds\n");
//! # Ok::<(), Box<millstream_wire::WireError>>(())
//! ```

use crate::call::Call;
use crate::error::{Result, WireError};
use crate::node::{Content, Node, parse};
use crate::schema::Schema;

/// The key of the time until which a service is down.
const DOWN_UNTIL: &str = "down_until";

/// One document of a file.
#[derive(Debug, Clone)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Document {
    line: usize,
    text: String,
    root: Option<Node>,
}

/// Divides a file at its `---` lines.
///
/// # Errors
/// [`WireError::Text`] with the line that is not YAML.
#[doc(hidden)] // For the other crates of Millstream.
pub fn documents(text: &str) -> Result<Vec<Document>> {
    let text = with_one_kind_of_break(text);
    let parsed = parse(&text)?;
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let first = parsed.first().map_or(lines.len(), |first| {
        first.marker.map_or(0, |marker| marker - 1)
    });
    let preamble = joined("", &lines[..first]);
    if !preamble.trim().is_empty() {
        found.push(Document {
            line: 1,
            text: preamble,
            root: None,
        });
    }
    for (at, document) in parsed.iter().enumerate() {
        let next = parsed.get(at + 1).and_then(|next| next.marker);
        let end = next.map_or(lines.len(), |marker| marker - 1);
        let (line, head, start) = match document.marker {
            Some(marker) => (marker, after_marker(lines[marker - 1]), marker),
            None => (1, "", 0),
        };
        found.push(Document {
            line,
            text: joined(head, &lines[start..end]),
            root: (!document.root.is_null()).then(|| document.root.clone()),
        });
    }
    Ok(found)
}

/// A carriage return ends a line in YAML, but not for [`str::lines`].
fn with_one_kind_of_break(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// The rest of the line after a `---`.
fn after_marker(line: &str) -> &str {
    line.strip_prefix("---").unwrap_or(line).trim_start()
}

fn joined(head: &str, lines: &[&str]) -> String {
    let head = (!head.is_empty()).then_some(&head);
    let lines = head.into_iter().chain(lines);
    lines.flat_map(|line| [line, "\n"]).collect()
}

impl Document {
    /// The line of the file where it begins, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// Its text with all comments, without the `---` before it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it holds nothing but comments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// The name of the method that it calls.
    ///
    /// # Errors
    /// It is no call.
    pub fn method(&self) -> Result<&str> {
        let root = self.root()?;
        let names = root.pairs()?.iter().map(|(key, _)| key.scalar());
        for name in names {
            let name = name?;
            if name != crate::check::RESERVED {
                return Ok(name);
            }
        }
        Err(root.fault("there is no method"))
    }

    /// The time, in nanoseconds since 1970, of a document with nothing else; `None` for a call.
    ///
    /// # Errors
    /// It is no moment, or the document is no mapping.
    pub fn only_time(&self) -> Result<Option<i64>> {
        let [(key, value)] = self.root()?.pairs()? else {
            return Ok(None);
        };
        if key.scalar()? == crate::check::RESERVED {
            Call::read_time(value)
        } else {
            Ok(None)
        }
    }

    /// The time of a document `at: {down_until: TIME}`: until then a service does not run. `None` for another one.
    ///
    /// # Errors
    /// It is no moment, or the document is no mapping.
    pub fn down_until(&self) -> Result<Option<i64>> {
        let [(key, value)] = self.root()?.pairs()? else {
            return Ok(None);
        };
        match (key.scalar()?, &value.content) {
            (crate::check::RESERVED, Content::Map(pairs)) => match &pairs[..] {
                [(key, time)] if key.scalar()? == DOWN_UNTIL => Call::read_time(time),
                _ => Err(value.fault("at has a time, or {down_until: TIME}")),
            },
            _ => Ok(None),
        }
    }

    /// Parses the call.
    ///
    /// # Errors
    /// [`WireError::Text`] with the line of the file.
    pub fn call(&self, schema: &Schema) -> Result<Call> {
        Call::from_node(self.root()?, schema)
    }

    fn root(&self) -> Result<&Node> {
        let root = self.root.as_ref();
        root.ok_or_else(|| WireError::text(self.line, "the document is empty"))
    }
}

/// The text of a document that replaces `old`, with the comments of `old`.
///
/// # Errors
/// `new` is not YAML.
#[doc(hidden)] // For the other crates of Millstream.
pub fn carry_comments(old: &Document, new: &str) -> Result<String> {
    let mut comments = comments(old)?;
    let new = &with_one_kind_of_break(new);
    let mut lines: Vec<String> = new.lines().map(str::to_owned).collect();
    let mut places = Layout::default();
    for document in parse(new)? {
        places.walk("", &document.root);
    }
    // From the last line to the first, so that an insertion does not move the lines that follow in the loop.
    for (path, line) in places.keys.iter().rev() {
        // A key without a value may come after the last line.
        let line = (line - 1).min(lines.len().saturating_sub(1));
        let mut taken = |trailing| {
            let mut taken = Vec::new();
            comments.retain(|comment| {
                let takes = comment.path.as_ref() == Some(path) && comment.trailing == trailing;
                if takes {
                    taken.push(comment.text.clone());
                }
                !takes
            });
            taken
        };
        let trailing = taken(true);
        let Some(beside) = lines.get_mut(line) else {
            continue;
        };
        for text in trailing {
            *beside += &format!("  {text}");
        }
        let indent = beside.len() - beside.trim_start().len();
        let before = taken(false).into_iter();
        let before = before.map(|text| format!("{}{text}", " ".repeat(indent)));
        lines.splice(line..line, before.collect::<Vec<_>>());
    }
    lines.extend(comments.into_iter().map(|comment| comment.text));
    Ok(lines.into_iter().map(|line| line + "\n").collect())
}

struct Comment {
    /// The key after which or before which it is; none at the end.
    path: Option<String>,
    /// After its key, on the same line.
    trailing: bool,
    text: String,
}

/// Finds the comments of a document. A `#` may also be in a string; it begins a comment if the document means the same
/// without the rest of the line.
fn comments(document: &Document) -> Result<Vec<Comment>> {
    let mut layout = Layout::default();
    let parsed = parse(&document.text)?;
    for document in &parsed {
        layout.walk("", &document.root);
    }
    let lines: Vec<&str> = document.text.lines().collect();
    let means_the_same = |at: usize, kept: &str| {
        let mut lines = lines.clone();
        lines[at] = kept;
        parse(&joined("", &lines)).is_ok_and(|other| {
            let pairs = other.iter().zip(&parsed);
            other.len() == parsed.len() && { pairs }.all(|(a, b)| a.root.same(&b.root))
        })
    };
    let mut comments = Vec::new();
    for (at, text) in lines.iter().enumerate() {
        let line = at + 1;
        let lead = text.trim_start();
        let hash = text.match_indices('#').map(|(hash, _)| hash);
        let begins =
            |hash: &usize| text[..*hash].ends_with([' ', '\t']) || *hash == text.len() - lead.len();
        let Some(hash) = { hash }
            .filter(begins)
            .find(|hash| means_the_same(at, &text[..*hash]))
        else {
            continue;
        };
        let trailing = !text[..hash].trim().is_empty();
        let key = if trailing {
            layout.keys.iter().rfind(|(_, start)| *start <= line)
        } else {
            layout.keys.iter().find(|(_, start)| *start > line)
        };
        comments.push(Comment {
            path: key.map(|(path, _)| path.clone()),
            trailing,
            text: text[hash..].trim_end().to_owned(),
        });
    }
    Ok(comments)
}

/// The lines of the keys of a document.
#[derive(Default)]
struct Layout {
    /// Path and line of each key and list item, in order of the text.
    keys: Vec<(String, usize)>,
}

impl Layout {
    fn walk(&mut self, path: &str, node: &Node) {
        match &node.content {
            Content::Scalar { .. } => {}
            Content::List(items) => {
                for (at, item) in items.iter().enumerate() {
                    let path = format!("{path}[{at}]");
                    self.keys.push((path.clone(), item.line));
                    self.walk(&path, item);
                }
            }
            Content::Map(pairs) => {
                for (key, value) in pairs {
                    let name = key.scalar().unwrap_or_default();
                    // At the top is the method: its comments stay when another one is called.
                    let name = match path {
                        "" if name != crate::check::RESERVED => "call",
                        _ => name,
                    };
                    let path = format!("{path}.{name}");
                    self.keys.push((path.clone(), key.line));
                    self.walk(&path, value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_keep_their_text() {
        let text = "# all\n---\na: 1 # one\n--- # two\nb: 2\n\n# end\n";
        let documents = documents(text).unwrap();
        let texts: Vec<&str> = documents.iter().map(Document::text).collect();
        assert_eq!(texts, ["# all\n", "a: 1 # one\n", "# two\nb: 2\n\n# end\n"]);
        assert_eq!(
            documents.iter().map(|it| it.line).collect::<Vec<_>>(),
            [1, 2, 4]
        );
        assert!(documents[0].is_empty() && !documents[1].is_empty());
        assert_eq!(documents[2].method().unwrap(), "b");
    }

    #[test]
    fn a_file_of_comments_is_one_empty_document() {
        let documents = documents("# nothing\n# yet\n").unwrap();
        assert_eq!(documents.len(), 1);
        assert!(documents[0].is_empty());
        assert!(super::documents("").unwrap().is_empty());
    }

    #[test]
    fn comments_go_with_their_fields_and_none_is_lost() {
        let old = "\
# head
rejected:
  # above gone
  gone: 1  # beside gone
  text: 'a # is no comment'  # but this is
  lines: |
    # nor is this
    x
  legs:
    - a: 1
    # second leg
    - a: 2
# end
";
        let new = "\
accepted:
  text: b
  legs:
    - a: 1
    - a: 3
";
        let expected = "\
# head
accepted:
  text: b  # but this is
  legs:
    - a: 1
    # second leg
    - a: 3
# above gone
# beside gone
# end
";
        let old = documents(old).unwrap();
        assert_eq!(carry_comments(&old[0], new).unwrap(), expected);
    }

    #[test]
    fn an_empty_key_after_the_last_line_has_no_place() {
        let text = "?\n\n";
        let old = documents(text).unwrap();
        assert_eq!(carry_comments(&old[0], text).unwrap(), text);
    }
}
