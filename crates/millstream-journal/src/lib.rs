//! A durable, memory-mapped log of records that any process of the machine may append to and tail.
//!
//! A journal is a directory. Records have dense sequence numbers from 0 and times that do not fall. A reader in any
//! process sees a record whole or not at all; a writer that dies in the middle of an append harms nobody. What is
//! acknowledged survives the death of processes, and with [`Sync::Always`] a loss of power; what is damaged is an error that names
//! file and offset, never a quiet end.
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

mod ahead;
mod append;
mod bound;
mod checksum;
pub mod clock;
mod control;
mod core;
mod cursor;
mod cut;
mod durable;
mod error;
mod frame;
mod gate;
mod grow;
mod host;
mod identity;
mod index;
mod info;
mod journal;
mod lock;
#[cfg(test)]
mod models;
mod open;
mod options;
mod pinned;
#[cfg(feature = "simulation")]
pub mod planted;
#[cfg(not(feature = "simulation"))]
mod planted;
mod process;
mod reader;
mod record_set;
mod recover;
mod retention;
mod salvage;
mod sealed;
mod segment;
mod start;
pub mod storage;
mod term;
mod verify;
mod writer;

pub use cursor::{Cursor, CursorInfo, Share};
pub use error::{Error, Result};
pub use host::Host;
pub use identity::Identity;
pub use info::Info;
pub use journal::Journal;
pub use options::{Options, Retention, Sync};
pub use pinned::PinnedRecord;
pub use reader::{Reader, Record, Wait};
pub use record_set::RecordSet;
pub use retention::Pruned;
pub use salvage::{RecordPlace, Salvage};
pub use storage::Mapped;
pub use term::{Standing, Term};
pub use verify::{Damage, Progress, Report, Torn};
pub use writer::{Claim, Writer};
