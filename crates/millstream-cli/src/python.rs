//! The Python interpreter: verbs whose subject is Python code run in it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::failure::Failure;

/// The interpreter: `MILLSTREAM_PYTHON`, which the Python package sets to its own, or `python3`.
#[must_use]
pub fn interpreter() -> OsString {
    std::env::var_os("MILLSTREAM_PYTHON").unwrap_or_else(|| "python3".into())
}

/// Replaces this process by `python -m millstream VERB ...`; returns only if that fails.
pub(crate) fn exec(verb: &str, arguments: &[OsString], subject: &str) -> Failure {
    let python = interpreter();
    let error = Command::new(&python)
        .args(["-m", "millstream", verb])
        .args(arguments)
        .exec();
    Failure::failed(format!(
        "{subject} in Python need Python with the package millstream: cannot start {}: {error}",
        python.display()
    ))
}
