//! Locking a mutex whose contents stay sound when a thread panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lock `mutex`, also after a panic of its last holder: no holder in this crate leaves the contents half changed.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
