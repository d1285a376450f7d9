//! Finds the byte at which a file resumes that may have grown since it was read.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::Cause;

/// Returns the byte at which a file of frames resumes that was read up to `position`.
///
/// # Errors
/// The file is shorter than that.
pub(crate) fn byte_after(path: &Path, position: u64) -> Result<u64, Cause> {
    open_at_least(path, position).map(|_| position)
}

/// Returns the byte at which a file of lines resumes that was read up to `position`: after a line end that was
/// added to the last line.
///
/// # Errors
/// The file is shorter than that, or the last line that was read has grown.
pub(crate) fn line_after(path: &Path, position: u64) -> Result<u64, Cause> {
    let Some(mut file) = open_at_least(path, position)?.filter(|_| position > 0) else {
        return Ok(position);
    };
    let named = |error: std::io::Error| Cause::from(format!("{}: {error}", path.display()));
    let mut around = Vec::new();
    file.seek(SeekFrom::Start(position - 1)).map_err(named)?;
    file.take(3).read_to_end(&mut around).map_err(named)?;
    match around.as_slice() {
        [b'\n', ..] | [_] | [] => Ok(position),
        [_, b'\n', ..] => Ok(position + 1),
        [_, b'\r', b'\n'] => Ok(position + 2),
        _ => Err(format!(
            "{}: the line before byte {position} was read without its end, and has grown since; end lines with a line feed, or \
             drop the state of the source (--drop-state) to start again",
            path.display()
        )
        .into()),
    }
}

/// Returns the byte at which a CSV file resumes that was read up to `position`.
///
/// # Errors
/// As for [`line_after`].
pub(crate) fn row_after(path: &Path, position: u64) -> Result<u64, Cause> {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    let Some(mut file) = open_at_least(path, position)?.filter(|_| position > 0) else {
        return Ok(position);
    };
    let named = |error: std::io::Error| Cause::from(format!("{}: {error}", path.display()));
    let from = position.saturating_sub(MARK.len() as u64);
    let mut before = Vec::new();
    file.seek(SeekFrom::Start(from)).map_err(named)?;
    file.take(position - from)
        .read_to_end(&mut before)
        .map_err(named)?;
    // A row may end with a carriage return alone, and a byte order mark is not part of a row.
    match before.ends_with(b"\r") || (from == 0 && before == MARK) {
        true => Ok(position),
        false => line_after(path, position),
    }
}

/// Opens a file that must have `position` bytes or more. `None` if it cannot be opened: reading it reports the
/// error.
fn open_at_least(path: &Path, position: u64) -> Result<Option<File>, Cause> {
    let Ok(file) = File::open(path) else {
        return Ok(None);
    };
    let about = file
        .metadata()
        .map_err(|error| format!("{}: {error}", path.display()))?;
    match about.is_file() && about.len() < position {
        false => Ok(Some(file)),
        true => Err(format!(
            "{}: it has {} bytes, fewer than the {position} that were read; put it back, or drop the state of the \
             source (--drop-state) to start again",
            path.display(),
            about.len()
        )
        .into()),
    }
}
