//! The partition of one CSV file.

use std::io::Read;
use std::sync::Arc;

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

use super::dialect::Header;
use super::place::{self, CsvPath};
use super::rows::{CsvFile, End, Rows};
use crate::connectors::first_bytes::KnownFile;
use crate::error::{Cause, context};
use crate::metrics::lag::Lag;
use crate::source::{Events, Next, Partition, Position};

/// The number of bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// A batch ends with this many rows, or with this many bytes.
const ROWS_MAX: usize = 1024;
const ROWS_BYTES: usize = 256 << 10;

/// The result of parsing.
enum Found {
    /// A row, appended to the batch.
    Row,
    End,
}

/// The bytes of a file and the progress of parsing.
struct Parsing {
    file: KnownFile,
    about: Arc<CsvPath>,
    max_record_bytes: usize,
    reader: Reader,
    buffer: Vec<u8>,
    /// The number of bytes of the buffer that are parsed.
    at: usize,
    /// Where the bytes begin that the batch has not kept; none before its first record.
    kept: Option<usize>,
    /// The offset in the file of the next byte to parse.
    offset: u64,
    /// The offset of the record that is being parsed.
    record: u64,
    /// The fields of the record that is being parsed: their bytes, their ends, and how many of both are used.
    fields: Vec<u8>,
    ends: Vec<usize>,
    used: (usize, usize),
}

impl Parsing {
    fn open(from: u64, about: Arc<CsvPath>, max_record_bytes: usize) -> Result<Self, Cause> {
        let path = &about.path;
        let dialect = about.dialect;
        let named = |error: std::io::Error| {
            std::io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let file = KnownFile::open(path, about.compression, from).map_err(named)?;
        let mut builder = ReaderBuilder::new();
        builder.delimiter(dialect.delimiter);
        match dialect.quote {
            Some(quote) => builder.quote(quote),
            None => builder.quoting(false),
        };
        let mut reader = builder.build();
        if from > 0 {
            // A byte order mark counts only at the start of a file.
            let _ = reader.read_record(b"\n", &mut [0; 8], &mut [0; 8]);
        }
        Ok(Parsing {
            file,
            about,
            max_record_bytes,
            reader,
            buffer: Vec::new(),
            at: 0,
            kept: None,
            offset: from,
            record: from,
            fields: vec![0; 4096],
            ends: vec![0; 64],
            used: (0, 0),
        })
    }

    /// Appends the bytes to `raw` that were parsed since the last time, as they are in the file.
    fn keep(&mut self, raw: &mut Vec<u8>) {
        if let Some(kept) = self.kept.replace(self.at) {
            raw.extend_from_slice(&self.buffer[kept..self.at]);
        }
    }

    /// Reads more bytes; false at the end of the file.
    fn refill(&mut self, raw: &mut Vec<u8>) -> Result<bool, Cause> {
        if self.kept.is_some() {
            self.keep(raw);
            self.kept = Some(0);
        }
        self.buffer.clear();
        self.at = 0;
        let piece = (&mut self.file).take(READ_BYTES as u64);
        let read = { piece }.read_to_end(&mut self.buffer);
        let read = read.map_err(|error| context(self.about.path.display(), error))?;
        Ok(read > 0)
    }

    /// Skips line ends between records, so that the offset of the next record is known. False at the end of the
    /// file.
    fn begin(&mut self, raw: &mut Vec<u8>) -> Result<bool, Cause> {
        loop {
            while let Some(b'\n' | b'\r') = self.buffer.get(self.at) {
                self.at += 1;
                self.offset += 1;
            }
            if self.at < self.buffer.len() {
                self.record = self.offset;
                self.used = (0, 0);
                self.kept.get_or_insert(self.at);
                return Ok(true);
            }
            if !self.refill(raw)? {
                self.record = self.offset;
                return Ok(false);
            }
        }
    }

    /// Parses the next record into `fields` and `ends`. Bytes that leave the buffer are appended to `raw`.
    fn next(&mut self, raw: &mut Vec<u8>) -> Result<Found, Cause> {
        if !self.begin(raw)? {
            return Ok(Found::End);
        }
        let mut is_over = false;
        loop {
            let input = if is_over {
                &b"\n"[..]
            } else {
                &self.buffer[self.at..]
            };
            let fields = &mut self.fields[self.used.0..];
            let ends = &mut self.ends[self.used.1..];
            let (result, read, bytes, count) = self.reader.read_record(input, fields, ends);
            self.used = (self.used.0 + bytes, self.used.1 + count);
            if !is_over {
                self.at += read;
                self.offset += read as u64;
            }
            match result {
                ReadRecordResult::Record => return Ok(Found::Row),
                ReadRecordResult::OutputFull => self.fields.resize(self.fields.len() * 2, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::End => return Ok(Found::End),
                // The parser took the line end for a part of the field.
                ReadRecordResult::InputEmpty if is_over => {
                    let what = "the quote is not closed before the end of the file";
                    return Err(self.unclosed(what));
                }
                ReadRecordResult::InputEmpty => is_over = !self.refill(raw)?,
            }
            let length = self.offset - self.record;
            if length > self.max_record_bytes as u64 {
                let what = format!(
                    "the record is longer than {} bytes; is a quote not closed?",
                    self.max_record_bytes
                );
                return Err(self.unclosed(&what));
            }
        }
    }

    fn unclosed(&self, what: &str) -> Cause {
        place::quote_error(&self.about, self.record, what).into()
    }

    /// The fields of the last parsed record, as text.
    fn names(&self) -> Result<Vec<String>, Cause> {
        let mut names: Vec<String> = Vec::new();
        let mut start = 0;
        let wrong = |index, what: &str| place::field_error(&self.about, self.record, index, what);
        for (index, end) in self.ends[..self.used.1].iter().enumerate() {
            let name = std::str::from_utf8(&self.fields[start..*end])
                .map_err(|_| wrong(index, "the name of a field is not UTF-8"))?;
            if names.iter().any(|other| other == name) {
                return Err(wrong(index, &format!("two fields have the name {name:?}")).into());
            }
            names.push(name.to_owned());
            start = *end;
        }
        Ok(names)
    }
}

/// A CSV file as a partition.
pub(super) struct CsvPartition {
    parsing: Parsing,
    file: Arc<CsvFile>,
    /// The position after the last batch.
    position: u64,
    /// The error after the rows that were returned last.
    failed: Option<Cause>,
}

impl CsvPartition {
    pub(super) fn open(
        about: CsvPath,
        from: u64,
        header: &Header,
        max_record_bytes: usize,
    ) -> Result<Self, Cause> {
        let about = Arc::new(about);
        let open = |from| Parsing::open(from, Arc::clone(&about), max_record_bytes);
        let mut parsing = open(from)?;
        let header = match header {
            Header::None => None,
            Header::Names(names) => Some(names.clone()),
            Header::First if from == 0 => Some(match parsing.next(&mut Vec::new())? {
                Found::Row => parsing.names()?,
                Found::End => Vec::new(),
            }),
            Header::First => {
                let mut first = open(0)?;
                first.next(&mut Vec::new())?;
                Some(first.names()?)
            }
        };
        Ok(CsvPartition {
            position: parsing.offset,
            parsing,
            file: Arc::new(CsvFile { about, header }),
            failed: None,
        })
    }
}

impl Partition<Rows> for CsvPartition {
    fn next_batch(&mut self, batch: &mut Rows, events: &mut Events<'_>) -> Result<Next, Cause> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        batch.file = Some(Arc::clone(&self.file));
        let most = ROWS_MAX.min(events.limit());
        self.parsing.kept = None;
        while batch.rows.len() < most && batch.data.len() < ROWS_BYTES {
            match self.parsing.next(&mut batch.raw) {
                Ok(Found::End) => break,
                Ok(Found::Row) => {}
                // The rows before a broken one are valid: they are returned first.
                Err(error) if batch.rows.is_empty() => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
            let (bytes, count) = self.parsing.used;
            let base = batch.data.len() as u32;
            batch.data.extend_from_slice(&self.parsing.fields[..bytes]);
            let ends = self.parsing.ends[..count].iter();
            batch.ends.extend(ends.map(|end| base + *end as u32));
            batch.rows.push(End {
                offset: self.parsing.record,
                fields: batch.ends.len() as u32,
                length: (self.parsing.offset - self.parsing.record) as u32,
            });
            self.position = self.parsing.offset;
        }
        self.parsing.keep(&mut batch.raw);
        if batch.rows.is_empty() {
            self.position = self.parsing.offset;
            Ok(Next::End)
        } else {
            Ok(Next::Batch)
        }
    }
    fn lag(&self) -> Option<Lag> {
        let length = self.parsing.file.length()?;
        Some(Lag {
            bytes: Some(length.saturating_sub(self.position)),
            ..Lag::default()
        })
    }
    fn position(&self) -> Result<Position, Cause> {
        Ok(self.parsing.file.position(self.position))
    }
}
