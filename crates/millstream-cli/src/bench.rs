//! `millstream bench`: runs a benchmark of `millstream-bench`, a program that is built from the sources and not
//! shipped.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;

const NAME: &str = "millstream-bench";

/// The options of `millstream bench`; `millstream-bench` reads them.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The benchmarks are in a program of their own, millstream-bench, which is looked for beside this program and then on \
                  the PATH. Build it in a checkout with: cargo build --release --manifest-path benchmarks/Cargo.toml\n\n\
                  Example:\n  millstream bench journal --only speed --runs 3"
)]
pub(super) struct Args {
    /// journal, flow, queue, service or market-spread, and its options; `bench NAME --help` lists them.
    #[arg(
        value_name = "NAME",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    rest: Vec<OsString>,
}

/// Becomes `millstream-bench NAME ...`; returns only if that fails.
pub(super) fn run(args: &Args) -> Failure {
    let beside = [
        std::env::args_os().next().map(PathBuf::from),
        std::env::current_exe().ok(),
    ];
    let program = beside
        .iter()
        .flatten()
        .find_map(|program| beside_program(program));
    let error = Command::new(program.as_deref().unwrap_or(Path::new(NAME)))
        .args(&args.rest)
        .exec();
    Failure::usage(format!(
        "cannot start {NAME} ({error}): build it in a checkout with `cargo build --release --manifest-path \
         benchmarks/Cargo.toml` and put it beside this program or on the PATH"
    ))
}

/// The file of that name in the directory of a program, if there is one.
fn beside_program(program: &Path) -> Option<PathBuf> {
    // A program that was found on the PATH has no directory in its name.
    let directory = program
        .parent()
        .filter(|path| !path.as_os_str().is_empty())?;
    Some(directory.join(NAME)).filter(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_benchmarks_are_found_beside_the_program_only_if_they_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("millstream");
        assert_eq!(beside_program(&program), None);
        let benchmarks = folder.path().join(NAME);
        std::fs::write(&benchmarks, "").unwrap();
        assert_eq!(beside_program(&program), Some(benchmarks));
        assert_eq!(beside_program(Path::new("millstream")), None);
    }
}
