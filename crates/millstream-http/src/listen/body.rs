//! How items are read from the body of a request, and the record that is made of them.
//!
//! ```text
//! record: u8 version (1), u8 what an item is (0: a body or a part of it, 1: a request), then for each item: u32 LE length, bytes
//! ```

use std::sync::Arc;

use hyper::http::request::Parts;
use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use millstream_flow::named::DROP_STATE;
use serde_json::value::RawValue;

use super::received::{item_of, may_be_empty};

/// The version of records.
const VERSION: u8 = 1;
/// The most levels of a document. Parsers and encoders that the flow and its consumers use have limits of their own,
/// this one or higher.
const LEVELS_MAX: usize = 128;

/// What an item of a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Item {
    /// Its body, or a part of it: see [`Body`].
    #[default]
    Body,
    /// The request itself: method, path, query, headers and body. See [`Received`](crate::Received).
    Request,
}

/// How items are read from the body of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Body {
    /// A JSON document. The elements of an array are items; any other document is one item. With the content type
    /// `application/x-ndjson` or `application/jsonl` each line is a document and an item. An item is the text of its
    /// document.
    #[default]
    Json,
    /// Each line is an item, without its end. Empty lines are items.
    Lines,
    /// The body is one item.
    Bytes,
    /// The body is one item, a text in UTF-8.
    Text,
    /// The body is one item, of the content type `application/x-www-form-urlencoded`. It is not decoded.
    Form,
}

/// The items of one request, as a record.
#[derive(Debug)]
pub(super) struct Items {
    pub(super) record: Vec<u8>,
    pub(super) count: usize,
}

impl Items {
    /// The request itself as the item.
    ///
    /// # Errors
    /// One line that says what is wrong with it.
    pub(super) fn of_request(
        kind: Body,
        request: &Parts,
        (id, path): (&str, &str),
        body: &[u8],
        check: Option<&CheckItem>,
    ) -> Result<Self, String> {
        match kind {
            _ if body.is_empty() && may_be_empty(&request.method) => {}
            Body::Json => drop(document(body)?),
            Body::Text | Body::Form => check_text(body)?,
            Body::Bytes | Body::Lines => {}
        }
        let item = item_of(request, (id, path), body)?;
        check.map_or(Ok(()), |check| check(&item))?;
        let mut items = Items::new(Item::Request, item.len());
        items.push(&item);
        Ok(items)
    }

    fn new(item: Item, body_bytes: usize) -> Self {
        let mut record = Vec::with_capacity(2 + 4 + body_bytes);
        record.extend([VERSION, item as u8]);
        Items { record, count: 0 }
    }

    fn push(&mut self, item: &[u8]) {
        // Bodies are smaller than 4 GiB.
        self.record
            .extend_from_slice(&(item.len() as u32).to_le_bytes());
        self.record.extend_from_slice(item);
        self.count += 1;
    }
}

/// Returns what is wrong with an item, if its reader would refuse it.
pub(super) type CheckItem = Arc<dyn Fn(&[u8]) -> Result<(), String> + Send + Sync>;

/// Reads the items of a body; `lines` says that the client declares JSON lines. Each item is checked by `check`, by
/// which the flow would read it: what is acknowledged can be read.
///
/// # Errors
/// One line that says what is wrong with the body, and where.
pub(super) fn items(
    kind: Body,
    lines: bool,
    body: &[u8],
    check: Option<&CheckItem>,
) -> Result<Items, String> {
    let checked = |item: &[u8]| check.map_or(Ok(()), |check| check(item));
    let mut items = Items::new(Item::Body, body.len());
    match kind {
        Body::Bytes | Body::Text | Body::Form => {
            if kind != Body::Bytes {
                check_text(body)?;
            }
            checked(body)?;
            items.push(body);
        }
        Body::Lines => {
            for (number, line) in (1..).zip(each_line(body)) {
                checked(line).map_err(|error| format!("line {number}: {error}"))?;
                items.push(line);
            }
        }
        Body::Json if lines => {
            let lines = (1..).zip(each_line(body));
            for (number, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()) {
                let item = document(line).map(|document| document.get().as_bytes());
                let item = item.and_then(|item| checked(item).map(|()| item));
                items.push(item.map_err(|error| format!("line {number}: {error}"))?);
            }
        }
        Body::Json => {
            let document = document(body)?.get();
            if document.starts_with('[') {
                let elements: Vec<&RawValue> = serde_json::from_str(document)
                    .map_err(|error| format!("the body is not JSON: {error}"))?;
                for (number, element) in (1..).zip(&elements) {
                    let item = element.get().as_bytes();
                    checked(item).map_err(|error| format!("element {number}: {error}"))?;
                    items.push(item);
                }
            } else {
                checked(document.as_bytes())?;
                items.push(document.as_bytes());
            }
        }
    }
    Ok(items)
}

fn check_text(body: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(body);
    text.map(drop)
        .map_err(|error| format!("the body is no text in UTF-8: {error}"))
}

fn document(text: &[u8]) -> Result<&RawValue, String> {
    let document: Result<&RawValue, _> = serde_json::from_slice(text);
    let document = document.map_err(|error| format!("the body is not JSON: {error}"))?;
    if depth(document.get().as_bytes()) > LEVELS_MAX {
        Err(format!("the body has more than {LEVELS_MAX} levels"))
    } else {
        Ok(document)
    }
}

/// Returns how deep a JSON document is nested.
fn depth(document: &[u8]) -> usize {
    let mut level = 0_usize;
    let mut most = 0;
    let mut in_text = false;
    let mut is_escaped = false;
    for byte in document {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                level += 1;
                most = most.max(level);
            }
            b']' | b'}' if !in_text => level = level.saturating_sub(1),
            _ => {}
        }
    }
    most
}

fn each_line(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let body = body.strip_suffix(b"\n").unwrap_or(body);
    let lines = (!body.is_empty()).then(|| body.split(|byte| *byte == b'\n'));
    let lines = lines.into_iter().flatten();
    lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

/// Appends the items of a record to `batch`.
///
/// # Errors
/// It is of another version, or not a record of a request; its items are of another kind; the batch is full: 4 GiB.
pub(super) fn read_record(record: &[u8], item: Item, batch: &mut Frames) -> Result<(), Cause> {
    const NONE: &str = "it is not one of requests";
    let (version, rest) = record.split_first().ok_or(NONE)?;
    if *version != VERSION {
        return Err(format!("a request of version {version}; this program reads {VERSION}").into());
    }
    let (kind, mut rest) = rest.split_first().ok_or(NONE)?;
    if *kind != item as u8 {
        return Err(format!(
            "it was recorded while the source had another item=: run the flow with that one until it is processed, or drop the saved \
             state of the source ({DROP_STATE})"
        )
        .into());
    }
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        let (item, after) = after.split_at_checked(length).ok_or(NONE)?;
        batch.append(|data| data.extend_from_slice(item))?;
        rest = after;
    }
    rest.is_empty().then_some(()).ok_or_else(|| NONE.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: Body, lines: bool, body: &str) -> Result<Vec<String>, String> {
        let items = items(kind, lines, body.as_bytes(), None)?;
        let mut frames = Frames::default();
        read_record(&items.record, Item::Body, &mut frames).unwrap();
        assert_eq!(frames.len(), items.count);
        let texts = frames
            .iter()
            .map(|item| String::from_utf8(item.to_vec()).unwrap());
        Ok(texts.collect())
    }

    fn of(kind: Body, lines: bool, body: &str) -> Vec<String> {
        read(kind, lines, body).unwrap()
    }

    #[test]
    fn an_array_has_items_and_another_document_is_one() {
        assert_eq!(of(Body::Json, false, " {\"a\": [1]} \n"), ["{\"a\": [1]}"]);
        let elements = of(Body::Json, false, " [1, {\"a\": 2},\n\"x\", [3], null] ");
        assert_eq!(elements, ["1", "{\"a\": 2}", "\"x\"", "[3]", "null"]);
        assert!(of(Body::Json, false, "[]").is_empty());
        assert_eq!(of(Body::Json, false, "null"), ["null"]);
    }

    #[test]
    fn lines_of_json_are_items() {
        assert_eq!(of(Body::Json, true, "1\r\n\n[2]\n"), ["1", "[2]"]);
        let error = read(Body::Json, true, "1\nx\n").unwrap_err();
        assert!(
            error.starts_with("line 2: the body is not JSON: "),
            "{error}"
        );
    }

    #[test]
    fn lines_are_items_without_their_ends() {
        assert_eq!(of(Body::Lines, false, "to\r\n\nbe"), ["to", "", "be"]);
        assert_eq!(of(Body::Lines, false, "to\n"), ["to"]);
        assert!(of(Body::Lines, false, "").is_empty());
        assert_eq!(of(Body::Bytes, false, "a\nb"), ["a\nb"]);
    }

    #[test]
    fn what_is_not_json_is_an_error_with_its_place() {
        let deep = "[".repeat(100_000);
        for body in ["", "{", "[1,", "{} {}", "\u{0}", "[1 2]", "NaN", &deep] {
            let error = read(Body::Json, false, body).unwrap_err();
            assert!(error.contains("line "), "{error}");
        }
        assert!(items(Body::Json, false, b"\"\xff\"", None).is_err());
    }

    #[test]
    fn a_document_has_at_most_so_many_levels() {
        let nested =
            |levels: usize| format!("{}1{}", "[{\"]\\\"[\":".repeat(levels), "}]".repeat(levels));
        assert_eq!(of(Body::Json, true, &nested(64)), [nested(64)]);
        let error = read(Body::Json, false, &nested(65)).unwrap_err();
        assert_eq!(error, "the body has more than 128 levels");
    }

    #[test]
    fn an_item_that_its_reader_refuses_is_an_error_with_its_place() {
        let check: CheckItem = Arc::new(|item: &[u8]| match item {
            b"2" => Err("no odd number".to_owned()),
            _ => Ok(()),
        });
        for (kind, lines, body, error) in [
            (Body::Json, false, "[1, 2]", "element 2: no odd number"),
            (Body::Json, true, "1\n\n2\n", "line 3: no odd number"),
            (Body::Lines, false, "1\n2", "line 2: no odd number"),
            (Body::Json, false, "2", "no odd number"),
            (Body::Bytes, false, "2", "no odd number"),
        ] {
            let found = items(kind, lines, body.as_bytes(), Some(&check));
            assert_eq!(found.unwrap_err(), error);
        }
        assert_eq!(
            items(Body::Json, false, b"[1, 3]", Some(&check))
                .unwrap()
                .count,
            2
        );
    }

    #[test]
    fn a_damaged_record_is_none() {
        let record = items(Body::Lines, false, b"to\nbe", None).unwrap().record;
        let mut frames = Frames::default();
        for length in [0, 1, 3, 5, 7, record.len() - 1] {
            let error = read_record(&record[..length], Item::Body, &mut frames).unwrap_err();
            assert_eq!(error.to_string(), "it is not one of requests", "{length}");
        }
        let error = read_record(&[2, 0], Item::Body, &mut frames);
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "a request of version 2; this program reads 1");
        let error = read_record(&record, Item::Request, &mut frames);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("another item="), "{error}");
    }
}
