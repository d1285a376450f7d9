//! Finds the byte at which a file resumes that may have grown since it was read.

use std::io::Read;
use std::path::Path;

use crate::compression::{Compression, Contents};
use crate::error::{Cause, context};
use crate::named::DROP_STATE;

/// Returns the byte at which a file of frames resumes that was read up to `position`.
///
/// # Errors
/// The file is shorter than that.
pub(crate) fn byte_after(
    path: &Path,
    compression: Compression,
    position: u64,
) -> Result<u64, Cause> {
    check_length(path, compression, position).map(|_| position)
}

/// Returns the byte at which a file of lines resumes that was read up to `position`: after a line end that was
/// added to the last line.
///
/// # Errors
/// The file is shorter than that, or the last line that was read has grown.
pub(crate) fn line_after(
    path: &Path,
    compression: Compression,
    position: u64,
) -> Result<u64, Cause> {
    if !check_length(path, compression, position)? || position == 0 {
        return Ok(position);
    }
    let named = |error: std::io::Error| context(path.display(), error);
    let mut around = Vec::new();
    let file = Contents::open(path, compression, position - 1).map_err(named)?;
    file.take(3).read_to_end(&mut around).map_err(named)?;
    match around.as_slice() {
        [b'\n', ..] | [_] | [] => Ok(position),
        [_, b'\n', ..] => Ok(position + 1),
        [_, b'\r', b'\n'] => Ok(position + 2),
        _ => Err(format!(
            "{}: the line before byte {position} was read without its end, and has grown since; end lines with a line feed, or \
             drop the state of the source ({DROP_STATE}) to start again",
            path.display()
        )
        .into()),
    }
}

/// Returns the byte at which a CSV file resumes that was read up to `position`.
///
/// # Errors
/// As for [`line_after`].
pub(crate) fn row_after(
    path: &Path,
    compression: Compression,
    position: u64,
) -> Result<u64, Cause> {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    if !check_length(path, compression, position)? || position == 0 {
        return Ok(position);
    }
    let named = |error: std::io::Error| context(path.display(), error);
    let from = position.saturating_sub(MARK.len() as u64);
    let mut before = Vec::new();
    let file = Contents::open(path, compression, from).map_err(named)?;
    file.take(position - from)
        .read_to_end(&mut before)
        .map_err(named)?;
    // A row may end with a carriage return alone, and a byte order mark is not part of a row.
    if before.ends_with(b"\r") || (from == 0 && before == MARK) {
        Ok(position)
    } else {
        line_after(path, compression, position)
    }
}

/// Checks that a file has `position` bytes or more. False if it does not exist: reading it reports the error. The
/// bytes of a compressed file are counted when it is opened.
fn check_length(path: &Path, compression: Compression, position: u64) -> Result<bool, Cause> {
    let Ok(about) = std::fs::metadata(path) else {
        return Ok(false);
    };
    let is_compressed = compression.of(path) != Compression::Uncompressed;
    if !is_compressed && about.is_file() && about.len() < position {
        Err(format!(
            "{}: it has {} bytes, fewer than the {position} that were read; put it back, or drop the state of the \
             source ({DROP_STATE}) to start again",
            path.display(),
            about.len()
        )
        .into())
    } else {
        Ok(true)
    }
}
