//! Flows.
pub mod framing;
