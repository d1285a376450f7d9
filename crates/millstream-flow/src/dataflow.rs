//! The operators of a flow on one worker, as timely runs them: how they are built, and what they do in a turn.
//!
//! A *root* is an operator: a source, or the place where packets of other operators arrive. After it is a chain of
//! steps, which a batch passes through by plain calls, to its sinks and to the connections to other operators.

pub mod build;
pub(crate) mod chain;
pub(crate) mod context;
pub(crate) mod dead_letters;
mod departure;
pub mod edge;
pub mod making;
mod opening;
mod pace;
mod packet;
pub(crate) mod plan;
pub(crate) mod push;
pub(crate) mod segment;
pub(crate) mod sink;
pub(crate) mod source;
