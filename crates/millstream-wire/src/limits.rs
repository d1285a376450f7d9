//! The limits of values and schemas. A decoder checks them before it allocates or recurses.

/// How many values may be within one another: lists, maps, structs and enums, counted alike by all that write and read
/// values.
#[doc(hidden)] // For the other crates of Millstream.
pub const DEPTH_MAX: usize = 64;

/// How many methods an interface may have, fields a method or a type, and types a schema.
#[doc(hidden)] // For the other crates of Millstream.
pub const NAMES_MAX: usize = 4096;

/// How long a name may be, in bytes.
pub(crate) const NAME_LEN_MAX: usize = 255;
