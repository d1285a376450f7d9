//! The wait for the other processes, and the data links to them.

use std::sync::Arc;
use std::time::Duration;

use millstream_flow::cluster::{JoinStopped, Link, Missing, Offer, WrongOptions};
use millstream_flow::error::{Cause, DiedBefore, NotMet, chain};
use millstream_link::{Deadline, Socket, connect};

use super::call::{Call, Purpose};
use super::handshake::{self, CallError};
use super::hub::{Hub, Machine, MadeLink, STOP_CHECK, pause, spawn};
use super::link::DataLink;
use super::reader::Reader;
use super::settings::PROTOCOL;
use crate::error::ClusterError;
use crate::protocol::{Misfit, Participant, Start};

/// How often a wait reports which processes are missing.
const SAY_EVERY: Duration = Duration::from_secs(5);
/// The number of missing processes that a line names.
const NAMED_MAX: usize = 10;
/// The pauses between attempts.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The longest attempt to connect: a machine that is not there does not answer.
const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// Says every few seconds what is missing, and ends the wait after the time of the settings.
struct Patience {
    says_next: Deadline,
    ends: Deadline,
}

impl Patience {
    fn new(hub: &Hub) -> Self {
        Patience {
            says_next: Deadline::after(SAY_EVERY),
            ends: Deadline::after(hub.settings.meet_within),
        }
    }

    /// Returns an error when the wait has been long enough. `missing` says for what; it is alone if no other process is
    /// there that does not take this one, or that this one does not take.
    fn check(
        &mut self,
        hub: &Hub,
        alone: bool,
        missing: impl FnOnce() -> String,
    ) -> Result<(), NotMet> {
        let Some(left) = self.ends.left() else {
            return Err(NotMet {
                waited: hub.settings.meet_within,
                cause: format!("{}; {}", missing(), hub.describe_listening()),
                alone,
            });
        };
        if self.says_next.left().is_none() {
            let missing = missing();
            let listening = hub.describe_listening();
            hub.log(&format!(
                "{missing}; {listening}; for {} s more",
                left.as_secs()
            ));
            self.says_next = Deadline::after(SAY_EVERY);
        }
        Ok(())
    }
}

/// Process 0 waits until all have joined.
pub(super) fn wait_for_all(hub: &Hub, stopping: &dyn Fn() -> bool) -> Result<Start, Cause> {
    let mut patience = Patience::new(hub);
    loop {
        let outcome = hub.wait(STOP_CHECK, |state| match (state.started, &state.refused) {
            (Some(start), _) => Some(Ok(start)),
            (None, refused) => refused.clone().map(Err),
        });
        if let Some(outcome) = outcome {
            return outcome.map_err(refused);
        }
        check_stopping(stopping)?;
        let missing = missing(hub);
        let alone = missing.iter().all(|one| one.reason.is_none());
        patience.check(hub, alone, || describe_missing(hub, &missing))?;
    }
}

/// The error of a refusal that another attempt would meet again.
fn refused(Misfit { usage, text, .. }: Misfit) -> Cause {
    if usage {
        WrongOptions(text).into()
    } else {
        ClusterError::Refused(text).into()
    }
}

/// The processes that this one waits for at its start.
pub(super) fn missing(hub: &Hub) -> Vec<Missing> {
    let missing = hub.wait(Duration::ZERO, |state| {
        let named = |process: usize, reason: Option<String>| Missing {
            process,
            address: hub.settings.hosts[process].to_string(),
            waited: hub.elapsed(),
            reason,
        };
        Some(match (state.started, &state.machine) {
            (Some(_), _) => Vec::new(),
            (None, Machine::Zero(machine)) => {
                let refusal = |process| {
                    machine
                        .refusal(process)
                        .map(|text| format!("it is refused: {text}"))
                };
                let missing = machine.missing();
                missing
                    .map(|process| named(process, refusal(process)))
                    .collect()
            }
            (None, Machine::Other(_)) => vec![named(0, state.reason.clone())],
        })
    });
    missing.unwrap_or_default()
}

fn describe_missing(hub: &Hub, missing: &[Missing]) -> String {
    let named = |one: &Missing| {
        let Missing {
            process, address, ..
        } = one;
        match &one.reason {
            Some(reason) => format!("{process} ({address}): {reason}"),
            None => format!("{process} ({address})"),
        }
    };
    let named: Vec<_> = missing.iter().take(NAMED_MAX).map(named).collect();
    format!(
        "waiting for {} of {} processes: {}",
        missing.len(),
        hub.settings.hosts.len(),
        named.join(", ")
    )
}

/// Another process joins process 0, and tries again while that may help.
pub(super) fn join_zero(
    hub: &Arc<Hub>,
    offer: &Offer,
    stopping: &dyn Fn() -> bool,
) -> Result<Start, Cause> {
    let mut patience = Patience::new(hub);
    let mut wait = PAUSE_MIN;
    loop {
        check_stopping(stopping)?;
        let (reason, alone) = match call(hub, 0, Purpose::Control) {
            Ok(reader) => match wait_for_start(hub, reader, offer, &mut patience, stopping)? {
                Ok(start) => return Ok(start),
                Err(reason) => (reason, false),
            },
            Err(CallError::Absent(reason)) => (reason, true),
            Err(CallError::Passing(reason)) => (reason, false),
            Err(CallError::Final(error)) => return Err(error.into()),
        };
        hub.note_reason((!alone).then(|| reason.clone()));
        patience.check(hub, alone, || {
            let address = &hub.settings.hosts[0];
            format!("waiting for process 0 ({address}): {reason}")
        })?;
        pause(wait);
        wait = (wait * 2).min(PAUSE_MAX);
    }
}

/// The inner result has the reason to try again.
fn wait_for_start(
    hub: &Arc<Hub>,
    reader: Reader,
    offer: &Offer,
    patience: &mut Patience,
    stopping: &dyn Fn() -> bool,
) -> Result<Result<Start, String>, Cause> {
    let shared = Arc::clone(hub);
    let stream = Arc::clone(&reader.stream);
    let machine = Participant::new(offer.clone(), hub.settings.times());
    hub.change(|state, _| {
        state.machine = Machine::Other(machine);
        state.refused = None;
    });
    spawn("cluster-control", move || {
        let outcome = shared.attend(reader, |state, connection, now_ms| {
            if let Machine::Other(machine) = &mut state.machine {
                machine.connected(connection, now_ms);
            }
        });
        if let Err(error) = outcome {
            let misfit = Misfit {
                again: true,
                ..Misfit::from(chain(&error).to_string())
            };
            shared.change(|state, _| state.refused = Some(misfit));
        }
    })?;
    hub.note_reason(Some(
        "it has not begun the run; it may wait for others".to_owned(),
    ));
    loop {
        let outcome = hub.wait(STOP_CHECK, |state| match (state.started, &state.refused) {
            (Some(start), _) => Some(Ok(start)),
            (None, refused) => refused.clone().map(Err),
        });
        match outcome {
            Some(Ok(start)) => return Ok(Ok(start)),
            Some(Err(misfit)) => {
                stream.close();
                return if misfit.again {
                    Ok(Err(misfit.text))
                } else {
                    Err(refused(misfit))
                };
            }
            None => {}
        }
        check_stopping(stopping).inspect_err(|_| stream.close())?;
        let outcome = patience.check(hub, true, || {
            "waiting for process 0 to begin the run; it may wait for others".to_owned()
        });
        outcome.inspect_err(|_| stream.close())?;
    }
}

/// Connects to the processes with lower numbers, and waits for those with higher ones.
pub(super) fn make_data_links(
    hub: &Arc<Hub>,
    run: u64,
    stopping: &dyn Fn() -> bool,
) -> Result<Vec<Option<Box<dyn Link>>>, Cause> {
    let own = hub.settings.process;
    let processes = hub.settings.hosts.len();
    let waited = hub.settings.dead_after + hub.settings.greeting;
    let deadline = Deadline::after(waited);
    let mut links: Vec<Option<Box<dyn Link>>> = Vec::new();
    for process in 0..own {
        let made = call_until(hub, process, run, deadline, stopping)?;
        links.push(Some(Box::new(DataLink::new(hub, process, made)?)));
    }
    links.push(None);
    let higher = processes - own - 1;
    let arrived = loop {
        let all = hub.wait(STOP_CHECK, |state| {
            let complete = state
                .arrived
                .as_ref()
                .is_some_and(|all| all.len() == higher);
            state.arrived.take_if(|_| complete)
        });
        if let Some(all) = all {
            break all;
        }
        check_alive(hub)?;
        check_stopping(stopping)?;
        if deadline.left().is_none() {
            let missing = |process: &usize| {
                let has =
                    |all: &std::collections::BTreeMap<usize, MadeLink>| all.contains_key(process);
                hub.wait(Duration::ZERO, |state| {
                    Some(state.arrived.as_ref().is_some_and(has))
                }) != Some(true)
            };
            let process = (own + 1..processes).find(missing).unwrap_or(own);
            let cause = "it has not connected".to_owned();
            return Err(no_link(hub, process, waited, cause));
        }
    };
    for (process, made) in arrived {
        links.push(Some(Box::new(DataLink::new(hub, process, made)?)));
    }
    Ok(links)
}

/// Calls a process of this run until it takes the link.
fn call_until(
    hub: &Hub,
    process: usize,
    run: u64,
    deadline: Deadline,
    stopping: &dyn Fn() -> bool,
) -> Result<MadeLink, Cause> {
    let mut wait = PAUSE_MIN;
    loop {
        let cause = match call(hub, process, Purpose::Data { run }) {
            Ok(reader) => return Ok((Arc::clone(&reader.stream), reader.rest().to_vec())),
            // A process of an earlier run may have the address for a moment yet.
            Err(
                CallError::Final(ClusterError::Refused(cause))
                | CallError::Passing(cause)
                | CallError::Absent(cause),
            ) => cause,
            Err(CallError::Final(error)) => return Err(error.into()),
        };
        check_alive(hub)?;
        check_stopping(stopping)?;
        if deadline.left().is_none() {
            let waited = hub.settings.dead_after + hub.settings.greeting;
            return Err(no_link(hub, process, waited, cause));
        }
        pause(wait);
        wait = (wait * 2).min(PAUSE_MAX);
    }
}

fn no_link(hub: &Hub, process: usize, waited: Duration, cause: String) -> Cause {
    let error = NotMet {
        waited,
        cause: format!("no data link to process {process}: {cause}"),
        alone: false,
    };
    hub.notice(crate::protocol::Notice::Failed(error.to_string()));
    error.into()
}

/// Returns an authenticated connection to a process.
pub(super) fn call(hub: &Hub, process: usize, purpose: Purpose) -> Result<Reader, CallError> {
    let address = &hub.settings.hosts[process];
    let greeting = hub.settings.greeting;
    let patience = hub.settings.dead_after;
    let socket = Socket::connect(address, CONNECT_WAIT.min(greeting));
    let socket = socket
        .and_then(|socket| socket.set_patience(patience).map(|()| socket))
        .map_err(|error| CallError::Absent(format!("cannot connect: {error}")))?;
    let deadline = Deadline::after(greeting);
    let side = hub.identity.callers[process].as_ref();
    let stream = connect(socket, &PROTOCOL, side, greeting, patience)?;
    let mut reader = Reader::new(Arc::new(stream));
    let request = Call {
        purpose,
        from: hub.settings.process,
        to: process,
        processes: hub.settings.hosts.len(),
    };
    let secret = hub.identity.secret.as_ref();
    match handshake::call(&mut reader, secret, address, &request, deadline) {
        Ok(()) => Ok(reader),
        Err(error) => {
            reader.stream.close();
            Err(error)
        }
    }
}

fn check_stopping(stopping: &dyn Fn() -> bool) -> Result<(), Cause> {
    if stopping() {
        Err(Box::new(JoinStopped))
    } else {
        Ok(())
    }
}

/// Whether the run that has begun goes on.
fn check_alive(hub: &Hub) -> Result<(), DiedBefore> {
    match hub.wait(Duration::ZERO, |state| state.died.clone()) {
        None => Ok(()),
        Some((process, cause)) => Err(DiedBefore { process, cause }),
    }
}
