//! The `millstream` program, for the console script of the wheel.

use std::ffi::OsString;
use std::process::ExitCode;

use pyo3::prelude::*;

use crate::gil::{locked, unlocked};

/// Runs the program with these arguments, the first of which is its name; returns its exit code.
#[pyfunction]
pub(crate) fn cli_main(argv: Vec<OsString>) -> u8 {
    // An ExitCode does not tell its number, but the program has three.
    let code = unlocked(|| millstream_cli::main_showing(argv, show_state));
    let known = [0u8, 2].into_iter();
    known
        .filter(|number| ExitCode::from(*number) == code)
        .fold(1, |_, number| number)
}

/// Shows a state that a Python flow saved.
pub(crate) fn show_state(how: u8, written: &[u8]) -> Option<String> {
    let show = |py: Python<'_>| {
        let shown = py.import("millstream._shown")?;
        shown.call_method1("show", (how, written))?.extract()
    };
    // `show` reports states that cannot be shown itself.
    locked(show).unwrap_or_default()
}
