//! Process 0.
//!
//! Invariant: an epoch is reported as prepared by all only when each process has said so in this run, and
//! [`Event::Died`] is the last event.

use std::collections::{BTreeMap, VecDeque};

use millstream_flow::cluster::{Event, HandledLoad, Offer, check_drops, check_own, resolve};

use super::compare::{check_apart, compare};
use super::message::{Body, Message, Misfit, Start};
use super::participant::is_of_run;
use super::silence::{Line, OwnPause};
use super::tally::Tally;
use super::{Connection, Ids, Notice, Output, Times};

/// Process 0, which coordinates the run.
#[derive(Debug)]
pub struct Coordinator {
    ids: Ids,
    times: Times,
    own: Offer,
    phase: Phase,
    /// By process; the first is this one, without a line.
    peers: Vec<Peer>,
    /// Why each process was refused last, until it has joined.
    refusals: Vec<Option<String>>,
    tally: Tally,
    /// Whether the epoch that was decided last is the last of all.
    last: bool,
    /// Whether an event has been reported once.
    reported: Reported,
    suspect: Option<Suspect>,
    pause: OwnPause,
    outputs: VecDeque<Output>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Joining,
    Running,
    Over,
}

/// What is known of a process.
#[derive(Clone, Debug, Default)]
struct Peer {
    line: Option<Line>,
    offer: Option<Offer>,
    built: bool,
    /// Whether its sources had input, once they have ended.
    drained: Option<bool>,
    ended: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    go: bool,
    drained: bool,
    stop: bool,
    /// All processes have ended, or the run was asked to stop and process 0 has: no end is a death any more.
    ended: bool,
}

/// A process whose connection is lost, for a cause that may still arrive.
#[derive(Clone, Debug)]
struct Suspect {
    process: usize,
    cause: String,
    until_ms: u64,
}

impl Coordinator {
    /// Process 0 of this many processes, with what it offers itself.
    ///
    /// # Errors
    /// Its state directory is that of another number of processes.
    pub fn new(processes: usize, own: Offer, ids: Ids, times: Times) -> Result<Self, String> {
        if let Some(state) = &own.state {
            check_own(processes, state)?;
        }
        let epoch = committed(&own);
        let mut coordinator = Coordinator {
            ids: Ids {
                run: ids.run,
                cluster: own
                    .state
                    .as_ref()
                    .and_then(|state| state.cluster)
                    .unwrap_or(ids.cluster),
            },
            times,
            own,
            phase: Phase::Joining,
            peers: vec![Peer::default(); processes],
            refusals: vec![None; processes],
            tally: Tally::new(processes, epoch),
            last: false,
            reported: Reported::default(),
            suspect: None,
            pause: OwnPause::default(),
            outputs: VecDeque::new(),
        };
        coordinator.start_if_all_joined();
        Ok(coordinator)
    }

    /// A control link of a process is authenticated.
    pub fn connected(&mut self, connection: Connection, process: usize, now_ms: u64) {
        let refusal = match self.peers.get(process) {
            None => Some((
                false,
                format!(
                    "there are {} processes, numbered from 0; this one has the number {process}",
                    self.peers.len()
                ),
            )),
            Some(_) if process == 0 => Some((false, "this is process 0 itself".to_owned())),
            Some(_) if self.phase != Phase::Joining => Some((
                true,
                "a run goes on without this process, or ends".to_owned(),
            )),
            Some(peer) if peer.line.is_some() => {
                Some((true, format!("a process {process} is connected already")))
            }
            Some(_) => None,
        };
        match refusal {
            Some((again, text)) => self.refuse(
                connection,
                Misfit {
                    again,
                    ..Misfit::from(text)
                },
            ),
            None => self.peers[process].line = Some(Line::new(connection, now_ms)),
        }
    }

    /// A message has arrived.
    pub fn received(&mut self, connection: Connection, message: Message, now_ms: u64) {
        let Some(process) = self.heard(connection, now_ms) else {
            return;
        };
        if self.phase == Phase::Over || !is_of_run(message.run, self.run()) {
            return;
        }
        match message.body {
            Body::Offer(offer) if self.phase == Phase::Joining => self.offered(process, *offer),
            Body::Alive => {}
            body if self.phase == Phase::Running => self.reported(process, body, now_ms),
            _ => {
                let text = "it does not follow the protocol";
                self.refuse(connection, Misfit::from(text.to_owned()));
                self.peers[process] = Peer::default();
            }
        }
    }

    /// A control link is lost.
    pub fn lost(&mut self, connection: Connection, cause: &str, now_ms: u64) {
        let Some(process) = self.process_at(connection) else {
            return;
        };
        self.peers[process].line = None;
        match self.phase {
            Phase::Joining => self.peers[process] = Peer::default(),
            Phase::Running if !self.peers[process].ended => {
                self.suspect(process, cause.to_owned(), now_ms);
            }
            _ => {}
        }
    }

    /// The flow of process 0 reports something.
    pub fn notice(&mut self, notice: Notice, now_ms: u64) {
        if self.phase != Phase::Running {
            return;
        }
        let body = match notice {
            Notice::Raise(raise) => {
                self.event(Event::Raise(raise));
                return self.send_all(&Body::Raise(raise));
            }
            Notice::Committed(epoch) => {
                let last = self.last;
                return self.send_all(&Body::Committed { epoch, last });
            }
            // It is for this process.
            Notice::Status(_) => return,
            report => report.for_process_0(),
        };
        if let Some(body) = body {
            self.reported(0, body, now_ms);
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ms: u64) {
        if self.phase == Phase::Over {
            return;
        }
        let lines = self.peers.iter_mut().filter_map(|peer| peer.line.as_mut());
        self.pause.tick(now_ms, &self.times, lines);
        if let Some(suspect) = self.suspect.take_if(|suspect| now_ms >= suspect.until_ms) {
            self.die(suspect.process, suspect.cause);
        }
        for process in 1..self.peers.len() {
            let Some(line) = self.peers[process].line.as_mut() else {
                continue;
            };
            let connection = line.connection;
            if line.is_silent(now_ms, &self.times) {
                self.outputs.push_back(Output::Close(connection));
                let cause = self.times.silence("process 0");
                self.lost(connection, &cause, now_ms);
            } else if line.needs_heartbeat(now_ms, &self.times) {
                line.sent(now_ms);
                self.send(process, Body::Alive);
            }
        }
    }

    /// Returns the next thing to do.
    pub fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the processes that have not joined yet.
    pub fn missing(&self) -> impl Iterator<Item = usize> {
        let peers = self.peers.iter().enumerate().skip(1);
        peers
            .filter(|(_, peer)| peer.offer.is_none())
            .map(|(process, _)| process)
    }

    /// Returns why process `process` was refused last; `None` if it has not come, or has joined since.
    #[must_use]
    pub fn refusal(&self, process: usize) -> Option<&str> {
        self.refusals.get(process)?.as_deref()
    }

    /// Whether the run is over for this process.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether a data link to this process may end now: it has ended, or the run has.
    #[must_use]
    pub fn has_ended(&self, process: usize) -> bool {
        self.reported.ended || self.peers.get(process).is_some_and(|peer| peer.ended)
    }

    /// The run of messages: 0 before it begins.
    fn run(&self) -> u64 {
        match self.phase {
            Phase::Joining => 0,
            _ => self.ids.run,
        }
    }

    fn process_at(&self, connection: Connection) -> Option<usize> {
        let has = |peer: &Peer| peer.line.is_some_and(|line| line.connection == connection);
        self.peers.iter().position(has)
    }

    fn heard(&mut self, connection: Connection, now_ms: u64) -> Option<usize> {
        let process = self.process_at(connection)?;
        if let Some(line) = &mut self.peers[process].line {
            line.heard(now_ms);
        }
        Some(process)
    }

    /// What a process has, and whether it fits.
    fn offered(&mut self, process: usize, offer: Offer) {
        let state = offer.state.as_ref().zip(self.own.state.as_ref());
        let checked = compare(process, &self.own, &offer).and_then(|()| match state {
            Some((other, zero)) => {
                let resolved = resolve(process, self.peers.len(), zero, other);
                resolved.map(drop).map_err(Misfit::from)
            }
            None => Ok(()),
        });
        let checked = checked.and_then(|()| self.check_apart(process, &offer));
        match (checked, self.peers[process].line) {
            (Ok(()), _) => {
                self.peers[process].offer = Some(offer);
                self.refusals[process] = None;
                self.start_if_all_joined();
            }
            (Err(misfit), Some(line)) => {
                self.outputs.push_back(Output::Note(format!(
                    "process {process} is refused: {}",
                    misfit.text
                )));
                self.refusals[process] = Some(misfit.text.clone());
                self.refuse(line.connection, misfit);
                self.peers[process] = Peer::default();
            }
            (Err(_), None) => {}
        }
    }

    /// Checks that a process reads nothing for itself that another one has.
    fn check_apart(&self, process: usize, offer: &Offer) -> Result<(), Misfit> {
        let peers = self.peers.iter().enumerate();
        let others = peers.filter_map(|(known, peer)| Some((known, peer.offer.as_ref()?)));
        let mut others = std::iter::once((0, &self.own)).chain(others);
        others.try_for_each(|other| check_apart((process, offer), other))
    }

    fn refuse(&mut self, to: Connection, misfit: Misfit) {
        let message = Message {
            run: 0,
            body: Body::Refused(misfit),
        };
        self.outputs.push_back(Output::Send { to, message });
        self.outputs.push_back(Output::Close(to));
    }

    /// No process can run with the options that it has.
    fn refuse_all(&mut self, misfit: Misfit) {
        let lines = self.peers.iter().filter_map(|peer| peer.line.as_ref());
        let connections: Vec<_> = lines.map(|line| line.connection).collect();
        for connection in connections {
            self.refuse(connection, misfit.clone());
        }
        self.phase = Phase::Over;
        self.outputs.push_back(Output::Refused(misfit));
    }

    fn start_if_all_joined(&mut self) {
        if self.missing().next().is_some() {
            return;
        }
        let others = self.peers.iter().filter_map(|peer| peer.offer.as_ref());
        let offers = std::iter::once(&self.own).chain(others);
        let states: Vec<_> = offers.filter_map(|offer| offer.state.as_ref()).collect();
        if let Err(text) = check_drops(states) {
            return self.refuse_all(Misfit {
                usage: true,
                ..Misfit::from(text)
            });
        }
        let start = Start {
            run: self.ids.run,
            cluster: self.ids.cluster,
            epoch: committed(&self.own),
            keeps_prepared: false,
        };
        for process in 1..self.peers.len() {
            let Peer {
                line: Some(line),
                offer: Some(offer),
                ..
            } = &self.peers[process]
            else {
                continue;
            };
            let state = offer.state.as_ref().zip(self.own.state.as_ref());
            let kept = state.map(|(other, zero)| resolve(process, self.peers.len(), zero, other));
            let body = Body::Start(Start {
                keeps_prepared: kept == Some(Ok(true)),
                ..start
            });
            let to = line.connection;
            let message = Message { run: 0, body };
            self.outputs.push_back(Output::Send { to, message });
        }
        self.phase = Phase::Running;
        self.outputs.push_back(Output::Started(start));
    }

    /// A process, perhaps this one, reports something in the run.
    fn reported(&mut self, process: usize, body: Body, now_ms: u64) {
        match body {
            Body::Built => {
                self.peers[process].built = true;
                self.go_if_all_built();
            }
            Body::Drained { has_input } => {
                self.peers[process].drained = Some(has_input);
                self.report_drained();
            }
            Body::Prepared {
                epoch,
                changed,
                last,
            } => match self.tally.prepared(process, epoch, changed, last) {
                Ok(()) => self.decide(),
                Err(cause) => self.die(process, cause),
            },
            Body::Handled(loads) => self.relay(loads),
            Body::Status(status) => self.event(Event::Status { process, status }),
            Body::Stop => self.stop(),
            Body::Failed { cause } => self.die(process, cause),
            Body::Lost { process: of, .. } if of >= self.peers.len() => {}
            Body::Lost { process: 0, cause } => {
                self.die(0, format!("process {process}: {cause}"));
            }
            Body::Lost { process: of, cause } if !self.has_ended(of) => {
                let cause = format!("its data link to process {process} was lost: {cause}");
                self.suspect(of, cause, now_ms);
            }
            Body::Lost { .. } => {}
            Body::Ended => self.end(process),
            _ => self.die(process, "it does not follow the protocol".to_owned()),
        }
    }

    fn go_if_all_built(&mut self) {
        if !self.reported.go && self.peers.iter().all(|peer| peer.built) {
            self.reported.go = true;
            self.send_all(&Body::Go);
            self.event(Event::Go);
        }
    }

    fn report_drained(&mut self) {
        if !self.reported.drained && self.peers.iter().all(|peer| peer.drained.is_some()) {
            self.reported.drained = true;
            let has_input = self.peers.iter().any(|peer| peer.drained == Some(true));
            self.event(Event::Drained { has_input });
        }
    }

    fn decide(&mut self) {
        while let Some(decided) = self.tally.decide() {
            self.last = decided.last;
            self.event(Event::AllPrepared {
                epoch: decided.epoch,
                changed: decided.changed,
                last: decided.last,
            });
        }
    }

    /// Passes on what workers have handled to the processes that sent it.
    fn relay(&mut self, loads: Vec<HandledLoad>) {
        let mut by_sender: BTreeMap<usize, Vec<HandledLoad>> = BTreeMap::new();
        for load in loads {
            by_sender.entry(load.sender).or_default().push(load);
        }
        for load in by_sender.remove(&0).unwrap_or_default() {
            self.event(Event::Handled(load));
        }
        for (sender, loads) in by_sender {
            if sender < self.peers.len() {
                self.send(sender, Body::Handled(loads));
            }
        }
    }

    fn stop(&mut self) {
        if !self.reported.stop {
            self.reported.stop = true;
            self.send_all(&Body::Stop);
            self.event(Event::Stop);
            self.end_if_all_ended();
        }
    }

    fn end(&mut self, process: usize) {
        self.peers[process].ended = true;
        if self
            .suspect
            .as_ref()
            .is_some_and(|suspect| suspect.process == process)
        {
            self.suspect = None;
        }
        self.end_if_all_ended();
    }

    /// Ends the run well once all processes have ended. A process that dies before would wait for ever for those that
    /// have left, so until then its death is one of the run. A run that was asked to stop ends with process 0.
    fn end_if_all_ended(&mut self) {
        let all = self.peers.iter().all(|peer| peer.ended);
        if !self.reported.ended && (all || self.reported.stop && self.peers[0].ended) {
            self.reported.ended = true;
            self.send_all(&Body::Ended);
            self.event(Event::Ended);
        }
        if all {
            self.phase = Phase::Over;
        }
    }

    /// A connection of a process is lost. Its cause may be on its way by another connection.
    fn suspect(&mut self, process: usize, cause: String, now_ms: u64) {
        if self.suspect.is_none() && !self.reported.ended {
            self.suspect = Some(Suspect {
                process,
                cause,
                until_ms: now_ms + self.times.first_cause_ms,
            });
        }
    }

    fn die(&mut self, process: usize, cause: String) {
        if self.reported.ended {
            return;
        }
        self.send_all(&Body::Died {
            process,
            cause: cause.clone(),
        });
        for peer in &self.peers {
            if let Some(line) = peer.line {
                self.outputs.push_back(Output::Close(line.connection));
            }
        }
        self.event(Event::Died { process, cause });
        self.phase = Phase::Over;
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn send(&mut self, process: usize, body: Body) {
        if let Some(line) = &self.peers[process].line {
            let to = line.connection;
            let run = self.run();
            let message = Message { run, body };
            self.outputs.push_back(Output::Send { to, message });
        }
    }

    fn send_all(&mut self, body: &Body) {
        for process in 1..self.peers.len() {
            self.send(process, body.clone());
        }
    }
}

/// The last committed epoch of an offer; 0 without one.
fn committed(offer: &Offer) -> u64 {
    let state = offer.state.as_ref();
    let committed = state.and_then(|state| state.committed);
    committed.map_or(0, |commit| commit.epoch)
}
