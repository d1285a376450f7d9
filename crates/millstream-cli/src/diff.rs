//! `millstream diff`: compares two flows of Python files, in Python.

use std::ffi::OsString;

use crate::failure::Failure;
use crate::python;

/// The options of `millstream diff`; the Python package reads them.
#[derive(clap::Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Example:\n  millstream diff old.py new.py --replay state/"
)]
pub(super) struct Args {
    /// FLOW_A.py FLOW_B.py and options; `diff --help` lists them.
    #[arg(
        value_name = "FLOW.py",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    rest: Vec<OsString>,
}

/// Becomes `python -m millstream diff ...`.
pub(super) fn run(args: &Args) -> Failure {
    python::exec("diff", &args.rest, "flows")
}
