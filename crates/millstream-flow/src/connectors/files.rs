//! Files as sources and sinks: lines or other frames, read from any position.

mod by_key;
mod index;
mod key_name;
pub(crate) mod resume;
mod written;

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use millstream_journal::storage::sync_entry;

use crate::cluster::Membership;
use crate::compression::Compression;
use crate::connectors::codec::{self, Decoded};
use crate::connectors::first_bytes::{self, KnownFile};
use crate::connectors::format::Format;
use crate::control::Control;
use crate::error::{Cause, context};
use crate::framing::FramingError;
use crate::framing::{Cutter, Frames, Framing, Origin, encode};
use crate::input::{Input, of_machine};
use crate::metrics::lag::Lag;
use crate::mutex::lock;
use crate::named::DROP_STATE;
use crate::poller::Io;
use crate::shared_log::{CurrentLog, Log, SharedLog};
use crate::sink::{Output, OwnPath, Sink, Token, Transactional, Writer};
use crate::source::{Events, Next, Partition, Position, Resumable, Source, SourceSettings};

use written::Written;

pub use by_key::{ByKey, KeyedFrames, WriteByKey, by_key, write_by_key};

/// The number of bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// The default for the longest frame.
const MAX_FRAME_BYTES: usize = 1 << 20;

/// A source of frames from files, with a partition for each file. See [`read`].
#[derive(Clone, Debug)]
pub struct ReadFiles {
    paths: Vec<PathBuf>,
    framing: Framing,
    max_frame_bytes: usize,
    from: u64,
    compression: Compression,
    local: bool,
}

/// Reads files, with a partition for each file. The default framing is lines.
pub fn read<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> ReadFiles {
    ReadFiles {
        paths: paths
            .into_iter()
            .map(|path| path.as_ref().to_owned())
            .collect(),
        framing: Framing::Lines,
        max_frame_bytes: MAX_FRAME_BYTES,
        from: 0,
        compression: Compression::ByName,
        local: false,
    }
}

/// The type of a decoder that reads text.
pub type TextDecoder = fn(&[u8]) -> Result<String, std::str::Utf8Error>;

/// Reads the lines of a text file.
pub fn lines(path: impl AsRef<Path>) -> Decoded<ReadFiles, TextDecoder> {
    codec::decode(read([path]), codec::text as TextDecoder)
}

impl<D> Decoded<ReadFiles, D> {
    /// Lets each process of a run read the files of its own machine, as for [`ReadFiles::local`].
    #[must_use]
    pub fn local(self, local: bool) -> Self {
        self.with_source(|source| source.local(local))
    }
}

impl ReadFiles {
    /// Sets the framing of the files.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }
    /// Sets the longest allowed frame; a longer one is an error with its offset. The default is 1 MiB.
    #[must_use]
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.max_frame_bytes = bytes;
        self
    }
    /// Sets the compression of the files. By default the ending of its name decides for each file.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }
    /// Lets each process of a run read the files of its own machine. By default all processes must have the same files,
    /// each of which one of them reads.
    #[must_use]
    pub fn local(mut self, local: bool) -> Self {
        self.local = local;
        self
    }
    /// Starts at this byte of each file, after decompression, which must be the first byte of a frame.
    #[must_use]
    pub fn from_position(mut self, position: u64) -> Self {
        self.from = position;
        self
    }
}

/// Whether two paths refer to the same file.
pub(crate) fn is_same_file(one: &str, other: &str) -> bool {
    let real = |path: &str| std::fs::canonicalize(path).ok();
    real(one).is_some_and(|path| real(other) == Some(path))
}

impl Source<Frames> for ReadFiles {
    fn describe(&self) -> String {
        let names: Vec<_> = self
            .paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let whose = of_machine(self.local);
        format!("file {}, {}{whose}", names.join(" "), self.framing)
    }
    fn partitions(&self, _: usize) -> Result<Vec<String>, Cause> {
        Ok(self
            .paths
            .iter()
            .map(|path| path.display().to_string())
            .collect())
    }
    fn open(
        &self,
        partition: usize,
        resume: Option<&Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Frames>>, Cause> {
        let path = &self.paths[partition];
        let start = match resume.map(Position::require_number).transpose()? {
            Some(position) if position != self.from => self.resumes_at(path, position)?,
            _ => self.from,
        };
        if let Some(position) = resume {
            first_bytes::compare(path, self.compression, position)?;
        }
        self.open_file(path, start)
    }
    fn settings(&self) -> SourceSettings {
        SourceSettings {
            inputs: self.paths.iter().cloned().map(Input::File).collect(),
            local: self.local,
            ..SourceSettings::default()
        }
    }
    fn resumable(&self) -> Option<&dyn Resumable> {
        Some(self)
    }
}

impl Resumable for ReadFiles {
    fn is_same_partition(&self, name: &str, saved: &str) -> bool {
        is_same_file(name, saved)
    }
}

impl Format<Frames> for ReadFiles {
    fn is_compressed(&self, path: &Path) -> bool {
        self.compression.of(path) != Compression::Uncompressed
    }
    fn describe_format(&self) -> String {
        self.framing.to_string()
    }
    fn resumes_at(&self, path: &Path, position: u64) -> Result<u64, Cause> {
        match self.framing {
            Framing::Lines => resume::line_after(path, self.compression, position),
            Framing::Prefix { .. } | Framing::Fixed(_) => {
                resume::byte_after(path, self.compression, position)
            }
        }
    }
    fn open_file(&self, path: &Path, start: u64) -> Result<Box<dyn Partition<Frames>>, Cause> {
        let named = |error: std::io::Error| {
            std::io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let file = KnownFile::open(path, self.compression, start).map_err(named)?;
        let has_lines = self.framing == Framing::Lines;
        Ok(Box::new(FilePartition {
            file,
            path: path.to_owned(),
            start,
            origin: Arc::new(Origin::new(path, self.compression, has_lines)),
            cutter: Cutter::new(self.framing.clone(), self.max_frame_bytes),
            tail: Vec::new(),
            held: Frames::default(),
            ended: false,
        }))
    }
}

struct FilePartition {
    file: KnownFile,
    path: PathBuf,
    start: u64,
    origin: Arc<Origin>,
    cutter: Cutter,
    /// The bytes of a frame that is not complete yet.
    tail: Vec<u8>,
    /// Frames that were read and are not passed on yet.
    held: Frames,
    ended: bool,
}

impl FilePartition {
    fn located(&self, error: FramingError) -> Cause {
        let at = format_args!("{} (read from byte {})", self.path.display(), self.start);
        context(at, error)
    }
}

impl Partition<Frames> for FilePartition {
    fn next_batch(&mut self, batch: &mut Frames, events: &mut Events<'_>) -> Result<Next, Cause> {
        if self.held.is_empty() {
            let next = self.read(batch)?;
            if batch.len() > events.limit() {
                std::mem::swap(batch, &mut self.held);
            } else {
                return Ok(next);
            }
        }
        *batch = self.held.take_first(events.limit());
        Ok(Next::Batch)
    }
    fn lag(&self) -> Option<Lag> {
        let bytes = self.file.length()?.saturating_sub(self.passed_to());
        Some(Lag {
            bytes: Some(bytes),
            ..Lag::default()
        })
    }
    fn position(&self) -> Result<Position, Cause> {
        Ok(self.file.position(self.passed_to()))
    }
}

impl FilePartition {
    /// The offset in the file of the first byte that was not passed on.
    fn passed_to(&self) -> u64 {
        match self.held.spans.first() {
            Some((start, _)) => self.held_from(*start),
            None => self.read_to(),
        }
    }

    /// The offset in the file of the first byte that is not divided into frames.
    fn read_to(&self) -> u64 {
        self.start + self.cutter.offset()
    }

    /// The offset in the file of the held frame whose payload starts at `start` in the buffer.
    fn held_from(&self, start: u32) -> u64 {
        let prefix = match self.cutter.framing() {
            Framing::Prefix { width, .. } => width.bytes() as u64,
            Framing::Fixed(_) | Framing::Lines => 0,
        };
        self.held.offset + u64::from(start) - prefix
    }

    /// Reads until there are complete frames, or the file ends.
    fn read(&mut self, batch: &mut Frames) -> Result<Next, Cause> {
        while !self.ended {
            let offset = self.read_to();
            batch.origin = Some(Arc::clone(&self.origin));
            batch.data.clear();
            batch.data.append(&mut self.tail);
            let had = batch.data.len();
            // A frame longer than the buffer is read in growing pieces.
            let want = READ_BYTES.max(had);
            let limit = want as u64;
            (&mut self.file)
                .take(limit)
                .read_to_end(&mut batch.data)
                .map_err(|error| context(self.path.display(), error))?;
            let cut = self.cutter.cut(&batch.data, 0, &mut batch.spans);
            // The frames before a broken one are valid: they are returned first, and the error with the next
            // call.
            let used = (self.read_to() - offset) as usize;
            if let Err(error) = cut {
                if batch.spans.is_empty() {
                    return Err(self.located(error));
                }
                self.tail.extend_from_slice(&batch.data[used..]);
                batch.offset = offset;
                return Ok(Next::Batch);
            }
            if batch.data.len() == had {
                self.ended = true;
                let rest = &batch.data[used..];
                let finish = self.cutter.finish(rest, used, &mut batch.spans);
                finish.map_err(|error| self.located(error))?;
            } else {
                self.tail.extend_from_slice(&batch.data[used..]);
            }
            batch.offset = offset;
            if !batch.spans.is_empty() {
                return Ok(Next::Batch);
            }
        }
        Ok(Next::End)
    }
}

/// A sink of frames into a file. See [`write()`].
pub struct WriteFile {
    path: OwnPath,
    /// `None`: frames are written unchanged.
    framing: Option<Framing>,
    /// The bytes at the beginning of the file.
    preamble: Vec<u8>,
    compression: Compression,
    /// The file, which the workers of the current run share.
    file: CurrentLog<Written>,
    /// The length at which a run resumes.
    resume: Mutex<Option<u64>>,
    /// Whether the name of the file is known to survive a loss of power.
    is_named: AtomicBool,
}

/// Writes to a file, which is created anew. The default framing is lines. All workers write to the one file,
/// batch by batch. With recovery a run that resumes truncates the file to its length at the last committed
/// epoch.
pub fn write(path: impl AsRef<Path>) -> WriteFile {
    WriteFile {
        path: OwnPath::new(path),
        framing: Some(Framing::Lines),
        preamble: Vec::new(),
        compression: Compression::ByName,
        file: CurrentLog::default(),
        resume: Mutex::default(),
        is_named: AtomicBool::new(false),
    }
}

impl WriteFile {
    /// Sets the framing of the file.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Self {
        self.framing = Some(framing);
        self
    }
    /// Writes frames unchanged, with nothing between them.
    #[must_use]
    pub fn raw(mut self) -> Self {
        self.framing = None;
        self
    }
    /// Sets the compression of the file. By default the ending of its name decides. A compressed file can be read
    /// as far as the last commit, and after the end of the run; each commit ends a member (gzip) or frame (zstd).
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }
    /// Sets the bytes at the beginning of the file.
    #[must_use]
    pub fn preamble(mut self, bytes: &[u8]) -> Self {
        self.preamble = bytes.to_owned();
        self
    }

    fn named(&self, error: std::io::Error) -> Cause {
        context(self.path.get().display(), error)
    }

    /// Opens the file where the run begins: at its committed length, or empty.
    fn open_file(&self) -> Result<Written, Cause> {
        let resume = lock(&self.resume).take();
        let path = std::path::absolute(self.path.get()).map_err(|error| self.named(error))?;
        let length = resume.unwrap_or(0);
        let file = self.begin_at(length, resume.is_none())?;
        let mut written = Written::new(file, length, &path, self.compression);
        written.is_exact = resume.is_some();
        if written.length() == 0 {
            written.append(&mut self.preamble.clone())?;
        }
        Ok(written)
    }

    /// Opens the file for this run alone, truncated to `length`. Writes go to its end, wherever another program moves
    /// that.
    fn begin_at(&self, length: u64, creates: bool) -> Result<File, Cause> {
        let path = self.path.get();
        let opened = OpenOptions::new().append(true).create(creates).open(&path);
        let file = opened.map_err(|error| self.named(error))?;
        // A pipe or a device has no length.
        if file.metadata().is_ok_and(|about| about.is_file()) {
            written::hold(&file, &path)?;
            file.set_len(length).map_err(|error| self.named(error))?;
        }
        Ok(file)
    }
}

impl Sink<Frames> for WriteFile {
    fn describe(&self) -> String {
        let path = self.path.given().display();
        match &self.framing {
            Some(framing) => format!("file {path}, {framing}"),
            None => format!("file {path}"),
        }
    }
    fn open(&self, _: usize, control: &Arc<Control>) -> Result<Box<dyn Writer<Frames>>, Cause> {
        let (file, writer) = self.file.join(control, || self.open_file())?;
        Ok(Box::new(FileWriter {
            file,
            writer,
            framing: self.framing.clone(),
            buffer: Vec::new(),
        }))
    }
    fn join(&self, membership: Option<Membership>) -> Option<PathBuf> {
        self.path.join(membership)
    }
    fn output(&self, _: bool) -> Option<Output> {
        Some(Output {
            path: self.path.given().to_owned(),
            sink: std::ptr::from_ref(self).addr(),
        })
    }
    fn transactional(&self) -> Option<&dyn Transactional> {
        Some(self)
    }
}

impl Transactional for WriteFile {
    fn resume(&self, tokens: &[Token]) -> Result<Option<Token>, Cause> {
        let length = match tokens {
            [] => {
                self.begin_at(0, true)?;
                0
            }
            tokens => length_of(tokens)?,
        };
        let file = std::fs::metadata(self.path.get()).map_err(|error| self.named(error))?;
        if file.len() < length {
            return Err(format!(
                "{}: it has {} bytes, fewer than the {length} that were committed; put it back, or \
                 drop the state of the sink ({DROP_STATE}) to start again",
                self.path.get().display(),
                file.len()
            )
            .into());
        }
        *lock(&self.resume) = Some(length);
        self.is_named.store(false, Ordering::Relaxed);
        self.file.begin_commits();
        Ok(Some(token_of(length)))
    }
    fn sync(&self) -> Result<(), Cause> {
        let Some(file) = self.file.get() else {
            return Ok(());
        };
        // The file is synced after the lock is released, so that writers do not wait.
        let handle = lock(&file).log().file().try_clone();
        let synced = handle.and_then(|handle| {
            handle.sync_data()?;
            // A run may have created the file: a loss of power must not take its name.
            if !self.is_named.load(Ordering::Relaxed) {
                sync_entry(&self.path.get())?;
                self.is_named.store(true, Ordering::Relaxed);
            }
            Ok(())
        });
        synced.map_err(|error| self.named(error))
    }
    fn finish(&self) {
        self.file.end_commits();
    }
}

/// Returns the largest of the lengths that the writers of one log have prepared.
///
/// # Errors
/// A token is not a length.
#[doc(hidden)] // For the other crates of Millstream.
pub fn length_of(tokens: &[Token]) -> Result<u64, Cause> {
    let mut furthest = 0;
    for token in tokens {
        let bytes = token.as_slice().try_into();
        let length = bytes.map_err(|_| "the token of its last epoch is not a length")?;
        furthest = furthest.max(u64::from_le_bytes(length));
    }
    Ok(furthest)
}

/// Encodes a length or a position as a token, as [`length_of`] reads it: 8 bytes, least significant first.
///
/// ```
/// use millstream_flow::files::{length_of, token_of};
///
/// assert_eq!(length_of(&[token_of(7), token_of(12)])?, 12);
/// # Ok::<(), millstream_flow::error::Cause>(())
/// ```
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn token_of(length: u64) -> Token {
    length.to_le_bytes().to_vec()
}

struct FileWriter {
    file: Arc<Mutex<SharedLog<Written>>>,
    writer: usize,
    framing: Option<Framing>,
    buffer: Vec<u8>,
}

impl Writer<Frames> for FileWriter {
    fn write_batch(&mut self, batch: &mut Frames) -> Result<(), Cause> {
        self.buffer.clear();
        for frame in batch.iter() {
            match &self.framing {
                Some(framing) => encode(framing, frame, &mut self.buffer)?,
                None => self.buffer.extend_from_slice(frame),
            }
        }
        lock(&self.file).write(self.writer, &mut self.buffer)
    }
    fn flush(&mut self) -> Result<(), Cause> {
        lock(&self.file).flush()?;
        Ok(())
    }
    fn prepare(&mut self, epoch: u64) -> Result<Option<Token>, Cause> {
        let length = lock(&self.file).prepare(self.writer, epoch)?;
        Ok(length.map(token_of))
    }
    fn close(&mut self) -> Result<Option<Token>, Cause> {
        let end = lock(&self.file).leave(self.writer)?;
        Ok(end.map(token_of))
    }
}
