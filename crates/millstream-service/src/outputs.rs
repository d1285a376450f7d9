//! The outputs of a service: the current input, the calls that it causes, and the inputs that failed.

pub(crate) mod contents;
pub(crate) mod current;
pub(crate) mod dead;
pub(crate) mod difference;
pub(crate) mod earlier;
pub(crate) mod keys;
pub(crate) mod outlet;
pub(crate) mod progress;
