//! Panics in what users have written: each is caught on the thread of Millstream or of the caller that it occurs on,
//! and becomes the error of the run, in the name of the step.
//!
//! Invariant: no panic of a source, sink, step or callback leaves this crate, and a panic while a part is dropped does
//! not end the process: each [`Owned`] part catches its own.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::control::Lifecycle;
use crate::error::FlowError;

thread_local! {
    /// The step whose source, sink or maker is being called on this thread.
    static CALLED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// While it exists, a part of this step is being called; a panic leaves the name for [`caught`].
pub(crate) struct InStep(Option<String>);

/// Notes that a part of the step `name` is called next.
pub(crate) fn in_step(name: &str) -> InStep {
    InStep(CALLED.replace(Some(name.to_owned())))
}

impl Drop for InStep {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            CALLED.set(self.0.take());
        }
    }
}

/// Calls `f`, and makes an error of a panic: in the name of the step that was being called, or of `otherwise`.
pub(crate) fn caught<T>(
    otherwise: impl FnOnce() -> String,
    f: impl FnOnce() -> T,
) -> Result<T, FlowError> {
    CALLED.take();
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let step = CALLED.take().unwrap_or_else(otherwise);
        FlowError::panicked(step, &*panic)
    })
}

/// A part of a step that users may have written: a panic in its `Drop` is the failure of the run.
pub(crate) struct Owned<T> {
    part: Option<T>,
    step: String,
    life: Arc<Lifecycle>,
}

impl<T> Owned<T> {
    pub(crate) fn new(part: T, step: &str, life: &Arc<Lifecycle>) -> Self {
        Owned {
            part: Some(part),
            step: step.to_owned(),
            life: Arc::clone(life),
        }
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        match &self.part {
            Some(part) => part,
            None => unreachable!("the part is there until it is dropped"),
        }
    }
}

impl<T> DerefMut for Owned<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.part {
            Some(part) => part,
            None => unreachable!("the part is there until it is dropped"),
        }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        let part = self.part.take();
        let dropped = catch_unwind(AssertUnwindSafe(move || drop(part)));
        if let Err(panic) = dropped {
            self.life
                .fail(FlowError::panicked(self.step.clone(), &*panic));
        }
    }
}
