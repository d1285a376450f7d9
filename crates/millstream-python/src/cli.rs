//! The `millstream` program, for the console script of the wheel.

use std::ffi::OsString;
use std::process::ExitCode;

use millstream_journal::named::{Face, name_options_of};
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

/// Lets messages name options as the command line has them, or as Python does. Returns whether they were those of the
/// command line.
#[pyfunction]
pub(crate) fn name_options_of_command_line(named: bool) -> bool {
    let face = if named {
        Face::CommandLine
    } else {
        Face::Python
    };
    name_options_of(face) == Face::CommandLine
}

/// Shows a state that a Python flow saved.
pub(crate) fn show_state(how: u8, written: &[u8]) -> Option<String> {
    let show = |py: Python<'_>| {
        let shown = py.import("millstream._run.shown")?;
        shown.call_method1("show", (how, written))?.extract()
    };
    // `show` reports states that cannot be shown itself.
    locked(show).unwrap_or_default()
}
