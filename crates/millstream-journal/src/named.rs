//! The names of options in messages: those that the program has which shows the message.
//!
//! An option has a name in Rust, in Python, and on the command line. A message that tells a user to set one names it as
//! this process has it.
//!
//! ```
//! use millstream_journal::named::{Face, Named, name_options_of};
//!
//! let fresh = Named(["Recovery::fresh", "fresh=True", "--fresh"]);
//! assert_eq!(fresh.to_string(), "Recovery::fresh");
//! let before = name_options_of(Face::CommandLine);
//! assert_eq!(fresh.to_string(), "--fresh");
//! name_options_of(before);
//! ```

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

/// What a user of this process sets options by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// Methods and fields in Rust: what a process names that says nothing else.
    Rust,
    /// Arguments in Python.
    Python,
    /// Options of the program `millstream`.
    CommandLine,
}

impl Face {
    fn now() -> Face {
        Face::of_number(FACE.load(Ordering::Relaxed))
    }

    fn of_number(number: u8) -> Face {
        let faces = [Face::Rust, Face::Python, Face::CommandLine];
        let found = faces.into_iter().find(|face| *face as u8 == number);
        found.unwrap_or(Face::Rust)
    }
}

static FACE: AtomicU8 = AtomicU8::new(Face::Rust as u8);

/// Messages name options in this way from now on. Returns the way before.
pub fn name_options_of(face: Face) -> Face {
    Face::of_number(FACE.swap(face as u8, Ordering::Relaxed))
}

/// The names of an option: in Rust, in Python, and on the command line. It is shown by the one that this process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named(pub [&'static str; 3]);

impl Named {
    /// The option with a name in quotes as its value.
    #[must_use]
    pub fn with(self, value: &str) -> String {
        self.with_each([value])
    }

    /// The option with several names in quotes as its values.
    #[must_use]
    pub fn with_each<'a>(self, values: impl IntoIterator<Item = &'a str>) -> String {
        let quoted = values.into_iter().map(|value| format!("\"{value}\""));
        let each = |form: &dyn Fn(String) -> String, between: &str| {
            quoted.map(form).collect::<Vec<_>>().join(between)
        };
        match Face::now() {
            Face::Rust => each(&|value| format!("{self}({value})"), " and "),
            Face::Python => format!("{self}[{}]", each(&|value| value, ", ")),
            Face::CommandLine => each(&|value| format!("{self} {value}"), " "),
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0[Face::now() as usize])
    }
}
