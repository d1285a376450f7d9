//! Threads that create journals: a new queue costs some syncs, for which only the request waits that needs the queue.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use crate::error::Cause;

/// The number of journals that are created at a time: the file system makes one commit for their syncs.
const THREADS: usize = 4;

/// The threads. They end with the last handle.
pub(super) struct Makers<T>(Sender<Job<T>>);

impl<T> Clone for Makers<T> {
    fn clone(&self) -> Self {
        Makers(self.0.clone())
    }
}

struct Job<T> {
    make: Box<dyn FnOnce() -> Result<T, Cause> + Send>,
    making: Arc<Making<T>>,
}

/// A journal that is being created.
pub(super) struct Making<T> {
    made: Mutex<Option<Result<T, Cause>>>,
    changed: Condvar,
}

impl<T> Making<T> {
    fn lock(&self) -> MutexGuard<'_, Option<Result<T, Cause>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_done(&self) -> bool {
        self.lock().is_some()
    }

    /// Waits for the journal.
    pub(super) fn wait(&self) -> Result<T, Cause> {
        let mut made = self.lock();
        loop {
            match made.take() {
                Some(outcome) => return outcome,
                None => {
                    made = self
                        .changed
                        .wait(made)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl<T: Send + 'static> Makers<T> {
    /// Starts the threads. They call `notify` after each journal that they have created or could not create.
    pub(super) fn start(notify: impl Fn() + Send + Sync + 'static) -> io::Result<Self> {
        let (sender, jobs) = channel();
        let jobs = Arc::new(Mutex::new(jobs));
        let notify = Arc::new(notify);
        for _ in 0..THREADS {
            let jobs = Arc::clone(&jobs);
            let notify = Arc::clone(&notify);
            Builder::new()
                .name("new-queues".to_owned())
                .spawn(move || run(&jobs, &*notify))?;
        }
        Ok(Makers(sender))
    }

    /// Begins to create a journal.
    pub(super) fn begin(
        &self,
        make: impl FnOnce() -> Result<T, Cause> + Send + 'static,
    ) -> Arc<Making<T>> {
        let making = Arc::new(Making {
            made: Mutex::new(None),
            changed: Condvar::new(),
        });
        let job = Job {
            make: Box::new(make),
            making: Arc::clone(&making),
        };
        if self.0.send(job).is_err() {
            *making.lock() = Some(Err("the threads that create queues have ended".into()));
        }
        making
    }
}

fn run<T>(jobs: &Mutex<Receiver<Job<T>>>, notify: &impl Fn()) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { make, making }) = next else {
            return;
        };
        let outcome = make();
        *making.lock() = Some(outcome);
        making.changed.notify_all();
        notify();
    }
}
