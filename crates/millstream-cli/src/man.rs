//! `millstream man`: a page for each verb, from the same definition as the help.

use std::path::PathBuf;

use clap::Command;

use crate::failure::Failure;

/// The options of `millstream man`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The package for Python has them in share/man/man1.\n\nExample:\n  millstream man ~/.local/share/man/man1"
)]
pub(super) struct Args {
    /// The directory, which is made if it does not exist.
    dir: PathBuf,
}

/// Writes those of the program.
pub(super) fn run(args: &Args, program: Command) -> Result<(), Failure> {
    let dir = &args.dir;
    let named = |error| Failure::failed(format!("{}: {error}", dir.display()));
    std::fs::create_dir_all(dir).map_err(named)?;
    clap_mangen::generate_to(program, dir).map_err(named)
}
