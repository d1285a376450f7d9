//! A durable, memory-mapped log of records that any process of the machine may append to and tail.
//!
//! A journal is a directory. Records have dense sequence numbers from 0, and the times of their appends. A reader in
//! any process sees a complete record or none; a writer that dies during an append does not affect others. An
//! acknowledged record survives the death of processes, and with [`Sync::Always`] a loss of power. Damage is an error
//! that names file and offset, never a silent end.
//!
//! ```
//! use millstream_journal::{Journal, Options, Wait};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("orders");
//! let journal = Journal::open(&path, Options::default())?;
//! journal.writer()?.append_many(["a", "b", "c"])?;
//!
//! let mut tail = journal.reader()?;
//! tail.seek(1)?;
//! while tail.wait(Wait::Block, Some(std::time::Duration::ZERO))? {
//!     let record = tail.next()?.expect("waited for it");
//!     println!("{} {:?}", record.sequence, record.body);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The format on disk is drawn in `docs/journal-format.md`.

#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(target_endian = "big")]
compile_error!("the format is little-endian, and words are mapped as they are");

mod append;
mod chain;
#[doc(hidden)] // For the other crates of Millstream.
pub mod clock;
#[doc(hidden)]
pub mod contention;
mod copies;
mod core;
mod error;
#[doc(hidden)] // For the other crates of Millstream.
pub mod file_system;
mod format;
mod host;
mod journal;
#[cfg(test)]
mod models;
mod mutex;
#[doc(hidden)] // For the other crates of Millstream.
pub mod named;
mod open;
mod options;
mod process;
#[doc(hidden)]
pub mod random;
mod read;
mod recover;
mod retain;
#[doc(hidden)] // For the other crates of Millstream.
pub mod storage;
mod sync;
mod threads;
#[doc(hidden)] // For the other crates of Millstream.
pub mod times;

pub use append::writer::{Claim, Writer};
pub use chain::{Chain, chain, context};
pub use copies::claim::Ownership;
pub use copies::identity::Identity;
pub use copies::term::{Leadership, Term};
pub use error::{Error, Result};
pub use format::admission::{Admission, FOLLOWER};
pub use host::Host;
pub use journal::Journal;
pub use options::{Options, Retention, Sync};
pub use read::bookmark::{Bookmark, checksum_of};
pub use read::cursor::{Cursor, CursorMode, CursorView};
pub use read::cursor_file::CursorInfo;
pub use read::info::Info;
pub use read::pinned::PinnedRecord;
pub use read::reader::{Reader, Record, Wait};
pub use read::record_set::RecordSet;
pub use recover::salvage::{RecordPlace, Salvage};
pub use recover::verify::{Damage, Progress, Report, Torn};
pub use retain::prune::Pruned;
pub use storage::Mapped;
pub use sync::closed::sync_closed;
#[doc(hidden)] // For the other crates of Millstream.
pub use threads::panic_text;
