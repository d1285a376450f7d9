//! A follower: it copies the changes, and applies them to queues of its own.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::Duration;

use millstream_journal::Error as Fault;
use millstream_journal::chain;
use millstream_replication::{FollowOptions, Followed, follow};
use tracing::{info, warn};

use super::copies::Copies;
use crate::error::Cause;
use crate::storage::{CHANGES, JournalStorage, Storage};

/// How often a follower looks whether it must stop, and whether there are changes at all.
const LOOK: Duration = Duration::from_millis(100);

/// Follows the changes of a server into the directory `folder`, which may be new, until `stop` is raised; with `once`
/// until all changes are there that the server had. The journals of `options` are left out.
///
/// # Errors
/// The directory is in use; what trying again would not mend, see [`follow`]; changes or queues that cannot be read or
/// written.
pub fn follow_into(
    folder: &Path,
    options: &FollowOptions,
    stop: &AtomicBool,
) -> Result<Followed, Cause> {
    let storage = JournalStorage::open_copy(folder)?;
    if !folder.join(CHANGES).exists()
        && let Some(name) = storage.names()?.first()
    {
        return Err(format!(
            "it has queues of its own ({name:?}), which a copy would replace: follow into a new directory, or move them away first"
        )
        .into());
    }
    let options = FollowOptions {
        journals: vec![(String::new(), folder.join(CHANGES))],
        ..options.clone()
    };
    // The connection ends with what is applied, and the other way round.
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let following = Builder::new().name("changes".to_owned());
        let following = following.spawn_scoped(scope, || {
            let followed = follow(&options, stop);
            ended.store(true, Ordering::Relaxed);
            followed
        })?;
        let applied = apply(&storage, &ended);
        if applied.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        let followed = following.join().map_err(|_| "the connection has failed")?;
        applied?;
        let mut followed = followed?;
        followed.pop().ok_or_else(|| "nothing was followed".into())
    })
}

/// Applies changes until the connection has `ended` and there are no more. A full disk is waited for.
fn apply(storage: &JournalStorage, ended: &AtomicBool) -> Result<(), Cause> {
    let mut copies = None;
    let mut is_full = false;
    loop {
        let is_last = ended.load(Ordering::Relaxed);
        match apply_some(&mut copies, storage) {
            Ok(0) if is_last => return Ok(()),
            Ok(_) => is_full = false,
            Err(cause) if is_disk_full(&cause) && !is_last => {
                if !std::mem::replace(&mut is_full, true) {
                    warn!("{}; trying again", chain(&*cause));
                }
                // What was done in part is found when they are opened again.
                copies = None;
                rest();
            }
            Err(cause) => return Err(cause),
        }
    }
}

/// Applies changes that have come. Returns their number.
fn apply_some(copies: &mut Option<Copies>, storage: &JournalStorage) -> Result<usize, Cause> {
    let was_complete = copies.as_ref().is_some_and(Copies::is_complete);
    if copies.is_none() {
        *copies = Copies::open(storage.clone())?;
    }
    let Some(copies) = copies else {
        rest();
        return Ok(0);
    };
    let count = copies.follow(LOOK)?;
    if copies.is_complete() && !was_complete {
        info!("the copy is complete");
    }
    Ok(count)
}

fn is_disk_full(cause: &Cause) -> bool {
    matches!(cause.downcast_ref(), Some(Fault::DiskFull { .. }))
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells that the connection has made the journal, or that a disk has room"
)]
fn rest() {
    std::thread::sleep(LOOK);
}
