//! Where connections of other processes arrive. Nothing that is not authenticated is taken for a process, and none of
//! it lasts.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millstream_flow::cluster::JoinStopped;
use millstream_flow::error::{Cause, NotMet, chain};
use millstream_link::{Address, Deadline, LinkError, Listener, Socket};
use tracing::debug;

use super::call::{Call, Purpose};
use super::handshake::{self, Caller, Refusal};
use super::hub::{Hub, Machine, STOP_CHECK, pause, spawn};
use super::reader::Reader;
use crate::error::ClusterError;

/// The number of connections in a handshake, besides two for each process. One more ends the oldest.
const UNKNOWN_MAX: usize = 64;

/// The connections in a handshake, the oldest first.
#[derive(Default)]
struct Unknown(Mutex<VecDeque<(u64, Socket)>>);

impl Unknown {
    fn add(&self, number: u64, socket: Socket, most: usize) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_back((number, socket));
        while all.len() > most {
            if let Some((_, oldest)) = all.pop_front() {
                let _gone_already = oldest.shutdown(Shutdown::Both);
            }
        }
    }

    fn remove(&self, number: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(other, _)| *other != number);
    }
}

/// Listens at the address of this process, until the hub stops.
pub(super) fn begin(hub: &Arc<Hub>, stopping: &dyn Fn() -> bool) -> Result<(), Cause> {
    let listener = bind(hub, stopping)?;
    let hub = Arc::clone(hub);
    spawn("cluster-listen", move || {
        let unknown = Arc::new(Unknown::default());
        let most = UNKNOWN_MAX + 2 * hub.settings.hosts.len();
        let mut number = 0;
        while !hub.stops() {
            match listener.accept(STOP_CHECK) {
                Ok(None) => {}
                Ok(Some((socket, peer))) => {
                    number += 1;
                    if let Ok(handle) = socket.try_clone() {
                        unknown.add(number, handle, most);
                    }
                    greet_on_thread(&hub, &unknown, number, socket, peer);
                }
                Err(error) => {
                    hub.warn_once("accept", &format!("a connection was not taken: {error}"));
                    pause(STOP_CHECK);
                }
            }
        }
    })?;
    Ok(())
}

/// A process that was killed may have the address for a moment yet, and a machine that starts may not have it yet.
fn bind(hub: &Hub, stopping: &dyn Fn() -> bool) -> Result<Listener, Cause> {
    let process = hub.settings.process;
    let waited = hub.settings.dead_after + Duration::from_secs(5);
    let deadline = Deadline::after(waited);
    loop {
        let (address, source) = match listen(hub) {
            Ok(listener) => return Ok(listener),
            Err(failed) => failed,
        };
        let may_change = matches!(
            source.kind(),
            ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable
        );
        let line = format!("{address} cannot be listened at yet ({source}); waiting for it");
        let error = ClusterError::Listen {
            process,
            address,
            source,
        };
        if !may_change {
            return Err(error.into());
        }
        if deadline.left().is_none() {
            let cause = chain(&error).to_string();
            let alone = false;
            return Err(NotMet {
                waited,
                cause,
                alone,
            }
            .into());
        }
        if stopping() {
            return Err(JoinStopped.into());
        }
        hub.warn_once("bind", &line);
        pause(STOP_CHECK);
    }
}

/// Listens at the first address that can be used; returns the address that cannot otherwise.
fn listen(hub: &Hub) -> Result<Listener, (Address, std::io::Error)> {
    let mut failed = None;
    for address in hub.settings.listens() {
        match Listener::bind(&address) {
            Ok(listener) => {
                hub.note_listening(listener.address());
                return Ok(listener);
            }
            // The port is in use in both families.
            Err(error) if error.kind() == ErrorKind::AddrInUse => return Err((address, error)),
            Err(error) => failed = Some((address, error)),
        }
    }
    let own = &hub.settings.hosts[hub.settings.process];
    Err(failed.unwrap_or_else(|| (own.clone(), ErrorKind::AddrNotAvailable.into())))
}

fn greet_on_thread(
    hub: &Arc<Hub>,
    unknown: &Arc<Unknown>,
    number: u64,
    socket: Socket,
    peer: String,
) {
    let shared = Arc::clone(hub);
    let waiting = Arc::clone(unknown);
    let greeting = spawn("cluster-greet", move || {
        let greeted = greet(&shared, socket);
        waiting.remove(number);
        let outcome = match greeted {
            Ok(Some((reader, caller))) => admit(&shared, reader, &caller),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            let reason = chain(&error).to_string();
            shared.warn_once(
                &reason,
                &format!("a connection from {peer} is refused: {reason}"),
            );
        }
    });
    if let Err(error) = greeting {
        unknown.remove(number);
        hub.warn_once("thread", &chain(&error).to_string());
    }
}

/// Authenticates a caller; `None` when this process ends.
fn greet(hub: &Hub, socket: Socket) -> Result<Option<(Reader, Caller)>, ClusterError> {
    let greeting = hub.settings.greeting;
    let patience = hub.settings.dead_after;
    let deadline = Deadline::after(greeting);
    socket
        .set_patience(patience)
        .map_err(|source| LinkError::connection("cannot set up the connection", source))?;
    let accepted = hub
        .identity
        .listener
        .accept(socket, greeting, patience, &hub.stop)?;
    let Some((stream, plain)) = accepted else {
        return Ok(None);
    };
    let mut reader = Reader::new(Arc::new(stream));
    let heard = handshake::listen(&mut reader, hub.identity.secret.as_ref(), plain, deadline);
    match heard {
        Ok(caller) => Ok(Some((reader, caller))),
        Err(error) => {
            reader.stream.close();
            Err(error)
        }
    }
}

/// Takes or refuses an authenticated caller.
fn admit(hub: &Arc<Hub>, reader: Reader, caller: &Caller) -> Result<(), ClusterError> {
    let call = &caller.call;
    let checked = call
        .check(hub.settings.process, hub.settings.hosts.len())
        .map_err(Refusal::final_);
    let checked = checked.and_then(|()| match call.purpose {
        Purpose::Control => Ok(()),
        Purpose::Data { run } => check_run(hub, call, run),
    });
    if let Err(refusal) = checked {
        let _gone_already = reader.stream.write(&caller.refuse(&refusal));
        let _gone_already = reader.stream.finish();
        return if refusal.again {
            debug!("process {} is refused for now: {}", call.from, refusal.text);
            Ok(())
        } else {
            Err(ClusterError::Refused(refusal.text))
        };
    }
    reader.stream.write(&caller.welcome())?;
    match call.purpose {
        Purpose::Control => {
            let from = call.from;
            Ok(hub.attend(reader, |state, connection, now_ms| {
                if let Machine::Zero(machine) = &mut state.machine {
                    machine.connected(connection, from, now_ms);
                }
            })?)
        }
        Purpose::Data { .. } => {
            let made = (Arc::clone(&reader.stream), reader.rest().to_vec());
            hub.change(|state, _| match &mut state.arrived {
                Some(arrived) => {
                    if let Some((before, _)) = arrived.insert(call.from, made) {
                        before.close();
                    }
                }
                None => made.0.close(),
            });
            Ok(())
        }
    }
}

/// The caller may know of the start of the run before this process does.
fn check_run(hub: &Hub, call: &Call, run: u64) -> Result<(), Refusal> {
    let known = hub.wait(hub.settings.greeting, |state| {
        state
            .started
            .map(|start| start.run)
            .or(hub.stops().then_some(0))
    });
    let from = call.from;
    match known {
        Some(own) if own == run => {}
        Some(own) => {
            return Err(Refusal::final_(format!(
                "process {from} calls for the run {run:016x}, which is over; this is the run {own:016x}"
            )));
        }
        None => {
            let text = format!("process {} has not joined a run yet", hub.settings.process);
            return Err(Refusal::again(text));
        }
    }
    let is_open = hub.wait(Duration::ZERO, |state| state.arrived.as_ref().map(|_| ()));
    is_open.ok_or_else(|| {
        Refusal::again(format!(
            "process {from} has a data link in this run already"
        ))
    })
}
