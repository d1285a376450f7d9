//! `millstream run`: runs a flow of a Python file, in Python.

use std::ffi::OsString;

use crate::failure::Failure;
use crate::python;

/// The options of `millstream run`; those of the flow are read by the Python package.
#[derive(clap::Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Example:\n  millstream run word_count.py --workers 2"
)]
pub(super) struct Args {
    /// FLOW.py[:name] and its options; `run --help` lists them.
    #[arg(
        value_name = "FLOW.py",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    rest: Vec<OsString>,
}

/// Becomes `python -m millstream run ...`.
pub(super) fn run(args: &Args) -> Failure {
    python::exec("run", &args.rest, "flows")
}
