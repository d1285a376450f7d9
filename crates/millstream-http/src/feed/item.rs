//! An item of a feed.

use tokio_tungstenite::tungstenite::Utf8Bytes;

/// What an item counts more than its text and its id.
const ITEM_BYTES: usize = 64;

/// An item of a feed. Clients share its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) text: Utf8Bytes,
    /// Where a client resumes that has this item; empty for a feed without a history.
    pub(crate) id: Utf8Bytes,
    /// The number of the item; 0 for a feed without a history.
    pub(crate) number: u64,
}

impl Item {
    /// The bytes that it counts while it waits for a client.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len() + self.id.len() + ITEM_BYTES
    }
}

impl From<Utf8Bytes> for Item {
    fn from(text: Utf8Bytes) -> Self {
        Item {
            text,
            id: Utf8Bytes::default(),
            number: 0,
        }
    }
}
