//! The list of the files that were begun, in the order of each partition.
//!
//! It is a file of lines, `DIR/files/SOURCE`, which only grows while a run goes on. The first line is
//! `millstream directory 1 PARTITIONS`. Each other line is `PARTITION START FROM NAME`: at position `START` of the partition
//! the file of this name was begun at its byte `FROM`, or ended there where that is `end`. The name is written as [`escape`]
//! does. A line is there before the first byte of its file is read, and survives a loss of power before a position in the
//! file is committed.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use crate::durable::{escape, unescape};
use crate::error::Cause;
use crate::source::Position;

/// A file that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    /// Relative to the directory.
    pub(super) name: String,
    /// The position of the partition at which it begins.
    pub(super) start: Position,
    /// The byte of the file that this is.
    pub(super) from: u64,
}

/// What stands in the place of a byte where a file ends.
const END: &str = "end";

/// What one partition knows.
#[derive(Default)]
struct Known {
    /// The file that was begun last.
    current: Option<Begun>,
    /// How much was read of each file before it.
    read: HashMap<String, u64>,
}

impl Known {
    /// The current file ends at this position.
    fn end(&mut self, position: Position) {
        if let Some(Begun { name, start, from }) = self.current.take() {
            self.read.insert(name, from + (position - start));
        }
    }
}

/// The files that were begun.
pub(super) struct List {
    known: Vec<Known>,
    file: Option<(File, PathBuf)>,
}

impl List {
    /// Nothing was begun, and nothing is kept.
    pub(super) fn in_memory(partitions: usize) -> Self {
        List {
            known: (0..partitions).map(|_| Known::default()).collect(),
            file: None,
        }
    }

    /// The list of a source as it was when its partitions stood at these positions.
    pub(super) fn resume(
        state: &Path,
        source: &str,
        partitions: usize,
        committed: &[(&str, Position)],
    ) -> Result<Self, Cause> {
        let dir = state.join("files");
        let path = dir.join(escape(source));
        let named = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut list = List::in_memory(partitions);
        std::fs::create_dir_all(&dir).map_err(named)?;
        if !committed.is_empty() {
            let text = std::fs::read_to_string(&path).map_err(named)?;
            list.read(&text, committed)
                .map_err(|what| format!("{}: {what}", path.display()))?;
        }
        // What was begun later is begun again, whatever files there are then.
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
        let before = head.strip_prefix("millstream directory 1 ");
        let before = before.and_then(|count| count.parse::<usize>().ok());
        let before = before.ok_or("it is no list of files; it is damaged")?;
        if before != partitions {
            return Err(format!(
                "the directory was read in {before} partitions, and cannot be gone on with in {partitions}"
            ));
        }
        let mut ends = vec![0; partitions];
        for (name, position) in committed {
            let number = name.parse::<usize>().ok();
            let end = number.and_then(|number| ends.get_mut(number));
            *end.ok_or_else(|| format!("there is no partition {name}"))? = *position;
        }
        for line in lines {
            let mut members = line.splitn(4, ' ');
            let read = (|| {
                let number = members.next()?.parse::<usize>().ok()?;
                let start = members.next()?.parse().ok()?;
                let from = match members.next()? {
                    END => None,
                    from => Some(from.parse().ok()?),
                };
                let name = unescape(members.next()?)?;
                Some((number, start, from, name))
            })();
            let (number, start, from, name) = read
                .filter(|(number, ..)| *number < partitions)
                .ok_or_else(|| format!("the line {line:?} cannot be read; it is damaged"))?;
            if start <= ends[number] {
                self.known[number].end(start);
                self.known[number].current = from.map(|from| Begun { name, start, from });
            }
        }
        Ok(())
    }

    /// The list as text, with one line for each file of which something was read.
    fn text(&self) -> String {
        let mut text = format!("millstream directory 1 {}\n", self.known.len());
        for (number, known) in self.known.iter().enumerate() {
            // Where in the partition they were is past: only how long they were counts.
            let current = known.current.as_ref();
            let start = current.map_or(0, |current| current.start);
            let mut read: Vec<_> = known.read.iter().collect();
            read.sort();
            for (name, length) in read {
                // From its end on, so that it takes no positions.
                text += &line(number, start, &length.to_string(), name);
            }
            match current {
                Some(Begun { name, start, from }) => {
                    text += &line(number, *start, &from.to_string(), name);
                }
                None => text += &line(number, start, END, ""),
            }
        }
        text
    }

    /// The partition to which a file belongs.
    pub(super) fn partition_of(name: &str, partitions: usize) -> usize {
        (xxh3_64(name.as_bytes()) % partitions as u64) as usize
    }

    /// The file that a partition has begun and not ended.
    pub(super) fn current(&self, partition: usize) -> Option<Begun> {
        self.known.get(partition)?.current.clone()
    }

    /// How much was read of a file that is not being read; none when it was never begun.
    pub(super) fn read_of(&self, partition: usize, name: &str) -> Option<u64> {
        self.known.get(partition)?.read.get(name).copied()
    }

    /// A file is begun.
    pub(super) fn begin(&mut self, partition: usize, begun: &Begun) -> Result<(), Cause> {
        self.append(&line(
            partition,
            begun.start,
            &begun.from.to_string(),
            &begun.name,
        ))?;
        self.known[partition].current = Some(begun.clone());
        Ok(())
    }

    /// The file that a partition reads ends at this position of it.
    pub(super) fn end(&mut self, partition: usize, position: Position) -> Result<(), Cause> {
        self.append(&line(partition, position, END, ""))?;
        self.known[partition].end(position);
        Ok(())
    }

    fn append(&mut self, line: &str) -> Result<(), Cause> {
        if let Some((file, path)) = &mut self.file {
            let written = file.write_all(line.as_bytes());
            written.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }

    /// Another handle of the file of the list.
    pub(super) fn handle(&self) -> Result<Option<(File, PathBuf)>, Cause> {
        let Some((file, path)) = &self.file else {
            return Ok(None);
        };
        let again = file.try_clone();
        let again = again.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Some((again, path.clone())))
    }
}

fn line(partition: usize, start: Position, from: &str, name: &str) -> String {
    format!("{partition} {start} {from} {}\n", escape(name))
}
