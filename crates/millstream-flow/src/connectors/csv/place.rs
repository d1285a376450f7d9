//! Finds the line and column of a field for an error. It reads the file again, so that successful parsing does
//! not have to count lines; each part of the file once, as long as errors are in its order.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::Mutex;

use super::dialect::Dialect;
use crate::compression::{Compression, Contents};
use crate::mutex::lock;

/// A CSV file and how it is read.
#[derive(Debug)]
pub(super) struct CsvPath {
    pub(super) path: PathBuf,
    pub(super) dialect: Dialect,
    pub(super) compression: Compression,
    /// The offset of the record that was located last, and its line.
    pub(super) located: Mutex<(u64, u64)>,
}

/// The number of bytes of a record that are scanned.
const SCAN_BYTES_MAX: u64 = 1 << 20;

/// Formats an error about field `index`, from 0, of the record at `offset`.
pub(super) fn field_error(file: &CsvPath, offset: u64, index: usize, what: &str) -> String {
    let shown = file.path.display();
    match locate(file, offset, |starts, _| starts.get(index).copied()) {
        Ok((line, column)) => format!("{shown}, line {line}, column {column}: {what}"),
        Err(_) => format!("{shown}, offset {offset}: {what}"),
    }
}

/// Formats an error about the quote that is open at the end of the record at `offset`.
pub(super) fn quote_error(file: &CsvPath, offset: u64, what: &str) -> String {
    let shown = file.path.display();
    match locate(file, offset, |_, quote| quote) {
        Ok((line, column)) => format!("{shown}, line {line}, column {column}: {what}"),
        Err(_) => format!("{shown}, offset {offset}: {what}"),
    }
}

/// Returns the place of the record at `offset`: the path, and the line if the file can still be read.
pub(super) fn of_record(file: &CsvPath, offset: u64) -> String {
    let shown = file.path.display();
    match locate(file, offset, |_, _| Some(0)) {
        Ok((line, _)) => format!("{shown}, line {line}"),
        Err(_) => format!("{shown}, offset {offset}"),
    }
}

/// Returns the line and column, from 1, of the byte that `choose` selects from the starts of the fields and an
/// open quote; of the record's end if it selects none. A column counts characters.
fn locate(
    csv: &CsvPath,
    offset: u64,
    choose: impl FnOnce(&[usize], Option<usize>) -> Option<usize>,
) -> std::io::Result<(u64, usize)> {
    let (from, mut line) = match *lock(&csv.located) {
        known if known.0 <= offset => known,
        _ => (0, 1),
    };
    let mut file = BufReader::new(Contents::open(&csv.path, csv.compression, from)?);
    let mut left = offset - from;
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
    *lock(&csv.located) = (offset, line);
    let mut record = Vec::new();
    file.take(SCAN_BYTES_MAX).read_to_end(&mut record)?;
    let (starts, quote, end) = scan(&record, csv.dialect);
    let at = choose(&starts, quote).unwrap_or(end);
    let before = &record[..at];
    let within = memchr::memchr_iter(b'\n', before).count() as u64;
    let start = memchr::memrchr(b'\n', before).map_or(0, |end| end + 1);
    let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
    Ok((line + within, column))
}

/// Returns the starts of the fields of the record at the start of `bytes`, the position of a quote that is not
/// closed, and the end of the record.
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
