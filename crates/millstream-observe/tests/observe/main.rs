//! The integration tests of the crate.

mod generated;
mod server;
