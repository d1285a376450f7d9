//! Connections between processes: bytes in order, late, and lost only with the connection.

use std::collections::BTreeMap;

use millstream_cluster::protocol::{Connection, Message};

use millstream_journal::random::Random;

/// The two directions of a control link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Direction {
    ToZero,
    FromZero,
}

/// A control link of a process.
#[derive(Debug)]
pub(super) struct Cable {
    pub(super) process: usize,
    /// When the last message of each direction arrives: later ones arrive after it.
    arrives_ms: BTreeMap<Direction, u64>,
    /// Whether each end is there.
    pub(super) ends: BTreeMap<Direction, bool>,
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Network {
    pub(super) cables: BTreeMap<Connection, Cable>,
    last: Connection,
    /// Until when nothing passes between process 0 and each other one.
    pub(super) cut_until_ms: BTreeMap<usize, u64>,
}

impl Network {
    pub(super) fn connect(&mut self, process: usize) -> Connection {
        self.last += 1;
        let cable = Cable {
            process,
            arrives_ms: BTreeMap::new(),
            ends: BTreeMap::from([(Direction::ToZero, true), (Direction::FromZero, true)]),
        };
        self.cables.insert(self.last, cable);
        self.last
    }

    pub(super) fn is_cut(&self, process: usize, now_ms: u64) -> bool {
        self.cut_until_ms
            .get(&process)
            .is_some_and(|until| now_ms < *until)
    }

    /// When what is sent now arrives; `None` if the connection is gone.
    pub(super) fn arrival(
        &mut self,
        connection: Connection,
        direction: Direction,
        now_ms: u64,
        random: &mut Random,
    ) -> Option<u64> {
        let cable = self.cables.get_mut(&connection)?;
        let cut = self.cut_until_ms.get(&cable.process).copied().unwrap_or(0);
        let slow = if random.below(20) == 0 { 400 } else { 5 };
        let arrives = now_ms.max(cut) + random.below(slow);
        let last = cable.arrives_ms.entry(direction).or_default();
        *last = arrives.max(*last);
        Some(*last)
    }
}

/// A message that outlives its connection, in a relay that mixes up two of them.
#[derive(Clone, Debug)]
pub(super) struct Straggler {
    pub(super) process: usize,
    pub(super) message: Message,
}
