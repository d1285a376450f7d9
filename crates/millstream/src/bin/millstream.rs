//! The `millstream` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    millstream::cli::main(std::env::args_os())
}
