//! Finds the journals in directories and below.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sections::journal_figures::JournalKind;

/// The number of journals that are watched; further ones are not found.
const FOUND_MAX: usize = 10_000;
/// The number of directories below each other that are searched.
const DEPTH_MAX: usize = 4;

/// A journal on the disk.
pub(super) struct Place {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) kind: JournalKind,
}

/// Returns the journals of all roots, each by the name of its root and the path below it.
pub(super) fn discover(roots: &[(String, PathBuf)]) -> Vec<Place> {
    let mut places = Vec::new();
    for (name, path) in roots {
        search(name, path, JournalKind::Journal, 0, &mut places);
    }
    places
}

/// Whether a directory is a journal: it has segments, or was about to get one.
fn is_journal(path: &Path) -> bool {
    path.join("control").is_file()
        || path.join("segment-0000000000.log").is_file()
        || path.join("start").is_file()
}

fn search(name: &str, path: &Path, kind: JournalKind, depth: usize, places: &mut Vec<Place>) {
    if places.len() >= FOUND_MAX {
        return;
    }
    if is_journal(path) {
        let kind = if path.join("is-copy").exists() {
            JournalKind::Copy
        } else {
            kind
        };
        places.push(Place {
            name: name.to_owned(),
            path: path.to_owned(),
            kind,
        });
        return;
    }
    let kind = kind_below(path, kind);
    let Ok(entries) = fs::read_dir(path) else {
        return;
    };
    let mut below: Vec<(String, PathBuf)> = entries
        .flatten()
        // A link may lead back.
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                entry.path(),
            )
        })
        .collect();
    below.sort_unstable();
    if depth < DEPTH_MAX {
        for (part, path) in below {
            search(&format!("{name}/{part}"), &path, kind, depth + 1, places);
        }
    }
}

/// What the journals below a directory are.
fn kind_below(path: &Path, kind: JournalKind) -> JournalKind {
    if is_journal(&path.join("epochs")) {
        return JournalKind::State;
    }
    if kind == JournalKind::Journal && path.join(".lock").is_file() {
        JournalKind::Queue
    } else {
        kind
    }
}
