//! The directory of recorded input, and how long it is kept.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long recorded input is kept once no epoch needs it. It is removed in whole segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retain {
    /// It is removed at once.
    #[default]
    Needed,
    /// The newest records of about this many bytes are kept, for a replay.
    Bytes(u64),
    /// Records are kept for this time.
    Age(Duration),
    /// All records are kept.
    All,
}

/// The directory in which a flow with the state directory `state` records the input of source `name`.
#[must_use]
pub fn recorded_input_dir(state: impl AsRef<Path>, name: &str) -> PathBuf {
    state.as_ref().join("inputs").join(escape(name))
}

/// The sources whose input is recorded in a state directory, by name, each with the directory of its records.
///
/// # Errors
/// The directory cannot be read. A state directory without recorded input is not an error.
#[doc(hidden)] // For the other crates of Millstream.
pub fn inputs(state: impl AsRef<Path>) -> std::io::Result<Vec<(String, PathBuf)>> {
    let entries = match std::fs::read_dir(state.as_ref().join("inputs")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if let Some(name) = path.file_name().and_then(|name| unescape(name.to_str()?)) {
            found.push((name, path));
        }
    }
    found.sort();
    Ok(found)
}

/// Encodes a name as the name of a directory: letters, digits, `-`, `_` and a `.` after the first character are
/// unchanged; other bytes become `%` and two hexadecimal digits.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn escape(name: &str) -> String {
    let mut folder = String::new();
    for (at, &byte) in name.as_bytes().iter().enumerate() {
        match byte {
            b'-' | b'_' => folder.push(byte.into()),
            b'.' if at > 0 => folder.push('.'),
            _ if byte.is_ascii_alphanumeric() => folder.push(byte.into()),
            _ => folder += &format!("%{byte:02x}"),
        }
    }
    folder
}

/// Decodes the result of [`escape`].
pub(crate) fn unescape(folder: &str) -> Option<String> {
    let mut name = Vec::new();
    let mut bytes = folder.bytes();
    while let Some(byte) = bytes.next() {
        name.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_of_a_source_becomes_the_name_of_a_directory() {
        for name in ["orders", "a/b", "..", "", "50 %", "größe", "x.y", ".hidden"] {
            let folder = escape(name);
            assert!(
                !folder.contains('/') && !folder.starts_with('.'),
                "{folder}"
            );
            assert_eq!(unescape(&folder).as_deref(), Some(name));
        }
    }
}
