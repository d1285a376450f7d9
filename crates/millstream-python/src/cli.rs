//! The `millstream` program, for the console script of the wheel.

use std::ffi::OsString;
use std::process::ExitCode;

use pyo3::prelude::*;

use crate::gil::unlocked;

/// Runs the program with these arguments, the first of which is its name; gives its exit code.
#[pyfunction]
pub(crate) fn cli_main(argv: Vec<OsString>) -> u8 {
    // An ExitCode does not tell its number, but the program has three.
    let code = unlocked(|| millstream::cli::main(argv));
    let known = [0u8, 2].into_iter();
    known
        .filter(|number| ExitCode::from(*number) == code)
        .fold(1, |_, number| number)
}
