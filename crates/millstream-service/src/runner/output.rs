//! The journal to which a service writes.

use millstream_journal::{Cursor, Journal};

/// The output journal; the cursor excludes other services.
pub(super) struct Output {
    pub journal: Journal,
    pub cursor: Cursor,
}
