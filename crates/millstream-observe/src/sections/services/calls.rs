//! Records of calls as lines of text, and the calls of an input by method.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use millstream_journal::{Error, Journal, Options};
use millstream_service::{Calls, Content};
use millstream_wire::Note;

/// The number of characters of a line.
const LINE_MAX: usize = 300;
/// The number of bytes of a record that is decoded.
const RECORD_BYTES_MAX: usize = 64 << 10;

/// A journal that is read, with its calls.
pub(super) struct Contents {
    pub(super) journal: Journal,
    calls: Calls,
}

impl Contents {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let journal = Journal::open(path, Options::read_only())?;
        Ok(Contents {
            calls: Calls::of(&journal),
            journal,
        })
    }

    /// The last `count` records before `end` as lines.
    pub(super) fn lines(&mut self, end: u64, count: u64) -> Result<Vec<String>, Error> {
        let end = end.min(self.journal.next()?);
        let mut reader = self.journal.reader()?;
        reader.seek(end.saturating_sub(count).max(self.journal.first()?))?;
        let mut lines = Vec::new();
        while reader.position() < end {
            let Some(record) = reader.next()? else {
                break;
            };
            let text = if record.body.len() > RECORD_BYTES_MAX {
                None
            } else {
                self.calls.read(record.sequence, record.body).ok()
            };
            let text = text.map_or_else(
                || format!("{} bytes", record.body.len()),
                |content| said(&content),
            );
            let text: String = text.chars().take(LINE_MAX).collect();
            lines.push(format!("{}: {text}", record.sequence));
        }
        Ok(lines)
    }

    /// The method of the call in a record; `None` where there is none, or it cannot be read.
    pub(super) fn method(&mut self, sequence: u64) -> Option<String> {
        let mut reader = self.journal.reader().ok()?;
        let record = reader.read(sequence).ok()?;
        if record.body.len() > RECORD_BYTES_MAX {
            return None;
        }
        match self.calls.read(sequence, record.body).ok()? {
            Content::Call(call, _) => Some(call.method),
            _ => None,
        }
    }

    /// The calls of each method among the records from `from` to `end`.
    pub(super) fn methods(&mut self, from: u64, end: u64) -> Result<BTreeMap<String, u64>, Error> {
        let mut reader = self.journal.reader()?;
        reader.seek(from.max(self.journal.first()?))?;
        let mut methods = BTreeMap::new();
        while reader.position() < end {
            let Some(record) = reader.next()? else {
                break;
            };
            if record.body.len() <= RECORD_BYTES_MAX
                && let Ok(Content::Call(call, _)) = self.calls.read(record.sequence, record.body)
            {
                *methods.entry(call.method).or_default() += 1;
            }
        }
        Ok(methods)
    }
}

/// `place(symbol="VOD.L", price=72.5)`, or what a note says.
fn said(content: &Content) -> String {
    match content {
        Content::Call(call, _) => {
            let mut line = format!("{}(", call.method);
            for (index, (name, value)) in call.arguments.iter().enumerate() {
                let comma = if index == 0 { "" } else { ", " };
                let value = serde_json::to_string(value).unwrap_or_default();
                // Text in memory takes all that is written.
                let _ = write!(line, "{comma}{name}={value}");
            }
            line + ")"
        }
        Content::Note(Note::Dead {
            path,
            sequence,
            error,
            ..
        }) => format!("{path}, record {sequence}: {error}"),
        Content::Note(Note::Schema(schema)) => format!("# interface {}", schema.interface()),
        Content::Note(Note::Input { input, .. }) => format!("# input {}", input.path),
        _ => "# a note".to_owned(),
    }
}
