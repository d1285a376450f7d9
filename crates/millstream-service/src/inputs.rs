//! The inputs of a service: which journals are admitted, their names, their calls, and the input that takes them.

pub(crate) mod admit;
pub(crate) mod calls;
pub(crate) mod inlet;
pub(crate) mod names;
pub(crate) mod sampler;
