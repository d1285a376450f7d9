//! A record as a line: for the eye, or as JSON that `import` reads again.
//!
//! Records of a service are shown as calls, after the record of their schema.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::ValueEnum;
use millstream_journal::{Journal, Record};
use millstream_observe::sections::journals::Decode;
use millstream_wire::Record as WireRecord;
use serde::{Deserialize, Serialize};

use super::call::ServiceRecord;
use crate::failure::Failure;
use crate::moment;
use crate::outcome::Outcome;
use millstream_service::Calls;

/// How lines look.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Style {
    /// How bodies are shown [default: calls where the journal has their schema, else text].
    #[arg(long, value_name = "FORM", value_enum)]
    body: Option<Form>,
    /// Lines of JSON: sequence, time, and method and arguments of a call, or the body as text or base64.
    #[arg(long)]
    json: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Time, sequence number and text; what cannot be shown is escaped as \n or \xff.
    Text,
    /// Time, sequence number and hexadecimal digits.
    Hex,
    /// The body alone, as it is, and a line end.
    Raw,
    /// Time, sequence number and the call of a service; exits 1 at the end if a record is none or does not fit its
    /// schema.
    Calls,
}

/// Makes lines of the records of one journal, which come in order.
pub(super) struct Lines {
    form: Option<Form>,
    json: bool,
    /// Where bodies are shown as calls, if they are.
    calls: Option<Calls>,
    /// Records that are no calls although calls were requested: their number, and the reason for the first.
    unread: u64,
    first_unread: Option<String>,
}

impl Style {
    /// Whether the options go together.
    pub(super) fn check(&self) -> Outcome {
        match self.body {
            Some(Form::Hex | Form::Raw) if self.json => {
                let message = "--json has bodies as calls or text, not as --body hex or raw";
                Err(Failure::usage(message).into())
            }
            _ => Ok(()),
        }
    }

    /// Lines of this style for the records of a journal.
    pub(super) fn lines(&self, journal: &Journal) -> Lines {
        let shows_calls = matches!(self.body, None | Some(Form::Calls));
        Lines {
            calls: shows_calls.then(|| Calls::of(journal)),
            form: self.body,
            ..Lines::json(self.json)
        }
    }
}

/// Decodes the records of a service for the page: calls and notes, where the journal has their schema.
pub(crate) fn decode() -> Decode {
    Box::new(|journal| {
        let mut lines = Lines {
            calls: Some(Calls::of(journal)),
            ..Lines::json(false)
        };
        Box::new(move |record| {
            let said = lines.service_record(record)?.ok()?;
            let mut text = Vec::new();
            said.write(&mut text);
            Some(String::from_utf8_lossy(&text).into_owned())
        })
    })
}

impl Lines {
    /// Lines as `import` reads them.
    pub(super) const EXPORT: Self = Self::json(true);

    const fn json(json: bool) -> Self {
        Lines {
            form: None,
            json,
            calls: None,
            unread: 0,
            first_unread: None,
        }
    }

    /// Append the line of `record` to `out`.
    pub(super) fn write(&mut self, record: &Record<'_>, out: &mut Vec<u8>) {
        let said = self.service_record(record);
        if self.json {
            Line::of(record, said).write(out);
            return;
        }
        if self.form == Some(Form::Raw) {
            out.extend_from_slice(record.body);
        } else {
            let time = moment::show(record.time_ns);
            // Writing to memory does not fail.
            let _written = write!(out, "{time} {} ", record.sequence);
            match (said, self.form) {
                (Some(Ok(said)), _) => said.write(out),
                (Some(Err(reason)), _) => {
                    escape(record.body, out);
                    let _written = write!(out, "  # not decoded: {reason}");
                }
                (None, Some(Form::Hex)) => record.body.iter().for_each(|byte| {
                    let _written = write!(out, "{byte:02x}");
                }),
                (None, _) => escape(record.body, out),
            }
        }
        out.push(b'\n');
    }

    /// A record as a call, or the reason why it is none; `None` where it is shown as it is.
    fn service_record(&mut self, record: &Record<'_>) -> Option<Result<ServiceRecord, String>> {
        let calls = self.calls.as_mut()?;
        let asked = self.form == Some(Form::Calls);
        if !asked && WireRecord::read(record.body).is_err() {
            return None;
        }
        let said = ServiceRecord::of(calls, record.sequence, record.body);
        if let (Err(reason), true) = (&said, asked) {
            self.unread += 1;
            let unread = || format!("record {} could not be decoded: {reason}", record.sequence);
            self.first_unread.get_or_insert_with(unread);
        }
        // Bytes of another origin may look like a call by chance.
        (said.is_ok() || asked || calls.has_schemas()).then_some(said)
    }

    /// Checks at the end that the records were of the requested kind.
    pub(super) fn end(self) -> Outcome {
        let Some(first) = self.first_unread else {
            return Ok(());
        };
        let others = match self.unread - 1 {
            0 => String::new(),
            1 => " (and 1 other record)".to_owned(),
            others => format!(" (and {others} other records)"),
        };
        Err(Failure::failed(first + &others).into())
    }
}

/// Text on one line: control characters, backslashes and what is no UTF-8 as escapes.
fn escape(body: &[u8], out: &mut Vec<u8>) {
    for chunk in body.utf8_chunks() {
        let text = chunk.valid();
        if text.chars().any(|c| c.is_control() || c == '\\') {
            for c in text.chars() {
                let mut utf8 = [0; 4];
                if c.is_control() || c == '\\' {
                    out.extend(c.escape_default().map(|c| c as u8));
                } else {
                    out.extend_from_slice(c.encode_utf8(&mut utf8).as_bytes());
                }
            }
        } else {
            out.extend_from_slice(text.as_bytes());
        }
        for byte in chunk.invalid() {
            let _written = write!(out, "\\x{byte:02x}");
        }
    }
}

/// A record as JSON. The body is text where it is UTF-8.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    text: Option<std::borrow::Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// In place of the body.
    #[serde(flatten, skip_deserializing)]
    said: Option<ServiceRecord>,
    /// Why a body is none of the calls that it was taken for.
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    not_decoded: Option<String>,
}

impl<'a> Line<'a> {
    fn of(record: &Record<'a>, said: Option<Result<ServiceRecord, String>>) -> Self {
        let (said, not_decoded) = match said {
            None => (None, None),
            Some(Ok(said)) => (Some(said), None),
            Some(Err(reason)) => (None, Some(reason)),
        };
        let body = said.is_none().then_some(record.body);
        let text = body.and_then(|body| std::str::from_utf8(body).ok());
        let binary = body.filter(|_| text.is_none());
        Line {
            sequence: Some(record.sequence),
            time: Some(moment::show(record.time_ns)),
            base64: binary.map(|body| BASE64.encode(body)),
            text: text.map(Into::into),
            said,
            not_decoded,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        // Numbers and text into memory: nothing in it can fail.
        let _written = serde_json::to_writer(&mut *out, self);
        out.push(b'\n');
    }
}

/// A record that was read from a line of JSON.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) sequence: Option<u64>,
    pub(super) time_ns: Option<u64>,
    pub(super) body: Vec<u8>,
}

/// Read a line of JSON.
pub(super) fn parse(line: &[u8]) -> Result<Parsed, String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| {
        let text = error.to_string();
        // The caller adds the number of the line.
        match text.rsplit_once(" at line 1 column ") {
            Some((what, column)) => format!("{what} at column {column}"),
            None => text,
        }
    })?;
    let body = match (line.text, line.base64) {
        (Some(text), None) => text.into_owned().into_bytes(),
        (None, Some(digits)) => BASE64
            .decode(digits)
            .map_err(|error| format!("\"base64\": {error}"))?,
        _ => return Err("a record has either \"text\" or \"base64\"".to_owned()),
    };
    let time_ns = line.time.as_deref().map(moment::parse_exact).transpose()?;
    Ok(Parsed {
        sequence: line.sequence,
        time_ns,
        body,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(body: &[u8]) -> Record<'_> {
        Record::new(7, 1_500_000_000, body)
    }

    fn line(body: &[u8], form: Form, json: bool) -> String {
        let mut out = Vec::new();
        let form = Some(form);
        let mut lines = Lines {
            form,
            ..Lines::json(json)
        };
        lines.write(&record(body), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_body_is_one_line_for_the_eye() {
        let text = line("a\tb\\ü\n\u{7f}".as_bytes(), Form::Text, false);
        assert_eq!(
            text,
            "1970-01-01T00:00:01.500000000Z 7 a\\tb\\\\ü\\n\\u{7f}\n"
        );
        let bytes = line(b"ok\xff\xfe!", Form::Text, false);
        assert!(bytes.ends_with(" 7 ok\\xff\\xfe!\n"), "{bytes}");
        let hex = line(b"ok\xff", Form::Hex, false);
        assert!(hex.ends_with(" 7 6f6bff\n"), "{hex}");
    }

    #[test]
    fn json_keeps_every_body() {
        for body in [
            &b""[..],
            b"plain",
            b"two\nlines \"quoted\"",
            b"\xff\x00",
            "ü".as_bytes(),
        ] {
            let json = line(body, Form::Text, true);
            assert_eq!(json.lines().count(), 1);
            let parsed = Parsed {
                sequence: Some(7),
                time_ns: Some(1_500_000_000),
                body: body.to_vec(),
            };
            assert_eq!(parse(json.as_bytes()), Ok(parsed), "{json}");
        }
    }

    #[test]
    fn lines_that_are_no_record_say_why() {
        for (line, why) in [
            ("", "EOF while parsing a value at column 0"),
            ("{\"text\": 1}", "invalid type"),
            ("{}", "either \"text\" or \"base64\""),
            ("{\"text\":\"a\",\"base64\":\"\"}", "either"),
            ("{\"base64\":\"?\"}", "\"base64\": Invalid symbol"),
            ("{\"text\":\"a\",\"time\":\"noon\"}", "\"noon\" is no time"),
            ("{\"text\":\"a\",\"tex\":\"\"}", "unknown field `tex`"),
        ] {
            let said = parse(line.as_bytes()).unwrap_err();
            assert!(said.contains(why), "{line}: {said}");
        }
    }
}
