//! CSV files as sources and sinks.
//!
//! The rules are those of Python's module `csv`, which are those of RFC 4180 and more lenient: a field that
//! begins with a quote ends with the next quote that is not doubled, and may contain delimiters and line ends;
//! a quote elsewhere is an ordinary character; a record ends with LF, CR LF or CR; empty lines are skipped.
//! Unlike in Python, a quote that is not closed is an error, because it shows that the file is truncated. The
//! crate `csv-core` does the parsing.
//!
//! A position of a source is between two records, so that a run resumes with the next record.
//!
//! ```
//! use millstream_flow::{Flow, Options, codec, csv, testing};
//!
//! let folder = tempfile::tempdir()?;
//! let (input, output) = (folder.path().join("in.csv"), folder.path().join("out.csv"));
//! std::fs::write(&input, "name,price\n\"tea, green\",3\ncoffee,4\n")?;
//! let flow = Flow::new("prices");
//! let prices = csv::read([&input]).decode(|row| -> Result<_, Box<dyn std::error::Error + Send + Sync>> {
//!     Ok((row.text_of("name")?.to_owned(), row.parse::<u32>("price")?))
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
mod dialect;
mod partition;
mod place;
mod rows;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use csv_core::{WriteResult, Writer};

pub use decoded::DecodedRows;
pub(super) use decoded::decode as decode_rows;
pub use dialect::{Dialect, Header};
pub use rows::{Row, Rows};

use crate::compression::Compression;
use crate::connectors::files::{self, WriteFile, resume};
use crate::connectors::first_bytes;
use crate::connectors::format::Format;
use crate::error::Cause;
use crate::input::{Input, of_machine};
use crate::poller::Io;
use crate::source::{Partition, Position, Resumable, Source, SourceSettings};
use partition::CsvPartition;
use place::CsvPath;

/// The default for the longest record.
const MAX_RECORD_BYTES: usize = 1 << 20;

/// A source of rows from CSV files, with a partition for each file. See [`read`].
#[derive(Clone, Debug)]
pub struct ReadCsv {
    paths: Vec<PathBuf>,
    dialect: Dialect,
    header: Header,
    max_record_bytes: usize,
    compression: Compression,
    local: bool,
}

/// Reads CSV files, with a partition for each file. By default the first record of a file is its header.
pub fn read<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> ReadCsv {
    let paths = paths.into_iter().map(|path| path.as_ref().to_owned());
    ReadCsv {
        paths: paths.collect(),
        dialect: Dialect::default(),
        header: Header::First,
        max_record_bytes: MAX_RECORD_BYTES,
        compression: Compression::ByName,
        local: false,
    }
}

impl ReadCsv {
    /// Sets the delimiter and the quote.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }
    /// Sets the source of the field names.
    #[must_use]
    pub fn header(mut self, header: Header) -> Self {
        self.header = header;
        self
    }
    /// Sets the longest allowed record; a longer one is an error with its line. The default is 1 MiB.
    #[must_use]
    pub fn max_record(mut self, bytes: usize) -> Self {
        self.max_record_bytes = bytes;
        self
    }
    /// Sets the compression of the files. By default the ending of its name decides for each file.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }
    /// Lets each process of a run read the files of its own machine, as for [`files::ReadFiles::local`].
    #[must_use]
    pub fn local(mut self, local: bool) -> Self {
        self.local = local;
        self
    }
    /// Decodes each row into an item. A row whose number of fields differs from the number of names is an
    /// error, and `decode` is not called with it.
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
        let whose = of_machine(self.local);
        format!("file {}, csv{whose}", names.join(" "))
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
        resume: Option<&Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Rows>>, Cause> {
        let path = &self.paths[partition];
        let start = match resume {
            Some(position) => {
                let start = self.resumes_at(path, position.require_number()?)?;
                first_bytes::compare(path, self.compression, position)?;
                start
            }
            None => 0,
        };
        self.open_file(path, start)
    }
    fn settings(&self) -> SourceSettings {
        SourceSettings {
            inputs: self.paths.iter().cloned().map(Input::File).collect(),
            local: self.local,
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
    fn is_compressed(&self, path: &Path) -> bool {
        self.compression.of(path) != Compression::Uncompressed
    }
    fn describe_format(&self) -> String {
        "csv".to_owned()
    }
    fn resumes_at(&self, path: &Path, position: u64) -> Result<u64, Cause> {
        resume::row_after(path, self.compression, position)
    }
    fn open_file(&self, path: &Path, from: u64) -> Result<Box<dyn Partition<Rows>>, Cause> {
        let about = CsvPath {
            located: Mutex::new((0, 1)),
            path: path.to_owned(),
            dialect: self.dialect,
            compression: self.compression,
        };
        let opened = CsvPartition::open(about, from, &self.header, self.max_record_bytes)?;
        Ok(Box::new(opened))
    }
}

/// Writes rows to a file, which is created anew. It begins with a row of `names`, unless there are none. The
/// encoder before it uses [`append_row`].
#[must_use]
pub fn write(path: impl AsRef<Path>, names: &[&str]) -> WriteFile {
    let mut head = Vec::new();
    if !names.is_empty() {
        append_row(names, &mut head);
    }
    files::write(path).raw().preamble(&head)
}

/// Appends a row that ends with LF; fields are quoted where necessary.
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
