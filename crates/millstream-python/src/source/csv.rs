//! CSV files as a source, and the step that makes dictionaries or lists of their rows.

use std::path::PathBuf;
use std::time::Duration;

use millstream_flow::batch::Batch;
use millstream_flow::csv::{self, Dialect, Header, ReadCsv, Row, Rows};
use millstream_flow::directory::{self, ReadDirectory};
use millstream_flow::source::Source;
use millstream_flow::step::{Context, Step};
use millstream_flow::stream::Making;
use millstream_flow::{Failure, Flow, FlowError, Pipe, SourceExt};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use super::bytes::Unlocked;
use super::reading::Reading;
use crate::batch::PyBatch;
use crate::error::{cause, usage};
use crate::gil::locked;
use crate::policy::{ErrorHandler, OnErrorOption};

#[derive(Clone)]
enum Kind {
    Files(ReadCsv),
    Directory(ReadDirectory<ReadCsv>),
}

/// A source of rows of CSV files.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct CsvSource {
    kind: Kind,
}

#[pymethods]
impl CsvSource {
    fn __repr__(&self) -> String {
        let described = match &self.kind {
            Kind::Files(source) => source.describe(),
            Kind::Directory(source) => source.describe(),
        };
        format!("<source {described}>")
    }
}

impl CsvSource {
    /// Adds the source and the step that makes objects of rows.
    pub(crate) fn add(&self, flow: &Flow, reading: &Reading<'_>) -> Pipe<PyBatch> {
        let (name, size) = (reading.name, reading.batch_size);
        let rows = match &self.kind {
            Kind::Files(source) => flow.source(name, Unlocked(source.clone()).batch_size(size)),
            Kind::Directory(source) => flow.source(name, Unlocked(source.clone()).batch_size(size)),
        };
        let (own, source) = (reading.on_error.clone(), name.to_owned());
        let decoded = rows.step("decode", &format!("{name}.decode"), move |making| {
            RowsStep::make(&own, &source, making)
        });
        reading.on_error.of(decoded)
    }
}

/// Makes objects of rows, on one worker.
struct RowsStep {
    policy: ErrorHandler,
    /// The field names of the last batch, and the same as objects.
    names: Option<(Vec<String>, Vec<Py<PyString>>)>,
}

impl RowsStep {
    fn make(
        on_error: &OnErrorOption,
        source: &str,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        let mut policy = on_error.open(making)?;
        source.clone_into(&mut policy.step);
        Ok(RowsStep {
            policy,
            names: None,
        })
    }

    fn learn(&mut self, py: Python<'_>, rows: &Rows) {
        let known = self.names.as_ref().map(|(names, _)| &names[..]);
        if rows.names() != known {
            self.names = rows.names().map(|names| {
                let objects = names.iter().map(|name| PyString::new(py, name).unbind());
                (names.to_vec(), objects.collect())
            });
        }
    }

    fn one<'py>(&self, py: Python<'py>, row: Row<'_>) -> PyResult<Bound<'py, PyAny>> {
        let wrong = |cause: millstream_flow::error::Cause| PyValueError::new_err(cause.to_string());
        row.check().map_err(wrong)?;
        let Some((_, names)) = &self.names else {
            let fields = PyList::empty(py);
            for index in 0..row.len() {
                fields.append(row.text(index).map_err(wrong)?)?;
            }
            return Ok(fields.into_any());
        };
        let fields = PyDict::new(py);
        for (index, name) in names.iter().enumerate() {
            fields.set_item(name, row.text(index).map_err(wrong)?)?;
        }
        Ok(fields.into_any())
    }

    fn work(&mut self, py: Python<'_>, input: &Rows, cx: &mut Context) -> Result<PyBatch, Failure> {
        self.learn(py, input);
        let mut items = Vec::with_capacity(input.len());
        for row in input.iter() {
            match self.one(py, row) {
                Ok(item) => items.push(item),
                Err(error) => self.poison(py, row, error, cx)?,
            }
        }
        let list = PyList::new(py, items);
        list.map(PyBatch::of)
            .map_err(|error| Failure::new(self.policy.step.clone(), cause(error)))
    }

    #[cold]
    fn poison(
        &mut self,
        py: Python<'_>,
        row: Row<'_>,
        error: PyErr,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let texts = (0..row.len()).filter_map(|index| row.get(index));
        let fields = PyList::new(py, texts.map(String::from_utf8_lossy));
        let fields =
            fields.map_err(|error| Failure::new(self.policy.step.clone(), cause(error)))?;
        self.policy
            .handle(None, Some(fields.as_any()), error, cx, py)
    }
}

impl Step<Rows, PyBatch> for RowsStep {
    fn apply(
        &mut self,
        input: &mut Rows,
        output: &mut PyBatch,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        *output = locked(|py| self.work(py, input, cx))?;
        Ok(())
    }
}

/// Reads the options of a CSV file: delimiter, quote, and the header, which is true for the first record, false for none, or
/// names.
fn described(
    py: Python<'_>,
    (delimiter, quote, header): (String, Option<String>, Bound<'_, PyAny>),
) -> PyResult<(Dialect, Header)> {
    let byte = |what: &str, text: &str| match text.as_bytes() {
        [byte] if !b"\r\n".contains(byte) => Ok(*byte),
        _ => Err(usage(
            py,
            &format!("{what} is one ASCII character that ends no line, not {text:?}"),
        )),
    };
    let dialect = Dialect {
        delimiter: byte("delimiter", &delimiter)?,
        quote: quote.map(|quote| byte("quote", &quote)).transpose()?,
    };
    let header = match header.extract::<bool>() {
        Ok(true) => Header::First,
        Ok(false) => Header::None,
        Err(_) => Header::Names(header.extract()?),
    };
    Ok((dialect, header))
}

/// CSV files to read rows from; each is a partition.
#[pyfunction]
#[pyo3(signature = (paths, *, dialect, max_record))]
pub(crate) fn csv_read(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    dialect: (String, Option<String>, Bound<'_, PyAny>),
    max_record: usize,
) -> PyResult<CsvSource> {
    let (dialect, header) = described(py, dialect)?;
    let source = csv::read(paths).dialect(dialect).header(header);
    Ok(CsvSource {
        kind: Kind::Files(source.max_record(max_record)),
    })
}

/// The CSV files of a directory; `follow` in seconds.
#[pyfunction]
#[pyo3(signature = (path, pattern, *, partitions, follow, dialect, max_record))]
pub(crate) fn csv_directory(
    py: Python<'_>,
    path: PathBuf,
    pattern: &str,
    partitions: usize,
    follow: Option<f64>,
    dialect: (String, Option<String>, Bound<'_, PyAny>),
    max_record: usize,
) -> PyResult<CsvSource> {
    let (dialect, header) = described(py, dialect)?;
    let source = directory::rows(path, pattern).partitions(partitions);
    let mut source = source
        .dialect(dialect)
        .header(header)
        .max_record(max_record);
    if let Some(poll) = follow {
        source = source.follow(Duration::try_from_secs_f64(poll)?);
    }
    Ok(CsvSource {
        kind: Kind::Directory(source),
    })
}
