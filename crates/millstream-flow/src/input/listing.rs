//! The files of a directory that match a pattern.

use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use glob::{MatchOptions, Pattern};

use crate::error::Cause;

/// A file that matches.
pub(crate) struct Found {
    /// The path relative to the directory.
    pub(crate) name: String,
    pub(crate) length: u64,
    pub(crate) modified: Option<SystemTime>,
}

/// The files that match, in the order of their names.
pub(crate) fn scan(dir: &Path, pattern: &str) -> Result<Vec<Found>, Cause> {
    // A missing directory is an error, though the pattern would simply match nothing in it.
    std::fs::read_dir(dir).map_err(|error| {
        std::io::Error::new(error.kind(), format!("{}: {error}", dir.display()))
    })?;
    let text = dir.to_str();
    let text = text.ok_or_else(|| format!("{}: its name is not UTF-8", dir.display()))?;
    // Paths that match come without a leading `./` of the directory.
    let dir: PathBuf = Path::new(text)
        .components()
        .filter(|part| *part != Component::CurDir)
        .collect();
    let whole = match dir.to_str() {
        None | Some("") => pattern.to_owned(),
        Some(text) => format!("{}/{pattern}", Pattern::escape(text)),
    };
    let options = MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let paths = glob::glob_with(&whole, options);
    let paths = paths.map_err(|error| format!("the pattern {pattern:?}: {error}"))?;
    let mut found = Vec::new();
    for path in paths {
        let path = path.map_err(|error| Cause::from(error.to_string()))?;
        // A file that was removed after its name was read does not match.
        let Ok(about) = std::fs::metadata(&path) else {
            continue;
        };
        if !about.is_file() {
            continue;
        }
        let named = |what| format!("{}: {what}", path.display());
        let name = path.strip_prefix(&dir);
        let name = name
            .map_err(|_| named("it is not in the directory"))?
            .to_str();
        let name = name.ok_or_else(|| named("its name is not UTF-8"))?;
        found.push(Found {
            name: name.to_owned(),
            length: about.len(),
            modified: about.modified().ok(),
        });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}
