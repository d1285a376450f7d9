//! A sink with a file for each key.
//!
//! Invariant: the files contain what was written until some moment, in order for each key. With recovery a run
//! that resumes truncates each file to its length at the last commit, and removes files that were created after
//! it. The lengths are in the index of the directory (`index`), and a commit contains a position in the index.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use millstream_journal::storage::create_dir_durably;

use super::index::{self, Index, named};
use super::key_name::key_name;
use super::written::hold;
use super::{length_of, token_of};
use crate::batch::{Batch, Data};
use crate::cluster::Membership;
use crate::control::Control;
use crate::error::Cause;
use crate::framing::{Frames, Framing, encode};
use crate::mutex::lock;
use crate::named::DROP_STATE;
use crate::shared_log::{CurrentLog, Log, SharedLog};
use crate::sink::{Output, OwnPath, Sink, Token, Transactional, Writer};
use crate::{forward_sink, forward_writer};

/// The default for the number of open files.
const MAX_OPEN: usize = 128;
/// The number of bytes in memory after which they are written.
const BUFFERED_BYTES: usize = 1 << 20;

/// Frames, each with the key of its file.
#[derive(Clone, Debug, Default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct KeyedFrames {
    /// The keys. The first byte of each is an ASCII letter for the type of the key, such as `t` for text: keys
    /// that differ only in their type would share a file, which is an error.
    pub keys: Frames,
    /// The frames, one for each key.
    pub frames: Frames,
}

impl Batch for KeyedFrames {
    fn len(&self) -> usize {
        self.frames.len()
    }
    fn clear(&mut self) {
        self.keys.clear();
        self.frames.clear();
    }
    fn take_first(&mut self, count: usize) -> Self {
        KeyedFrames {
            keys: self.keys.take_first(count),
            frames: self.frames.take_first(count),
        }
    }
}

/// A sink with a file for each key. See [`write_by_key`].
pub struct WriteByKey {
    layout: Arc<Layout>,
    /// The directory of this process.
    own: OwnPath,
    /// The directory, which the workers of the current run share.
    shared: CurrentLog<Files>,
    /// The files with which a run resumes.
    resume: Mutex<Option<Files>>,
}

type Shared = Mutex<SharedLog<Files>>;

#[derive(Clone, Debug)]
struct Layout {
    dir: PathBuf,
    suffix: String,
    /// `None`: frames are written unchanged.
    framing: Option<Framing>,
    preamble: Vec<u8>,
    max_open: usize,
}

/// Writes each frame to the file of its key in the directory `dir`, which belongs to the sink: the directory is
/// created if it does not exist, and files of an earlier run in it are removed. The default framing is lines.
///
/// A file is named by its key, with `%` and two hexadecimal digits for each byte that is not a letter, a digit,
/// `-`, `_` or `.`, and the suffix. All workers write to the one directory, and the frames of a key keep their
/// order. With recovery a run that resumes rolls all files back to the last committed epoch. Each key that was
/// ever seen takes about 200 bytes of memory.
///
/// ```
/// use millstream_flow::{Flow, Options, files, testing};
///
/// let folder = tempfile::tempdir()?;
/// let flow = Flow::new("by country");
/// let sink = files::write_by_key(folder.path().join("out")).suffix(".txt");
/// let sink = files::by_key(sink, |item: &(&str, u32)| item.0.to_owned(), |item, out| out.extend(item.1.to_string().bytes()));
/// flow.source("orders", testing::items([("fr", 1), ("de", 2), ("fr", 3)])).sink("out", sink);
/// flow.run(Options::default())?;
/// assert_eq!(std::fs::read_to_string(folder.path().join("out/fr.txt"))?, "1\n3\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_by_key(dir: impl AsRef<Path>) -> WriteByKey {
    WriteByKey {
        layout: Arc::new(Layout {
            dir: dir.as_ref().to_owned(),
            suffix: String::new(),
            framing: Some(Framing::Lines),
            preamble: Vec::new(),
            max_open: MAX_OPEN,
        }),
        own: OwnPath::new(dir),
        shared: CurrentLog::default(),
        resume: Mutex::default(),
    }
}

impl WriteByKey {
    fn change(mut self, change: impl FnOnce(&mut Layout)) -> Self {
        let mut layout = (*self.layout).clone();
        change(&mut layout);
        self.layout = Arc::new(layout);
        self
    }
    /// Sets the suffix of the file names, for instance `.csv`: letters, digits, `.`, `-` and `_`, at most 50.
    #[must_use]
    pub fn suffix(self, suffix: &str) -> Self {
        self.change(|layout| suffix.clone_into(&mut layout.suffix))
    }
    /// Sets the framing of the files.
    #[must_use]
    pub fn framing(self, framing: Framing) -> Self {
        self.change(|layout| layout.framing = Some(framing))
    }
    /// Writes frames unchanged, with nothing between them.
    #[must_use]
    pub fn raw(self) -> Self {
        self.change(|layout| layout.framing = None)
    }
    /// Sets the bytes at the beginning of each file.
    #[must_use]
    pub fn preamble(self, bytes: &[u8]) -> Self {
        self.change(|layout| layout.preamble = bytes.to_owned())
    }
    /// Sets the number of files that are open at once, 1 or more. The default is 128.
    #[must_use]
    pub fn max_open(self, files: usize) -> Self {
        self.change(|layout| layout.max_open = files.max(1))
    }
}

impl WriteByKey {
    /// The layout in the directory of this process.
    fn own_layout(&self) -> Arc<Layout> {
        let dir = self.own.get();
        if dir == self.layout.dir {
            Arc::clone(&self.layout)
        } else {
            Arc::new(Layout {
                dir,
                ..(*self.layout).clone()
            })
        }
    }
}

impl Sink<KeyedFrames> for WriteByKey {
    fn describe(&self) -> String {
        let layout = &self.layout;
        format!("files by key in {}", layout.dir.display())
    }
    fn open(
        &self,
        _: usize,
        control: &Arc<Control>,
    ) -> Result<Box<dyn Writer<KeyedFrames>>, Cause> {
        let (files, writer) = self
            .shared
            .join(control, || match lock(&self.resume).take() {
                Some(files) => Ok(files),
                None => Files::begin(&self.own_layout(), false),
            })?;
        Ok(Box::new(FilesWriter { files, writer }))
    }
    fn join(&self, membership: Option<Membership>) -> Option<PathBuf> {
        self.own.join(membership)
    }
    fn output(&self, _: bool) -> Option<Output> {
        Some(Output {
            path: self.layout.dir.clone(),
            sink: std::ptr::from_ref(self).addr(),
        })
    }
    fn transactional(&self) -> Option<&dyn Transactional> {
        Some(self)
    }
}

impl Transactional for WriteByKey {
    fn resume(&self, tokens: &[Token]) -> Result<Option<Token>, Cause> {
        // Those of a run that was not started.
        drop(lock(&self.resume).take());
        let files = match tokens {
            [] => Files::begin(&self.own_layout(), true)?,
            tokens => Files::resume(&self.own_layout(), length_of(tokens)?)?,
        };
        let position = files.index.position();
        *lock(&self.resume) = Some(files);
        self.shared.begin_commits();
        Ok(Some(token_of(position)))
    }
    fn sync(&self) -> Result<(), Cause> {
        let Some(files) = self.shared.get() else {
            return Ok(());
        };
        let dir = &self.own.get();
        // The files are synced after the lock is released, so that writers do not wait.
        let (written, index) = {
            let mut files = lock(&files);
            let files = files.log_mut();
            let written = std::mem::take(&mut files.unsynced);
            let path = |place: &usize| dir.join(&files.entries[*place].name);
            let paths: Vec<_> = written.iter().map(path).collect();
            for place in written {
                files.entries[place].unsynced = false;
            }
            (paths, files.index.handle())
        };
        for path in written {
            let synced = File::open(&path).and_then(|file| file.sync_all());
            synced.map_err(named(&path))?;
        }
        let index = index.and_then(|index| index.sync_all());
        let dir_synced = index.and_then(|()| File::open(dir)?.sync_all());
        dir_synced.map_err(named(dir))
    }
    fn commit(&self, _: u64, tokens: &[Token]) -> Result<(), Cause> {
        match (self.shared.get(), tokens) {
            (None, _) | (_, []) => Ok(()),
            (Some(files), tokens) => {
                let position = length_of(tokens)?;
                lock(&files).log_mut().index.committed(position)
            }
        }
    }
    fn finish(&self) {
        self.shared.end_commits();
        drop(lock(&self.resume).take());
    }
}

/// The file of one key.
struct Entry {
    /// The name in the directory.
    name: String,
    check: String,
    /// The length of the file, without the bytes in memory.
    length: u64,
    /// The bytes in memory that are not written yet.
    held: Vec<u8>,
    file: Option<File>,
    is_made: bool,
    /// True if the index has another length for it.
    outdated: bool,
    unsynced: bool,
}

/// The files of a directory.
struct Files {
    layout: Arc<Layout>,
    /// True with recovery: the files are truncated to their committed lengths after a crash.
    is_exact: bool,
    index: Index,
    /// The directory, locked for this run.
    _held: File,
    entries: Vec<Entry>,
    by_name: HashMap<String, usize>,
    /// The keys of this run.
    by_key: HashMap<Box<[u8]>, usize>,
    /// The entries with an open file, the longest open first.
    open: VecDeque<usize>,
    /// The entries with bytes in memory.
    holding: Vec<usize>,
    held_bytes: usize,
    outdated: Vec<usize>,
    unsynced: Vec<usize>,
}

impl Files {
    fn new(layout: &Arc<Layout>, is_exact: bool, held: File, index: Index) -> Self {
        Files {
            layout: Arc::clone(layout),
            is_exact,
            index,
            _held: held,
            entries: Vec::new(),
            by_name: HashMap::new(),
            by_key: HashMap::new(),
            open: VecDeque::new(),
            holding: Vec::new(),
            held_bytes: 0,
            outdated: Vec::new(),
            unsynced: Vec::new(),
        }
    }

    /// Locks the directory for this run.
    fn hold(dir: &Path) -> Result<File, Cause> {
        let held = File::open(dir).map_err(named(dir))?;
        hold(&held, dir)?;
        Ok(held)
    }

    /// Creates an empty directory.
    fn begin(layout: &Arc<Layout>, is_exact: bool) -> Result<Self, Cause> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if !layout.suffix.bytes().all(plain) || layout.suffix.len() > 50 {
            return Err(format!(
                "a suffix has at most 50 letters, digits, dots, dashes and underscores, not {:?}",
                layout.suffix
            )
            .into());
        }
        create_dir_durably(&layout.dir).map_err(named(&layout.dir))?;
        let held = Self::hold(&layout.dir)?;
        index::clear(&layout.dir)?;
        Ok(Self::new(
            layout,
            is_exact,
            held,
            Index::begin(&layout.dir)?,
        ))
    }

    /// Opens the directory as it was when its index ended at `position`.
    fn resume(layout: &Arc<Layout>, position: u64) -> Result<Self, Cause> {
        let held = Self::hold(&layout.dir)?;
        let (index, listed, later) = Index::resume(&layout.dir, position)?;
        let mut files = Self::new(layout, true, held, index);
        for name in later {
            index::remove(&layout.dir.join(name))?;
        }
        for (name, (check, length)) in listed {
            let path = layout.dir.join(&name);
            if length == 0 {
                // The file was listed in the index, and nothing of it is committed.
                index::remove(&path)?;
            } else {
                truncate(&path, length)?;
            }
            files.by_name.insert(name.clone(), files.entries.len());
            files.entries.push(Entry {
                name,
                check,
                length,
                held: Vec::new(),
                file: None,
                is_made: length > 0,
                outdated: false,
                unsynced: false,
            });
        }
        Ok(files)
    }

    /// Returns the index of a key's file among the entries; adds an entry if the key is new.
    fn place(&mut self, key: &[u8]) -> Result<usize, Cause> {
        if let Some(place) = self.by_key.get(key) {
            return Ok(*place);
        }
        let made = key_name(key);
        let name = made.name + &self.layout.suffix;
        let place = match self.by_name.get(&name) {
            Some(place) => *place,
            None => {
                self.by_name.insert(name.clone(), self.entries.len());
                self.entries.push(Entry {
                    name: name.clone(),
                    check: made.check.clone(),
                    length: 0,
                    held: Vec::new(),
                    file: None,
                    is_made: false,
                    outdated: false,
                    unsynced: false,
                });
                self.entries.len() - 1
            }
        };
        if self.entries[place].check != made.check {
            let key = String::from_utf8_lossy(key.get(1..).unwrap_or_default());
            return Err(format!(
                "{}: the key {:?} would write to the file of another key; give all keys one type",
                self.layout.dir.join(name).display(),
                crate::error::shorten(&key)
            )
            .into());
        }
        self.by_key.insert(key.into(), place);
        Ok(place)
    }

    /// Adds the new files to the index before they are created.
    fn list_new(&mut self) -> Result<(), Cause> {
        let mut lines = String::new();
        for place in &self.holding {
            let entry = &self.entries[*place];
            if !entry.is_made {
                index::line(&entry.name, &entry.check, 0, &mut lines);
            }
        }
        if lines.is_empty() {
            return Ok(());
        }
        self.index.append(&lines)?;
        if self.is_exact {
            self.index.sync()
        } else {
            Ok(())
        }
    }

    /// Writes the bytes in memory to the files.
    fn write_out(&mut self) -> Result<(), Cause> {
        self.list_new()?;
        for place in std::mem::take(&mut self.holding) {
            self.close_oldest(place);
            let entry = &mut self.entries[place];
            let path = self.layout.dir.join(&entry.name);
            let held = std::mem::take(&mut entry.held);
            let mut file = match entry.file.take() {
                Some(file) => file,
                None => {
                    self.open.push_back(place);
                    open(&path, entry)?
                }
            };
            if !entry.is_made {
                file.write_all(&self.layout.preamble)
                    .map_err(named(&path))?;
                entry.length = self.layout.preamble.len() as u64;
                entry.is_made = true;
            }
            file.write_all(&held).map_err(named(&path))?;
            entry.length += held.len() as u64;
            entry.file = Some(file);
            if !std::mem::replace(&mut entry.outdated, true) {
                self.outdated.push(place);
            }
            if self.is_exact && !std::mem::replace(&mut entry.unsynced, true) {
                self.unsynced.push(place);
            }
        }
        self.held_bytes = 0;
        Ok(())
    }

    /// Closes the file that was opened first, if the limit is reached.
    fn close_oldest(&mut self, place: usize) {
        if self.entries[place].file.is_none()
            && self.open.len() >= self.layout.max_open
            && let Some(oldest) = self.open.pop_front()
        {
            self.entries[oldest].file = None;
        }
    }

    fn all_lines(&self) -> String {
        let mut lines = String::new();
        for entry in &self.entries {
            index::line(&entry.name, &entry.check, entry.length, &mut lines);
        }
        lines
    }
}

/// Opens a file for writing at its end; creates it if it is new.
fn open(path: &Path, entry: &Entry) -> Result<File, Cause> {
    let mut options = OpenOptions::new();
    options.append(true);
    if !entry.is_made {
        // There was no file of this name: an existing one belongs to another program, or to a key that differs
        // only in case on a file system that ignores case.
        return options.create_new(true).open(path).map_err(named(path));
    }
    options.open(path).map_err(named(path))
}

/// Truncates a file to `length`.
fn truncate(path: &Path, length: u64) -> Result<(), Cause> {
    let file = OpenOptions::new().write(true).open(path);
    let file = file.map_err(named(path))?;
    let found = file.metadata().map_err(named(path))?.len();
    if found < length {
        return Err(format!(
            "{}: it has {found} bytes, fewer than the {length} that were committed; put it back, or drop the state of the \
             sink ({DROP_STATE}) to start again",
            path.display()
        )
        .into());
    }
    if found > length {
        file.set_len(length).map_err(named(path))?;
    }
    Ok(())
}

impl Log for Files {
    type Batch = KeyedFrames;

    fn append(&mut self, batch: &mut KeyedFrames) -> Result<(), Cause> {
        for (key, frame) in batch.keys.iter().zip(batch.frames.iter()) {
            let place = self.place(key)?;
            let held = &mut self.entries[place].held;
            let before = held.len();
            if before == 0 {
                self.holding.push(place);
            }
            match &self.layout.framing {
                Some(framing) => encode(framing, frame, held)?,
                None => held.extend_from_slice(frame),
            }
            self.held_bytes += held.len() - before;
            // An empty frame without framing: its key is in `holding` already.
            if before == 0 && held.is_empty() {
                self.holding.pop();
            }
        }
        batch.clear();
        if self.held_bytes > BUFFERED_BYTES {
            self.write_out()
        } else {
            Ok(())
        }
    }
    fn flush(&mut self) -> Result<u64, Cause> {
        self.write_out()?;
        Ok(self.index.position())
    }
    fn prepare(&mut self) -> Result<u64, Cause> {
        self.write_out()?;
        let mut lines = String::new();
        for place in std::mem::take(&mut self.outdated) {
            let entry = &mut self.entries[place];
            entry.outdated = false;
            index::line(&entry.name, &entry.check, entry.length, &mut lines);
        }
        self.index.append(&lines)?;
        if self.index.is_long(self.entries.len()) {
            let all = self.all_lines();
            self.index.renew(&all)?;
        }
        Ok(self.index.position())
    }
}

struct FilesWriter {
    files: Arc<Shared>,
    writer: usize,
}

impl Writer<KeyedFrames> for FilesWriter {
    fn write_batch(&mut self, batch: &mut KeyedFrames) -> Result<(), Cause> {
        lock(&self.files).write(self.writer, batch)
    }
    fn flush(&mut self) -> Result<(), Cause> {
        lock(&self.files).flush()?;
        Ok(())
    }
    fn prepare(&mut self, epoch: u64) -> Result<Option<Token>, Cause> {
        let position = lock(&self.files).prepare(self.writer, epoch)?;
        Ok(position.map(token_of))
    }
    fn close(&mut self) -> Result<Option<Token>, Cause> {
        let end = lock(&self.files).leave(self.writer)?;
        Ok(end.map(token_of))
    }
}

/// A sink of items: a sink of frames by key with a key function and an encoder. [`by_key`] creates it.
pub struct ByKey<S, K, F> {
    sink: S,
    key: Arc<K>,
    encode: Arc<F>,
}

/// Adds a function that returns the key of an item, and an encoder that appends the item's bytes to a buffer,
/// to a sink of frames by key.
pub fn by_key<S, K, F, T>(sink: S, key: K, encode: F) -> ByKey<S, K, F>
where
    S: Sink<KeyedFrames>,
    K: Fn(&T) -> String + Send + Sync + 'static,
    F: Fn(&T, &mut Vec<u8>) + Send + Sync + 'static,
{
    ByKey {
        sink,
        key: Arc::new(key),
        encode: Arc::new(encode),
    }
}

#[warn(clippy::missing_trait_methods)]
impl<S, K, F, T> Sink<Vec<T>> for ByKey<S, K, F>
where
    S: Sink<KeyedFrames>,
    K: Fn(&T) -> String + Send + Sync + 'static,
    F: Fn(&T, &mut Vec<u8>) + Send + Sync + 'static,
    T: Data,
{
    forward_sink!(this => this.sink);
    fn open(
        &self,
        worker: usize,
        control: &Arc<Control>,
    ) -> Result<Box<dyn Writer<Vec<T>>>, Cause> {
        Ok(Box::new(ByKeyWriter {
            inner: self.sink.open(worker, control)?,
            key: Arc::clone(&self.key),
            encode: Arc::clone(&self.encode),
            batch: KeyedFrames::default(),
        }))
    }
    fn over(&self, _: Arc<dyn Sink<Frames>>) -> Option<Arc<dyn Sink<Vec<T>>>> {
        // Frames have no keys.
        None
    }
}

struct ByKeyWriter<K, F> {
    inner: Box<dyn Writer<KeyedFrames>>,
    key: Arc<K>,
    encode: Arc<F>,
    batch: KeyedFrames,
}

#[warn(clippy::missing_trait_methods)]
impl<K, F, T> Writer<Vec<T>> for ByKeyWriter<K, F>
where
    K: Fn(&T) -> String,
    F: Fn(&T, &mut Vec<u8>),
{
    fn write_batch(&mut self, batch: &mut Vec<T>) -> Result<(), Cause> {
        let KeyedFrames { keys, frames } = &mut self.batch;
        for each in [&mut *keys, &mut *frames] {
            each.clear();
        }
        for item in batch.drain(..) {
            let key = (self.key)(&item);
            keys.append(|out| {
                out.push(b't');
                out.extend_from_slice(key.as_bytes());
            })?;
            frames.append(|out| (self.encode)(&item, out))?;
        }
        self.inner.write_batch(&mut self.batch)
    }
    forward_writer!(this => this.inner);
}
