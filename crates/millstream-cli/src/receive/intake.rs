//! Where received messages are written and checked.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::dedupe::Dedupe;
use crate::failure::Failure;

/// The output file, the messages that are still wanted, and the checks of each.
pub(super) struct Intake {
    pub(super) out: Option<(PathBuf, BufWriter<File>)>,
    pub(super) left: u64,
    pub(super) expect_length: Option<usize>,
    pub(super) dedupe: Option<Dedupe>,
}

impl Intake {
    /// Whether a message is wanted.
    pub(super) fn admit(&mut self, message: &[u8]) -> Result<bool, String> {
        match &mut self.dedupe {
            Some(dedupe) => dedupe.admit(message),
            None => Ok(true),
        }
    }

    /// Flushes the file where messages are deduplicated: a receiver that is killed then loses nothing that it counted.
    pub(super) fn flush_numbered(&mut self) -> Result<(), Failure> {
        match self.dedupe {
            Some(_) => self.flush(),
            None => Ok(()),
        }
    }

    /// Flushes the file.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        match &mut self.out {
            Some((path, file)) => file.flush().map_err(|error| cannot_write(path, &error)),
            None => Ok(()),
        }
    }

    /// Writes bytes to the file, if there is one.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match &mut self.out {
            Some((path, file)) => file
                .write_all(bytes)
                .map_err(|error| cannot_write(path, &error)),
            None => Ok(()),
        }
    }
}

pub(super) fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot write '{}': {error}", path.display()))
}
