//! Sources and sinks: sockets, files, journals, generators; and the codecs between bytes and items.

#[doc(hidden)] // For the other crates of Millstream.
pub mod batched;
pub mod channel;
pub mod codec;
pub mod csv;
pub mod directory;
mod ext;
pub mod files;
mod first_bytes;
mod format;
pub mod generator;
pub mod journals;
pub mod json_lines;
#[doc(hidden)] // For the other crates of Millstream.
pub mod numbered;
pub mod stdout;
pub mod tcp;

pub use ext::SourceExt;
