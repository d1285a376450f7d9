//! Directories of deleted queues, which threads remove: the files of a large queue take long.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use tracing::error;

/// The number of threads that remove directories at a time. The calling thread removes what comes beyond them.
const THREADS_MAX: usize = 16;

/// The directories that are being removed. The last handle waits for them.
#[derive(Debug, Default)]
pub(super) struct Removals(Arc<Running>);

#[derive(Debug, Default)]
struct Running {
    count: Mutex<usize>,
    ended: Condvar,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        *self.lock() -= 1;
        self.ended.notify_all();
    }
}

impl Removals {
    /// Begins to remove a directory. What cannot be removed is removed at the next start.
    ///
    /// # Errors
    /// The calling thread removed it, and the system refused.
    pub(super) fn begin(&self, directory: PathBuf) -> io::Result<()> {
        {
            let mut count = self.0.lock();
            if *count >= THREADS_MAX {
                drop(count);
                return std::fs::remove_dir_all(directory);
            }
            *count += 1;
        }
        let running = Arc::clone(&self.0);
        let for_thread = directory.clone();
        let started = Builder::new()
            .name("removed-queues".to_owned())
            .spawn(move || {
                if let Err(error) = std::fs::remove_dir_all(&for_thread) {
                    error!("cannot remove {}: {error}", for_thread.display());
                }
                running.end();
            });
        if started.is_err() {
            self.0.end();
            return std::fs::remove_dir_all(directory);
        }
        Ok(())
    }

    /// Waits until all have been removed. Returns whether there was any: its space is free now.
    pub(super) fn wait(&self) -> bool {
        let mut count = self.0.lock();
        let was_running = *count > 0;
        while *count > 0 {
            count = self
                .0
                .ended
                .wait(count)
                .unwrap_or_else(PoisonError::into_inner);
        }
        was_running
    }
}

impl Drop for Removals {
    fn drop(&mut self) {
        self.wait();
    }
}
