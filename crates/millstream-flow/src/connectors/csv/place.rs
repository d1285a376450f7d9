//! Where in a file something is: line and column of a field, for errors. It reads the file again, so that reading well
//! costs nothing for it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::dialect::Dialect;

/// How much of a record is looked at.
const LOOK_BYTES: u64 = 1 << 20;

/// An error about field `index`, from 0, of the record at `offset`.
pub(super) fn said(path: &Path, dialect: Dialect, offset: u64, index: usize, what: &str) -> String {
    let shown = path.display();
    match locate(path, dialect, offset, |starts, _| {
        starts.get(index).copied()
    }) {
        Ok((line, column)) => format!("{shown}, line {line}, column {column}: {what}"),
        Err(_) => format!("{shown}, offset {offset}: {what}"),
    }
}

/// An error about the quote that is open at the end of the record at `offset`.
pub(super) fn unclosed(path: &Path, dialect: Dialect, offset: u64, what: &str) -> String {
    let shown = path.display();
    match locate(path, dialect, offset, |_, quote| quote) {
        Ok((line, column)) => format!("{shown}, line {line}, column {column}: {what}"),
        Err(_) => format!("{shown}, offset {offset}: {what}"),
    }
}

/// Line and column, from 1, of what `choose` gives of the starts of the fields and of an open quote; of the record's end if
/// it gives nothing. A column counts characters.
fn locate(
    path: &Path,
    dialect: Dialect,
    offset: u64,
    choose: impl FnOnce(&[usize], Option<usize>) -> Option<usize>,
) -> std::io::Result<(u64, usize)> {
    let mut file = BufReader::new(File::open(path)?);
    let mut line = 1;
    let mut left = offset;
    while left > 0 {
        let bytes = file.fill_buf()?;
        if bytes.is_empty() {
            break;
        }
        let used = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        line += memchr::memchr_iter(b'\n', &bytes[..used]).count() as u64;
        file.consume(used);
        left -= used as u64;
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut record = Vec::new();
    file.take(LOOK_BYTES).read_to_end(&mut record)?;
    let (starts, quote, end) = scan(&record, dialect);
    let at = choose(&starts, quote).unwrap_or(end);
    let before = &record[..at];
    let within = memchr::memchr_iter(b'\n', before).count() as u64;
    let start = memchr::memrchr(b'\n', before).map_or(0, |end| end + 1);
    let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
    Ok((line + within, column))
}

/// Where the fields of the record that `bytes` begins with start, where a quote is that is not closed, and where the record
/// ends.
fn scan(bytes: &[u8], dialect: Dialect) -> (Vec<usize>, Option<usize>, usize) {
    let mut starts = vec![0];
    let mut quoted = None;
    let mut is_start = true;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let is_quote = Some(byte) == dialect.quote;
        if quoted.is_some() {
            match (is_quote, bytes.get(at + 1)) {
                (true, Some(&next)) if next == byte => at += 1,
                (true, _) => quoted = None,
                (false, _) => {}
            }
        } else if is_quote && is_start {
            quoted = Some(at);
        } else if byte == b'\n' || byte == b'\r' {
            return (starts, None, at);
        } else if byte == dialect.delimiter {
            starts.push(at + 1);
            is_start = true;
            at += 1;
            continue;
        }
        is_start = false;
        at += 1;
    }
    (starts, quoted, at)
}
