//! Reads the files of a directory: all that match a pattern, in sorted order, and files that appear later.
//!
//! The files are divided among a fixed number of *partitions* by the hash of their names; a partition reads its
//! files one after the other. Its position counts the bytes of all its files. The list of the files that were
//! begun (`list`), which a run with a state directory stores there, maps a position to a file. So each file
//! resumes at its position, with any number of workers.
//!
//! A file is read up to the length that it has at that time. If it is longer at the next scan of the directory,
//! the new bytes are read. A file is identified by its name and its first bytes (`first_bytes`): a renamed file
//! is a new file, and a file with the name of one that was read, and with other first bytes, is an error. Files
//! should be complete when they appear under their names: write them under a name that the pattern does not
//! match, or that begins with a dot, and rename them.
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

mod list;

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime};

use crate::clock::now_ns;
use crate::compression::Compression;
use crate::connectors::codec::Decoded;
use crate::connectors::csv::{self, Dialect, Header, ReadCsv};
use crate::connectors::files::{self, ReadFiles};
use crate::connectors::first_bytes::FirstBytes;
pub use crate::connectors::format::Format;
use crate::error::{Cause, context};
use crate::framing::Framing;
use crate::input::listing::{Found, scan};
use crate::input::{Input, of_machine};
use crate::metrics::lag::Lag;
use crate::mutex::lock;
use crate::poller::Io;
use crate::source::{
    Beginning, Events, Next, Partition, Position, Recording, Resumable, Source, SourceSettings,
};
use list::{Begun, List};

/// A source of the files of a directory. [`frames`] and [`rows`] create it.
#[derive(Clone, Debug)]
pub struct ReadDirectory<F> {
    dir: PathBuf,
    pattern: String,
    partitions: usize,
    poll: Option<Duration>,
    format: F,
    local: bool,
    /// The list of files of the current run.
    list: Arc<Mutex<Weak<Mutex<List>>>>,
}

/// Reads the frames of all files in `dir` whose names match `pattern`. The default framing is lines.
///
/// In a pattern `*` matches any characters, `?` one character, `[a-z]` one of several. A pattern with a `/` is
/// matched with paths relative to `dir`, and `**` in it matches any directories: `2024/*.csv`, `**/*.csv`.
/// Names that begin with a dot match only where the pattern has the dot.
pub fn frames(dir: impl AsRef<Path>, pattern: &str) -> ReadDirectory<ReadFiles> {
    ReadDirectory::new(dir, pattern, files::read::<PathBuf>([]))
}

/// Reads the rows of all CSV files in `dir` whose names match `pattern`, as for [`frames`].
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
            local: false,
            list: Arc::default(),
        }
    }
    /// Sets the number of partitions, each of which reads one file at a time on one worker. The default is 1:
    /// all files are read in the order of their names. A run that resumes needs the same number as the run
    /// before. With 0 the start of the run is an error, [`FlowError::Open`](crate::FlowError::Open).
    #[must_use]
    pub fn partitions(mut self, partitions: usize) -> Self {
        self.partitions = partitions;
        self
    }
    /// Lets each process of a run read the directory of its own machine, in as many partitions each. By default all
    /// processes must have the same directory, each file of which one of them reads.
    #[must_use]
    pub fn local(mut self, local: bool) -> Self {
        self.local = local;
        self
    }
    /// Keeps running after all files are read, and scans for new files at the interval `poll`. By default the
    /// source ends with the files that exist when it starts.
    #[must_use]
    pub fn follow(mut self, poll: Duration) -> Self {
        self.poll = Some(poll);
        self
    }
}

impl<D> Decoded<ReadDirectory<ReadFiles>, D> {
    /// Lets each process of a run read the directory of its own machine, as for [`ReadDirectory::local`].
    #[must_use]
    pub fn local(self, local: bool) -> Self {
        self.with_source(|source| source.local(local))
    }
}

impl ReadDirectory<ReadFiles> {
    /// Sets the framing of the files.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Self {
        self.format = self.format.framing(framing);
        self
    }
    /// Sets the compression of the files. By default the ending of its name decides for each file.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.format = self.format.compression(compression);
        self
    }
    /// Sets the longest allowed frame; a longer one is an error with its offset. The default is 1 MiB.
    #[must_use]
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.format = self.format.max_frame(bytes);
        self
    }
}

impl ReadDirectory<ReadCsv> {
    /// Sets the delimiter and the quote.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.format = self.format.dialect(dialect);
        self
    }
    /// Sets the source of the field names.
    #[must_use]
    pub fn header(mut self, header: Header) -> Self {
        self.format = self.format.header(header);
        self
    }
    /// Sets the compression of the files. By default the ending of its name decides for each file.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.format = self.format.compression(compression);
        self
    }
    /// Sets the longest allowed record; a longer one is an error with its line. The default is 1 MiB.
    #[must_use]
    pub fn max_record(mut self, bytes: usize) -> Self {
        self.format = self.format.max_record(bytes);
        self
    }
    /// Decodes each row into an item, as for [`ReadCsv::decode`].
    pub fn decode<D, T, E>(self, decode: D) -> csv::DecodedRows<Self, D>
    where
        D: Fn(csv::Row<'_>) -> Result<T, E> + Send + Sync + 'static,
        E: Into<Cause>,
    {
        csv::decode_rows(self, decode)
    }
}

impl<B: 'static, F: Format<B> + Clone> Source<B> for ReadDirectory<F> {
    fn describe(&self) -> String {
        let dir = self.dir.display();
        let format = self.format.describe_format();
        let whose = of_machine(self.local);
        format!("directory {dir}, {}, {format}{whose}", self.pattern)
    }
    fn partitions(&self, _: usize) -> Result<Vec<String>, Cause> {
        if self.partitions == 0 {
            return Err("a directory is read in 1 partition or more, not 0".into());
        }
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
            // Errors of the directory or the pattern are reported before anything is read.
            scan(&self.dir, &self.pattern)?;
        }
        let list = lock(&self.list).upgrade();
        // Without a state directory each partition has a list of its own files, which is sufficient.
        let list = list.unwrap_or_else(|| Arc::new(Mutex::new(List::in_memory(self.partitions))));
        let mut opened = DirectoryPartition {
            source: self.clone(),
            partition,
            list,
            waiting: VecDeque::new(),
            scanned: false,
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
    fn settings(&self) -> SourceSettings {
        SourceSettings {
            inputs: vec![Input::Directory {
                path: self.dir.clone(),
                pattern: self.pattern.clone(),
                follows: self.poll.is_some(),
            }],
            local: self.local,
            ..SourceSettings::default()
        }
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
        Ok(Some(Arc::new(ListRecording(list))))
    }
}

/// The list of files, which is synced before commits.
struct ListRecording(Arc<Mutex<List>>);

impl Recording for ListRecording {
    fn sync(&self) -> Result<(), Cause> {
        let file = lock(&self.0).handle()?;
        match file {
            // The file is synced after the lock is released, so that readers do not wait.
            Some((file, path)) => file
                .sync_all()
                .map_err(|error| context(path.display(), error)),
            None => Ok(()),
        }
    }
    fn commit(&self, _: &[(&str, Position)]) -> Result<(), Cause> {
        Ok(())
    }
}

/// A file that was found and is not begun.
struct WaitingFile {
    name: String,
    /// The byte at which it begins.
    from: u64,
    /// Its length at the last scan.
    length: u64,
}

/// One partition of a directory.
struct DirectoryPartition<B, F> {
    source: ReadDirectory<F>,
    partition: usize,
    list: Arc<Mutex<List>>,
    waiting: VecDeque<WaitingFile>,
    /// True if the directory was scanned.
    scanned: bool,
    /// For files whose first bytes were compared, by name: their modification time at that moment.
    checked: HashMap<String, SystemTime>,
    current: Option<(Begun, Box<dyn Partition<B>>)>,
    /// The position after the last batch.
    position: u64,
    awake: Option<u64>,
}

impl<B, F: Format<B>> DirectoryPartition<B, F> {
    /// Opens a file that is in the list, and begins at the current position of this partition.
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
        begun.first_bytes.compare(&path)?;
        let from = self.source.format.resumes_at(&path, read)?;
        let begun = Begun {
            start: self.position,
            from,
            ..begun
        };
        lock(&self.list).begin(self.partition, &begun)?;
        self.open(begun)
    }

    /// Whether the time of the next scan has come, of a directory that is followed; the one after it is a poll later.
    fn is_scan_due(&mut self) -> bool {
        let Some(poll) = self.source.poll else {
            return false;
        };
        let now = now_ns();
        let is_due = self.awake.is_none_or(|at| at <= now);
        if is_due {
            let poll = u64::try_from(poll.as_nanos()).unwrap_or(u64::MAX);
            self.awake = Some(now.saturating_add(poll));
        }
        is_due
    }

    /// Scans for files that are new or have grown.
    fn scan_again(&mut self) -> Result<(), Cause> {
        self.scanned = true;
        let waiting = self.waiting.iter().enumerate();
        let known: HashMap<String, usize> =
            waiting.map(|(at, file)| (file.name.clone(), at)).collect();
        for found in scan(&self.source.dir, &self.source.pattern)? {
            let Found { name, length, .. } = &found;
            if List::partition_of(name, self.source.partitions) != self.partition {
                continue;
            }
            if let Some(at) = known.get(name) {
                self.waiting[*at].length = *length;
                continue;
            }
            // Its end is looked for when it has been read.
            if self
                .current
                .as_ref()
                .is_some_and(|(begun, _)| begun.name == *name)
            {
                continue;
            }
            let begun = lock(&self.list).read_of(self.partition, name);
            let Some(begun) = begun else {
                self.waiting.push_back(WaitingFile {
                    name: found.name,
                    from: 0,
                    length: found.length,
                });
                continue;
            };
            let path = self.source.dir.join(name);
            // Of a compressed file the size is compared with its size at the time when it was begun.
            let had = if self.source.format.is_compressed(&path) {
                begun.size.unwrap_or(*length)
            } else {
                begun.read
            };
            if had > *length {
                return Err(format!(
                    "{}: it has {length} bytes, fewer than the {had} that were read of it; a new file needs a name of its own",
                    path.display()
                )
                .into());
            }
            // A file whose modification time is unchanged since it was compared has not been replaced.
            if found.modified.as_ref() != self.checked.get(name) || found.modified.is_none() {
                begun.first_bytes.compare(&path)?;
                let modified = found.modified.map(|modified| (name.clone(), modified));
                self.checked.extend(modified);
            }
            if had < *length {
                self.waiting.push_back(WaitingFile {
                    name: found.name,
                    from: begun.read,
                    length: found.length,
                });
            }
        }
        Ok(())
    }

    /// Begins the next file, if there is one.
    fn begin_next(&mut self) -> Result<bool, Cause> {
        while let Some(WaitingFile { name, from, .. }) = self.waiting.pop_front() {
            // The file may have been removed since it was found; then nothing of it is read.
            let path = self.source.dir.join(&name);
            let Some(first_bytes) = FirstBytes::of(&path)? else {
                continue;
            };
            let about = std::fs::metadata(&path);
            let about = about.map_err(|error| context(path.display(), error))?;
            let is_compressed = self.source.format.is_compressed(&path);
            let size = is_compressed.then_some(about.len());
            let from = match from {
                0 => 0,
                read => self.source.format.resumes_at(&path, read)?,
            };
            let begun = Begun {
                name,
                start: self.position,
                from,
                first_bytes,
                size,
            };
            lock(&self.list).begin(self.partition, &begun)?;
            self.open(begun)?;
            return Ok(true);
        }
        Ok(false)
    }
}

impl<B, F: Format<B>> Partition<B> for DirectoryPartition<B, F> {
    fn next_batch(&mut self, batch: &mut B, events: &mut Events<'_>) -> Result<Next, Cause> {
        // New files count while the source is behind, too.
        if self.scanned && self.current.is_some() && self.is_scan_due() {
            self.scan_again()?;
        }
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
            if self.source.poll.is_none() && self.scanned {
                return Ok(Next::End);
            }
            if self.source.poll.is_some() && !self.is_scan_due() {
                return Ok(Next::Idle);
            }
            self.scan_again()?;
            if self.waiting.is_empty() && self.source.poll.is_some() {
                return Ok(Next::Idle);
            }
        }
    }
    fn next_awake(&self) -> Option<u64> {
        self.awake
    }
    fn lag(&self) -> Option<Lag> {
        let waiting = self.waiting.iter();
        let waiting = waiting.map(|file| file.length.saturating_sub(file.from));
        let current = match &self.current {
            Some((_, file)) => file.lag()?.bytes?,
            None => 0,
        };
        Some(Lag {
            bytes: Some(waiting.sum::<u64>() + current),
            ..Lag::default()
        })
    }
    fn position(&self) -> Result<Position, Cause> {
        Ok(self.position.into())
    }
}
