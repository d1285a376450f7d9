//! Copies of a journal: the identity that they share, the terms that decide which of them accepts appends, and which
//! count as followers.

pub(crate) mod claim;
mod followers;
pub(crate) mod identity;
mod leadership;
pub(crate) mod term;
