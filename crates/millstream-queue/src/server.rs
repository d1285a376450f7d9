//! The server: sockets around a broker.
//!
//! All connections are tasks on one thread, so that nothing is locked; only syncs run on another. A connection reads
//! once, does all requests in the bytes, and writes once. Replies that promise durability wait for the committer,
//! which makes one sync for all replies that wait.
//!
//! ```no_run
//! use millstream_queue::server::{self, ServerOptions};
//!
//! let options = ServerOptions::new("/var/lib/millstream/queues");
//! server::run(options, |address| println!("listening on {address}"))?;
//! # Ok::<(), millstream_queue::server::ServerError>(())
//! ```

mod attempts;
mod commit;
mod connection;
mod core;
mod descriptors;
mod error;
mod files;
mod listen;
mod options;
mod places;
mod publish;
mod reload;
mod replica;
mod requests;
mod serve_requests;
mod spin;
mod systemd;
mod timer;
mod tls;
pub mod watch;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::task::LocalSet;
use tracing::{error, info, warn};

use self::core::{Command, Core};
pub use self::error::ServerError;
use self::files::{LoadedSettings, broker_limits};
use self::listen::Listeners;
pub use self::options::{ReplicaOptions, ServerOptions};
use crate::broker::Broker;
use crate::clock;
use crate::pair::Group;
use crate::replica::ReplicatedStorage;
use crate::storage::JournalStorage;

/// The time that connections have to finish when the server stops.
const STOP_TIME: Duration = Duration::from_secs(4);

/// Runs until SIGTERM, SIGINT or a client's `shutdown`. `ready` is called with each address once it accepts
/// connections.
///
/// # Errors
/// The server cannot start. A damaged queue is no error: it stays closed, and the log says so.
pub fn run(options: ServerOptions, ready: impl FnMut(&str)) -> Result<(), ServerError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServerError::Start)?;
    let local = LocalSet::new();
    local.block_on(&runtime, serve(options, ready))
}

async fn serve(options: ServerOptions, mut ready: impl FnMut(&str)) -> Result<(), ServerError> {
    let LoadedSettings { config, live } = LoadedSettings::read(&options)?;
    live.warn_of_rights();
    let created = Arc::new(Notify::new());
    let storage = open_storage(&options, live.limits.item_bytes, Arc::clone(&created))?;
    let changes = storage.changes().cloned();
    let descriptors_max = descriptors::raise();
    // Signals are handled before `ready` announces the server.
    let (send, commands) = mpsc::unbounded_channel();
    let listeners = Listeners::bind(&options.listen)?;
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
    let core = Rc::new(Core::new(broker, live, options, send.clone()));
    note_descriptors(&core, descriptors_max);
    watch_signals(&send)?;
    let mut serving = replica::start(&core, changes).await?;
    let keeper = core
        .options
        .replica
        .as_ref()
        .and_then(|replica| replica.keeper.clone());
    let committer = commit::Committer::start(serving.waited.take(), keeper);
    let committer = committer.map_err(ServerError::Start)?;
    let committer = Rc::new(committer);
    tokio::task::spawn_local(commit::begin_commits(
        Rc::clone(&core),
        Rc::clone(&committer),
    ));
    tokio::task::spawn_local(commit::complete_commits(Rc::clone(&core), committer));
    tokio::task::spawn_local(spin::run(Rc::clone(&core)));
    tokio::task::spawn_local(timer::run(Rc::clone(&core)));
    tokio::task::spawn_local(take_created(Rc::clone(&core), created));
    tokio::task::spawn_local(timer::sweep(Rc::clone(&core)));
    if let Some(watch) = core.options.watch.clone() {
        let mut publisher = publish::Publisher::default();
        // The first figures are those before any request.
        publisher.publish(&core, &watch).await;
        tokio::task::spawn_local(serve_requests::serve(Rc::clone(&core), watch.receive()));
        tokio::task::spawn_local(publish::run(Rc::clone(&core), watch, publisher));
    }
    let accepting = listeners.spawn(&core, &mut ready);
    systemd::notify("READY=1");
    run_commands(&core, commands).await;
    systemd::notify("STOPPING=1");
    accepting.iter().for_each(tokio::task::JoinHandle::abort);
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

/// Runs commands until the server must stop.
async fn run_commands(core: &Core, mut commands: mpsc::UnboundedReceiver<Command>) {
    while let Some(Command::Reload) = commands.recv().await {
        // The outcome is in the log.
        let _ = core.with(|state| core.reload(state));
    }
}

fn watch_signals(send: &mpsc::UnboundedSender<Command>) -> Result<(), ServerError> {
    for (kind, command) in [
        (SignalKind::terminate(), Command::Stop),
        (SignalKind::interrupt(), Command::Stop),
        (SignalKind::hangup(), Command::Reload),
    ] {
        let mut signals = signal(kind).map_err(ServerError::Start)?;
        let send = send.clone();
        tokio::task::spawn_local(async move {
            while signals.recv().await.is_some() && send.send(command).is_ok() {}
        });
    }
    Ok(())
}
