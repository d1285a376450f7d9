//! `millstream run`: flows in Python files are run by Python, whoever is asked.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::Failure;
use crate::bench::peers::interpreter;

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
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    become_python("run", &args.rest, "flows")
}

/// Becomes `python -m millstream VERB ...`. `MILLSTREAM_PYTHON` names another interpreter than
/// `python3`.
pub(super) fn become_python(verb: &str, rest: &[OsString], what: &str) -> Result<(), Failure> {
    let python = interpreter();
    let error = Command::new(&python)
        .args(["-m", "millstream", verb])
        .args(rest)
        .exec();
    Err(Failure::failed(format!(
        "{what} in Python need Python with the package millstream: cannot start {}: {error}",
        python.display()
    )))
}
