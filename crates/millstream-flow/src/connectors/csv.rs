//! CSV files as sources and sinks.
//!
//! The rules are those of Python's module `csv`, which are RFC 4180's and more lenient: a field that begins with a quote ends
//! with the next one that is not doubled, and may hold delimiters and line ends; a quote elsewhere is a character like
//! others; a record ends with LF, CR LF or CR; empty lines are skipped. Unlike there, a quote that is not closed is an
//! error, because it is a file that was cut. Parsing is by the crate `csv-core`.
//!
//! A source stands between records, so that a run resumes with the next one.
//!
//! ```
//! use millstream_flow::{Flow, Options, codec, csv, testing};
//!
//! let folder = tempfile::tempdir()?;
//! let (input, output) = (folder.path().join("in.csv"), folder.path().join("out.csv"));
//! std::fs::write(&input, "name,price\n\"tea, green\",3\ncoffee,4\n")?;
//! let flow = Flow::new("prices");
//! let prices = csv::read([&input]).decode(|row| -> Result<_, Box<dyn std::error::Error + Send + Sync>> {
//!     Ok((row.text(0)?.to_owned(), row.text(1)?.parse::<u32>()?))
//! });
//! let sink = codec::encode(csv::write(&output, &["price", "name"]), |item: &(String, u32), out| {
//!     csv::append_row([&item.1.to_string(), &item.0], out);
//! });
//! flow.source("prices", prices).sink("out", sink);
//! flow.run(Options::default())?;
//! assert_eq!(std::fs::read_to_string(&output)?, "price,name\n3,\"tea, green\"\n4,coffee\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod decoded;
mod partition;
mod place;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use csv_core::{WriteResult, Writer};

pub use decoded::DecodedRows;

use crate::batch::Batch;
use crate::connectors::directory::Format;
use crate::connectors::files::{self, WriteFile, grown};
use crate::error::Cause;
use crate::run::poller::Io;
use crate::source::{Partition, Position, Resumable, Source, SourceSettings};
use partition::CsvPartition;

/// The longest record unless told otherwise.
const MAX_RECORD_BYTES: usize = 1 << 20;

/// What tells fields apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Between fields.
    pub delimiter: u8,
    /// Around a field that holds delimiters, quotes or line ends. None: quotes are characters like others.
    pub quote: Option<u8>,
}

impl Default for Dialect {
    fn default() -> Self {
        Dialect {
            delimiter: b',',
            quote: Some(b'"'),
        }
    }
}

/// Where the names of fields come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// The first record of each file.
    First,
    /// These, and all records of a file are rows.
    Names(Vec<String>),
    /// Fields have no names, and all records of a file are rows, of any number of fields.
    None,
}

/// A source of rows from CSV files, each a partition. See [`read`].
#[derive(Clone, Debug)]
pub struct ReadCsv {
    paths: Vec<PathBuf>,
    dialect: Dialect,
    header: Header,
    max_record_bytes: usize,
}

/// Reads CSV files; each is a partition of its own. The first record of a file is its header unless told otherwise.
pub fn read<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> ReadCsv {
    let paths = paths.into_iter().map(|path| path.as_ref().to_owned());
    ReadCsv {
        paths: paths.collect(),
        dialect: Dialect::default(),
        header: Header::First,
        max_record_bytes: MAX_RECORD_BYTES,
    }
}

impl ReadCsv {
    /// What tells fields apart.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }
    /// Where the names of fields come from.
    #[must_use]
    pub fn header(mut self, header: Header) -> Self {
        self.header = header;
        self
    }
    /// The longest record that is taken for sane; a longer one is an error with its line.
    #[must_use]
    pub fn max_record(mut self, bytes: usize) -> Self {
        self.max_record_bytes = bytes;
        self
    }
    /// Makes an item of each row. A row that has another number of fields than there are names does not come to `decode`.
    pub fn decode<F, T, E>(self, decode: F) -> DecodedRows<Self, F>
    where
        F: Fn(Row<'_>) -> Result<T, E> + Send + Sync + 'static,
        E: Into<Cause>,
    {
        decoded::decode(self, decode)
    }
}

impl Source<Rows> for ReadCsv {
    fn describe(&self) -> String {
        let names: Vec<_> = self
            .paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        format!("file {}, csv", names.join(" "))
    }
    fn partitions(&self, _: usize) -> Result<Vec<String>, Cause> {
        Ok(self
            .paths
            .iter()
            .map(|path| path.display().to_string())
            .collect())
    }
    fn open(
        &self,
        partition: usize,
        resume: Option<Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Rows>>, Cause> {
        let path = &self.paths[partition];
        let start = resume.map_or(Ok(0), |position| self.resumes_at(path, position));
        self.open_file(path, start?)
    }
    fn settings(&self) -> SourceSettings {
        SourceSettings {
            inputs: self.paths.clone(),
            ..SourceSettings::default()
        }
    }
    fn resumable(&self) -> Option<&dyn Resumable> {
        Some(self)
    }
}

impl Resumable for ReadCsv {
    fn is_same_partition(&self, name: &str, saved: &str) -> bool {
        files::is_same_file(name, saved)
    }
}

impl Format<Rows> for ReadCsv {
    fn describe_format(&self) -> String {
        "csv".to_owned()
    }
    fn resumes_at(&self, path: &Path, position: Position) -> Result<Position, Cause> {
        grown::row_after(path, position)
    }
    fn open_file(&self, path: &Path, from: Position) -> Result<Box<dyn Partition<Rows>>, Cause> {
        Ok(Box::new(CsvPartition::open(
            path,
            from,
            self.dialect,
            &self.header,
            self.max_record_bytes,
        )?))
    }
}

/// A batch of rows of one file.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The fields of all rows, without quotes, one after the other.
    data: Vec<u8>,
    /// Where each field ends in `data`.
    ends: Vec<u32>,
    /// For each row the offset in the file, and how many fields there are up to its end.
    rows: Vec<(u64, u32)>,
    file: Option<Arc<CsvFile>>,
}

/// The file that rows are of.
#[derive(Debug)]
struct CsvFile {
    path: PathBuf,
    dialect: Dialect,
    header: Option<Vec<String>>,
}

impl Batch for Rows {
    fn len(&self) -> usize {
        self.rows.len()
    }
    fn clear(&mut self) {
        self.data.clear();
        self.ends.clear();
        self.rows.clear();
    }
    fn take_first(&mut self, count: usize) -> Self {
        let count = count.min(self.rows.len());
        let rows = self.rows.split_off(count);
        let first = self.rows.last().map_or(0, |(_, end)| *end);
        let ends = self.ends.split_off(first as usize);
        let bytes = self.ends.last().copied().unwrap_or(0);
        let data = self.data.split_off(bytes as usize);
        let rest = Rows {
            data,
            ends: ends.into_iter().map(|end| end - bytes).collect(),
            rows: rows
                .into_iter()
                .map(|(offset, end)| (offset, end - first))
                .collect(),
            file: self.file.clone(),
        };
        std::mem::replace(self, rest)
    }
}

impl Rows {
    /// Row `index`, if there are so many.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Row<'_>> {
        let (offset, end) = *self.rows.get(index)?;
        let start = match index {
            0 => 0,
            _ => self.rows[index - 1].1,
        };
        Some(Row {
            rows: self,
            offset,
            first: start as usize,
            end: end as usize,
        })
    }

    /// All rows, in order.
    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.rows.len()).filter_map(|index| self.get(index))
    }

    /// The names of the fields, where they have some.
    #[must_use]
    pub fn names(&self) -> Option<&[String]> {
        self.file.as_ref()?.header.as_deref()
    }
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    rows: &'a Rows,
    offset: u64,
    first: usize,
    end: usize,
}

impl<'a> Row<'a> {
    /// How many fields there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.first
    }
    /// True when there are none, which no file has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The bytes of field `index`, from 0.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let at = self.first + index;
        if at >= self.end {
            return None;
        }
        let start = match at {
            0 => 0,
            _ => self.rows.ends[at - 1],
        };
        self.rows
            .data
            .get(start as usize..self.rows.ends[at] as usize)
    }
    /// Field `index`, from 0, as text.
    ///
    /// # Errors
    /// There is no such field, or it is not UTF-8; with file, line and column.
    pub fn text(&self, index: usize) -> Result<&'a str, Cause> {
        let Some(bytes) = self.get(index) else {
            let what = format!("the row has {} fields, not {}", self.len(), index + 1);
            return Err(self.wrong(self.len(), &what));
        };
        std::str::from_utf8(bytes).map_err(|_| self.wrong(index, "the field is not UTF-8"))
    }
    /// The names of the fields, where they have some.
    #[must_use]
    pub fn names(&self) -> Option<&'a [String]> {
        self.rows.names()
    }
    /// The offset of its first byte in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }
    /// Checks that there are as many fields as names.
    ///
    /// # Errors
    /// There are not; with file, line and column.
    pub fn check(&self) -> Result<(), Cause> {
        let names = self.names().map_or(self.len(), <[String]>::len);
        if names == self.len() {
            return Ok(());
        }
        let what = format!("the row has {} fields, the header {names}", self.len());
        Err(self.wrong(names.min(self.len()), &what))
    }
    /// An error about field `index`, with file, line and column. It reads the file up to there.
    #[must_use]
    pub fn wrong(&self, index: usize, what: &str) -> Cause {
        match &self.rows.file {
            Some(file) => place::said(&file.path, file.dialect, self.offset, index, what).into(),
            None => what.into(),
        }
    }
}

/// Writes rows to a file, which is made anew and begins with a row of names, or with nothing where there are no names. The
/// encoder before it uses [`append_row`].
#[must_use]
pub fn write(path: impl AsRef<Path>, names: &[&str]) -> WriteFile {
    let mut head = Vec::new();
    if !names.is_empty() {
        append_row(names, &mut head);
    }
    files::write(path).raw().preamble(&head)
}

/// Appends a row with its line end, LF; fields that need quotes have them.
pub fn append_row<F: AsRef<[u8]>>(fields: impl IntoIterator<Item = F>, out: &mut Vec<u8>) {
    let mut writer = Writer::new();
    let mut piece = [0; 256];
    let mut is_first = true;
    for field in fields {
        if !std::mem::take(&mut is_first) {
            all(out, &mut piece, |piece| writer.delimiter(piece));
        }
        let mut rest = field.as_ref();
        all(out, &mut piece, |piece| {
            let (result, used, made) = writer.field(rest, piece);
            rest = &rest[used..];
            (result, made)
        });
    }
    all(out, &mut piece, |piece| writer.terminator(piece));
}

/// Repeats a write until all of it is in `out`.
fn all(
    out: &mut Vec<u8>,
    piece: &mut [u8],
    mut write: impl FnMut(&mut [u8]) -> (WriteResult, usize),
) {
    loop {
        let (result, made) = write(piece);
        out.extend_from_slice(&piece[..made]);
        if result == WriteResult::InputEmpty {
            return;
        }
    }
}
