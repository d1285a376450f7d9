//! The folders that this process has open: who opens one again gets the same queues.
//!
//! The invariant: a folder has an entry from before it is opened until after it is closed, so that a thread that opens it
//! while another closes it waits for that, and is not told that somebody else has it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use super::Options;
use super::shared::Shared;
use crate::error::QueueError;

static OPEN: Mutex<Vec<(PathBuf, Weak<Shared>)>> = Mutex::new(Vec::new());
/// An entry has gone.
static CLOSED: Condvar = Condvar::new();

fn entries() -> MutexGuard<'static, Vec<(PathBuf, Weak<Shared>)>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The queues of a folder. Without options: as they are open already, or with the defaults.
pub(super) fn open(folder: &Path, options: Option<&Options>) -> Result<Arc<Shared>, QueueError> {
    let fault = |source| QueueError::Folder {
        path: folder.to_owned(),
        source,
    };
    fs::create_dir_all(folder).map_err(fault)?;
    let place = folder.canonicalize().map_err(fault)?;
    let mut entries = entries();
    while let Some((_, entry)) = entries.iter().find(|(path, _)| *path == place) {
        match entry.upgrade() {
            Some(shared) if options.is_none_or(|options| options == shared.options()) => {
                shared.check_process()?;
                return Ok(shared);
            }
            Some(shared) => {
                drop(entries);
                return Err(QueueError::Differs {
                    path: shared.folder().to_owned(),
                });
            }
            None => {
                entries = CLOSED.wait(entries).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
    let options = options.cloned().unwrap_or_default();
    let shared = Shared::open(folder, place.clone(), options)?;
    entries.push((place, Arc::downgrade(&shared)));
    Ok(shared)
}

/// A folder has been closed.
pub(super) fn remove(place: &Path) {
    entries().retain(|(path, _)| path != place);
    CLOSED.notify_all();
}
