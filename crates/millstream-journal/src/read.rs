//! Reading: readers that tail, positions that know their record, records that stay mapped, named cursors, sets of
//! records, and a summary.

pub(crate) mod bookmark;
mod confirm;
pub(crate) mod cursor;
pub(crate) mod cursor_file;
pub(crate) mod info;
pub(crate) mod pinned;
pub(crate) mod reader;
pub(crate) mod record_set;
mod visited;
