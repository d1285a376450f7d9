//! What the state directory stores: keys with their states, as bytes and back.
//!
//! `codec` encodes one value, `pack` the structure around values. `changes` collects the keys of one step that an epoch
//! has changed, and `restore` reads what earlier epochs have saved.

pub mod changes;
pub mod codec;
#[doc(hidden)] // For the other crates of Millstream.
pub mod pack;
pub mod restore;
