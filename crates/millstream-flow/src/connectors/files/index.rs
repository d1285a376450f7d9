//! The index of a directory with a file for each key: the length of each file at the end of each epoch.
//!
//! It is a file of lines, `.millstream-keys-POSITION`, which only grows. The first line names the format. Each
//! other line is `LENGTH CHECK NAME`, and the last line of a name counts; `CHECK` is the kind of the key (see
//! `key_name`). A line with length 0 is written before a file is created, so that a file which was created and
//! not committed is found after a crash.
//!
//! Positions continue from one index file to the next, so that one number identifies both the file and the
//! length of it that counts: a file is named by the position of its first byte. When most lines are superseded,
//! a new file begins with one line for each name, and the old file is removed when a position in the new one is
//! committed.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use crate::error::{Cause, context};
use crate::named::DROP_STATE;

const PREFIX: &str = ".millstream-keys-";
/// Begins the first line, which ends with the version.
const FORMAT: &str = "millstream keys ";
const VERSION: &str = "1";

/// The files in an index: by name, the check of the key and the length.
pub(super) type Listed = IndexMap<String, (String, u64)>;

/// Returns an error with its path.
pub(super) fn named(path: &Path) -> impl Fn(std::io::Error) -> Cause + '_ {
    move |error| context(path.display(), error)
}

/// An index that is open for writing.
pub(super) struct Index {
    dir: PathBuf,
    base: u64,
    /// The number of bytes of the file.
    length: u64,
    file: File,
    /// Files that this one has superseded.
    superseded: Vec<PathBuf>,
}

impl Index {
    /// Creates a new file at position `base`.
    fn create(dir: &Path, base: u64) -> Result<Self, Cause> {
        let path = path_of(dir, base);
        let mut file = File::create(&path).map_err(named(&path))?;
        let head = format!("{FORMAT}{VERSION}\n");
        file.write_all(head.as_bytes()).map_err(named(&path))?;
        Ok(Index {
            dir: dir.to_owned(),
            base,
            length: head.len() as u64,
            file,
            superseded: Vec::new(),
        })
    }

    /// Creates an index in a directory that contains nothing else.
    pub(super) fn begin(dir: &Path) -> Result<Self, Cause> {
        Self::create(dir, 0)
    }

    /// Opens the index as it was at `position`; returns it with the files that it listed then, and the names of
    /// files that were listed later.
    pub(super) fn resume(dir: &Path, position: u64) -> Result<(Self, Listed, Vec<String>), Cause> {
        let bases = bases(dir)?;
        let base = bases.iter().copied().filter(|base| *base < position).max();
        let Some(base) = base else {
            return Err(format!(
                "{}: the index of its files is missing; put the directory back, or drop the state of the sink ({DROP_STATE}) to start again",
                dir.display()
            )
            .into());
        };
        let path = path_of(dir, base);
        let bytes = std::fs::read(&path).map_err(named(&path))?;
        let length = position - base;
        let Some(committed) = bytes.get(..length as usize) else {
            let found = bytes.len();
            return Err(format!(
                "{}: it has {found} bytes, fewer than the {length} that were committed; put it back, or drop the state of the sink ({DROP_STATE}) to start again",
                path.display()
            )
            .into());
        };
        let mut listed = Listed::new();
        read(&path, committed, &mut listed)?;
        let mut all = Listed::new();
        read(&path, &bytes[length as usize..], &mut all)?;
        for other in bases.into_iter().filter(|other| *other != base) {
            let path = path_of(dir, other);
            if other > base {
                let bytes = std::fs::read(&path).map_err(named(&path))?;
                read(&path, &bytes, &mut all)?;
            }
            std::fs::remove_file(&path).map_err(named(&path))?;
        }
        let later = all.into_keys();
        let later = later.filter(|name| !listed.contains_key(name)).collect();
        let file = OpenOptions::new().write(true).open(&path);
        let mut file = file.map_err(named(&path))?;
        file.set_len(length).map_err(named(&path))?;
        file.seek(SeekFrom::Start(length)).map_err(named(&path))?;
        let index = Index {
            dir: dir.to_owned(),
            base,
            length,
            file,
            superseded: Vec::new(),
        };
        Ok((index, listed, later))
    }

    /// Returns the position of the end of the index.
    pub(super) fn position(&self) -> u64 {
        self.base + self.length
    }

    /// Appends lines.
    pub(super) fn append(&mut self, lines: &str) -> Result<(), Cause> {
        let path = path_of(&self.dir, self.base);
        self.file
            .write_all(lines.as_bytes())
            .map_err(named(&path))?;
        self.length += lines.len() as u64;
        Ok(())
    }

    /// True if the index is much longer than `lines` lines need.
    pub(super) fn is_long(&self, lines: usize) -> bool {
        self.length > 64 * 1024 + 256 * lines as u64
    }

    /// Continues in a new file, which begins with `lines`.
    pub(super) fn renew(&mut self, lines: &str) -> Result<(), Cause> {
        let mut next = Self::create(&self.dir, self.position())?;
        next.append(lines)?;
        next.superseded = std::mem::take(&mut self.superseded);
        next.superseded.push(path_of(&self.dir, self.base));
        *self = next;
        Ok(())
    }

    /// Makes the appended lines survive a loss of power.
    pub(super) fn sync(&self) -> Result<(), Cause> {
        let path = path_of(&self.dir, self.base);
        self.file.sync_data().map_err(named(&path))
    }

    /// Returns another handle of the file.
    pub(super) fn handle(&self) -> std::io::Result<File> {
        self.file.try_clone()
    }

    /// Removes older index files when a position in this one is committed.
    pub(super) fn committed(&mut self, position: u64) -> Result<(), Cause> {
        if position > self.base {
            for path in self.superseded.drain(..) {
                std::fs::remove_file(&path).map_err(named(&path))?;
            }
        }
        Ok(())
    }
}

/// Appends a line of an index to `out`.
pub(super) fn line(name: &str, check: &str, length: u64, out: &mut String) {
    use std::fmt::Write;
    // Writing to memory cannot fail.
    let _ = writeln!(out, "{length} {check} {name}");
}

fn path_of(dir: &Path, base: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{base}"))
}

/// Returns the positions at which the index files of a directory begin, in order.
fn bases(dir: &Path) -> Result<Vec<u64>, Cause> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(named(dir))? {
        let name = entry.map_err(named(dir))?.file_name();
        let base = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        found.extend(base.and_then(|base| base.parse::<u64>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

/// Parses the lines of an index. A last line without an end was being written when the process died.
fn read(path: &Path, bytes: &[u8], listed: &mut Listed) -> Result<(), Cause> {
    let whole = memchr::memrchr(b'\n', bytes).map_or(0, |end| end + 1);
    let text = std::str::from_utf8(&bytes[..whole]).map_err(|_| damaged(path, "bytes"))?;
    for line in text.lines() {
        match line.strip_prefix(FORMAT) {
            Some(VERSION) => continue,
            Some(version) => {
                let path = path.display();
                let what = format!("{path}: version {version}, this program reads {VERSION}");
                return Err(what.into());
            }
            None => {}
        }
        let mut members = line.splitn(3, ' ');
        let read = (|| {
            let length = members.next()?.parse().ok()?;
            let check = members.next()?;
            let name = members.next()?;
            // A damaged index must not name a path outside of the directory.
            let inside = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
            inside.then(|| (name.to_owned(), (check.to_owned(), length)))
        })();
        let (name, file) = read.ok_or_else(|| damaged(path, &format!("the line {line:?}")))?;
        listed.insert(name, file);
    }
    Ok(())
}

fn damaged(path: &Path, what: &str) -> Cause {
    format!("{}: {what} cannot be read; it is damaged", path.display()).into()
}

/// Removes the files of an earlier run from a directory, or creates the directory.
///
/// # Errors
/// The directory contains other files.
pub(super) fn clear(dir: &Path) -> Result<(), Cause> {
    let mut listed = Listed::new();
    let bases = bases(dir)?;
    for base in &bases {
        let path = path_of(dir, *base);
        read(
            &path,
            &std::fs::read(&path).map_err(named(&path))?,
            &mut listed,
        )?;
    }
    for entry in std::fs::read_dir(dir).map_err(named(dir))? {
        let name = entry.map_err(named(dir))?.file_name();
        let is_ours = name.to_str().is_some_and(|name| {
            listed.contains_key(name)
                || name
                    .strip_prefix(PREFIX)
                    .is_some_and(|base| base.parse::<u64>().is_ok())
        });
        if !is_ours {
            return Err(format!(
                "{}: it holds {name:?}, which this sink did not write; give the sink a directory of its own",
                dir.display()
            )
            .into());
        }
    }
    for name in listed.keys() {
        remove(&dir.join(name))?;
    }
    // The indexes are removed last, so that a later run finds the remaining files if this one is killed here.
    for base in bases {
        remove(&path_of(dir, base))?;
    }
    Ok(())
}

/// Removes a file; it is no error if the file does not exist.
pub(super) fn remove(path: &Path) -> Result<(), Cause> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(named(path)(error)),
        _ => Ok(()),
    }
}
