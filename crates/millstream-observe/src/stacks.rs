//! What workers do that have been inside one call for seconds.
//!
//! The stack of a thread is known to the interpreter of its language, whose lock the call may hold: the question waits
//! on a thread of its own, and what is shown does not.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use crate::lock;
use crate::snapshot::WorkerSnapshot;

/// Returns the end of the stack of a thread, by its number in the operating system.
#[derive(Clone)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct StackOf(Arc<dyn Fn(u32) -> Option<String> + Send + Sync>);

impl StackOf {
    /// Wraps a function.
    pub fn new(of: impl Fn(u32) -> Option<String> + Send + Sync + 'static) -> Self {
        StackOf(Arc::new(of))
    }
}

impl fmt::Debug for StackOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StackOf")
    }
}

/// The stacks of the workers of one run, or of services.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Stacks {
    of: StackOf,
    /// By worker; empty until it is known.
    asked: HashMap<usize, Arc<Mutex<Option<String>>>>,
}

impl Stacks {
    /// Asks this function.
    #[must_use]
    pub fn new(of: StackOf) -> Self {
        Stacks {
            of,
            asked: HashMap::new(),
        }
    }

    /// Adds the stacks of those that are inside a call, as far as they are known.
    pub(crate) fn add(&mut self, workers: &mut [WorkerSnapshot]) {
        for worker in workers {
            let thread = worker.thread.filter(|_| worker.step.is_some());
            worker.stack = self.of(worker.worker, thread);
        }
    }

    /// The stack of the thread of a worker that is inside a call; it is asked for once for each call.
    pub fn of(&mut self, worker: usize, thread: Option<u32>) -> Option<String> {
        let Some(thread) = thread else {
            self.asked.remove(&worker);
            return None;
        };
        let answer = self.asked.entry(worker).or_insert_with(|| {
            let of = self.of.clone();
            let answer = Arc::default();
            let place = Arc::clone(&answer);
            let asks = std::thread::Builder::new().name("stacks".to_owned());
            // Without a thread there is no stack.
            let _ = asks.spawn(move || *lock(&place) = (of.0)(thread));
            answer
        });
        lock(answer).clone()
    }
}
