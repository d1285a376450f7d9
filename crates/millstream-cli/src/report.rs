//! Reports: the same numbers for a reader and, with `--json`, for a program.

use std::io::{ErrorKind, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Print `report`, as one line of JSON or as `text`.
pub fn print(report: &impl Serialize, text: &str, json: bool) -> Result<(), Failure> {
    let line = if json {
        serde_json::to_string(report).map_err(Failure::failed)?
    } else {
        text.to_owned()
    };
    match writeln!(std::io::stdout(), "{line}") {
        // A broken pipe: its reader has ended, as `head` does.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("cannot write the report: {error}")))
        }
        _ => Ok(()),
    }
}

/// Messages per second, 0 for an interval of no length.
pub(crate) fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

/// The rate as a person reads it, after what it is the rate of; nothing where an interval has no length.
pub(crate) fn rate(per_second: f64) -> String {
    if per_second > 0.0 {
        format!(": {}msg/s", human(per_second))
    } else {
        String::new()
    }
}

/// A large number as a person reads it: `1.60 M`.
pub(crate) fn human(number: f64) -> String {
    match number {
        n if n >= 1e9 => format!("{:.2} G", n / 1e9),
        n if n >= 1e6 => format!("{:.2} M", n / 1e6),
        n if n >= 1e4 => format!("{:.1} k", n / 1e3),
        n if n >= 100.0 || n == n.trunc() => format!("{n:.0} "),
        n => format!("{n:.1} "),
    }
}
