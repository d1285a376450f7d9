//! Which files belong to which queue.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The server that wrote the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file for each queue; `QUEUE.<epoch>` are leftovers of rotation.
    Starling,
    /// `QUEUE.<ms>` in ascending order, then `QUEUE`; a `QUEUE.<ms>.pack` replaces all files up to that time.
    Kestrel,
}

impl std::str::FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "starling" => Ok(Source::Starling),
            "kestrel" => Ok(Source::Kestrel),
            _ => Err(format!("\"{text}\" is neither starling nor kestrel")),
        }
    }
}

/// The files in the directory of an old server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueFiles {
    /// The files of each queue, in the order in which they must be read.
    pub queues: BTreeMap<String, Vec<PathBuf>>,
    /// Files whose names are not UTF-8, and so cannot be names of queues.
    pub nameless: Vec<PathBuf>,
}

/// Finds the files of each queue.
///
/// # Errors
/// The directory cannot be read.
pub fn find(folder: &Path, source: Source) -> io::Result<QueueFiles> {
    let mut names = Vec::new();
    let mut nameless = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            match entry.file_name().into_string() {
                Ok(name) => names.push(name),
                Err(_) => nameless.push(entry.path()),
            }
        }
    }
    let files = match source {
        Source::Starling => starling(names),
        Source::Kestrel => kestrel(names),
    };
    let paths = |names: Vec<String>| names.into_iter().map(|name| folder.join(name)).collect();
    nameless.sort_unstable();
    Ok(QueueFiles {
        queues: files
            .into_iter()
            .map(|(queue, names)| (queue, paths(names)))
            .collect(),
        nameless,
    })
}

fn starling(names: Vec<String>) -> BTreeMap<String, Vec<String>> {
    let rotated = |name: &str| {
        let parts = name.rsplit_once('.');
        parts.is_some_and(|(_, epoch)| {
            !epoch.is_empty() && epoch.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    names
        .into_iter()
        .filter(|name| !rotated(name))
        .map(|name| (name.clone(), vec![name]))
        .collect()
}

/// A file of Kestrel: the part of its name after the queue's. The last file has no time.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    ms: u64,
    packed: bool,
    name: String,
}

fn kestrel(names: Vec<String>) -> BTreeMap<String, Vec<String>> {
    let mut queues: BTreeMap<String, Vec<Part>> = BTreeMap::new();
    for name in names.into_iter().filter(|name| !name.contains("~~")) {
        let (queue, rest) = name.split_once('.').unwrap_or((&name, ""));
        let (ms, packed) = match rest.strip_suffix(".pack") {
            Some(ms) => (ms.parse().ok(), true),
            None if rest.is_empty() => (Some(u64::MAX), false),
            None => (rest.parse().ok(), false),
        };
        if let Some(ms) = ms {
            let queue = queue.to_owned();
            queues
                .entry(queue)
                .or_default()
                .push(Part { ms, packed, name });
        }
    }
    let in_order = |mut parts: Vec<Part>| {
        parts.sort();
        let from = parts.iter().rposition(|part| part.packed).unwrap_or(0);
        parts.into_iter().skip(from).map(|part| part.name).collect()
    };
    queues
        .into_iter()
        .map(|(queue, parts)| (queue, in_order(parts)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn kestrels_files_are_read_in_order_and_a_pack_replaces_the_older_ones() {
        let found = kestrel(owned(&[
            "q",
            "q.20",
            "q.3",
            "q.20.pack",
            "q.21",
            "r",
            "r~~5",
            "s.1",
            "q.x",
        ]));
        let expected = [
            ("q", vec!["q.20.pack", "q.21", "q"]),
            ("r", vec!["r"]),
            ("s", vec!["s.1"]),
        ];
        assert_eq!(
            found,
            expected
                .map(|(queue, names)| (queue.to_owned(), owned(&names)))
                .into()
        );
    }

    #[test]
    fn starlings_leftovers_are_passed_over() {
        let found = starling(owned(&["q", "q.1234", "a.b"]));
        assert_eq!(found.into_keys().collect::<Vec<_>>(), ["a.b", "q"]);
    }
}
