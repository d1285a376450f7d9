//! The requirements on the items of a Rust flow.

/// An item of a Rust flow: cloneable (a stream may be used twice), sendable to another worker, and free of
/// borrowed data.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Data: Clone + Send + 'static {}
impl<T: Clone + Send + 'static> Data for T {}
