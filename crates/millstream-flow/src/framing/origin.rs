//! The file that frames come from. It finds the line of a frame for an error: it reads the file again, so that
//! successful reading does not have to count lines.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::compression::{Compression, Contents};

/// A file, for errors about its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    path: PathBuf,
    compression: Compression,
    has_lines: bool,
}

impl Origin {
    /// The origin of frames that are read from a file; `has_lines`: frames are lines.
    #[must_use]
    pub fn new(path: &Path, compression: Compression, has_lines: bool) -> Self {
        Origin {
            path: path.to_owned(),
            compression,
            has_lines,
        }
    }

    /// Describes the frame at `offset` for people: the path, and the number of the line if frames are lines.
    #[must_use]
    pub fn describe(&self, offset: u64) -> String {
        let path = self.path.display();
        match self.has_lines.then(|| self.line(offset)) {
            Some(Ok(line)) => format!("{path}, line {line}"),
            Some(Err(_)) | None => path.to_string(),
        }
    }

    /// Returns the number of the line at `offset`, from 1.
    fn line(&self, offset: u64) -> std::io::Result<u64> {
        let mut before =
            BufReader::new(Contents::open(&self.path, self.compression, 0)?.take(offset));
        let mut line = 1;
        loop {
            let bytes = before.fill_buf()?;
            if bytes.is_empty() {
                return Ok(line);
            }
            line += memchr::memchr_iter(b'\n', bytes).count() as u64;
            let used = bytes.len();
            before.consume(used);
        }
    }
}
