//! `millstream demo`: Market Spread as a flow in Python, from generated data to a report.

use std::ffi::OsString;

use crate::failure::Failure;
use crate::python;

/// The options of `millstream demo`; the Python package reads them.
#[derive(clap::Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:\n  millstream demo\n  millstream demo --http --seconds 60"
)]
pub(super) struct Args {
    /// Options of the demo; `demo --help` lists them.
    #[arg(
        value_name = "OPTIONS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    rest: Vec<OsString>,
}

/// Becomes `python -m millstream demo ...`.
pub(super) fn run(args: &Args) -> Failure {
    python::exec("demo", &args.rest, "flows")
}
