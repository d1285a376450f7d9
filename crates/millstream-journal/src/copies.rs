//! Copies of a journal: the identity that they share, and the terms that decide which of them accepts appends.

pub(crate) mod identity;
mod leadership;
pub(crate) mod term;
