//! Millstream.
pub use millstream_flow as flow;
