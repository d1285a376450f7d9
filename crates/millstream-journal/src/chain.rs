//! An error and its causes as one line, for a log or a person.
//!
//! The errors of all crates keep to the rule of the standard library: `Display` says what failed, and `source` returns
//! the cause, down to the error of the system. `Debug`, which a `main` that returns the error prints, is the line of
//! this module.
//!
//! ```
//! use millstream_journal::{Journal, Options, chain};
//! let error = Journal::open("/dev/null/orders", Options::default()).err().unwrap();
//! assert_eq!(error.to_string(), "/dev/null/orders: cannot make");
//! assert_eq!(chain(&error).to_string(), "/dev/null/orders: cannot make: File exists (os error 17)");
//! assert_eq!(format!("{error:?}"), chain(&error).to_string());
//! ```

use std::error::Error;
use std::fmt;

/// Shows an error and its causes as one line, `WHAT FAILED: CAUSE: CAUSE`. A cause with whose text the line ends
/// already is left out: some errors contain the text of their cause.
///
/// ```
/// use millstream_journal::chain;
/// let refused = std::io::Error::other("the disk is read-only");
/// assert_eq!(chain(&refused).to_string(), "the disk is read-only");
/// ```
#[must_use]
pub fn chain<'a>(error: &'a (dyn Error + 'static)) -> Chain<'a> {
    Chain(error)
}

/// What [`chain`] returns.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(&'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = self.0.to_string();
        let mut source = self.0.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !line.ends_with(&text) {
                line += ": ";
                line += &text;
            }
            source = cause.source();
        }
        f.write_str(&line)
    }
}

/// Returns an error that says `what` failed, as the path of a file, and has `cause` as its source.
///
/// ```
/// use millstream_journal::{chain, context};
/// let error = context("orders.csv", std::io::Error::other("the disk failed"));
/// assert_eq!(error.to_string(), "orders.csv");
/// assert_eq!(chain(&*error).to_string(), "orders.csv: the disk failed");
/// ```
pub fn context(
    what: impl fmt::Display,
    cause: impl Into<Box<dyn Error + Send + Sync>>,
) -> Box<dyn Error + Send + Sync> {
    Box::new(Context {
        what: what.to_string(),
        cause: cause.into(),
    })
}

struct Context {
    what: String,
    cause: Box<dyn Error + Send + Sync>,
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for Context {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.cause)
    }
}

crate::debug_as_chain!(Context);

/// Implements `Debug` for error types as their [`chain`].
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_chain {
    ($($error:ty),+) => {$(
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(&$crate::chain(self), f)
            }
        }
    )+};
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Failed {
        #[error("cannot load")]
        Load(#[source] Box<Failed>),
        /// Contains the text of its cause, as errors of other libraries do.
        #[error("cannot parse: {0}")]
        Parse(#[source] io::Error),
    }

    #[test]
    fn a_cause_that_is_in_the_text_already_is_not_repeated() {
        let parse = Failed::Parse(io::Error::other("no number"));
        assert_eq!(chain(&parse).to_string(), "cannot parse: no number");
        let load = Failed::Load(Box::new(parse));
        assert_eq!(
            chain(&load).to_string(),
            "cannot load: cannot parse: no number"
        );
    }
}
