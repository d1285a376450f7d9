//! The verbs that are Python as `python -m millstream._run.described` has them, as verbs of this program.
//!
//! Their texts live as long as the process, which ends when it has printed them.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, value_parser};
use serde::Deserialize;

/// A verb, with its arguments and the verbs below it.
#[derive(Deserialize)]
pub(super) struct Described {
    name: String,
    about: String,
    example: String,
    arguments: Vec<Argument>,
    verbs: Vec<Described>,
}

/// An option, or an argument without flags.
#[derive(Deserialize)]
struct Argument {
    name: String,
    flags: Vec<String>,
    value: Option<String>,
    words: Vec<String>,
    help: String,
    heading: String,
    required: bool,
    optional_value: bool,
    repeats: bool,
}

fn kept(text: String) -> &'static str {
    text.leak()
}

impl Described {
    /// Reads the verbs.
    ///
    /// # Errors
    /// They are those of another version.
    pub(super) fn read(text: &[u8]) -> Result<Vec<Self>, String> {
        let read = serde_json::from_slice(text);
        read.map_err(|error| {
            format!("the package millstream of Python has another version: {error}")
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The verb; `about` stands for what it says of itself where it is one of a list.
    pub(super) fn command(self, about: Option<&'static str>) -> Command {
        let long = kept(self.about);
        let verbs = self.verbs.into_iter().map(|verb| verb.command(None));
        let made = Command::new(kept(self.name))
            .about(about.unwrap_or(long))
            .long_about(long)
            .subcommands(verbs)
            .args(self.arguments.into_iter().map(Argument::arg));
        if self.example.is_empty() {
            made
        } else {
            made.after_help(kept(self.example))
        }
    }
}

impl Argument {
    fn arg(self) -> Arg {
        let mut arg = Arg::new(kept(self.name)).required(self.required);
        if !self.help.is_empty() {
            arg = arg.help(kept(self.help));
        }
        if !self.heading.is_empty() {
            arg = arg.help_heading(kept(self.heading));
        }
        let (mut longs, mut shorts) = (Vec::new(), Vec::new());
        for flag in self.flags {
            match flag.strip_prefix("--") {
                Some(long) => longs.push(kept(long.to_owned())),
                None => shorts.extend(flag.chars().nth(1)),
            }
        }
        let mut longs = longs.into_iter();
        if let Some(long) = longs.next() {
            arg = arg.long(long).visible_aliases(longs);
        }
        if let Some(short) = shorts.first() {
            arg = arg.short(*short);
        }
        let Some(value) = self.value else {
            return arg.action(ArgAction::SetTrue);
        };
        if self.repeats {
            arg = arg.action(ArgAction::Append);
            if arg.get_long().is_none() {
                arg = arg.num_args(1..);
            }
        }
        if self.optional_value && arg.get_long().is_some() {
            arg = arg.num_args(0..=1);
        }
        let is_file = ["FILE", "DIR", ".toml"]
            .iter()
            .any(|word| value.contains(word));
        let arg = arg.value_name(kept(value));
        if !self.words.is_empty() {
            let words = self.words.into_iter().map(kept);
            return arg.value_parser(PossibleValuesParser::new(words));
        }
        // A shell completes paths for such a value.
        if is_file {
            arg.value_parser(value_parser!(PathBuf))
        } else {
            arg
        }
    }
}
