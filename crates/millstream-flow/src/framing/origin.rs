//! Where frames come from: a file, or a log whose records are numbered. It finds the line of a frame in a file for an
//! error: it reads the file again, so that successful reading does not have to count lines.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::compression::{Compression, Contents};

/// A file or a log, for errors about its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Origin(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    File {
        path: PathBuf,
        compression: Compression,
        has_lines: bool,
    },
    Log(String),
}

impl Origin {
    /// The origin of frames that are read from a file; `has_lines`: frames are lines.
    #[must_use]
    pub fn new(path: &Path, compression: Compression, has_lines: bool) -> Self {
        Origin(Kind::File {
            path: path.to_owned(),
            compression,
            has_lines,
        })
    }

    /// The origin of frames that are numbered records; `name` ends with what is counted: `topic "orders", partition 0,
    /// offset`.
    #[must_use]
    pub fn records(name: impl Into<String>) -> Self {
        Origin(Kind::Log(name.into()))
    }

    /// Describes a frame for people. In a file `at` is its offset, and the path is returned, with the number of the
    /// line if frames are lines; in a log it is the number of the record.
    #[must_use]
    pub fn describe(&self, at: u64) -> String {
        match &self.0 {
            Kind::Log(name) => format!("{name} {at}"),
            Kind::File {
                path,
                compression,
                has_lines,
            } => {
                let shown = path.display();
                match has_lines.then(|| line(path, *compression, at)) {
                    Some(Ok(line)) => format!("{shown}, line {line}"),
                    Some(Err(_)) | None => shown.to_string(),
                }
            }
        }
    }
}

/// Returns the number of the line at `offset`, from 1.
fn line(path: &Path, compression: Compression, offset: u64) -> std::io::Result<u64> {
    let mut before = BufReader::new(Contents::open(path, compression, 0)?.take(offset));
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
