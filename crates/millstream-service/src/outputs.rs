//! The outputs of a service: the current input, the calls that it causes, and the inputs that failed.

pub(crate) mod current;
pub(crate) mod dead;
pub(crate) mod outlet;
pub(crate) mod progress;
