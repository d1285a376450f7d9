//! The errors of records, schemas and texts, with their place.
//!
//! Errors are boxed: the `Ok` path of a decoder then returns its value in registers, and the place (method, argument,
//! field) is added on the way up, at a cost only for failures.

use std::error::Error;
use std::fmt;

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Box<WireError>>;

/// An error with its place. The caller knows the journal and the sequence number, and adds them. `Debug` is the text of
/// `Display`.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes of a record do not match its schema.
    #[error("{}byte {offset}: {misfit}", place(path))]
    Decode {
        /// Method, argument and fields, outermost first, joined by points; empty at the top.
        path: String,
        /// Bytes from the start of the decoded bytes.
        offset: usize,
        /// The misfit.
        misfit: Misfit,
    },
    /// A value cannot be written as its type demands.
    #[error("{}{misfit}", place(path))]
    Encode {
        /// Method, argument and fields, outermost first.
        path: String,
        /// The misfit.
        misfit: Misfit,
    },
    /// The space claimed for a record is too small for it.
    #[error("a record does not fit into the {room} bytes claimed for it")]
    Full {
        /// Bytes that were claimed.
        room: usize,
    },
    /// A record calls a method that its interface does not have.
    #[error("interface {interface} has no method {method}")]
    UnknownMethod {
        /// Name of the interface.
        interface: String,
        /// The number of the method in the record, or its name in a text.
        method: String,
    },
    /// No note of the journal holds this schema.
    #[error("the journal has no schema {id:#x}")]
    UnknownSchema {
        /// The id of the schema.
        id: u32,
    },
    /// A schema contradicts itself or goes beyond a limit.
    #[error("interface {interface}: {reason}")]
    Schema {
        /// Name of the interface.
        interface: String,
        /// The fault, with the name of the type, method or field.
        reason: String,
    },
    /// Records of one schema cannot be read with another.
    #[error("interface {interface}, {place}: {reason}")]
    Incompatible {
        /// Name of the reader's interface.
        interface: String,
        /// Method, argument and field.
        place: String,
        /// Why not.
        reason: String,
    },
    /// A text is not YAML, or does not match its type.
    #[error("line {line}: {}{reason}", place(path))]
    Text {
        /// Line of the text, from 1.
        line: usize,
        /// Method, argument and fields, outermost first.
        path: String,
        /// The reason.
        reason: String,
    },
    /// A text is not JSON, or does not match its type.
    #[error("{}{reason}", place(path))]
    Json {
        /// Method, argument and fields, outermost first.
        path: String,
        /// The reason.
        reason: String,
    },
}

/// The misfit of a single value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misfit {
    /// The record ends in the middle of a value.
    #[error("the record ends here")]
    Ends,
    /// Another kind of value was expected.
    #[error("expected {expected}, found {found}")]
    Kind {
        /// The kind that the type demands.
        expected: &'static str,
        /// The kind that was found.
        found: String,
    },
    /// A number that the type cannot hold.
    #[error("{value} is out of range for {kind}")]
    Range {
        /// The number.
        value: String,
        /// The type.
        kind: &'static str,
    },
    /// A string that is not UTF-8.
    #[error("a string is not UTF-8")]
    Utf8,
    /// An array of another length than the schema says.
    #[error("{found} values where the schema has {expected}")]
    Length {
        /// The length in the schema.
        expected: usize,
        /// The length that was found.
        found: usize,
    },
    /// A number that names no variant of an enum.
    #[error("the enum has no variant {0}")]
    Variant(String),
    /// A field that is not there and has no default.
    #[error("the field is missing and has no default")]
    Missing,
    /// Values within values, deeper than [`DEPTH_MAX`](crate::DEPTH_MAX).
    #[error("values are nested more than {} levels deep", crate::limits::DEPTH_MAX)]
    Deep,
    /// Bytes after the end of the call.
    #[error("{0} bytes after the end of the call")]
    TrailingBytes(usize),
    /// A text that is no decimal number.
    #[error("{0:?} is not a decimal number")]
    Decimal(String),
}

impl fmt::Debug for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl WireError {
    #[cold]
    pub(crate) fn decode(offset: usize, misfit: Misfit) -> Box<Self> {
        let path = String::new();
        Box::new(Self::Decode {
            path,
            offset,
            misfit,
        })
    }

    #[cold]
    pub(crate) fn encode(misfit: Misfit) -> Box<Self> {
        let path = String::new();
        Box::new(Self::Encode { path, misfit })
    }

    #[cold]
    pub(crate) fn text(line: usize, reason: impl fmt::Display) -> Box<Self> {
        let path = String::new();
        let reason = reason.to_string();
        Box::new(Self::Text { line, path, reason })
    }

    #[cold]
    pub(crate) fn json(reason: impl fmt::Display) -> Box<Self> {
        let path = String::new();
        let reason = reason.to_string();
        Box::new(Self::Json { path, reason })
    }

    /// Adds the name of the method, argument or field of the error.
    #[cold]
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn within(mut self: Box<Self>, name: impl fmt::Display) -> Box<Self> {
        if let Self::Decode { path, .. }
        | Self::Encode { path, .. }
        | Self::Text { path, .. }
        | Self::Json { path, .. } = &mut *self
        {
            let dot = if path.is_empty() || path.starts_with('[') {
                ""
            } else {
                "."
            };
            *path = format!("{name}{dot}{path}");
        }
        self
    }
}

/// The text of an error and of all its causes, but those that the text before ends with. The same as
/// `millstream_journal::chain`, on which this crate does not depend.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !line.ends_with(&text) {
            line = format!("{line}: {text}");
        }
        source = cause.source();
    }
    line
}

fn place(path: &str) -> String {
    if path.is_empty() {
        String::new()
    } else {
        format!("{path}: ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_built_from_the_inside() {
        let error = WireError::decode(17, Misfit::Ends)
            .within("price")
            .within("[3]")
            .within("order")
            .within("new_order");
        let text = "new_order.order[3].price: byte 17: the record ends here";
        assert_eq!(error.to_string(), text);
    }
}
