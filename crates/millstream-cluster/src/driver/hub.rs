//! What the threads of one process share: the state machine, and what it has decided so far.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use millstream_flow::cluster::{Event, Offer};
use millstream_flow::error::chain;
use millstream_link::{Address, Deadline, FAREWELL, LinkError, Stream};
use tracing::{debug, info, warn};

use super::outbox::Outbox;
use super::reader::Reader;
use super::settings::{Identity, Settings};
use crate::error::ClusterError;
use crate::protocol::{
    Connection, Coordinator, Ids, Kind, Message, Misfit, Notice, Output, Participant, Start,
};

/// How often a waiting thread checks whether it must stop.
pub(super) const STOP_CHECK: Duration = Duration::from_millis(50);
/// The number of reasons that are logged once each.
const REASONS_MAX: usize = 100;

/// The state machine of this process.
pub(super) enum Machine {
    Zero(Coordinator),
    Other(Participant),
}

impl Machine {
    pub(super) fn new(settings: &Settings, offer: &Offer, ids: Ids) -> Result<Self, ClusterError> {
        let offer = offer.clone();
        let times = settings.times();
        Ok(match settings.process {
            0 => Machine::Zero(
                Coordinator::new(settings.hosts.len(), offer, ids, times)
                    .map_err(ClusterError::Refused)?,
            ),
            _ => Machine::Other(Participant::new(offer, times)),
        })
    }

    fn next_output(&mut self) -> Option<Output> {
        match self {
            Machine::Zero(machine) => machine.next_output(),
            Machine::Other(machine) => machine.next_output(),
        }
    }

    fn has_ended(&self, process: usize) -> bool {
        match self {
            Machine::Zero(machine) => machine.has_ended(process),
            Machine::Other(machine) => machine.has_ended(),
        }
    }
}

/// A data link that was authenticated, with the bytes of data that were read with the handshake.
pub(super) type MadeLink = (Arc<Stream>, Vec<u8>);

/// What the threads of this process share.
pub(super) struct Hub {
    pub(super) settings: Settings,
    pub(super) identity: Arc<Identity>,
    /// Raised when all threads must end.
    pub(super) stop: AtomicBool,
    /// Where this process listens.
    listens: OnceLock<Address>,
    state: Mutex<State>,
    changed: Condvar,
    began: Instant,
}

/// What was decided so far.
pub(super) struct State {
    pub(super) machine: Machine,
    events: Sender<Event>,
    outboxes: BTreeMap<Connection, Arc<Outbox>>,
    connections: Connection,
    pub(super) started: Option<Start>,
    pub(super) refused: Option<Misfit>,
    /// Why this process waits for process 0, which is there.
    pub(super) reason: Option<String>,
    pub(super) died: Option<(usize, String)>,
    /// The data links from processes with higher numbers; `None` once the run has taken them.
    pub(super) arrived: Option<BTreeMap<usize, MadeLink>>,
    /// What was logged once.
    reasons: BTreeSet<String>,
}

impl Hub {
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock of heartbeats; results do not depend on it"
    )]
    pub(super) fn new(
        settings: Settings,
        identity: Arc<Identity>,
        machine: Machine,
        events: Sender<Event>,
    ) -> Arc<Self> {
        let hub = Arc::new(Hub {
            settings,
            identity,
            stop: AtomicBool::new(false),
            listens: OnceLock::new(),
            state: Mutex::new(State {
                machine,
                events,
                outboxes: BTreeMap::new(),
                connections: 0,
                started: None,
                refused: None,
                reason: None,
                died: None,
                arrived: Some(BTreeMap::new()),
                reasons: BTreeSet::new(),
            }),
            changed: Condvar::new(),
            began: Instant::now(),
        });
        hub.change(|_, _| ());
        hub
    }

    pub(super) fn note_reason(&self, reason: Option<String>) {
        self.lock().reason = reason;
    }

    /// The time since this process began to wait for the others.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn note_listening(&self, address: &Address) {
        let _known_already = self.listens.set(address.clone());
    }

    /// Where this process listens, for people.
    pub(super) fn describe_listening(&self) -> String {
        let address = self.listens.get().map(Address::to_string);
        format!("listening at {}", address.unwrap_or_default())
    }

    pub(super) fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Changes the state, and does what the machine wants done.
    pub(super) fn change<T>(&self, act: impl FnOnce(&mut State, u64) -> T) -> T {
        let now_ms = self.began.elapsed().as_millis() as u64;
        let mut state = self.lock();
        let outcome = act(&mut state, now_ms);
        while let Some(output) = state.machine.next_output() {
            state.perform(output);
        }
        self.changed.notify_all();
        outcome
    }

    /// Waits until `found` returns something, for `wait` at most.
    pub(super) fn wait<T>(
        &self,
        wait: Duration,
        mut found: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let deadline = Deadline::after(wait);
        let mut state = self.lock();
        loop {
            if let Some(outcome) = found(&mut state) {
                return Some(outcome);
            }
            let left = deadline.left()?;
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn notice(&self, notice: Notice) {
        self.change(|state, now_ms| match &mut state.machine {
            Machine::Zero(machine) => machine.notice(notice, now_ms),
            Machine::Other(machine) => machine.notice(notice),
        });
    }

    /// Whether a data link to this process may end without being taken for lost.
    pub(super) fn has_ended(&self, process: usize) -> bool {
        self.lock().machine.has_ended(process)
    }

    pub(super) fn has_died(&self) -> bool {
        self.lock().died.is_some()
    }

    /// Waits until all messages are sent.
    pub(super) fn flush(&self, wait: Duration) {
        let outboxes: Vec<_> = self.lock().outboxes.values().cloned().collect();
        let deadline = Deadline::after(wait);
        outboxes.iter().for_each(|outbox| outbox.flush(deadline));
    }

    /// Process 0, after all have ended: waits until the others have closed their control links, because they know that.
    pub(super) fn wait_for_leave(&self, wait: Duration) {
        self.wait(wait, |state| {
            let waits = matches!(&state.machine, Machine::Zero(machine) if machine.is_over());
            (!waits || state.outboxes.is_empty()).then_some(())
        });
    }

    /// Logs a line, once for each `reason`.
    pub(super) fn warn_once(&self, reason: &str, line: &str) {
        let is_new = self.lock().is_new(reason);
        if is_new {
            warn!(process = self.settings.process, "{line}")
        } else {
            debug!(process = self.settings.process, "{line}")
        }
    }

    /// Begins a control link that is authenticated, by `connect`, and reads it on this thread until it ends.
    pub(super) fn attend(
        self: &Arc<Self>,
        mut reader: Reader,
        connect: impl FnOnce(&mut State, Connection, u64),
    ) -> Result<(), LinkError> {
        reader.allow();
        let outbox = Arc::new(Outbox::default());
        let connection = self.change(|state, _| {
            state.connections += 1;
            let connection = state.connections;
            state.outboxes.insert(connection, Arc::clone(&outbox));
            connection
        });
        let stream = Arc::clone(&reader.stream);
        let sender = {
            let stream = Arc::clone(&stream);
            let outbox = Arc::clone(&outbox);
            spawn("cluster-send", move || {
                outbox.send(&stream);
                let _gone_already = stream.finish();
            })
        };
        if let Err(error) = sender {
            self.change(|state, _| state.outboxes.remove(&connection));
            return Err(error);
        }
        self.change(|state, now_ms| connect(state, connection, now_ms));
        let cause = self.read_until_end(&mut reader, connection, &outbox);
        self.change(|state, now_ms| {
            state.outboxes.remove(&connection);
            match &mut state.machine {
                Machine::Zero(machine) => machine.lost(connection, &cause, now_ms),
                Machine::Other(machine) => machine.lost(connection, &cause),
            }
        });
        outbox.close();
        stream.close();
        Ok(())
    }

    /// Returns why the connection has ended.
    fn read_until_end(
        &self,
        reader: &mut Reader,
        connection: Connection,
        outbox: &Outbox,
    ) -> String {
        let mut farewell = None;
        loop {
            if outbox.is_closed() {
                let end = farewell.get_or_insert_with(|| Deadline::after(FAREWELL));
                if end.left().is_none() {
                    return "the connection was closed here".to_owned();
                }
            }
            if let Err(error) = self.read_once(reader, connection) {
                return match error {
                    LinkError::Closed { .. } => {
                        "its connection was closed without an end of the run: it was killed, or its machine was lost"
                            .to_owned()
                    }
                    error => format!("its connection is lost: {}", chain(&error)),
                };
            }
            if self.stops() {
                return "this process ends".to_owned();
            }
        }
    }

    fn read_once(&self, reader: &mut Reader, connection: Connection) -> Result<(), LinkError> {
        reader.read()?;
        while let Some(frame) = reader.next()? {
            if frame.kind != Kind::Message {
                let what = format!("{:?} came after the handshake", frame.kind);
                return Err(LinkError::protocol(what));
            }
            let message = Message::decode(frame.payload)?;
            self.change(|state, now_ms| match &mut state.machine {
                Machine::Zero(machine) => machine.received(connection, message, now_ms),
                Machine::Other(machine) => machine.received(connection, message, now_ms),
            });
        }
        Ok(())
    }

    /// Ends all threads, after all messages are sent.
    pub(super) fn close(&self) {
        self.flush(Duration::from_millis(500));
        self.stop.store(true, Ordering::Relaxed);
        self.change(|state, _| {
            state.outboxes.values().for_each(|outbox| outbox.close());
            for (stream, _) in state.arrived.take().unwrap_or_default().into_values() {
                stream.close();
            }
        });
    }

    pub(super) fn log(&self, line: &str) {
        info!(process = self.settings.process, "{line}");
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether a data link to this process may end without being taken for lost.
    pub(super) fn is_ended(&self, process: usize) -> bool {
        self.machine.has_ended(process)
    }

    /// Whether a reason was not logged yet. It is from now on.
    fn is_new(&mut self, reason: &str) -> bool {
        self.reasons.len() < REASONS_MAX && self.reasons.insert(reason.to_owned())
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Send { to, message } => {
                if let Some(outbox) = self.outboxes.get(&to) {
                    outbox.push(message);
                }
            }
            Output::Close(connection) => {
                if let Some(outbox) = self.outboxes.get(&connection) {
                    outbox.close();
                }
            }
            Output::Started(start) => self.started = Some(start),
            Output::Refused(misfit) => self.refused = Some(misfit),
            Output::Event(event) => {
                if let Event::Died { process, cause } = &event {
                    self.died = Some((*process, cause.clone()));
                }
                // The flow may have ended, and receives no events any more.
                let _ended = self.events.send(event);
            }
            // A process that is refused comes again, for the same reason.
            Output::Note(line) => {
                if self.is_new(&line) {
                    warn!("{line}")
                } else {
                    debug!("{line}")
                }
            }
        }
    }
}

/// Lets time pass for the machine until the hub stops.
pub(super) fn begin_ticks(hub: &Arc<Hub>) -> Result<(), LinkError> {
    let pace = (hub.settings.heartbeat / 4).clamp(Duration::from_millis(5), STOP_CHECK);
    let hub = Arc::clone(hub);
    spawn("cluster-time", move || {
        while !hub.stops() {
            pause(pace);
            hub.change(|state, now_ms| match &mut state.machine {
                Machine::Zero(machine) => machine.tick(now_ms),
                Machine::Other(machine) => machine.tick(now_ms),
            });
        }
    })
}

/// Starts a thread of this name.
pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), LinkError> {
    let thread = Builder::new().name(name.to_owned());
    match thread.spawn(work) {
        Ok(_) => Ok(()),
        Err(source) => Err(LinkError::connection("cannot start a thread", source)),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a thread without a poller, between two looks at the time"
)]
pub(super) fn pause(time: Duration) {
    std::thread::sleep(time);
}
