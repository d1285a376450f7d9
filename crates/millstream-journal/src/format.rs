//! The bytes on disk: frames and their checksums, segments with their index, the control page, and small sealed files.
//!
//! These modules do not depend on openings, writers or readers. `docs/journal-format.md` draws the format.

pub(crate) mod admission;
pub(crate) mod checksum;
pub(crate) mod control;
pub(crate) mod files;
pub(crate) mod frame;
pub(crate) mod index;
pub(crate) mod published;
pub(crate) mod sealed;
pub(crate) mod segment;
