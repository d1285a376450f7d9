//! Journals on real file systems of a small size, in a program of its own: it starts many others, which share the locks
//! of all journals that are open here until they run.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod broken;
mod disk;
mod full;
#[path = "../journal/support.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod support;
