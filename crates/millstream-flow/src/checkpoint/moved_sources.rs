//! What moves of the sources when a state is divided anew: positions, lists of files, ledgers of queues.
//!
//! Each partition was read by one process, which has its position. The new directories get the positions of all
//! partitions, and the runs on them use those of the partitions that they read. The recorded input of a durable source
//! stays with process 0 if that process reads all of the source before and after; else it must be processed, and the
//! source continues at its own positions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use millstream_journal::storage::create_dir_durably;

use super::directories::{Layout, names};
use super::record::{Commit, Division, SourceMark};
use super::store::failed;
use crate::durable::handed_on::{ended, own_position};
use crate::durable::{escape, recorded_input_dir, unescape};
use crate::error::{Cause, FlowError};

/// In the name of a list that process 0 keeps: the number of the process follows. No name of a source has it.
const OF_MACHINE: char = '@';

/// What moves of the sources.
#[derive(Default)]
pub(super) struct Moved {
    division: Option<Division>,
    /// The marks of durable sources that continue at their own positions; `None` for a partition that begins anew.
    converted: BTreeMap<(String, String), Option<SourceMark>>,
    /// The files of new directories.
    files: Vec<MovedFile>,
    /// The recorded input that is put aside: the directory, and where it is kept.
    pub(super) aside: Vec<(PathBuf, PathBuf)>,
}

/// A file of new directories.
struct MovedFile {
    /// The process whose directory gets it; `None`: all get it.
    process: Option<usize>,
    /// Its path in the directory.
    path: PathBuf,
    contents: Contents,
}

/// What a file has, or the directory of which it is a copy.
enum Contents {
    Text(String),
    CopyOf(PathBuf),
}

/// Finds what moves; `old` has the directory and the last commit of each process.
pub(super) fn of(old: &[(&Path, &Commit)], to: Layout) -> Result<Moved, FlowError> {
    let mut moved = Moved {
        division: old[0].1.division.clone(),
        ..Moved::default()
    };
    for (dir, commit) in old {
        let found = moved.convert(dir, commit, old, to);
        found.map_err(|cause| failed(dir, cause))?;
    }
    moved.check_ends(old)?;
    moved
        .merge_lists(old, to)
        .and_then(|()| moved.find_ledgers(old))
        .map_err(|cause| failed(old[0].0, cause))?;
    Ok(moved)
}

impl Moved {
    /// The process that read the partition of a mark; `None` if all processes have the mark.
    pub(super) fn reader(&self, mark: &SourceMark) -> Option<usize> {
        self.reader_of(&mark.source, &mark.partition)
    }

    fn reader_of(&self, source: &str, partition: &str) -> Option<usize> {
        self.division.as_ref()?.reader(source, partition)
    }

    /// The mark as the new directories get it.
    pub(super) fn mark(&self, mark: &SourceMark) -> Option<SourceMark> {
        let key = (mark.source.clone(), mark.partition.clone());
        match self.converted.get(&key) {
            Some(converted) => converted.clone(),
            None => Some(mark.clone()),
        }
    }

    /// Whether only process 0 gets a mark, as it keeps the recorded input.
    pub(super) fn is_of_first(&self, mark: &SourceMark) -> bool {
        let key = (mark.source.clone(), mark.partition.clone());
        mark.recorded && !self.converted.contains_key(&key)
    }

    /// Finds the own positions of the durable sources whose partitions other processes may read from now on.
    fn convert(
        &mut self,
        dir: &Path,
        commit: &Commit,
        old: &[(&Path, &Commit)],
        to: Layout,
    ) -> Result<(), Cause> {
        let number = old.iter().position(|(other, _)| *other == dir);
        let mut sources = BTreeSet::new();
        for mark in commit.sources.iter().filter(|mark| mark.recorded) {
            if self.stays(&mark.source, commit, old.len(), to) {
                continue;
            }
            sources.insert(mark.source.as_str());
            let key = (mark.source.clone(), mark.partition.clone());
            if self.converted.contains_key(&key)
                || self
                    .reader(mark)
                    .is_some_and(|reader| Some(reader) != number)
            {
                continue;
            }
            let path = recorded_input_dir(dir, &mark.source);
            if !path.exists() {
                // No run has begun since the state was divided last.
                self.converted.insert(key, Some(mark.clone()));
                continue;
            }
            let own = own_position(&path, &mark.partition, &mark.position)?;
            let (position, recorded) = if own.has_ended && !commit.finished {
                (Some(ended()), true)
            } else {
                (own.position, false)
            };
            let converted = position.map(|position| SourceMark {
                position,
                recorded,
                ..mark.clone()
            });
            self.converted.insert(key, converted);
        }
        for source in sources {
            let path = recorded_input_dir(dir, source);
            if path.exists() {
                let name = dir.file_name().unwrap_or_default().to_string_lossy();
                let above = match old[0].1.division {
                    Some(_) => dir.parent().unwrap_or(dir),
                    None => dir,
                };
                let kept = above.join(format!("inputs-{}", commit.epoch));
                self.aside
                    .push((path, kept.join(format!("{name}.{}", escape(source)))));
            }
        }
        Ok(())
    }

    /// Whether process 0 reads all partitions of a source before and after.
    fn stays(&self, source: &str, commit: &Commit, from: usize, to: Layout) -> bool {
        let known = match &self.division {
            Some(division) => division.partitions_of(source).len(),
            None => 0,
        };
        let marks = commit.sources.iter();
        let marks = marks.filter(|mark| mark.source == source).count();
        known.max(marks) <= 1 || (from == 1 && to.processes() == 1)
    }

    /// Checks that of each source that continues at its own positions no or all partitions have ended: a run knows the
    /// ends from its recorded input only.
    fn check_ends(&self, old: &[(&Path, &Commit)]) -> Result<(), FlowError> {
        for (source, _) in self.converted.keys() {
            let marks = self.converted.iter().filter(|((of, _), _)| of == source);
            let ends: Vec<bool> = marks
                .map(|(_, mark)| mark.as_ref().is_some_and(|mark| mark.recorded))
                .collect();
            if ends.contains(&true) && ends.contains(&false) {
                let cause = format!(
                    "some partitions of the durable source \"{source}\" have ended and others not; start the flow once more as before, \
                     and stop it when all or none have"
                );
                return Err(failed(old[0].0, cause));
            }
        }
        Ok(())
    }

    /// Merges the lists of files of directory sources: the lines of each partition from the process that read it.
    fn merge_lists(&mut self, old: &[(&Path, &Commit)], to: Layout) -> Result<(), Cause> {
        let mut lists: BTreeMap<String, String> = BTreeMap::new();
        let local = old.iter().flat_map(|(_, commit)| &commit.sources);
        let local = local.filter(|mark| mark.local.is_some());
        let local: BTreeSet<&str> = local.map(|mark| mark.source.as_str()).collect();
        for (number, (dir, _)) in old.iter().enumerate() {
            for name in names(&dir.join("files"))? {
                let (own, of) = match name.split_once(OF_MACHINE) {
                    Some((own, of)) => (own, of.parse().ok()),
                    None => (name.as_str(), None),
                };
                let Some(source) = unescape(own).filter(|_| !name.starts_with('.')) else {
                    continue;
                };
                let text = fs::read_to_string(dir.join("files").join(&name))?;
                if local.contains(source.as_str()) {
                    self.files
                        .push(list_of_machine(own, of.unwrap_or(number), text, to));
                    continue;
                }
                let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
                let mut lines = whole.split_inclusive('\n');
                let head = lines.next().unwrap_or_default();
                let merged = lists.entry(name).or_insert_with(|| head.to_owned());
                for line in lines {
                    let partition = line.split(' ').next().unwrap_or_default();
                    if self.reader_of(&source, partition).unwrap_or(0) == number {
                        merged.push_str(line);
                    }
                }
            }
        }
        let lists = lists.into_iter();
        self.files.extend(lists.map(|(name, text)| MovedFile {
            process: None,
            path: Path::new("files").join(name),
            contents: Contents::Text(text),
        }));
        Ok(())
    }

    /// Finds the ledgers of queues, each in the directory of the process that read the queue.
    fn find_ledgers(&mut self, old: &[(&Path, &Commit)]) -> Result<(), Cause> {
        for (number, (dir, _)) in old.iter().enumerate() {
            for name in names(&dir.join("queues"))? {
                let source = unescape(&name).unwrap_or_default();
                for queue in names(&dir.join("queues").join(&name))? {
                    if self.reader_of(&source, &queue).unwrap_or(0) == number {
                        let path = Path::new("queues").join(&name).join(&queue);
                        let contents = Contents::CopyOf(dir.join(&path));
                        // Queues are read by process 0.
                        self.files.push(MovedFile {
                            process: Some(0),
                            path,
                            contents,
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the files of the new directory of `process`, durably.
    pub(super) fn write_files(&self, dir: &Path, process: usize) -> Result<(), Cause> {
        let files = self.files.iter();
        for file in files.filter(|file| file.process.is_none_or(|of| of == process)) {
            let path = dir.join(&file.path);
            match &file.contents {
                Contents::Text(text) => {
                    create_dir_durably(path.parent().unwrap_or(dir))?;
                    fs::write(&path, text)?;
                    File::open(&path)?.sync_all()?;
                    File::open(path.parent().unwrap_or(dir))?.sync_all()?;
                }
                Contents::CopyOf(from) => copy(from, &path)?,
            }
        }
        Ok(())
    }
}

/// The list of the files of a directory that process `of` reads from its own machine. Process 0 keeps that of a machine
/// that is gone.
fn list_of_machine(name: &str, of: usize, text: String, to: Layout) -> MovedFile {
    let is_there = of < to.processes();
    let name = if is_there {
        name.to_owned()
    } else {
        format!("{name}{OF_MACHINE}{of}")
    };
    MovedFile {
        process: Some(if is_there { of } else { 0 }),
        path: Path::new("files").join(name),
        contents: Contents::Text(text),
    }
}

/// Copies a directory, durably.
fn copy(from: &Path, to: &Path) -> Result<(), Cause> {
    create_dir_durably(to)?;
    for name in names(from)? {
        let from = from.join(&name);
        let to = to.join(&name);
        if from.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
            File::open(&to)?.sync_all()?;
        }
    }
    File::open(to)?.sync_all()?;
    Ok(())
}
