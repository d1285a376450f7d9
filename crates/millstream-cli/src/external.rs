//! Verbs that are Python: each is one entry here, with its name and one line of help. Its options are those of the
//! Python package, which describes them for completions and man pages.

mod described;

use std::ffi::OsString;

use clap::{Arg, ArgMatches, Command, value_parser};

use self::described::Described;
use crate::failure::Failure;
use crate::python;

/// A verb that `python -m millstream` runs.
pub(super) struct External {
    name: &'static str,
    about: &'static str,
    /// What is in Python, for the error where there is no Python.
    subject: &'static str,
}

/// All of them.
const EXTERNAL: [External; 6] = [
    External {
        name: "run",
        about: "Run a flow that is written in Python",
        subject: "flows",
    },
    External {
        name: "redrive",
        about: "Send dead letters through a flow again",
        subject: "flows",
    },
    External {
        name: "demo",
        about: "Market Spread, from generated data to a report",
        subject: "flows",
    },
    External {
        name: "diff",
        about: "Compare what two flows make of the same recorded input",
        subject: "flows",
    },
    External {
        name: "new",
        about: "Write a folder to begin with: a flow, a queue or a service, with tests",
        subject: "new folders",
    },
    External {
        name: "service",
        about: "Run, test and replay services that are written in Python",
        subject: "components",
    },
];

const ARGUMENTS: &str = "arguments";

/// Adds the verbs to the program.
pub(super) fn add(program: Command) -> Command {
    let arguments = Arg::new(ARGUMENTS)
        .num_args(0..)
        .trailing_var_arg(true)
        .allow_hyphen_values(true)
        .value_parser(value_parser!(OsString));
    let verb = |external: &External| {
        Command::new(external.name)
            .about(external.about)
            .after_help(format!(
                "millstream {} --help lists its arguments",
                external.name
            ))
            // Among the first that the help of the program lists.
            .display_order(0)
            .disable_help_flag(true)
            .disable_version_flag(true)
            .arg(arguments.clone())
    };
    program.subcommands(EXTERNAL.iter().map(verb))
}

/// Adds the verbs with their options, as far as there is Python; one line on standard error says where there is none.
pub(super) fn describe(program: Command) -> Command {
    match python::output("millstream._run.described").and_then(|text| Described::read(&text)) {
        Ok(verbs) => program.subcommands(verbs.into_iter().map(|verb| {
            let external = EXTERNAL
                .iter()
                .find(|external| external.name == verb.name());
            let about = external.map(|external| external.about);
            verb.command(about).display_order(0)
        })),
        Err(error) => {
            let names = EXTERNAL.map(|external| external.name).join(", ");
            eprintln!("millstream: without the options of {names}: {error}");
            add(program)
        }
    }
}

/// Becomes the program of the verb, if it is one of these; returns its name and why that failed.
pub(super) fn run(chosen: &ArgMatches) -> Option<(&'static str, Failure)> {
    let (name, given) = chosen.subcommand()?;
    let external = EXTERNAL.iter().find(|external| external.name == name)?;
    let arguments = given.get_many::<OsString>(ARGUMENTS);
    let arguments: Vec<OsString> = arguments.into_iter().flatten().cloned().collect();
    let failure = python::exec(external.name, &arguments, external.subject);
    Some((external.name, failure))
}
