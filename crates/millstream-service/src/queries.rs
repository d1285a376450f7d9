//! Queries: questions to a component that runs, which are answered on its thread, between two inputs, and recorded
//! nowhere.
//!
//! A service with queries listens on a socket beside its output journal; [`ask`] connects to it, and so does the
//! gateway of services. A query reads the state of the component, and makes no calls. The messages are in
//! docs/service-format.md.

mod ask;
mod asked;
mod fault;
mod listen;
mod message;
mod questions;

pub use ask::ask;
pub(crate) use asked::Asked;
pub use fault::{Arguments, Fault, QueryError};
pub(crate) use questions::Answer;
