//! A line of a log: the same of programs in Rust, of runs from Python, and of supervisors.
//!
//! | part | as text | as JSON |
//! |---|---|---|
//! | time | RFC 3339 in UTC, microseconds | `time`, the same |
//! | level | `ERROR`, `WARNING`, `INFO`, `DEBUG`, `TRACE` | `level`, in lower case |
//! | target: the module, as `--log-level` names it | `flow.policy:` | `target` |
//! | message | as it is | `message` |
//! | fields, in the order of the event | `name=value`, each value in JSON | `name`, each beside the other parts |
//!
//! Invariant: an event is one line, and no control character of a name or a message reaches the terminal: they are
//! written as JSON has them.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::Value;
use tracing::Level;

/// An event that is logged.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    /// In ns since 1970.
    pub time_ns: u64,
    /// In lower case, as [`level_name`] has it.
    pub level: &'a str,
    /// A path in Rust, or the name of a logger in Python.
    pub target: &'a str,
    pub message: &'a str,
    pub fields: &'a [(String, Value)],
}

/// How a line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Text,
    Json,
}

/// The name of a level, as `--log-level` has it.
#[must_use]
pub fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

impl Line<'_> {
    /// The line, without its end.
    #[must_use]
    pub fn written(&self, format: Format) -> String {
        match format {
            Format::Text => self.text(),
            Format::Json => self.json(),
        }
    }

    fn text(&self) -> String {
        let level = self.level.to_ascii_uppercase();
        let time = self.time();
        let target = self.module();
        let mut line = format!("{time} {level:<7} {}: ", plain(&target));
        line += &plain(self.message);
        for (name, value) in self.fields {
            line += &format!(" {}={}", plain(name), safe(value));
        }
        line
    }

    fn json(&self) -> String {
        let head = [
            ("time", Value::from(self.time())),
            ("level", Value::from(self.level)),
            ("target", Value::from(self.module())),
            ("message", Value::from(self.message)),
        ];
        let head = head.iter().map(|(name, value)| (*name, value));
        let names = head.clone().map(|(name, _)| name);
        let fields = self.fields.iter().map(|(name, value)| (&**name, value));
        let fields = fields.filter(|(name, _)| !names.clone().any(|known| known == *name));
        let parts = head.chain(fields);
        let parts: Vec<String> = parts
            .map(|(name, value)| format!("{}: {}", safe(&Value::from(name)), safe(value)))
            .collect();
        format!("{{{}}}", parts.join(", "))
    }

    fn time(&self) -> String {
        let at = Timestamp::from_nanosecond(i128::from(self.time_ns)).unwrap_or_default();
        format!("{at:.6}")
    }

    /// The module: `flow.policy` of `millstream_flow::policy` and of `millstream.flow.policy`.
    fn module(&self) -> String {
        let path = self.target.replace("::", ".");
        let prefixes = ["millstream_", "millstream."];
        let short = prefixes.iter().find_map(|prefix| path.strip_prefix(prefix));
        short.unwrap_or(&path).to_owned()
    }
}

/// A text whose control characters are escaped.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => written += "\\n",
            '\r' => written += "\\r",
            '\t' => written += "\\t",
            control if control.is_control() => {
                // Text in memory takes all that is written. All control characters have four digits.
                let _ = write!(written, "\\u{:04x}", u32::from(control));
            }
            other => written.push(other),
        }
    }
    written
}

/// A value as JSON, of which the escapes of JSON itself leave DEL and the controls above it.
fn safe(value: &Value) -> String {
    plain(&value.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NAME: &str = "a\nb\u{1b}[2Jc\u{9b}d";

    fn line<'a>(target: &'a str, message: &'a str, fields: &'a [(String, Value)]) -> Line<'a> {
        Line {
            time_ns: 1_795_996_800_123_456_789,
            level: level_name(Level::WARN),
            target,
            message,
            fields,
        }
    }

    #[test]
    fn a_line_has_time_level_target_message_and_fields() {
        let fields = [
            ("step".to_owned(), json!("age")),
            ("items".to_owned(), json!(3)),
        ];
        let line = line("millstream_flow::policy", "skipped \"x\"", &fields);
        assert_eq!(
            line.written(Format::Text),
            "2026-11-30T00:00:00.123456Z WARNING flow.policy: skipped \"x\" step=\"age\" items=3"
        );
        assert_eq!(
            line.written(Format::Json),
            "{\"time\": \"2026-11-30T00:00:00.123456Z\", \"level\": \"warning\", \"target\": \"flow.policy\", \
             \"message\": \"skipped \\\"x\\\"\", \"step\": \"age\", \"items\": 3}"
        );
    }

    #[test]
    fn no_control_character_is_written() {
        let fields = [(NAME.to_owned(), json!(NAME))];
        let line = line(NAME, NAME, &fields);
        for format in [Format::Text, Format::Json] {
            let written = line.written(format);
            assert!(!written.chars().any(char::is_control), "{written:?}");
        }
        let read: Value = serde_json::from_str(&line.written(Format::Json)).unwrap();
        assert_eq!(
            (&read["message"], &read[NAME]),
            (&json!(NAME), &json!(NAME))
        );
    }

    #[test]
    fn loggers_of_python_have_the_same_names() {
        for target in [
            "millstream_flow::policy",
            "millstream.flow.policy",
            "flow.policy",
        ] {
            let written = line(target, "", &[]).written(Format::Json);
            let read: Value = serde_json::from_str(&written).unwrap();
            assert_eq!(read["target"], "flow.policy");
        }
    }
}
