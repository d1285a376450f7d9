//! `millstream service`: runs components of Python files, in Python.

use std::ffi::OsString;

use crate::failure::Failure;
use crate::python;

/// The options of `millstream service`; the Python package reads them.
#[derive(clap::Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Example:\n  millstream service run desk:Desk --in orders --out replies"
)]
pub(super) struct Args {
    /// run, up, down, status, gateway, test, replay, diff, export or history, and its options; `service --help` lists them.
    #[arg(
        value_name = "VERB",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    rest: Vec<OsString>,
}

/// Becomes `python -m millstream service ...`.
pub(super) fn run(args: &Args) -> Failure {
    python::exec("service", &args.rest, "components")
}
