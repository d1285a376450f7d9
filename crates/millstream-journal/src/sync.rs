//! Durability: one sync for all that wait, and the bound on what is acknowledged before it is durable.

pub(crate) mod bound;
pub(crate) mod closed;
pub(crate) mod durable;
pub(crate) mod gate;
