//! A follower: it copies the changes, and applies them to queues of its own.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::Duration;

use millstream_replication::{FollowOptions, Followed, follow};
use tracing::info;

use super::copies::Copies;
use crate::error::Cause;
use crate::storage::{CHANGES, JournalStorage};

/// How often a follower looks whether it must stop, and whether there are changes at all.
const LOOK: Duration = Duration::from_millis(100);

/// Follows the changes of a server into the directory `folder`, which may be new, until `stop` is raised; with `once` until all changes are there that
/// the server had. The journals of `options` are left out. `item_bytes_max` is that of the server.
///
/// # Errors
/// The directory is in use; what trying again would not mend, see [`follow`]; changes or queues that cannot be read or written.
pub fn follow_into(
    folder: &Path,
    item_bytes_max: usize,
    options: &FollowOptions,
    stop: &AtomicBool,
) -> Result<Followed, Cause> {
    let storage = JournalStorage::open_followed(folder, item_bytes_max)?;
    let mut copies = Copies::open(storage)?;
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
        let applied = apply(&mut copies, &ended);
        if applied.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        let followed = following.join().map_err(|_| "the connection has failed")?;
        applied?;
        let mut followed = followed?;
        followed.pop().ok_or_else(|| "nothing was followed".into())
    })
}

/// Applies changes until the connection has `ended` and there are no more.
fn apply(copies: &mut Result<Copies, JournalStorage>, ended: &AtomicBool) -> Result<(), Cause> {
    loop {
        let is_last = ended.load(Ordering::Relaxed);
        if !open(copies)? {
            if is_last {
                return Ok(());
            }
            rest();
            continue;
        }
        let Ok(copies) = copies else { continue };
        let was_complete = copies.is_complete();
        let count = copies.follow(LOOK)?;
        if copies.is_complete() && !was_complete {
            info!("the copy is complete");
        }
        if is_last && count == 0 {
            return Ok(());
        }
    }
}

/// Opens the changes, once there are any. Returns whether they are open.
fn open(copies: &mut Result<Copies, JournalStorage>) -> Result<bool, Cause> {
    if let Err(storage) = copies {
        *copies = Copies::open(storage.clone())?;
    }
    Ok(copies.is_ok())
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells that the connection has made the journal"
)]
fn rest() {
    std::thread::sleep(LOOK);
}
