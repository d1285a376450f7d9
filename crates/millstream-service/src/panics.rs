//! Panics of a component: each becomes the error of the call in which it occurred, and ends the service. What the
//! component had changed when it panicked is not known, so that no policy skips the call; a start rebuilds the state.

use std::any::{Any, type_name};
use std::panic::{AssertUnwindSafe, catch_unwind};

use millstream_journal::panic_text;
use millstream_wire::Cause;

/// The component has panicked.
#[derive(Debug, thiserror::Error)]
#[error("the component {component} panicked: {message}")]
pub(crate) struct Panicked {
    component: &'static str,
    message: String,
}

impl Panicked {
    fn of<C>(panic: &(dyn Any + Send)) -> Self {
        Panicked {
            component: type_name::<C>(),
            message: panic_text(panic).to_owned(),
        }
    }
}

/// Calls the component; a panic of it is an error.
pub(crate) fn call<C, T>(
    component: &mut C,
    call: impl FnOnce(&mut C) -> Result<T, Cause>,
) -> Result<T, Cause> {
    catch_unwind(AssertUnwindSafe(|| call(component)))
        .unwrap_or_else(|panic| Err(Panicked::of::<C>(&*panic).into()))
}
