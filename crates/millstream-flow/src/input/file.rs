//! Identifies a file by its place and its first bytes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::storage::Place;

/// The number of bytes that are compared.
const BYTES_MAX: usize = 4096;

/// Identifies a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct FileId {
    pub(super) place: Place,
    size: u64,
    /// The hashes (XXH3-64) of the first 1, 2, 4, ... 4,096 bytes, as far as the file has them.
    first: Vec<u64>,
    /// The hash of all of a shorter file.
    all: Option<u64>,
}

impl FileId {
    pub(super) fn of(path: &Path) -> Option<Self> {
        // A pipe would wait for its writer.
        if !std::fs::metadata(path).ok()?.is_file() {
            return None;
        }
        let file = File::open(path).ok()?;
        let about = file.metadata().ok()?;
        let mut bytes = Vec::new();
        file.take(BYTES_MAX as u64).read_to_end(&mut bytes).ok()?;
        let lengths = (0..).map(|power| 1 << power);
        let lengths = lengths.take_while(|length| *length <= bytes.len());
        Some(FileId {
            place: Place::of(path, &about),
            size: about.len().max(bytes.len() as u64),
            first: lengths.map(|length| xxh3_64(&bytes[..length])).collect(),
            all: (bytes.len() < BYTES_MAX).then(|| xxh3_64(&bytes)),
        })
    }

    pub(super) fn difference(&self, other: &FileId) -> Option<String> {
        if self.place.is_same(&other.place) {
            return None;
        }
        if let Some(bytes) = self.differs_within(other) {
            return Some(match bytes {
                1 => "their first bytes differ".to_owned(),
                _ => format!("their first {bytes} bytes differ"),
            });
        }
        if self.size == other.size {
            return if self.all == other.all {
                None
            } else {
                Some("their contents differ".to_owned())
            };
        }
        if self.place.may_be_shared(&other.place) {
            // It has grown between the two looks.
            None
        } else {
            Some(format!(
                "one has {} bytes and the other {}",
                self.size, other.size
            ))
        }
    }

    /// Whether the file that was known as `saved` has become this one: it has the same first bytes, and perhaps more.
    pub(super) fn continues(&self, saved: &FileId) -> bool {
        self.first.len() >= saved.first.len() && self.differs_within(saved).is_none()
    }

    /// The smallest number of first bytes that both have and that differ.
    fn differs_within(&self, other: &FileId) -> Option<u64> {
        let mut pairs = self.first.iter().zip(&other.first);
        let power = pairs.position(|(one, other)| one != other)?;
        Some(1 << power)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(folder: &Path, text: &str) -> FileId {
        let path = folder.join(format!("{:x}-{}", xxh3_64(text.as_bytes()), text.len()));
        std::fs::write(&path, text).expect("it is written");
        FileId::of(&path).expect("it is a file")
    }

    #[test]
    fn files_are_compared_by_place_and_contents() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |text: &str| id(folder.path(), text);
        let a = of("the same beginning, and a");
        assert_eq!(a.difference(&a.clone()), None);
        let differs = |other: &FileId| a.difference(other).expect("they differ");
        assert!(differs(&of("another beginning")).contains("first bytes differ"));
        assert!(differs(&of("the Same beginning, and a")).contains("first 8 bytes differ"));
        // After the last power of two that both have.
        assert!(differs(&of("the same beginning, and b")).contains("contents differ"));
        assert!(
            differs(&of("the same beginning, and a\nmore")).contains("25 bytes and the other 30")
        );
        assert!(differs(&of("")).contains("25 bytes and the other 0"));
        assert_eq!(FileId::of(folder.path()), None);
        assert_eq!(FileId::of(&folder.path().join("none")), None);
    }

    #[test]
    fn a_file_that_has_grown_is_the_one_that_was_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |text: &str| id(folder.path(), text);
        let saved = of("one\ntwo\n");
        assert!(of("one\ntwo\nthree\n").continues(&saved));
        assert!(of("one\n").continues(&of("")));
        for other in ["one\n", "1ne\ntwo\nthree\n", "one\ntwx\nthree\n"] {
            assert!(!of(other).continues(&saved), "{other:?}");
        }
    }
}
