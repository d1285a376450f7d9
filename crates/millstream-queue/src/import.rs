//! Import of the queues of Starling and Kestrel servers from their journal files.
//!
//! Neither format has a magic number or a checksum: damage shows as an unknown operation, a size that does not fit or
//! a short read. It ends the queue with file and offset; items before it are kept. Formats: Starling's
//! `persistent_queue.rb`, Kestrel's `JournalPacker` and `Journal.scala`; all numbers are little-endian.
//!
//! ```
//! use millstream_queue::import::{OldQueue, Starling};
//!
//! let mut queue = OldQueue::default();
//! let file = b"\x00\x09\0\0\0\0\0\0\0hello\x00\x06\0\0\0\0\0\0\0hi\x01";
//! Starling.replay(&file[..], &mut queue)?;
//! let items: Vec<_> = queue.into_items().map(|item| item.body).collect();
//! assert_eq!(items, [b"hi"]);
//! # Ok::<(), millstream_queue::import::Damage>(())
//! ```

mod files;
mod kestrel;
mod operation_reader;
mod starling;

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;

use operation_reader::OperationReader;

pub use files::{QueueFiles, Source, find};
pub use kestrel::Kestrel;
pub use operation_reader::Damage;
pub use starling::Starling;

/// An item of an old queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OldItem {
    /// Wall clock in milliseconds; 0 never.
    pub expiry_ms: u64,
    /// The bytes.
    pub body: Vec<u8>,
}

/// Reads an item in the encoding of both formats: its size, its expiry in seconds, then its bytes.
fn dated_item(file: &mut OperationReader<impl Read>) -> Result<OldItem, Damage> {
    let size = file.u32()?;
    let expiry_s = file.u32()?;
    Ok(OldItem {
        expiry_ms: u64::from(expiry_s) * 1_000,
        body: file.body(size, 4)?,
    })
}

/// The state of a queue after the operations so far.
#[derive(Clone, Debug, Default)]
pub struct OldQueue {
    items: VecDeque<OldItem>,
    open: BTreeMap<i32, OldItem>,
    last_open: i32,
}

impl OldQueue {
    /// The remaining items, open ones first.
    pub fn into_items(mut self) -> impl Iterator<Item = OldItem> {
        // Each is put at the head, the highest first, so that the lowest is served first.
        while let Some((_, item)) = self.open.pop_last() {
            self.items.push_front(item);
        }
        self.items.into_iter()
    }

    /// The number of remaining items.
    pub fn len(&self) -> usize {
        self.items.len() + self.open.len()
    }

    /// Whether no item remains.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
