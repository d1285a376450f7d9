//! Where recorded input lies, and for how long.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long recorded input is kept once no epoch needs it. It is removed in whole segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Not at all.
    #[default]
    Needed,
    /// So that about this many bytes are there, to be replayed.
    Bytes(u64),
    /// So that what was recorded within this time is there.
    Age(Duration),
    /// For ever.
    All,
}

/// Where the input of source `name` is recorded by a flow that keeps its state in `state`.
#[must_use]
pub fn place(state: impl AsRef<Path>, name: &str) -> PathBuf {
    state.as_ref().join("inputs").join(escape(name))
}

/// The sources whose input is recorded in a state directory, by name, and where.
///
/// # Errors
/// What the system says; a state directory without recorded input is none.
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

/// A name as that of a folder: all but letters, digits, `-`, `_` and a `.` that is not the first is `%` and two hexadecimal
/// digits for each byte.
#[must_use]
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

/// The name of which `escape` made this.
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
    fn any_name_of_a_source_is_the_name_of_a_folder() {
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
