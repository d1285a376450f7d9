//! CSV files as a source, and the step that makes dictionaries or lists of their rows.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millstream_flow::batch::Batch;
use millstream_flow::csv::{self, Dialect, Header, Row, Rows};
use millstream_flow::directory;
use millstream_flow::error::{chain, shorten};
use millstream_flow::source::Source;
use millstream_flow::step::{Context, Step};
use millstream_flow::stream::Making;
use millstream_flow::{Failure, Flow, FlowError, Pipe, SourceExt};
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use super::bytes::Unlocked;
use super::reading::{Reading, compression};
use crate::batch::PyBatch;
use crate::error::{cause, usage};
use crate::gil::locked;
use crate::policy::{ErrorHandler, OnErrorOption, Read};

/// A source of rows of CSV files.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct CsvSource {
    source: Arc<dyn Source<Rows>>,
    types: Arc<Types>,
}

/// What is made of the text of fields and rows.
struct Types {
    /// For the names of some fields the functions that make objects of their text.
    functions: Vec<(String, Py<PyAny>)>,
    /// What makes a row of these objects by name. Without it a row is a dictionary of all fields.
    row: Option<Py<PyAny>>,
}

#[pymethods]
impl CsvSource {
    fn __repr__(&self) -> String {
        format!("<source {}>", self.source.describe())
    }
}

impl CsvSource {
    /// Adds the source and the step that makes objects of rows.
    pub(crate) fn add(&self, flow: &Flow, reading: &Reading<'_>) -> Pipe<PyBatch> {
        let name = reading.name;
        let source = Unlocked(Arc::clone(&self.source));
        let rows = flow.source(name, source.batch_size(reading.batch_size));
        let own = reading.on_error.clone();
        let source = name.to_owned();
        let types = Arc::clone(&self.types);
        let decoded = rows.step("decode", &format!("{name}.decode"), move |making| {
            RowsStep::make(&own, &source, &types, making)
        });
        reading.on_error.of(decoded)
    }
}

/// Makes objects of rows, on one worker.
struct RowsStep {
    policy: ErrorHandler,
    types: Arc<Types>,
    /// The fields of the last batch.
    fields: Option<NamedFields>,
}

/// The fields of a file whose fields have names.
struct NamedFields {
    names: Vec<String>,
    /// For each field its name as an object, and the index in `types` of its function if it has one.
    columns: Vec<(Py<PyString>, Option<usize>)>,
}

impl RowsStep {
    fn make(
        on_error: &OnErrorOption,
        source: &str,
        types: &Arc<Types>,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        Ok(RowsStep {
            policy: on_error.open_for(source, making)?,
            types: Arc::clone(types),
            fields: None,
        })
    }

    /// Learns the names of the fields of a batch.
    fn learn(&mut self, py: Python<'_>, rows: &Rows) -> Result<(), Failure> {
        let known = self.fields.as_ref().map(|fields| &fields.names[..]);
        if rows.names() == known {
            return Ok(());
        }
        let names = rows.names().unwrap_or_default();
        if let Some(row) = rows.get(0) {
            let unknown = self
                .types
                .functions
                .iter()
                .find(|(name, _)| !names.contains(name));
            if let Some((name, _)) = unknown {
                let what =
                    format!("types has {name:?}, which is no field: the fields are {names:?}");
                return Err(Failure::new(self.policy.step.clone(), row.wrong(0, &what)));
            }
        }
        let column = |name: &String| {
            let function = self
                .types
                .functions
                .iter()
                .position(|(typed, _)| typed == name);
            (PyString::new(py, name).unbind(), function)
        };
        self.fields = rows.names().map(|names| NamedFields {
            names: names.to_vec(),
            columns: names.iter().map(column).collect(),
        });
        Ok(())
    }

    fn one<'py>(&self, py: Python<'py>, row: Row<'_>) -> PyResult<Bound<'py, PyAny>> {
        let wrong = |cause: millstream_flow::error::Cause| {
            PyValueError::new_err(chain(&*cause).to_string())
        };
        row.check().map_err(wrong)?;
        let Some(named) = &self.fields else {
            let fields = PyList::empty(py);
            for index in 0..row.len() {
                fields.append(row.text(index).map_err(wrong)?)?;
            }
            return Ok(fields.into_any());
        };
        let fields = PyDict::new(py);
        for (index, (name, function)) in named.columns.iter().enumerate() {
            match function {
                Some(function) => fields.set_item(name, self.typed(py, row, index, *function)?)?,
                None if self.types.row.is_some() => {}
                None => fields.set_item(name, row.text(index).map_err(wrong)?)?,
            }
        }
        let Some(make) = &self.types.row else {
            return Ok(fields.into_any());
        };
        let made = make.bind(py).call((), Some(&fields));
        made.map_err(|error| placed(py, row, 0, "the row", error))
    }

    /// Makes an object of the text of a field. An exception becomes a ValueError with file, line and column.
    fn typed<'py>(
        &self,
        py: Python<'py>,
        row: Row<'_>,
        index: usize,
        function: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let wrong = |cause: millstream_flow::error::Cause| {
            PyValueError::new_err(chain(&*cause).to_string())
        };
        let (name, function) = &self.types.functions[function];
        let text = row.text(index).map_err(wrong)?;
        let made = function.bind(py).call1((text,));
        made.map_err(|error| {
            let what = format!("the field {name} has {:?}", shorten(text));
            placed(py, row, index, &what, error)
        })
    }

    fn work(&mut self, py: Python<'_>, input: &Rows, cx: &mut Context) -> Result<PyBatch, Failure> {
        self.learn(py, input)?;
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
        let record = PyBytes::new(py, row.raw());
        let place = row.place();
        let read = Read {
            item: record.as_any(),
            position: &place,
        };
        self.policy.handle_read(None, read, error, cx, py)
    }
}

/// An exception as a ValueError with file, line and column.
fn placed(py: Python<'_>, row: Row<'_>, index: usize, what: &str, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let wrong = row.wrong(index, &format!("{what}: {error}"));
    let placed = PyValueError::new_err(chain(&*wrong).to_string());
    placed.set_cause(py, Some(error));
    placed
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

/// Reads the options of a CSV file: delimiter, quote, and the header, which is true for the first record, false for
/// none, or names.
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
#[pyo3(signature = (paths, *, dialect, max_record, compression, types, row, local))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub(crate) fn csv_read(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    dialect: (String, Option<String>, Bound<'_, PyAny>),
    max_record: usize,
    compression: Option<&str>,
    types: Vec<(String, Py<PyAny>)>,
    row: Option<Py<PyAny>>,
    local: bool,
) -> PyResult<CsvSource> {
    let (dialect, header) = described(py, dialect)?;
    let source = csv::read(paths)
        .dialect(dialect)
        .header(header)
        .local(local);
    let source = source.compression(self::compression(py, compression)?);
    Ok(CsvSource {
        source: Arc::new(source.max_record(max_record)),
        types: Arc::new(Types {
            functions: types,
            row,
        }),
    })
}

/// The CSV files of a directory; `follow` in seconds.
#[pyfunction]
#[pyo3(signature = (path, pattern, *, partitions, follow, dialect, max_record, compression, types, row, local))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub(crate) fn csv_directory(
    py: Python<'_>,
    path: PathBuf,
    pattern: &str,
    partitions: usize,
    follow: Option<f64>,
    dialect: (String, Option<String>, Bound<'_, PyAny>),
    max_record: usize,
    compression: Option<&str>,
    types: Vec<(String, Py<PyAny>)>,
    row: Option<Py<PyAny>>,
    local: bool,
) -> PyResult<CsvSource> {
    let (dialect, header) = described(py, dialect)?;
    let source = directory::rows(path, pattern)
        .partitions(partitions)
        .local(local);
    let mut source = source
        .dialect(dialect)
        .header(header)
        .max_record(max_record)
        .compression(self::compression(py, compression)?);
    if let Some(poll) = follow {
        source = source.follow(Duration::try_from_secs_f64(poll)?);
    }
    Ok(CsvSource {
        source: Arc::new(source),
        types: Arc::new(Types {
            functions: types,
            row,
        }),
    })
}
