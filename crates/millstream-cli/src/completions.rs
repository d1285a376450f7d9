//! `millstream completions`: what a shell offers after Tab, from the same definition as the help.

use clap::Command;
use clap_complete::{Shell, generate};

use crate::failure::Failure;
use crate::report;

/// The options of `millstream completions`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  millstream completions bash > ~/.local/share/bash-completion/completions/millstream
  millstream completions zsh > ~/.zfunc/_millstream        # with fpath+=~/.zfunc before compinit in ~/.zshrc
  millstream completions fish > ~/.config/fish/completions/millstream.fish")]
pub(super) struct Args {
    /// The shell.
    shell: Known,
}

/// The shells.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Known {
    Bash,
    Zsh,
    Fish,
}

/// Prints those of the program.
pub(super) fn run(args: &Args, program: &mut Command) -> Result<(), Failure> {
    let shell = match args.shell {
        Known::Bash => Shell::Bash,
        Known::Zsh => Shell::Zsh,
        Known::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, program, "millstream", &mut script);
    let script = String::from_utf8(script).map_err(Failure::failed)?;
    report::print(&(), script.trim_end(), false)
}
