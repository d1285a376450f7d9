//! The two ways in which a verb fails, each with its exit code.

use std::error::Error;
use std::fmt::Display;

use millstream_journal::chain;
use serde_json::Value;
use tracing::Level;

use crate::log::announce;

/// The error of a verb.
#[derive(Debug)]
pub enum Failure {
    /// The options contradict each other: exit code 2.
    Usage(String),
    /// The work failed: exit code 1.
    Failed(String),
}

impl Failure {
    /// An error in the use of the options.
    pub fn usage(message: impl Display) -> Self {
        Self::Usage(message.to_string())
    }

    /// An error of the work itself, with all its causes.
    pub fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Failed(chain(&*error.into()).to_string())
    }

    /// Prints one line `PROGRAM VERB: ...` on standard error, or an object under `--log json`, and returns the exit code.
    pub fn print(self, program: &str, verb: &str) -> u8 {
        let (message, code) = match self {
            Self::Usage(message) => (message, 2),
            Self::Failed(message) => (message, 1),
        };
        let text = format!("{program} {verb}: {message}");
        let fields = [
            ("verb", Value::from(verb)),
            ("exit_code", Value::from(code)),
        ];
        announce(Level::ERROR, &text, &message, &fields);
        code
    }
}
