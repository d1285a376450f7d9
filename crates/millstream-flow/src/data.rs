//! What an item of a Rust flow must be.

/// What an item of a Rust flow must be: cloneable (a stream may be used twice), sendable to
/// another worker, and free of borrowed data.
pub trait Data: Clone + Send + 'static {}
impl<T: Clone + Send + 'static> Data for T {}
