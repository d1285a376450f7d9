//! `millstream service`: components in Python files are run by Python, whoever is asked.

use std::ffi::OsString;

use super::Failure;
use super::run::become_python;

/// The options of `millstream service`; the Python package reads them.
#[derive(clap::Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Example:\n  millstream service run desk:Desk --in orders --out replies"
)]
pub(super) struct Args {
    /// run, up, down, status, test, replay, diff, export or history, and its options; `service --help` lists them.
    #[arg(
        value_name = "VERB",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    rest: Vec<OsString>,
}

/// Becomes `python -m millstream service ...`.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    become_python("service", &args.rest, "components")
}
