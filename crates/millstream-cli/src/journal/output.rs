//! The output of lines: standard output or a file. A closed standard output ends the verb.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use millstream_journal::Record;

use super::line::Lines;
use crate::outcome::{End, Outcome};

/// Bytes that are buffered before a write.
const BUFFER_BYTES: usize = 64 << 10;

/// Buffered lines. [`flush`](Self::flush) writes the last of them.
pub(crate) struct Output {
    to: Box<dyn Write>,
    path: Option<PathBuf>,
    buffer: Vec<u8>,
}

impl Output {
    /// Standard output.
    pub(crate) fn stdout() -> Self {
        Output {
            to: Box::new(io::stdout()),
            path: None,
            buffer: Vec::new(),
        }
    }

    /// A file, made anew, or standard output.
    pub(crate) fn open(path: Option<&Path>) -> Outcome<Self> {
        let Some(path) = path else {
            return Ok(Self::stdout());
        };
        let file = File::create(path)
            .map_err(|error| format!("cannot write '{}': {error}", path.display()))?;
        Ok(Output {
            to: Box::new(file),
            path: Some(path.to_path_buf()),
            buffer: Vec::new(),
        })
    }

    /// Write the line of a record.
    pub(super) fn record(&mut self, record: &Record<'_>, lines: &mut Lines) -> Outcome {
        lines.write(record, &mut self.buffer);
        self.flush_if_full()
    }

    /// Write a line.
    pub(crate) fn line(&mut self, text: impl std::fmt::Display) -> Outcome {
        // Writing to memory does not fail.
        let _written = writeln!(self.buffer, "{text}");
        self.flush_if_full()
    }

    fn flush_if_full(&mut self) -> Outcome {
        if self.buffer.len() < BUFFER_BYTES {
            return Ok(());
        }
        self.flush()
    }

    /// Write all that is left.
    pub(crate) fn flush(&mut self) -> Outcome {
        let written = self
            .to
            .write_all(&self.buffer)
            .and_then(|()| self.to.flush());
        self.buffer.clear();
        written.map_err(|error| match (&self.path, error.kind()) {
            (None, ErrorKind::BrokenPipe) => End::ReaderGone,
            (None, _) => format!("cannot write to standard output: {error}").into(),
            (Some(path), _) => format!("cannot write '{}': {error}", path.display()).into(),
        })
    }
}
