//! JSON lines as sources and sinks: each line of a file is one JSON value.
//!
//! Values are read and written with serde. A line that is no value of the type is a poison message: the error
//! names file, line and offset, and the policy decides what happens to it. An empty line is no value. A value
//! is written without line ends, so that it is one line.
//!
//! ```
//! use millstream_flow::{Flow, Options, json_lines};
//!
//! #[derive(Clone, serde::Serialize, serde::Deserialize)]
//! struct Price {
//!     name: String,
//!     cents: u32,
//! }
//!
//! let folder = tempfile::tempdir()?;
//! let (input, output) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
//! std::fs::write(&input, "{\"name\": \"tea\", \"cents\": 3}\n")?;
//! let flow = Flow::new("prices");
//! flow.source("prices", json_lines::read::<Price, _>([&input]))
//!     .sink("out", json_lines::write::<Price>(&output));
//! flow.run(Options::default())?;
//! assert_eq!(std::fs::read_to_string(&output)?, "{\"name\":\"tea\",\"cents\":3}\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::connectors::codec::{self, Decoded, Encoded};
use crate::connectors::directory::{self, ReadDirectory};
use crate::connectors::files::{self, ReadFiles, WriteFile};

/// The type of a decoder of JSON.
pub type JsonDecoder<T> = fn(&[u8]) -> Result<T, serde_json::Error>;
/// The type of an encoder of JSON.
pub type JsonEncoder<T> = fn(&T, &mut Vec<u8>) -> Result<(), serde_json::Error>;

/// Reads files of JSON lines, with a partition for each file.
pub fn read<T, P>(paths: impl IntoIterator<Item = P>) -> Decoded<ReadFiles, JsonDecoder<T>>
where
    T: DeserializeOwned + 'static,
    P: AsRef<Path>,
{
    codec::decode(files::read(paths), parse::<T> as JsonDecoder<T>)
}

/// Reads the files of JSON lines in `dir` whose names match `pattern`, as [`directory::frames`] does. For
/// options of the directory pass it to [`codec::decode`] with [`parse`].
pub fn directory<T>(
    dir: impl AsRef<Path>,
    pattern: &str,
) -> Decoded<ReadDirectory<ReadFiles>, JsonDecoder<T>>
where
    T: DeserializeOwned + 'static,
{
    let lines = directory::frames(dir, pattern);
    codec::decode(lines, parse::<T> as JsonDecoder<T>)
}

/// Writes each item as a line of JSON to a file, which is created anew, as [`files::write`] does. An item that
/// JSON cannot represent, for instance a map whose keys are no strings, fails the flow.
pub fn write<T: Serialize + 'static>(path: impl AsRef<Path>) -> Encoded<WriteFile, JsonEncoder<T>> {
    codec::encode(files::write(path), append::<T> as JsonEncoder<T>)
}

/// Parses a JSON value; a decoder for [`codec::decode`].
///
/// # Errors
/// The bytes are no JSON, or no value of this type.
pub fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(line)
}

/// Appends an item as JSON; an encoder for [`codec::encode`].
///
/// # Errors
/// JSON cannot represent the item.
pub fn append<T: Serialize>(item: &T, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    serde_json::to_writer(out, item)
}
