//! The `millstream` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    millstream_cli::main(std::env::args_os())
}
