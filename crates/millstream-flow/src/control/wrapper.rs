//! A closure around work.

use std::sync::Arc;

/// Calls the closure once, with work before and after it: the Python package attaches, takes and releases its
/// interpreter.
#[doc(hidden)] // For the other crates of Millstream.
pub type Wrapper = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;
