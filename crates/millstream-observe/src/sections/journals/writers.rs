//! The processes that have a journal open to write, from the system's table of locks: looking into it takes none.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The processes that have files locked, by the numbers of the files.
#[derive(Default)]
pub(super) struct Locks(HashMap<u64, Vec<u32>>);

/// Reads the table of the system; empty where there is none.
pub(super) fn locks() -> Locks {
    parse(&fs::read_to_string("/proc/locks").unwrap_or_default())
}

/// Lines like `1: FLOCK  ADVISORY  WRITE 23991 fe:00:9978191 0 EOF`.
fn parse(table: &str) -> Locks {
    let mut locks = Locks::default();
    for line in table.lines() {
        let mut words = line.split_whitespace().skip(4);
        let (Some(process), Some(file)) = (words.next(), words.next()) else {
            continue;
        };
        let number = file.rsplit(':').next().and_then(|last| last.parse().ok());
        if let (Ok(process), Some(number)) = (process.parse(), number) {
            locks.0.entry(number).or_default().push(process);
        }
    }
    locks
}

impl Locks {
    /// The processes that have the journal in this directory open to write.
    pub(super) fn writers(&self, path: &Path) -> Vec<u32> {
        let mut files = vec![path.join("control")];
        if let Ok(entries) = fs::read_dir(path.join("writers")) {
            files.extend(entries.flatten().map(|entry| entry.path()));
        }
        let numbers = files.iter().filter_map(|file| fs::metadata(file).ok());
        let mut writers: Vec<u32> = numbers
            .filter_map(|file| self.0.get(&file.ino()))
            .flatten()
            .copied()
            .collect();
        writers.sort_unstable();
        writers.dedup();
        writers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_locks_has_files_and_processes() {
        let locks = parse(
            "1: FLOCK  ADVISORY  WRITE 23991 fe:00:77 0 EOF\n1: -> FLOCK x\nnonsense\n2: FLOCK  ADVISORY  READ 5 fe:00:77 0 EOF\n",
        );
        assert_eq!(locks.0[&77], [23991, 5]);
        assert_eq!(locks.0.len(), 1);
    }
}
