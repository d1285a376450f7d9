//! Tests as data: a folder with calls in and the calls expected out.
//!
//! - `setup.yaml` (may be absent): calls that bring the component into the state in which the test begins; their
//!   outputs do not count.
//! - `in.yaml`: the calls of the test.
//! - `out.yaml`: what the component is expected to call, in order.
//!
//! Each is a stream of YAML documents, a call each. `at` is when the call comes; a document with nothing else advances
//! the time. A [`Trial`] calls the timers that come due until then. With `at: {down_until: TIME}` the service does not
//! run until then. `update` rewrites what is expected; documents that stay the same keep their text, and comments their
//! places.
//!
//! With `agitate`, a test is run again with small changes to its calls. Each variant whose outputs differ from
//! `out.yaml` has its own file in the folder `agitated`.

mod agitate;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};

use millstream_journal::chain;
use millstream_wire::{
    Call, CallError, Cause, Document, Schema, Value, WireError, carry_comments, documents,
};
use similar::{DiffOp, TextDiff, capture_diff_slices};

use self::agitate::{Variant, variants};
pub use self::trial::{Trial, make};
pub use crate::outputs::current::REFUSAL;

/// How the tests of a folder are run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mode {
    /// Rewrite what is expected instead of comparing.
    pub update: bool,
    /// Run the variants too.
    pub agitate: bool,
}

/// The result of a folder.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many runs had the expected outputs: the test itself and its variants.
    pub passed: usize,
    /// What differs: the file, and the difference as text.
    pub failed: Vec<(PathBuf, String)>,
    /// The files that were rewritten.
    pub updated: Vec<PathBuf>,
    /// How many variants were not run, because at most 300 with calls missing, doubled or swapped and 400 with other
    /// values are.
    pub left_out: usize,
}

/// Why a test cannot be run.
///
/// `Debug` is the whole chain of causes in one line.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TestError {
    /// A file cannot be read or written.
    #[error("{}: cannot be read or written", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file does not hold calls of the interface.
    #[error("{}: does not hold calls of the interface", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// What is wrong, and in which line.
        source: Box<WireError>,
    },
    /// The test has no variant of this name.
    #[error("{}: there is no variant {name}", path.display())]
    NoVariant {
        /// The file with the calls.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// The component failed.
    #[error("{}: the component failed", path.display())]
    Component {
        /// The file with the calls.
        path: PathBuf,
        /// Its error.
        #[source]
        cause: Cause,
    },
}

millstream_journal::debug_as_chain!(TestError);

/// Runs the test of a folder. `run` makes a new component, calls it with the calls of the setup and of the test, and
/// returns what the component called during the latter. Both may be calls of several interfaces.
///
/// # Errors
/// [`TestError`]; a difference is no error but an [`Outcome`].
pub fn check(
    folder: &Path,
    inputs: &[Schema],
    outputs: &[Schema],
    mode: Mode,
    mut run: impl FnMut(&[Call], &[Call]) -> Result<Vec<Call>, Cause>,
) -> Result<Outcome, TestError> {
    let test = Test::read(folder, inputs)?;
    let found = test.actual_outputs(&mut run)?;
    let mut outcome = Outcome::default();
    let path = folder.join("out.yaml");
    compare(&path, &found, outputs, mode, &mut outcome)?;
    if mode.agitate {
        let (variants, all) = variants(&test.input, inputs);
        outcome.left_out = all - variants.len();
        for variant in &variants {
            test.agitate(variant, &found, outputs, mode, &mut outcome, &mut run)?;
        }
    }
    Ok(outcome)
}

/// The names of the variants that [`check`] runs of the test of a folder with [`Mode::agitate`].
///
/// # Errors
/// The calls of the test cannot be read.
#[doc(hidden)] // For the other crates of Millstream.
pub fn variant_names(folder: &Path, inputs: &[Schema]) -> Result<Vec<String>, TestError> {
    let test = Test::read(folder, inputs)?;
    let (variants, _) = variants(&test.input, inputs);
    Ok(variants.into_iter().map(|variant| variant.name).collect())
}

/// Runs one variant of the test of a folder, and rewrites what is expected of it if `update` is set; `run` as in
/// [`check`].
///
/// # Errors
/// As [`check`]; [`TestError::NoVariant`].
#[doc(hidden)] // For the other crates of Millstream.
pub fn check_variant(
    folder: &Path,
    inputs: &[Schema],
    outputs: &[Schema],
    name: &str,
    update: bool,
    mut run: impl FnMut(&[Call], &[Call]) -> Result<Vec<Call>, Cause>,
) -> Result<Outcome, TestError> {
    let test = Test::read(folder, inputs)?;
    let (variants, _) = variants(&test.input, inputs);
    let named = variants.iter().find(|variant| variant.name == name);
    let variant = named.ok_or_else(|| TestError::NoVariant {
        path: folder.join("in.yaml"),
        name: name.to_owned(),
    })?;
    let found = test.actual_outputs(&mut run)?;
    let mode = Mode {
        update,
        agitate: true,
    };
    let mut outcome = Outcome::default();
    test.agitate(variant, &found, outputs, mode, &mut outcome, &mut run)?;
    Ok(outcome)
}

/// The calls of a folder.
struct Test<'a> {
    folder: &'a Path,
    setup: Vec<Call>,
    input: Vec<Call>,
}

impl<'a> Test<'a> {
    fn read(folder: &'a Path, inputs: &[Schema]) -> Result<Self, TestError> {
        Ok(Self {
            folder,
            setup: calls(&folder.join("setup.yaml"), inputs, true)?,
            input: calls(&folder.join("in.yaml"), inputs, false)?,
        })
    }

    /// The calls of the component in the test itself.
    fn actual_outputs(
        &self,
        run: &mut impl FnMut(&[Call], &[Call]) -> Result<Vec<Call>, Cause>,
    ) -> Result<Vec<String>, TestError> {
        let found = run(&self.setup, &self.input);
        let path = || self.folder.join("in.yaml");
        let found = found.map_err(|cause| TestError::Component {
            path: path(),
            cause,
        })?;
        Ok(texts(&found))
    }

    /// Runs a variant; without a file of its own it must have the outputs of the test itself.
    fn agitate(
        &self,
        variant: &Variant,
        found: &[String],
        outputs: &[Schema],
        mode: Mode,
        outcome: &mut Outcome,
        run: &mut impl FnMut(&[Call], &[Call]) -> Result<Vec<Call>, Cause>,
    ) -> Result<(), TestError> {
        let name = format!("{}.yaml", variant.name);
        let path = self.folder.join("agitated").join(name);
        match run(&self.setup, &variant.calls(&self.input)) {
            Ok(calls) => {
                let calls = texts(&calls);
                if calls == found && !path.exists() {
                    outcome.passed += 1;
                    return Ok(());
                }
                compare(&path, &calls, outputs, mode, outcome)
            }
            Err(cause) if CallError::is_interruption(&cause) => {
                Err(TestError::Component { path, cause })
            }
            Err(cause) => {
                let failure = format!("the component failed: {}\n", chain(&*cause));
                outcome.failed.push((path, failure));
                Ok(())
            }
        }
    }
}

fn texts(calls: &[Call]) -> Vec<String> {
    calls.iter().map(Call::to_text).collect()
}

fn calls(path: &Path, interfaces: &[Schema], optional: bool) -> Result<Vec<Call>, TestError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if optional && error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(file_error(path, error)),
    };
    let fault = |source| TestError::Text {
        path: path.to_owned(),
        source,
    };
    let documents = documents(&text).map_err(fault)?;
    let full = documents.iter().filter(|document| !document.is_empty());
    full.map(|document| moment_or_call(document, interfaces).map_err(fault))
        .collect()
}

/// A document with only a time is a call without a method: no component has one without a name. One until which the
/// service is down has this time as an argument, too.
fn moment_or_call(document: &Document, interfaces: &[Schema]) -> Result<Call, Box<WireError>> {
    let moment = |at, arguments| Call {
        at: Some(at),
        method: String::new(),
        arguments,
    };
    if let Some(at) = document.down_until()? {
        let until = ("down_until".to_owned(), Value::Timestamp(at));
        return Ok(moment(at, vec![until]));
    }
    match document.only_time()? {
        Some(at) => Ok(moment(at, Vec::new())),
        None => call(document, interfaces),
    }
}

/// The call of a document, by the first interface that has its method.
pub(super) fn call(document: &Document, interfaces: &[Schema]) -> Result<Call, Box<WireError>> {
    let method = document.method()?;
    let has = |schema: &&Schema| schema.method_named(method).is_ok();
    match interfaces.iter().find(has).or(interfaces.first()) {
        Some(schema) => document.call(schema),
        None => Err(Box::new(WireError::UnknownMethod {
            interface: String::new(),
            method: method.to_owned(),
        })),
    }
}

fn file_error(path: &Path, source: std::io::Error) -> TestError {
    TestError::File {
        path: path.to_owned(),
        source,
    }
}

/// Compares the outputs with a file, or rewrites the file.
fn compare(
    path: &Path,
    found: &[String],
    outputs: &[Schema],
    mode: Mode,
    outcome: &mut Outcome,
) -> Result<(), TestError> {
    let old = match fs::read_to_string(path) {
        Ok(old) => old,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(file_error(path, error)),
    };
    let fault = |source| TestError::Text {
        path: path.to_owned(),
        source,
    };
    let documents = documents(&old).map_err(fault)?;
    let (empty, full): (Vec<_>, Vec<_>) =
        documents.iter().partition(|document| document.is_empty());
    let text = |document: &&Document| match call(document, outputs) {
        Ok(call) => Ok(Call { at: None, ..call }.to_text()),
        // What is about to be replaced need not make sense.
        Err(_) if mode.update => Ok(document.text().to_owned()),
        Err(error) => Err(fault(error)),
    };
    let expected: Vec<String> = full.iter().map(text).collect::<Result<_, _>>()?;
    if expected == found && (path.exists() || !mode.update) {
        outcome.passed += 1;
    } else if mode.update {
        let new = rewritten(&empty, &full, &expected, found).map_err(fault)?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| file_error(folder, error))?;
        }
        fs::write(path, new).map_err(|error| file_error(path, error))?;
        outcome.updated.push(path.to_owned());
    } else {
        let expected = expected.join("---\n");
        let found = found.join("---\n");
        let diff = TextDiff::from_lines(&expected, &found);
        let diff = diff
            .unified_diff()
            .context_radius(5)
            .header("expected", "found")
            .to_string();
        outcome.failed.push((path.to_owned(), diff));
    }
    Ok(())
}

/// The new text of a file: documents that stay keep their text, the others the comments of those that they replace.
fn rewritten(
    empty: &[&Document],
    old: &[&Document],
    expected: &[String],
    found: &[String],
) -> Result<String, Box<WireError>> {
    let mut texts: Vec<String> = empty
        .iter()
        .map(|document| document.text().to_owned())
        .collect();
    for operation in capture_diff_slices(similar::Algorithm::Myers, expected, found) {
        match operation {
            DiffOp::Equal { old_index, len, .. } => {
                let same = &old[old_index..old_index + len];
                texts.extend(same.iter().map(|document| document.text().to_owned()));
            }
            DiffOp::Insert {
                new_index, new_len, ..
            } => {
                texts.extend_from_slice(&found[new_index..new_index + new_len]);
            }
            DiffOp::Delete { .. } => {}
            DiffOp::Replace {
                old_index,
                old_len,
                new_index,
                new_len,
            } => {
                for at in 0..new_len {
                    let text = &found[new_index + at];
                    texts.push(if at < old_len {
                        carry_comments(old[old_index + at], text)?
                    } else {
                        text.clone()
                    });
                }
            }
        }
    }
    Ok(texts.join("---\n"))
}
