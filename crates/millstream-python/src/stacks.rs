//! The Python stacks of threads that have been inside one call for seconds.

use millstream_observe::StackOf;
use pyo3::prelude::*;

use crate::gil;

/// The stacks of the threads of this process that run Python.
pub(crate) fn stacks() -> StackOf {
    // A thread that waits for the interpreter must not keep it from ending.
    StackOf::new(|thread| gil::locked_while_alive(|py| stack_of(py, thread))?)
}

/// The end of the Python stack of a thread, by its number in the operating system.
fn stack_of(py: Python<'_>, thread: u32) -> Option<String> {
    let stacks = py.import("millstream._run.stacks").ok()?;
    stacks.call_method1("of", (thread,)).ok()?.extract().ok()?
}
