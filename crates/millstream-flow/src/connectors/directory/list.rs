//! The list of the files that were begun, in the order of each partition.
//!
//! It is a file of lines, `DIR/files/SOURCE`, which only grows during a run. The first line is `millstream
//! directory 1 PARTITIONS`. Each other line is `PARTITION START FROM BEGINNING NAME`: at position `START` of
//! the partition the file of this name was begun at its byte `FROM`; or `PARTITION START end`: the file ended there.
//! `BEGINNING` describes the first bytes of the file; for a compressed file its size at that time follows after a `:`.
//! The name is written by [`escape`]. A line is written before the first byte of its file is read, and survives a loss
//! of power before a position in the file is committed.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use millstream_journal::storage::create_dir_durably;
use xxhash_rust::xxh3::xxh3_64;

use crate::connectors::first_bytes::FirstBytes;
use crate::durable::{escape, unescape};
use crate::error::{Cause, context};
use crate::source::Position;

/// A file that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    /// The path relative to the directory.
    pub(super) name: String,
    /// The position of the partition at which it begins.
    pub(super) start: u64,
    /// The byte of the file at that position.
    pub(super) from: u64,
    /// The first bytes of the file.
    pub(super) first_bytes: FirstBytes,
    /// The size of a compressed file at that time.
    pub(super) size: Option<u64>,
}

/// A file that is not being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// The number of bytes that were read.
    pub(super) read: u64,
    pub(super) first_bytes: FirstBytes,
    pub(super) size: Option<u64>,
}

/// The version of a list.
const VERSION: &str = "1";
/// The text in place of a byte where a file ends.
const END: &str = "end";

/// The files of one partition.
#[derive(Default)]
struct Known {
    /// The file that was begun last.
    current: Option<Begun>,
    /// The files before it, by name.
    read: HashMap<String, Ended>,
}

impl Known {
    /// Ends the current file at this position.
    fn end(&mut self, position: u64) {
        if let Some(begun) = self.current.take() {
            let ended = Ended {
                read: begun.from + (position - begun.start),
                first_bytes: begun.first_bytes,
                size: begun.size,
            };
            self.read.insert(begun.name, ended);
        }
    }
}

/// The files that were begun, for each partition.
pub(super) struct List {
    known: Vec<Known>,
    file: Option<(File, PathBuf)>,
}

impl List {
    /// Creates an empty list that is not stored.
    pub(super) fn in_memory(partitions: usize) -> Self {
        List {
            known: (0..partitions).map(|_| Known::default()).collect(),
            file: None,
        }
    }

    /// Reads the list of a source, as it was at these positions of its partitions.
    pub(super) fn resume(
        state: &Path,
        source: &str,
        partitions: usize,
        committed: &[(&str, Position)],
    ) -> Result<Self, Cause> {
        let dir = state.join("files");
        let path = dir.join(escape(source));
        let named = |error: std::io::Error| context(path.display(), error);
        let mut list = List::in_memory(partitions);
        create_dir_durably(&dir).map_err(named)?;
        if !committed.is_empty() {
            let text = std::fs::read_to_string(&path).map_err(named)?;
            list.read(&text, committed)
                .map_err(|what| format!("{}: {what}", path.display()))?;
        }
        // Files that were begun later are begun again, with the files that exist then.
        let next = dir.join(format!(".{}.next", escape(source)));
        std::fs::write(&next, list.text()).map_err(named)?;
        let mut file = OpenOptions::new().write(true).open(&next).map_err(named)?;
        file.sync_all().map_err(named)?;
        std::fs::rename(&next, &path).map_err(named)?;
        let synced = File::open(&dir).and_then(|dir| dir.sync_all());
        synced.map_err(named)?;
        file.seek(SeekFrom::End(0)).map_err(named)?;
        list.file = Some((file, path));
        Ok(list)
    }

    /// Reads the lines up to the committed positions.
    fn read(&mut self, text: &str, committed: &[(&str, Position)]) -> Result<(), String> {
        let partitions = self.known.len();
        // A last line without an end was being written when the process died.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = whole.lines();
        let head = lines.next().unwrap_or_default();
        let head = head.strip_prefix("millstream directory ");
        let (version, before) = head
            .and_then(|head| head.split_once(' '))
            .ok_or("it is not a list of files; it is damaged")?;
        if version != VERSION {
            return Err(format!("version {version}, this program reads {VERSION}"));
        }
        let before = before.parse::<usize>().ok();
        let before = before.ok_or("it is not a list of files; it is damaged")?;
        if before != partitions {
            return Err(format!(
                "the directory was read in {before} partitions, and cannot resume with {partitions}"
            ));
        }
        let mut ends = vec![None; partitions];
        for (name, position) in committed {
            let number = name.parse::<usize>().ok();
            let end = number.and_then(|number| ends.get_mut(number));
            let end = end.ok_or_else(|| format!("there is no partition {name}"))?;
            let position = position.require_number();
            *end = Some(position.map_err(|error| format!("partition {name}: {error}"))?);
        }
        for line in lines {
            let (number, start, begun) = read_line(line)
                .filter(|(number, ..)| *number < partitions)
                .ok_or_else(|| format!("the line {line:?} cannot be read; it is damaged"))?;
            if ends[number].is_some_and(|end| start <= end) {
                self.known[number].end(start);
                self.known[number].current = begun;
            }
        }
        Ok(())
    }

    /// Formats the list, with one line for each file of which bytes were read.
    fn text(&self) -> String {
        let mut text = format!("millstream directory {VERSION} {}\n", self.known.len());
        for (number, known) in self.known.iter().enumerate() {
            // For ended files only the number of bytes counts, not their positions in the partition.
            let current = known.current.as_ref();
            let start = current.map_or(0, |current| current.start);
            let mut read: Vec<_> = known.read.iter().collect();
            read.sort_by_key(|(name, _)| *name);
            for (name, ended) in read {
                // The line begins at the end of the file, so that it takes no positions.
                let begun = Begun {
                    name: name.clone(),
                    start,
                    from: ended.read,
                    first_bytes: ended.first_bytes,
                    size: ended.size,
                };
                text += &begin_line(number, &begun);
            }
            text += &match current {
                Some(begun) => begin_line(number, begun),
                None => end_line(number, start),
            };
        }
        text
    }

    /// Returns the partition to which a file belongs.
    pub(super) fn partition_of(name: &str, partitions: usize) -> usize {
        (xxh3_64(name.as_bytes()) % partitions as u64) as usize
    }

    /// Returns the file that a partition has begun and not ended.
    pub(super) fn current(&self, partition: usize) -> Option<Begun> {
        self.known.get(partition)?.current.clone()
    }

    /// Returns a file that is not being read; `None` if it was never begun.
    pub(super) fn read_of(&self, partition: usize, name: &str) -> Option<Ended> {
        self.known.get(partition)?.read.get(name).copied()
    }

    /// Adds a line for a file that is begun.
    pub(super) fn begin(&mut self, partition: usize, begun: &Begun) -> Result<(), Cause> {
        self.append(&begin_line(partition, begun))?;
        self.known[partition].end(begun.start);
        self.known[partition].current = Some(begun.clone());
        Ok(())
    }

    /// Adds a line for the end of the current file of a partition, at this position.
    pub(super) fn end(&mut self, partition: usize, position: u64) -> Result<(), Cause> {
        self.append(&end_line(partition, position))?;
        self.known[partition].end(position);
        Ok(())
    }

    fn append(&mut self, line: &str) -> Result<(), Cause> {
        if let Some((file, path)) = &mut self.file {
            let written = file.write_all(line.as_bytes());
            written.map_err(|error| context(path.display(), error))?;
        }
        Ok(())
    }

    /// Returns another handle of the file of the list.
    pub(super) fn handle(&self) -> Result<Option<(File, PathBuf)>, Cause> {
        let Some((file, path)) = &self.file else {
            return Ok(None);
        };
        let again = file.try_clone();
        let again = again.map_err(|error| context(path.display(), error))?;
        Ok(Some((again, path.clone())))
    }
}

fn begin_line(partition: usize, begun: &Begun) -> String {
    let Begun {
        start,
        from,
        first_bytes,
        ..
    } = begun;
    let size = begun.size.map_or(String::new(), |size| format!(":{size}"));
    let name = escape(&begun.name);
    format!("{partition} {start} {from} {first_bytes}{size} {name}\n")
}

fn end_line(partition: usize, position: u64) -> String {
    format!("{partition} {position} {END}\n")
}

/// Parses a line: the partition, the position, and the file that begins there, if one does.
fn read_line(line: &str) -> Option<(usize, u64, Option<Begun>)> {
    let mut members = line.split(' ');
    let number = members.next()?.parse().ok()?;
    let start = members.next()?.parse().ok()?;
    let from = members.next()?;
    if from == END {
        return members.next().is_none().then_some((number, start, None));
    }
    let (first_bytes, size) = read_beginning(members.next()?)?;
    let begun = Begun {
        name: unescape(members.next()?)?,
        start,
        from: from.parse().ok()?,
        first_bytes,
        size,
    };
    members
        .next()
        .is_none()
        .then_some((number, start, Some(begun)))
}

/// Parses the description of the first bytes, and the size if it has one.
fn read_beginning(text: &str) -> Option<(FirstBytes, Option<u64>)> {
    match text.match_indices(':').nth(1) {
        Some((colon, _)) => {
            let size = text[colon + 1..].parse().ok()?;
            Some((text[..colon].parse().ok()?, Some(size)))
        }
        None => Some((text.parse().ok()?, None)),
    }
}
