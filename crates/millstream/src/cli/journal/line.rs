//! A record as a line: for the eye, or as JSON that `import` reads again.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::ValueEnum;
use millstream_journal::Record;
use serde::{Deserialize, Serialize};

use super::moment;

/// How lines look.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Style {
    /// How bodies are shown.
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Form::Text)]
    body: Form,
    /// Lines of JSON: sequence, time, and the body as text or base64.
    #[arg(long, conflicts_with = "body")]
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
}

impl Style {
    pub(super) const JSON: Self = Style {
        body: Form::Text,
        json: true,
    };

    /// Append the line of `record` to `out`.
    pub(super) fn write(&self, record: &Record<'_>, out: &mut Vec<u8>) {
        if self.json {
            Line::of(record).write(out);
            return;
        }
        if self.body == Form::Raw {
            out.extend_from_slice(record.body);
        } else {
            let time = moment::show(record.time_ns);
            // Writing to memory does not fail.
            let _written = write!(out, "{time} {} ", record.sequence);
            match self.body {
                Form::Hex => record.body.iter().for_each(|byte| {
                    let _written = write!(out, "{byte:02x}");
                }),
                _ => escape(record.body, out),
            }
        }
        out.push(b'\n');
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
#[derive(Serialize, Deserialize, Debug)]
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
}

impl<'a> Line<'a> {
    fn of(record: &Record<'a>) -> Self {
        let text = std::str::from_utf8(record.body).ok();
        Line {
            sequence: Some(record.sequence),
            time: Some(moment::show(record.time_ns)),
            base64: text.is_none().then(|| BASE64.encode(record.body)),
            text: text.map(Into::into),
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
        // The line is one of many, whose number the caller tells.
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
        Record {
            sequence: 7,
            time_ns: 1_500_000_000,
            body,
        }
    }

    fn line(body: &[u8], form: Form, json: bool) -> String {
        let mut out = Vec::new();
        Style { body: form, json }.write(&record(body), &mut out);
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
