//! What the state directory stores: keys with their states, as bytes and back.
//!
//! `codec` encodes one value, `pack` the structure around values; `raw` and `json` read both without the types. `changes` collects the keys of one step that an epoch
//! has changed, and `restore` reads what earlier epochs have saved.

pub mod changes;
pub mod codec;
#[doc(hidden)] // For the other crates of Millstream.
pub mod json;
#[doc(hidden)] // For the other crates of Millstream.
pub mod pack;
pub(crate) mod raw;
pub mod restore;
