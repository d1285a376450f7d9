//! Identifies the files of a directory by its place, their names and their first bytes.

use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::file::FileId;
use super::listing::scan;
use super::storage::Place;

/// The number of files that are compared: those whose names have the smallest hashes, which are mostly the same at two
/// looks.
const FILES_MAX: usize = 64;

/// Identifies the files of a directory that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct DirectoryId {
    pub(super) place: Place,
    follows: bool,
    count: u64,
    /// The hashes of all names, joined without an order.
    names: u64,
    /// Some of them.
    files: Vec<(String, FileId)>,
}

impl DirectoryId {
    pub(super) fn of(path: &Path, pattern: &str, follows: bool) -> Option<Self> {
        let about = std::fs::metadata(path).ok()?;
        let found = scan(path, pattern).ok()?;
        let names = found.iter().map(|found| &found.name);
        let hashed = names.map(|name| (xxh3_64(name.as_bytes()), name));
        let mut hashed: Vec<(u64, &String)> = hashed.collect();
        hashed.sort_unstable();
        let some = hashed.iter().take(FILES_MAX);
        let some =
            some.filter_map(|(_, name)| Some(((*name).clone(), FileId::of(&path.join(name))?)));
        Some(DirectoryId {
            place: Place::of(path, &about),
            follows,
            count: hashed.len() as u64,
            names: hashed.iter().fold(0, |all, (hash, _)| all ^ hash),
            files: some.collect(),
        })
    }

    pub(super) fn difference(&self, other: &DirectoryId) -> Option<String> {
        if self.place.is_same(&other.place) {
            return None;
        }
        let mut has_common = false;
        for (name, file) in &self.files {
            let Some((_, theirs)) = other.files.iter().find(|(known, _)| known == name) else {
                continue;
            };
            if let Some(difference) = file.difference(theirs) {
                return Some(format!("of the files {name} {difference}"));
            }
            has_common = true;
        }
        let has_files = self.count > 0 && other.count > 0;
        if self.place.may_be_shared(&other.place) && (has_common || !has_files) {
            // Files may have come between the two looks.
            return None;
        }
        if (self.count, self.names) != (other.count, other.names) {
            let only = |one: &DirectoryId, other: &DirectoryId| {
                let mut names = one.files.iter().map(|(name, _)| name);
                names
                    .find(|name| other.files.iter().all(|(known, _)| known != *name))
                    .cloned()
            };
            return Some(match only(self, other).or_else(|| only(other, self)) {
                Some(name) => format!("only one of them has the file {name}"),
                None => format!("one has {} files and the other {}", self.count, other.count),
            });
        }
        if self.follows || other.follows || self.count == 0 {
            Some("each has a directory of its own, to which other files may come".to_owned())
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_compared_by_place_and_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |directory: &str, files: &[(&str, &str)], follows| {
            let path = folder.path().join(directory);
            std::fs::create_dir_all(&path).expect("it is made");
            for (name, text) in files {
                std::fs::write(path.join(name), text).expect("it is written");
            }
            DirectoryId::of(&path, "*.log", follows).expect("it is a directory")
        };
        let a = of(
            "a",
            &[("1.log", "one"), ("2.log", "two"), ("x.txt", "x")],
            false,
        );
        // It has grown meanwhile.
        assert_eq!(a.difference(&of("a", &[("3.log", "three")], true)), None);
        let copy = [("1.log", "one"), ("2.log", "two")];
        assert_eq!(a.difference(&of("copy", &copy, false)), None);
        let differs = |other: DirectoryId| a.difference(&other).expect("they differ");
        assert!(differs(of("copy", &[], true)).contains("a directory of its own"));
        assert!(differs(of("copy", &[("3.log", "")], false)).contains("has the file 3.log"));
        assert!(differs(of("b", &[("1.log", "ONE")], false)).contains("1.log their first bytes"));
        let empty = [of("c", &[], false), of("d", &[], false)];
        assert!(empty[0].difference(&empty[1]).is_some());
        assert_eq!(
            DirectoryId::of(&folder.path().join("none"), "*", false),
            None
        );
    }
}
