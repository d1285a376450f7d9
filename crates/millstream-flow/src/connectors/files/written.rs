//! A file that is open for writing, compressed or not.
//!
//! Invariant: at the end of an epoch a compressed file ends with the end of a member, so that it can be truncated
//! there and new members follow.

use std::fs::{File, TryLockError};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::compression::{Compression, Compressor};
use crate::error::{Cause, context};
use crate::named::DROP_STATE;
use crate::shared_log::Log;

/// The number of bytes that are buffered before they are written.
const BUFFER_BYTES: usize = 64 << 10;

/// Locks a file or a directory for the run that writes to it.
///
/// # Errors
/// Another run writes to it.
pub(super) fn hold(file: &File, path: &Path) -> Result<(), Cause> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(format!(
            "{}: another run writes to it; stop that one, or give this one another path",
            path.display()
        )
        .into()),
        // There are file systems without locks.
        Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => Ok(()),
        Err(TryLockError::Error(error)) => Err(context(path.display(), error)),
    }
}

/// A file that is open for writing.
pub(super) struct Written {
    file: BufWriter<File>,
    length: u64,
    path: PathBuf,
    compressor: Option<Compressor>,
    /// Compressed bytes.
    compressed: Vec<u8>,
    /// Whether commits contain its length.
    pub(super) is_exact: bool,
}

impl Written {
    /// Writes at the end of `file`, which has `length` bytes.
    pub(super) fn new(file: File, length: u64, path: &Path, compression: Compression) -> Self {
        Written {
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            length,
            path: path.to_owned(),
            compressor: Compressor::of(path, compression),
            compressed: Vec::new(),
            is_exact: false,
        }
    }

    /// The length of the file with all that was written.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// The file.
    pub(super) fn file(&self) -> &File {
        self.file.get_ref()
    }

    fn append_bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let Some(compressor) = &mut self.compressor else {
            self.file.write_all(bytes)?;
            self.length += bytes.len() as u64;
            return Ok(());
        };
        compressor.append(bytes, &mut self.compressed)?;
        self.append_compressed()
    }

    fn append_compressed(&mut self) -> std::io::Result<()> {
        self.file.write_all(&self.compressed)?;
        self.length += self.compressed.len() as u64;
        self.compressed.clear();
        Ok(())
    }

    fn end_member(&mut self) -> std::io::Result<()> {
        if let Some(compressor) = &mut self.compressor {
            compressor.end_member(&mut self.compressed)?;
        }
        self.append_compressed()?;
        self.file.flush()
    }

    /// Checks that the file of this name has what was written: another program may have cut, moved or removed it.
    fn confirm(&self) -> Result<(), Cause> {
        let about = std::fs::metadata(&self.path).map_err(|error| self.named(error))?;
        if about.is_file() && about.len() != self.length {
            return Err(format!(
                "{}: it has {} bytes where {} were written: another program has cut, written or replaced it. \
                 Put the file back, or drop the state of the sink ({DROP_STATE}) to start again",
                self.path.display(),
                about.len(),
                self.length
            )
            .into());
        }
        Ok(())
    }

    fn named(&self, error: std::io::Error) -> Cause {
        context(self.path.display(), error)
    }
}

impl Log for Written {
    type Batch = Vec<u8>;

    fn append(&mut self, batch: &mut Vec<u8>) -> Result<(), Cause> {
        // A batch without bytes begins no member.
        if !batch.is_empty() {
            let written = self.append_bytes(batch);
            written.map_err(|error| self.named(error))?;
        }
        batch.clear();
        Ok(())
    }
    fn flush(&mut self) -> Result<u64, Cause> {
        let flushed = self.file.flush();
        flushed.map_err(|error| self.named(error))?;
        Ok(self.length)
    }
    fn prepare(&mut self) -> Result<u64, Cause> {
        let ended = self.end_member();
        ended.map_err(|error| self.named(error))?;
        if self.is_exact {
            self.confirm()?;
        }
        Ok(self.length)
    }
}
