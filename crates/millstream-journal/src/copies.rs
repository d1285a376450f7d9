//! Copies of a journal: the identity that they share, and the terms that say which of them may be appended to.

pub(crate) mod identity;
mod leadership;
pub(crate) mod term;
