//! The files of a directory as a source: all that match a pattern, in sorted order, and those that appear later.
//!
//! The files are divided among a fixed number of *partitions* by the hash of their names; a partition reads its files one
//! after the other. Its position counts the bytes of all of them. What file a position lies in is in the list of the files
//! that were begun (`list`), which a run with a state directory keeps there. So each file is resumed where it was, with any
//! number of workers.
//!
//! A file is read from its start to its end as that is then. If it has grown when the directory is looked at again, what is new
//! is read. A file is known by its name and by its first bytes (`beginning`): one that was renamed is a new file, and one with
//! other first bytes under the name of a file that was read is an error. Files ought to be complete when they appear under
//! their names: write them under a name that the pattern does not match, or that begins with a dot, and rename them.
//!
//! ```
//! use millstream_flow::{Flow, Options, codec, directory, testing};
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("b.log"), "three\n")?;
//! std::fs::write(folder.path().join("a.log"), "one\ntwo\n")?;
//! let flow = Flow::new("logs");
//! let out = testing::Collected::new();
//! flow.source("lines", codec::decode(directory::frames(folder.path(), "*.log"), codec::text))
//!     .sink("out", out.sink());
//! flow.run(Options::default())?;
//! assert_eq!(out.take(), ["one", "two", "three"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod beginning;
mod list;

use std::collections::{HashMap, VecDeque};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime};

use glob::{MatchOptions, Pattern};

use crate::clock::now_ns;
use crate::connectors::csv::{self, Dialect, Header, ReadCsv};
use crate::connectors::files::{self, ReadFiles};
pub use crate::connectors::format::Format;
use crate::error::Cause;
use crate::framing::Framing;
use crate::run::control::lock;
use crate::run::poller::Io;
use crate::source::{Beginning, Events, Next, Partition, Position, Recording, Resumable, Source};
use beginning::Beginning as FirstBytes;
use list::{Begun, List};

/// A source of the files of a directory. Made by [`frames`] and [`rows`].
#[derive(Clone, Debug)]
pub struct ReadDirectory<F> {
    dir: PathBuf,
    pattern: String,
    partitions: usize,
    poll: Option<Duration>,
    format: F,
    /// The list of the run that is going on.
    list: Arc<Mutex<Weak<Mutex<List>>>>,
}

/// The frames of all files in `dir` whose names match `pattern`. Lines unless told otherwise.
///
/// In a pattern `*` stands for any characters, `?` for one, `[a-z]` for one of several. With a `/` it is matched with paths
/// below `dir`, in which `**` stands for any directories: `2024/*.csv`, `**/*.csv`. Names that begin with a dot match only
/// where the pattern has the dot.
pub fn frames(dir: impl AsRef<Path>, pattern: &str) -> ReadDirectory<ReadFiles> {
    ReadDirectory::new(dir, pattern, files::read::<PathBuf>([]))
}

/// The rows of all CSV files in `dir` whose names match `pattern`, as for [`frames`].
pub fn rows(dir: impl AsRef<Path>, pattern: &str) -> ReadDirectory<ReadCsv> {
    ReadDirectory::new(dir, pattern, csv::read::<PathBuf>([]))
}

impl<F> ReadDirectory<F> {
    fn new(dir: impl AsRef<Path>, pattern: &str, format: F) -> Self {
        ReadDirectory {
            dir: dir.as_ref().to_owned(),
            pattern: pattern.to_owned(),
            partitions: 1,
            poll: None,
            format,
            list: Arc::default(),
        }
    }
    /// How many files are read at once, each partition on one worker. 1 unless told otherwise: then all files are read in the
    /// order of their names. A run that resumes has as many as the one before it.
    #[must_use]
    pub fn partitions(mut self, partitions: usize) -> Self {
        self.partitions = partitions.max(1);
        self
    }
    /// Goes on for ever: looks for new files each `poll` once all are read. Otherwise the source ends with the files that were there
    /// when it began.
    #[must_use]
    pub fn follow(mut self, poll: Duration) -> Self {
        self.poll = Some(poll);
        self
    }
}

impl ReadDirectory<ReadFiles> {
    /// How frames are told apart.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Self {
        self.format = self.format.framing(framing);
        self
    }
    /// The longest frame that is taken for sane; a longer one is an error with its offset.
    #[must_use]
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.format = self.format.max_frame(bytes);
        self
    }
}

impl ReadDirectory<ReadCsv> {
    /// What tells fields apart.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.format = self.format.dialect(dialect);
        self
    }
    /// Where the names of fields come from.
    #[must_use]
    pub fn header(mut self, header: Header) -> Self {
        self.format = self.format.header(header);
        self
    }
    /// The longest record that is taken for sane; a longer one is an error with its line.
    #[must_use]
    pub fn max_record(mut self, bytes: usize) -> Self {
        self.format = self.format.max_record(bytes);
        self
    }
    /// Makes an item of each row, as for [`ReadCsv::decode`].
    pub fn decode<D, T, E>(self, decode: D) -> csv::DecodedRows<Self, D>
    where
        D: Fn(csv::Row<'_>) -> Result<T, E> + Send + Sync + 'static,
        E: Into<Cause>,
    {
        csv::decode_rows(self, decode)
    }
}

/// A file that matches.
struct Found {
    /// Relative to the directory.
    name: String,
    length: u64,
    modified: Option<SystemTime>,
}

/// The files that match, in the order of their names.
fn scan(dir: &Path, pattern: &str) -> Result<Vec<Found>, Cause> {
    // A directory that is not there is a mistake, though no pattern matches anything in it.
    std::fs::read_dir(dir).map_err(|error| {
        std::io::Error::new(error.kind(), format!("{}: {error}", dir.display()))
    })?;
    let text = dir.to_str();
    let text = text.ok_or_else(|| format!("{}: its name is not UTF-8", dir.display()))?;
    // Paths that match come without the `./` that the directory may begin with.
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
        // What has gone since its name was read is not there.
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

impl<B: 'static, F: Format<B> + Clone> Source<B> for ReadDirectory<F> {
    fn describe(&self) -> String {
        let (dir, format) = (self.dir.display(), self.format.describe_format());
        format!("directory {dir}, {}, {format}", self.pattern)
    }
    fn partitions(&self, _: usize) -> Result<Vec<String>, Cause> {
        Ok((0..self.partitions)
            .map(|number| number.to_string())
            .collect())
    }
    fn open(
        &self,
        partition: usize,
        resume: Option<&Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<B>>, Cause> {
        if resume.is_none() {
            // What is wrong with the directory or the pattern is said before anything is read.
            scan(&self.dir, &self.pattern)?;
        }
        let list = lock(&self.list).upgrade();
        // Without a state directory each partition knows its own files only, which is all that it needs.
        let list = list.unwrap_or_else(|| Arc::new(Mutex::new(List::in_memory(self.partitions))));
        let mut opened = Lane {
            source: self.clone(),
            partition,
            list,
            waiting: VecDeque::new(),
            looked: false,
            checked: HashMap::new(),
            current: None,
            position: resume.map_or(Ok(0), Position::require_number)?,
            awake: None,
        };
        let begun = lock(&opened.list).current(partition);
        if let Some(begun) = begun {
            opened.resume(begun)?;
        }
        Ok(Box::new(opened))
    }
    fn resumable(&self) -> Option<&dyn Resumable> {
        Some(self)
    }
}

impl<F: Send + Sync + 'static> Resumable for ReadDirectory<F> {
    fn begin(&self, run: &Beginning<'_>) -> Result<Option<Arc<dyn Recording>>, Cause> {
        let Some(state_dir) = run.state_dir else {
            return Ok(None);
        };
        let committed = if run.forget { &[] } else { run.committed };
        let list = List::resume(state_dir, run.source, self.partitions, committed)?;
        let list = Arc::new(Mutex::new(list));
        *lock(&self.list) = Arc::downgrade(&list);
        Ok(Some(Arc::new(Listing(list))))
    }
}

/// The list, as commits see it.
struct Listing(Arc<Mutex<List>>);

impl Recording for Listing {
    fn sync(&self) -> Result<(), Cause> {
        let file = lock(&self.0).handle()?;
        match file {
            // Who reads meanwhile is not kept waiting.
            Some((file, path)) => file
                .sync_all()
                .map_err(|error| format!("{}: {error}", path.display()).into()),
            None => Ok(()),
        }
    }
    fn commit(&self, _: &[(&str, Position)]) -> Result<(), Cause> {
        Ok(())
    }
}

/// A file begins with the bytes with which it began when it was read.
fn compare(beginning: Option<FirstBytes>, path: &Path) -> Result<(), Cause> {
    match beginning {
        Some(beginning) => beginning.compare(path),
        None => Ok(()),
    }
}

/// One partition of a directory.
struct Lane<B, F> {
    source: ReadDirectory<F>,
    partition: usize,
    list: Arc<Mutex<List>>,
    /// Files that were found and are not begun, and from where on they are to be read.
    waiting: VecDeque<(String, u64)>,
    /// True when the directory has been looked at.
    looked: bool,
    /// When the files were modified whose first bytes were compared, by name.
    checked: HashMap<String, SystemTime>,
    current: Option<(Begun, Box<dyn Partition<B>>)>,
    /// The position behind the last batch.
    position: u64,
    awake: Option<u64>,
}

impl<B, F: Format<B>> Lane<B, F> {
    /// Opens a file that is listed and begins at the position of this partition.
    fn open(&mut self, begun: Begun) -> Result<(), Cause> {
        let path = self.source.dir.join(&begun.name);
        let file = self.source.format.open_file(&path, begun.from)?;
        self.current = Some((begun, file));
        Ok(())
    }

    /// Opens the file that was being read at the last commit.
    fn resume(&mut self, begun: Begun) -> Result<(), Cause> {
        let path = self.source.dir.join(&begun.name);
        let read = begun.from + (self.position - begun.start);
        compare(begun.beginning, &path)?;
        let from = self.source.format.resumes_at(&path, read)?;
        let begun = Begun {
            start: self.position,
            from,
            ..begun
        };
        lock(&self.list).begin(self.partition, &begun)?;
        self.open(begun)
    }

    /// Looks for files that are new, or have grown.
    fn look(&mut self) -> Result<(), Cause> {
        self.looked = true;
        for found in scan(&self.source.dir, &self.source.pattern)? {
            let Found { name, length, .. } = &found;
            if List::partition_of(name, self.source.partitions) != self.partition {
                continue;
            }
            let begun = lock(&self.list).read_of(self.partition, name);
            let Some((read, beginning)) = begun else {
                self.waiting.push_back((found.name, 0));
                continue;
            };
            let path = self.source.dir.join(name);
            if read > *length {
                return Err(format!(
                    "{}: it has {length} bytes, fewer than the {read} that were read of it; a new file needs a name of its own",
                    path.display()
                )
                .into());
            }
            // A file that is as old as it was when it was last compared has not been replaced.
            if found.modified.as_ref() != self.checked.get(name) || found.modified.is_none() {
                compare(beginning, &path)?;
                let modified = found.modified.map(|modified| (name.clone(), modified));
                self.checked.extend(modified);
            }
            if read < *length {
                self.waiting.push_back((found.name, read));
            }
        }
        Ok(())
    }

    /// Begins the next file, if there is one.
    fn begin_next(&mut self) -> Result<bool, Cause> {
        while let Some((name, from)) = self.waiting.pop_front() {
            // It may have been removed since it was found; then nothing of it was read.
            let path = self.source.dir.join(&name);
            if std::fs::metadata(&path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
                continue;
            }
            let from = match from {
                0 => 0,
                read => self.source.format.resumes_at(&path, read)?,
            };
            let begun = Begun {
                name,
                start: self.position,
                from,
                beginning: FirstBytes::of(&path)?,
            };
            lock(&self.list).begin(self.partition, &begun)?;
            self.open(begun)?;
            return Ok(true);
        }
        Ok(false)
    }
}

impl<B, F: Format<B>> Partition<B> for Lane<B, F> {
    fn next_batch(&mut self, batch: &mut B, events: &mut Events<'_>) -> Result<Next, Cause> {
        loop {
            if let Some((begun, file)) = &mut self.current {
                let next = file.next_batch(batch, events)?;
                self.position = begun.start + (file.position()?.require_number()? - begun.from);
                if next != Next::End {
                    return Ok(next);
                }
                lock(&self.list).end(self.partition, self.position)?;
                self.current = None;
            }
            if self.begin_next()? {
                continue;
            }
            let now = now_ns();
            match self.source.poll {
                None if self.looked => return Ok(Next::End),
                Some(_) if self.awake.is_some_and(|at| now < at) => return Ok(Next::Idle),
                None => {}
                Some(poll) => {
                    let poll = u64::try_from(poll.as_nanos()).unwrap_or(u64::MAX);
                    self.awake = Some(now.saturating_add(poll));
                }
            }
            self.look()?;
            if self.waiting.is_empty() && self.source.poll.is_some() {
                return Ok(Next::Idle);
            }
        }
    }
    fn next_awake(&self) -> Option<u64> {
        self.awake
    }
    fn position(&self) -> Result<Position, Cause> {
        Ok(self.position.into())
    }
}
