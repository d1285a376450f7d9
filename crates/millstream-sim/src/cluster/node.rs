//! A process: its state machine, and a model of the flow above it, which prepares and commits epochs.

use millstream_cluster::protocol::Connection;
use millstream_cluster::protocol::{Coordinator, Message, Notice, Output, Participant, Start};

/// The state machine of a process.
#[derive(Debug)]
pub(super) enum Machine {
    Zero(Coordinator),
    Other(Participant),
}

impl Machine {
    pub(super) fn received(&mut self, connection: Connection, message: Message, now_ms: u64) {
        match self {
            Machine::Zero(machine) => machine.received(connection, message, now_ms),
            Machine::Other(machine) => machine.received(connection, message, now_ms),
        }
    }

    pub(super) fn lost(&mut self, connection: Connection, now_ms: u64) {
        match self {
            Machine::Zero(machine) => machine.lost(connection, "lost", now_ms),
            Machine::Other(machine) => machine.lost(connection, "lost"),
        }
    }

    pub(super) fn notice(&mut self, notice: Notice, now_ms: u64) {
        match self {
            Machine::Zero(machine) => machine.notice(notice, now_ms),
            Machine::Other(machine) => machine.notice(notice),
        }
    }

    pub(super) fn tick(&mut self, now_ms: u64) {
        match self {
            Machine::Zero(machine) => machine.tick(now_ms),
            Machine::Other(machine) => machine.tick(now_ms),
        }
    }

    pub(super) fn next_output(&mut self) -> Option<Output> {
        match self {
            Machine::Zero(machine) => machine.next_output(),
            Machine::Other(machine) => machine.next_output(),
        }
    }
}

/// A live process.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) machine: Machine,
    /// Its control link, of a process other than 0.
    pub(super) connection: Option<Connection>,
    pub(super) start: Option<Start>,
    /// The value of the epoch that is prepared; `None` if nothing has changed.
    pub(super) value: Option<(u64, u64)>,
    /// Until when it is stopped.
    pub(super) paused_until_ms: u64,
}

impl Node {
    pub(super) fn new(machine: Machine) -> Self {
        Node {
            machine,
            connection: None,
            start: None,
            value: None,
            paused_until_ms: 0,
        }
    }
}
