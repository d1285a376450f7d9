//! The thread of a server: it opens the queues, listens, serves until it must stop, and closes everything.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, mpsc as blocking};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet, LocalSet};
use tracing::{error, info, warn};

use super::core::Core;
use super::error::ServerError;
use super::files::{LoadedSettings, broker_limits};
use super::listen::Listeners;
use super::options::ServerOptions;
use super::replica::{self, Serving};
use super::requests::Request;
use super::watch::ServerWatch;
use super::{commit, descriptors, publish, serve_requests, spin, timer};
use crate::address::Address;
use crate::broker::Broker;
use crate::clock;
use crate::pair::Group;
use crate::replica::ReplicatedStorage;
use crate::storage::JournalStorage;

/// The time that connections have to finish when the server stops.
const STOP_TIME: Duration = Duration::from_secs(4);

/// What the thread shares with the handle of the server.
pub(super) struct Shared {
    /// Notified when the server must stop.
    pub(super) stop: Arc<Notify>,
    pub(super) watch: ServerWatch,
    /// Notified when something reads the figures.
    pub(super) is_watched: Arc<Notify>,
    pub(super) requests: mpsc::Receiver<Request>,
    /// Takes the bound addresses once they accept connections.
    pub(super) started: blocking::Sender<Vec<Address>>,
}

/// Serves until the server must stop. Nothing of it is left when this returns.
pub(super) fn run(options: ServerOptions, shared: Shared) -> Result<(), ServerError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServerError::Start)?;
    let local = LocalSet::new();
    local.block_on(&runtime, serve(options, shared))
}

async fn serve(options: ServerOptions, shared: Shared) -> Result<(), ServerError> {
    let LoadedSettings { config, live } = LoadedSettings::read(&options)?;
    live.warn_of_rights();
    let created = Arc::new(Notify::new());
    let storage = open_storage(&options, live.limits.item_bytes, Arc::clone(&created))?;
    let changes = storage.changes().cloned();
    let descriptors_max = if options.owns_process {
        descriptors::raise()
    } else {
        descriptors::limit()
    };
    let listeners = Listeners::bind(&options)?;
    let broker = Broker::open(storage, config, clock::now())?
        .with_limits(broker_limits(&live.limits, descriptors_max));
    for (queue, reason) in broker.closed() {
        error!("queue \"{queue}\" stays closed: {reason}");
    }
    info!(
        "{} queues in {}",
        broker.names().len(),
        options.dir.display()
    );
    let core = Rc::new(Core::new(broker, live, options, Arc::clone(&shared.stop)));
    note_descriptors(&core, descriptors_max);
    let mut tasks = JoinSet::new();
    let mut serving = replica::start(&core, &mut tasks, changes).await?;
    begin_tasks(&mut tasks, &core, &mut serving, created)?;
    let mut publisher = publish::Publisher::default();
    // The first figures are those before any request.
    publisher.publish(&core, &shared.watch).await;
    tasks.spawn_local(serve_requests::serve(Rc::clone(&core), shared.requests));
    tasks.spawn_local(publish::run(
        Rc::clone(&core),
        (shared.watch, shared.is_watched),
        publisher,
    ));
    let (accepting, addresses) = listeners.spawn(&core, &mut tasks);
    // The handle waits for this.
    let _ = shared.started.send(addresses);
    must_stop(&core, &shared.stop, &mut tasks).await?;
    accepting.iter().for_each(AbortHandle::abort);
    if let Some(failure) = core.take_failure() {
        return Err(failure);
    }
    core.stop(STOP_TIME).await;
    if let Some(served) = &mut serving.beside {
        let last = core.with(|state| state.broker.write_beat());
        replica::finish(served, last);
    }
    Ok(())
}

/// Begins the work that goes on beside the connections.
fn begin_tasks(
    tasks: &mut JoinSet<()>,
    core: &Rc<Core>,
    serving: &mut Serving,
    created: Arc<Notify>,
) -> Result<(), ServerError> {
    let replica = core.options.replica.as_ref();
    let keeper = replica.and_then(|replica| replica.keeper.clone());
    let committer = commit::Committer::start(serving.waited.take(), keeper);
    let committer = Rc::new(committer.map_err(ServerError::Start)?);
    tasks.spawn_local(commit::begin_commits(
        Rc::clone(core),
        Rc::clone(&committer),
    ));
    tasks.spawn_local(commit::complete_commits(Rc::clone(core), committer));
    tasks.spawn_local(spin::run(Rc::clone(core)));
    tasks.spawn_local(timer::run(Rc::clone(core)));
    tasks.spawn_local(take_created(Rc::clone(core), created));
    tasks.spawn_local(timer::sweep(Rc::clone(core)));
    Ok(())
}

/// Waits until the server must stop.
///
/// # Errors
/// One of the tasks has panicked: the server could not go on without it.
async fn must_stop(core: &Core, stop: &Notify, tasks: &mut JoinSet<()>) -> Result<(), ServerError> {
    let mut stop = pin!(stop.notified());
    poll_fn(|context| {
        while let Poll::Ready(Some(ended)) = tasks.poll_join_next(context) {
            let panic = ended.err().and_then(|ended| ended.try_into_panic().ok());
            if let Some(panic) = panic {
                return Poll::Ready(Err(ServerError::panicked(&core.options.dir, &*panic)));
            }
        }
        stop.as_mut().poll(context).map(Ok)
    })
    .await
}

/// The queues, with their changes if followers get them. `created` is notified of each new queue.
fn open_storage(
    options: &ServerOptions,
    item_bytes: usize,
    created: Arc<Notify>,
) -> Result<ReplicatedStorage, ServerError> {
    let has_keeper = options
        .replica
        .as_ref()
        .is_some_and(|replica| replica.keeper.is_some());
    if let Some(group) = Group::of(&options.dir).map_err(ServerError::Replica)?
        && !has_keeper
    {
        return Err(ServerError::Replica(
            format!(
                "{}: these queues belong to a group of machines, of which {} decides which one serves them: start with --arbiter {}; \
                 where the other machines are gone for good, delete .group",
                options.dir.display(),
                group.arbiter,
                group.arbiter
            )
            .into(),
        ));
    }
    let open = match options.replica {
        Some(_) => JournalStorage::open_followed,
        None => JournalStorage::open,
    };
    let storage = open(&options.dir, item_bytes).map_err(|source| ServerError::File {
        path: options.dir.clone(),
        source,
    })?;
    let storage = storage.with_makers(move || created.notify_one());
    let storage = storage.map_err(ServerError::Start)?;
    match options.replica {
        Some(_) => ReplicatedStorage::followed(storage).map_err(ServerError::Replica),
        None => Ok(ReplicatedStorage::alone(storage)),
    }
}

/// Notes how many descriptors there are, and whether that limits the connections.
fn note_descriptors(core: &Core, descriptors_max: u64) {
    let possible = core.with(|state| {
        state.descriptors_max = descriptors_max;
        (state.live.limits.connections, state.connections_max())
    });
    if possible.1 < possible.0 {
        warn!(
            "limits.connections = {}, but the limit on open files leaves {} now, and 4 less for each new queue",
            possible.0, possible.1
        );
    }
}

/// Takes the queues that were created, forever.
async fn take_created(core: Rc<Core>, created: Arc<Notify>) {
    loop {
        created.notified().await;
        core.with(|state| {
            state.broker.created(clock::now());
            core.wake_and_set_timer(state);
        });
    }
}
