//! Files as sources and sinks: lines or frames, read from any position.

use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use crate::codec::{self, Decoded};
use crate::control::{Control, lock};
use crate::error::Cause;
use crate::framing::{Cutter, Frames, Framing, encode};
use crate::poller::Io;
use crate::sink::{Sink, Writer};
use crate::source::{Events, Next, Partition, Position, Source};

/// How much of a file is read at once.
const READ_BYTES: usize = 64 << 10;
/// The longest frame unless told otherwise.
const MAX_FRAME_BYTES: usize = 1 << 20;

/// A source of frames from files, each a partition. See [`read`].
#[derive(Clone, Debug)]
pub struct ReadFiles {
    paths: Vec<PathBuf>,
    framing: Framing,
    max_frame_bytes: usize,
    from: Position,
}

/// Reads files; each is a partition of its own. Lines unless told otherwise.
pub fn read<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> ReadFiles {
    ReadFiles {
        paths: paths
            .into_iter()
            .map(|path| path.as_ref().to_owned())
            .collect(),
        framing: Framing::Lines,
        max_frame_bytes: MAX_FRAME_BYTES,
        from: 0,
    }
}

/// The type of a decoder that reads text.
pub type TextDecoder = fn(&[u8]) -> Result<String, std::str::Utf8Error>;

/// The lines of a text file.
pub fn lines(path: impl AsRef<Path>) -> Decoded<ReadFiles, TextDecoder> {
    codec::decode(read([path]), codec::text as TextDecoder)
}

impl ReadFiles {
    /// How frames are told apart.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }
    /// The longest frame that is taken for sane; a longer one is an error with its offset.
    #[must_use]
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.max_frame_bytes = bytes;
        self
    }
    /// Starts at this byte of each file, which must be the first of a frame.
    #[must_use]
    pub fn from_position(mut self, position: Position) -> Self {
        self.from = position;
        self
    }
}

impl Source<Frames> for ReadFiles {
    fn describe(&self) -> String {
        let names: Vec<_> = self
            .paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        format!("file {}, {}", names.join(" "), self.framing)
    }
    fn partitions(&self) -> Result<Vec<String>, Cause> {
        Ok(self
            .paths
            .iter()
            .map(|path| path.display().to_string())
            .collect())
    }
    fn open(
        &self,
        partition: usize,
        resume: Option<Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Frames>>, Cause> {
        let path = self.paths[partition].clone();
        let named = |error: std::io::Error| {
            std::io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let mut file = File::open(&path).map_err(named)?;
        let start = resume.unwrap_or(self.from);
        file.seek(SeekFrom::Start(start)).map_err(named)?;
        Ok(Box::new(FilePartition {
            file,
            path,
            start,
            cutter: Cutter::new(self.framing.clone(), self.max_frame_bytes),
            tail: Vec::new(),
            ended: false,
        }))
    }
}

struct FilePartition {
    file: File,
    path: PathBuf,
    start: Position,
    cutter: Cutter,
    /// The bytes of a frame that is not whole yet.
    tail: Vec<u8>,
    ended: bool,
}

impl FilePartition {
    fn located(&self, error: &dyn std::error::Error) -> Cause {
        format!(
            "{} (read from byte {}): {error}",
            self.path.display(),
            self.start
        )
        .into()
    }
}

impl Partition<Frames> for FilePartition {
    fn next_batch(&mut self, batch: &mut Frames, _: &mut Events<'_>) -> Result<Next, Cause> {
        while !self.ended {
            let offset = self.position();
            batch.data.clear();
            batch.data.append(&mut self.tail);
            let had = batch.data.len();
            // A frame longer than the buffer is read in growing pieces.
            let want = READ_BYTES.max(had);
            let limit = want as u64;
            (&mut self.file)
                .take(limit)
                .read_to_end(&mut batch.data)
                .map_err(|error| format!("{}: {error}", self.path.display()))?;
            let cut = self.cutter.cut(&batch.data, 0, &mut batch.spans);
            // The frames in front of a broken one are good: they go first, the error comes next.
            let used = (self.position() - offset) as usize;
            if let Err(error) = cut {
                if batch.spans.is_empty() {
                    return Err(self.located(&error));
                }
                self.tail.extend_from_slice(&batch.data[used..]);
                batch.offset = offset;
                return Ok(Next::Batch);
            }
            if batch.data.len() == had {
                self.ended = true;
                let rest = &batch.data[used..];
                let finish = self.cutter.finish(rest, used, &mut batch.spans);
                finish.map_err(|error| self.located(&error))?;
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
    fn position(&self) -> Position {
        self.start + self.cutter.offset()
    }
}

/// A sink of frames into a file. See [`write`].
pub struct WriteFile {
    path: PathBuf,
    framing: Framing,
    /// The file as the workers of the current run share it.
    file: Mutex<Weak<Mutex<BufWriter<File>>>>,
}

/// Writes to a file, which is made anew. Lines unless told otherwise. All workers write to the one
/// file, batch by batch.
pub fn write(path: impl AsRef<Path>) -> WriteFile {
    WriteFile {
        path: path.as_ref().to_owned(),
        framing: Framing::Lines,
        file: Mutex::default(),
    }
}

impl WriteFile {
    /// How frames are told apart.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }
}

impl Sink<Frames> for WriteFile {
    fn describe(&self) -> String {
        format!("file {}, {}", self.path.display(), self.framing)
    }
    fn open(&self, _: usize, _: &Arc<Control>) -> Result<Box<dyn Writer<Frames>>, Cause> {
        let mut shared = lock(&self.file);
        let file = match shared.upgrade() {
            Some(open) => open,
            None => {
                let file = File::create(&self.path)
                    .map_err(|error| format!("{}: {error}", self.path.display()))?;
                let open = Arc::new(Mutex::new(BufWriter::with_capacity(READ_BYTES, file)));
                *shared = Arc::downgrade(&open);
                open
            }
        };
        let framing = self.framing.clone();
        Ok(Box::new(FileWriter {
            file,
            framing,
            path: self.path.clone(),
            buffer: Vec::new(),
        }))
    }
}

struct FileWriter {
    file: Arc<Mutex<BufWriter<File>>>,
    framing: Framing,
    path: PathBuf,
    buffer: Vec<u8>,
}

impl FileWriter {
    fn named(&self, error: &std::io::Error) -> Cause {
        format!("{}: {error}", self.path.display()).into()
    }
}

impl Writer<Frames> for FileWriter {
    fn write_batch(&mut self, batch: &mut Frames) -> Result<(), Cause> {
        self.buffer.clear();
        for frame in batch.iter() {
            encode(&self.framing, frame, &mut self.buffer)?;
        }
        let written = lock(&self.file).write_all(&self.buffer);
        written.map_err(|error| self.named(&error))
    }
    fn flush(&mut self) -> Result<(), Cause> {
        let flushed = lock(&self.file).flush();
        flushed.map_err(|error| self.named(&error))
    }
}
