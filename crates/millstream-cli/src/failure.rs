//! The two ways in which a verb fails, each with its exit code.

use std::fmt::Display;

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

    /// An error of the work itself.
    pub fn failed(message: impl Display) -> Self {
        Self::Failed(message.to_string())
    }

    /// Prints one line `PROGRAM VERB: ...` on standard error and returns the exit code.
    pub fn print(self, program: &str, verb: &str) -> u8 {
        let (message, code) = match self {
            Self::Usage(message) => (message, 2),
            Self::Failed(message) => (message, 1),
        };
        eprintln!("{program} {verb}: {message}");
        code
    }
}
