//! The second machine: the changes are served to followers, and answers may wait for one.

use std::rc::Rc;
use std::time::Duration;

use millstream_journal::chain;
use millstream_replication::{ServeOptions, Served};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use super::core::Core;
use super::error::ServerError;
use super::options::ReplicaOptions;
use crate::broker::snapshot::Snapshot;
use crate::clock;
use crate::error::Cause;
use crate::pair::Keeper;
use crate::replica::{SharedChanges, prune};
use crate::storage::CHANGES;

/// How often the server looks whether it is superseded, and whether a snapshot is due.
const LOOK: Duration = Duration::from_millis(100);
/// How long a server that stops waits for a follower.
const FAREWELL: Duration = Duration::from_secs(3);
/// After a snapshot that could not be written.
const AGAIN: Duration = Duration::from_secs(60);
/// The name under which followers ask for the changes. They are the only journal, so that they need not name it.
const NAME: &str = "queues";

/// What serves the followers: the committer has it where answers wait for one.
#[derive(Default)]
pub(super) struct Serving {
    pub(super) waited: Option<Served>,
    pub(super) beside: Option<Served>,
}

/// Begins to serve the changes to followers, if they are written.
pub(super) async fn start(
    core: &Rc<Core>,
    tasks: &mut JoinSet<()>,
    changes: Option<SharedChanges>,
) -> Result<Serving, ServerError> {
    let mut serving = Serving::default();
    if let (Some(options), Some(changes)) = (&core.options.replica, changes) {
        let served = begin(options, &changes)?;
        if let Some(keeper) = &options.keeper {
            keeper.attach(changes.lock().journal().clone());
            while !keeper.is_ready() {
                check_lease(keeper)?;
                if keeper.must_stop() {
                    return Err(ServerError::Superseded(
                        "stopped before it served".to_owned(),
                    ));
                }
                tokio::time::sleep(LOOK / 10).await;
            }
        }
        if options.waits {
            core.with(|state| state.answers_wait = true);
            // Without a snapshot, what a follower has is of no use.
            write_first(core, &changes).await?;
            serving.waited = Some(served);
        } else {
            serving.beside = Some(served);
        }
        tasks.spawn_local(run(Rc::clone(core), changes));
    }
    Ok(serving)
}

/// Serves the changes to followers.
fn begin(options: &ReplicaOptions, changes: &SharedChanges) -> Result<Served, ServerError> {
    let journal = changes.lock().journal().clone();
    // Where there is an arbiter, the keeper of the lease knows which followers count.
    let serve = ServeOptions {
        admits: options.keeper.is_none(),
        ..options.serve.clone()
    };
    let served = Served::begin(&serve, vec![(NAME.to_owned(), journal)])
        .map_err(|error| ServerError::Replica(error.into()))?;
    info!("followers are served at {}", served.address());
    Ok(served)
}

/// Lets a follower get what the server has done last, before it stops.
pub(super) fn finish(served: &mut Served, last: Result<u64, Cause>) {
    if served
        .followers()
        .positions()
        .is_ok_and(|all| all.is_empty())
    {
        return;
    }
    let waited = last.and_then(|last| Ok(served.wait_for_all(last, FAREWELL)?));
    match waited {
        Ok(true) => {}
        Ok(false) => warn!(
            "not all followers have acknowledged the last changes: one that is promoted now does not have them"
        ),
        Err(error) => error!("{}", chain(&*error)),
    }
}

/// Ends a server that must not go on, and writes snapshots, forever.
async fn run(core: Rc<Core>, changes: SharedChanges) {
    let mut rest = LOOK;
    loop {
        tokio::time::sleep(std::mem::replace(&mut rest, LOOK)).await;
        let replica = core.options.replica.as_ref();
        let keeper = replica.and_then(|replica| replica.keeper.as_deref());
        if keeper.is_some_and(Keeper::must_stop) {
            return core.shut_down();
        }
        let lease = keeper.map_or(Ok(()), check_lease);
        if let Err(error) = lease.and_then(|()| check(&changes)) {
            return core.fail(error);
        }
        match core.with(|state| state.broker.begin_snapshot()) {
            Ok(None) => {}
            Ok(Some(snapshot)) => {
                if let Err(cause) = write(&core, &changes, snapshot).await {
                    warn!("no snapshot for followers: {}", chain(&*cause));
                    core.with(|state| state.broker.give_up_snapshot());
                    rest = AGAIN;
                }
            }
            Err(cause) => {
                error!("no snapshot for followers: {}", chain(&*cause));
                rest = AGAIN;
            }
        }
    }
}

/// Writes the first snapshot, if there is none.
async fn write_first(core: &Core, changes: &SharedChanges) -> Result<(), ServerError> {
    let begun = core.with(|state| state.broker.begin_first_snapshot());
    match begun.map_err(ServerError::Replica)? {
        None => Ok(()),
        Some(snapshot) => {
            let written = write(core, changes, snapshot).await;
            written.map_err(ServerError::Replica)
        }
    }
}

/// Whether this machine may still have the lease.
fn check_lease(keeper: &Keeper) -> Result<(), ServerError> {
    if keeper.standing().is_lost() {
        Err(ServerError::Superseded(
            "another machine has the lease".to_owned(),
        ))
    } else {
        Ok(())
    }
}

/// Whether changes can be written.
fn check(changes: &SharedChanges) -> Result<(), ServerError> {
    let changes = changes.lock();
    if changes.journal().is_superseded() {
        let leadership = changes.journal().leadership();
        let by = leadership
            .map_err(|error| ServerError::Replica(error.into()))?
            .superseded_by;
        return Err(ServerError::Superseded(format!(
            "a copy of these queues was promoted (term {}; `millstream queue rejoin` makes these a copy)",
            by.unwrap_or_default()
        )));
    }
    match changes.failed() {
        None => Ok(()),
        Some(failed) => Err(ServerError::Replica(format!("{CHANGES}: {failed}").into())),
    }
}

/// Writes a snapshot, and removes what it makes superfluous; connections are served meanwhile.
async fn write(core: &Core, changes: &SharedChanges, mut snapshot: Snapshot) -> Result<(), Cause> {
    loop {
        let written = core.with(|state| {
            let written = state.broker.write_snapshot(&mut snapshot, clock::now());
            core.wake_and_set_timer(state);
            written
        })?;
        if let Some(begin) = written {
            let journal = changes.lock().journal().clone();
            tokio::task::spawn_blocking(move || prune(&journal, begin)).await??;
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
}
