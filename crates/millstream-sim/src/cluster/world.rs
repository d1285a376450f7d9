//! One seeded world: a few processes, their disks and connections, and what goes wrong.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use millstream_cluster::protocol::{
    Body, Connection, Coordinator, Ids, Message, Notice, Output, Participant, Start, Times,
};
use millstream_flow::cluster::{CommitId, Event, Offer, Raise};

use super::disk::{Disk, Record};
use super::judge::{Judge, broken};
use super::network::{Direction, Network, Straggler};
use super::node::{Machine, Node};
use super::tally::{Kind, Tally};
use crate::crash::Broken;
use millstream_journal::random::Random;

/// The time in which things go wrong, and the time after it in which an epoch must be committed.
const STORM_MS: u64 = 60_000;
const CALM_MS: u64 = 90_000;
const TICK_MS: u64 = 200;

/// What happens at a moment.
#[derive(Clone, Debug)]
enum Happening {
    Tick(usize),
    Start(usize),
    Connect(usize),
    Arrives {
        connection: Connection,
        direction: Direction,
        message: Message,
    },
    /// One end of a connection learns that it is lost.
    Loses(Connection, Direction),
    Straggler(Straggler),
    /// A write of the process is durable up to this record: then it does the rest.
    Durable {
        process: usize,
        life: u64,
        end: usize,
        then: Then,
    },
    Mishap,
}

/// What a process does once its disk has what it wrote.
#[derive(Clone, Debug)]
enum Then {
    /// The resolution of the start is durable: the flow prepares the first epoch.
    Resolved,
    Prepared {
        epoch: u64,
        changed: bool,
    },
    Committed {
        epoch: u64,
        changed: Vec<bool>,
    },
    Nothing,
}

/// A seeded world.
pub(super) struct World {
    kind: Kind,
    random: Random,
    now_ms: u64,
    order: u64,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    happenings: Vec<Option<Happening>>,
    nodes: Vec<Option<Node>>,
    /// Counts the lives of each process: a later one does not complete the writes of a dead one.
    lives: Vec<u64>,
    disks: Vec<Disk>,
    /// An older copy of each disk, and the disk that a copy has replaced.
    copies: Vec<Option<Disk>>,
    replaced: Vec<Option<Disk>>,
    network: Network,
    judge: Judge,
    ids: u64,
    pub(super) tally: Tally,
}

impl World {
    pub(super) fn new(seed: u64, kind: Kind) -> Self {
        let mut random = Random::new(seed);
        let processes = 2 + random.below(3) as usize;
        let mut world = World {
            kind,
            random,
            now_ms: 0,
            order: 0,
            queue: BinaryHeap::new(),
            happenings: Vec::new(),
            nodes: (0..processes).map(|_| None).collect(),
            lives: vec![0; processes],
            disks: vec![Disk::default(); processes],
            copies: vec![None; processes],
            replaced: vec![None; processes],
            network: Network::default(),
            judge: Judge::default(),
            ids: 100,
            tally: Tally::default(),
        };
        for process in 0..processes {
            world.after(10, Happening::Start(process));
        }
        world.after(500, Happening::Mishap);
        world
    }

    pub(super) fn play(&mut self) -> Result<(), Broken> {
        self.play_until(STORM_MS)?;
        let before = self.judge.last();
        self.network.cut_until_ms.clear();
        self.play_until(STORM_MS + CALM_MS)?;
        if self.judge.last() > before {
            Ok(())
        } else {
            Err(broken(format!(
                "no epoch is committed after epoch {before}, and nothing is wrong any more"
            )))
        }
    }

    fn play_until(&mut self, end_ms: u64) -> Result<(), Broken> {
        while let Some(Reverse((at_ms, _, index))) = self.queue.peek().copied() {
            if at_ms > end_ms {
                break;
            }
            self.queue.pop();
            self.now_ms = at_ms;
            if let Some(happening) = self.happenings[index].take() {
                self.happen(happening)?;
            }
        }
        Ok(())
    }

    fn after(&mut self, most_ms: u64, happening: Happening) {
        let at_ms = self.now_ms + self.random.below(most_ms + 1);
        self.at(at_ms, happening);
    }

    fn at(&mut self, at_ms: u64, happening: Happening) {
        self.order += 1;
        self.queue
            .push(Reverse((at_ms, self.order, self.happenings.len())));
        self.happenings.push(Some(happening));
    }

    /// The process that a happening concerns, if that one is stopped now.
    fn stopped_until(&self, happening: &Happening) -> Option<u64> {
        let process = match happening {
            Happening::Tick(process) => *process,
            Happening::Arrives {
                connection,
                direction,
                ..
            }
            | Happening::Loses(connection, direction) => self.receiver(*connection, *direction)?,
            Happening::Durable { process, .. } => *process,
            _ => return None,
        };
        let node = self.nodes[process].as_ref()?;
        (node.paused_until_ms > self.now_ms).then_some(node.paused_until_ms)
    }

    fn receiver(&self, connection: Connection, direction: Direction) -> Option<usize> {
        let cable = self.network.cables.get(&connection)?;
        Some(match direction {
            Direction::ToZero => 0,
            Direction::FromZero => cable.process,
        })
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Broken> {
        if let Some(until) = self.stopped_until(&happening) {
            self.at(until, happening);
            return Ok(());
        }
        match happening {
            Happening::Tick(process) => {
                if let Some(node) = &mut self.nodes[process] {
                    node.machine.tick(self.now_ms);
                    self.at(self.now_ms + TICK_MS, Happening::Tick(process));
                    self.perform(process)?;
                }
            }
            Happening::Start(process) => self.start(process)?,
            Happening::Connect(process) => self.connect(process)?,
            Happening::Arrives {
                connection,
                direction,
                message,
            } => self.arrive(connection, direction, message)?,
            Happening::Loses(connection, direction) => self.lose(connection, direction)?,
            Happening::Straggler(straggler) => self.straggle(straggler)?,
            Happening::Durable {
                process,
                life,
                end,
                then,
            } => {
                if self.lives[process] == life && self.nodes[process].is_some() {
                    self.disks[process].synced(end);
                    self.done(process, then)?;
                }
            }
            Happening::Mishap => self.mishap(),
        }
        Ok(())
    }

    fn offer(&self, process: usize) -> Offer {
        Offer {
            flow: "flow".to_owned(),
            workers: 1,
            state: Some(self.disks[process].offer(self.disks.len())),
            ..Offer::default()
        }
    }

    fn start(&mut self, process: usize) -> Result<(), Broken> {
        if self.nodes[process].is_some() {
            return Ok(());
        }
        self.lives[process] += 1;
        self.disks[process].open();
        if process == 0 {
            self.decide_what_was_written()?;
        }
        let offer = self.offer(process);
        let times = Times::default();
        let machine = match process {
            0 => {
                self.ids += 2;
                let ids = Ids {
                    run: self.ids,
                    cluster: self.ids + 1,
                };
                let machine = Coordinator::new(self.disks.len(), offer, ids, times);
                Machine::Zero(
                    machine.map_err(|text| broken(format!("process 0 is refused: {text}")))?,
                )
            }
            _ => Machine::Other(Participant::new(offer, times)),
        };
        self.nodes[process] = Some(Node::new(machine));
        self.after(TICK_MS, Happening::Tick(process));
        if process > 0 {
            self.after(50, Happening::Connect(process));
        }
        self.perform(process)
    }

    fn connect(&mut self, process: usize) -> Result<(), Broken> {
        let fresh = self.nodes[process]
            .as_ref()
            .is_some_and(|node| node.connection.is_none());
        if !fresh {
            return Ok(());
        }
        let now_ms = self.now_ms;
        let zero_is_there = self.nodes[0]
            .as_ref()
            .is_some_and(|zero| zero.paused_until_ms <= now_ms);
        if self.network.is_cut(process, now_ms) || !zero_is_there {
            self.at(now_ms + 100, Happening::Connect(process));
            return Ok(());
        }
        let connection = self.network.connect(process);
        if let Some(Node {
            machine: Machine::Zero(zero),
            ..
        }) = &mut self.nodes[0]
        {
            zero.connected(connection, process, now_ms);
        }
        if let Some(node) = &mut self.nodes[process] {
            node.connection = Some(connection);
            if let Machine::Other(machine) = &mut node.machine {
                machine.connected(connection, now_ms);
            }
        }
        self.perform(process)?;
        self.perform(0)
    }

    fn arrive(
        &mut self,
        connection: Connection,
        direction: Direction,
        message: Message,
    ) -> Result<(), Broken> {
        let Some(cable) = self.network.cables.get(&connection) else {
            return Ok(());
        };
        if !cable.ends[&direction] {
            return Ok(());
        }
        let process = match direction {
            Direction::ToZero => 0,
            Direction::FromZero => cable.process,
        };
        self.receive(process, connection, message)
    }

    fn receive(
        &mut self,
        process: usize,
        connection: Connection,
        mut message: Message,
    ) -> Result<(), Broken> {
        match (self.kind, &mut message.body) {
            (Kind::KeepsWithoutRun, Body::Offer(offer)) => self.take_for_committed(offer),
            // Process 0 knows the epoch already.
            (Kind::CommitsEarly, Body::Prepared { .. }) => return Ok(()),
            _ => {}
        }
        if let Some(node) = &mut self.nodes[process] {
            node.machine.received(connection, message, self.now_ms);
        }
        self.perform(process)
    }

    /// The run of process 0; 0 before it begins.
    fn run(&self) -> u64 {
        let start = self.nodes[0].as_ref().and_then(|node| node.start);
        start.map_or(0, |start| start.run)
    }

    /// Offers a prepared epoch as one of the run in which process 0 has committed.
    fn take_for_committed(&self, offer: &mut Offer) {
        let committed = self.disks[0].offer(self.disks.len()).committed;
        let prepared = offer
            .state
            .as_mut()
            .and_then(|state| state.prepared.as_mut());
        if let (Some(prepared), Some(committed)) = (prepared, committed) {
            prepared.run = committed.run;
        }
    }

    /// Tells process 0 that all others have prepared an epoch.
    fn say_prepared_of_others(&mut self, epoch: u64) {
        let run = self.run();
        let mut nodes = self.nodes.iter_mut();
        let Some(Some(zero)) = nodes.next() else {
            return;
        };
        for connection in nodes.flatten().filter_map(|node| node.connection) {
            let body = Body::Prepared {
                epoch,
                changed: false,
                last: false,
            };
            zero.machine
                .received(connection, Message { run, body }, self.now_ms);
        }
    }

    /// A message of an earlier run reaches process 0 on the connection that the process has now.
    fn straggle(&mut self, mut straggler: Straggler) -> Result<(), Broken> {
        if self.kind == Kind::TakesOtherRun {
            straggler.message.run = self.run();
        }
        let node = self.nodes[straggler.process].as_ref();
        match node.and_then(|node| node.connection) {
            Some(connection) if self.nodes[0].is_some() => {
                self.receive(0, connection, straggler.message)
            }
            _ => Ok(()),
        }
    }

    fn lose(&mut self, connection: Connection, direction: Direction) -> Result<(), Broken> {
        let Some(process) = self.receiver(connection, direction) else {
            return Ok(());
        };
        let Some(cable) = self.network.cables.get_mut(&connection) else {
            return Ok(());
        };
        if cable.ends.insert(direction, false) == Some(false) {
            return Ok(());
        }
        if let Some(node) = &mut self.nodes[process] {
            node.machine.lost(connection, self.now_ms);
        }
        self.perform(process)
    }

    /// Both ends learn, each in its time.
    fn break_connection(&mut self, connection: Connection) {
        for direction in [Direction::ToZero, Direction::FromZero] {
            let random = &mut self.random;
            let now_ms = self.now_ms;
            if let Some(at_ms) = self.network.arrival(connection, direction, now_ms, random) {
                self.at(at_ms, Happening::Loses(connection, direction));
            }
        }
    }

    /// Does what the machine of a process wants done.
    fn perform(&mut self, process: usize) -> Result<(), Broken> {
        while let Some(node) = &mut self.nodes[process] {
            let Some(output) = node.machine.next_output() else {
                break;
            };
            match output {
                Output::Send { to, message } => self.send(process, to, message),
                Output::Close(connection) => self.break_connection(connection),
                Output::Started(start) => self.started(process, start)?,
                Output::Refused(misfit) => self.refused(process, misfit.again, &misfit.text)?,
                Output::Event(event) => self.event(process, event)?,
                Output::Note(_) => {}
            }
        }
        Ok(())
    }

    fn send(&mut self, process: usize, to: Connection, message: Message) {
        let direction = match process {
            0 => Direction::FromZero,
            _ => Direction::ToZero,
        };
        let random = &mut self.random;
        let now_ms = self.now_ms;
        let Some(at_ms) = self.network.arrival(to, direction, now_ms, random) else {
            return;
        };
        if process > 0 && message.run > 0 && self.random.below(10) == 0 {
            let message = message.clone();
            let straggler = Straggler { process, message };
            self.after(20_000, Happening::Straggler(straggler));
        }
        self.at(
            at_ms,
            Happening::Arrives {
                connection: to,
                direction,
                message,
            },
        );
    }

    /// Writes end in a while, sometimes a long one.
    fn sync(&mut self, process: usize, then: Then) {
        let end = self.disks[process].records.len();
        let life = self.lives[process];
        let most_ms = if self.random.below(20) == 0 {
            2_000
        } else {
            40
        };
        self.after(
            most_ms,
            Happening::Durable {
                process,
                life,
                end,
                then,
            },
        );
    }

    fn started(&mut self, process: usize, start: Start) -> Result<(), Broken> {
        let Some(node) = &mut self.nodes[process] else {
            return Ok(());
        };
        node.start = Some(start);
        let disk = &mut self.disks[process];
        if let Some((epoch, run, value)) = disk.prepared() {
            if start.keeps_prepared {
                self.tally.kept += 1;
                disk.append(Record::Commit {
                    epoch,
                    run,
                    cluster: start.cluster,
                    members: Vec::new(),
                    value: Some(value),
                });
            } else {
                self.tally.aborted += 1;
                disk.truncate_prepared();
            }
        }
        if process == 0 {
            self.tally.joins += 1;
        }
        self.replaced[process] = None;
        self.judge.check(process, &self.disks[process])?;
        self.sync(process, Then::Resolved);
        Ok(())
    }

    fn refused(&mut self, process: usize, again: bool, text: &str) -> Result<(), Broken> {
        if !again {
            // Only an older copy is refused; the operator puts the right directory back.
            let Some(right) = self.replaced[process].take() else {
                return Err(broken(format!(
                    "process {process} has its own directory, and is refused: {text}"
                )));
            };
            self.tally.copies_refused += 1;
            self.disks[process] = right;
        }
        self.end(process);
        Ok(())
    }

    /// The process ends and is started again.
    fn end(&mut self, process: usize) {
        self.nodes[process] = None;
        let of = |(connection, cable): (&Connection, &super::network::Cable)| {
            (process == 0 || cable.process == process).then_some(*connection)
        };
        let connections: Vec<_> = self.network.cables.iter().filter_map(of).collect();
        for connection in connections {
            if let Some(cable) = self.network.cables.get_mut(&connection) {
                let own = match process {
                    0 => Direction::ToZero,
                    _ => Direction::FromZero,
                };
                cable.ends.insert(own, false);
            }
            self.break_connection(connection);
        }
        self.after(1_000, Happening::Start(process));
    }

    fn event(&mut self, process: usize, event: Event) -> Result<(), Broken> {
        match event {
            Event::Raise(_) => {
                if let Some(epoch) = self.nodes[process].as_ref().and_then(|node| node.value) {
                    self.prepare(process, epoch.0 + 1);
                }
            }
            Event::AllPrepared { epoch, changed, .. } => {
                let changes = changed.contains(&true);
                if changes {
                    self.append_commit(process, epoch, Some(&changed));
                    self.sync(process, Then::Committed { epoch, changed });
                } else {
                    self.committed(epoch)?;
                }
            }
            Event::Committed { epoch, .. } => self.learn(process, epoch)?,
            Event::Died { .. } => self.end(process),
            _ => {}
        }
        Ok(())
    }

    /// A process learns that the epoch is committed.
    fn learn(&mut self, process: usize, epoch: u64) -> Result<(), Broken> {
        let prepared = self.disks[process].prepared();
        if prepared.is_none_or(|(prepared, ..)| prepared != epoch) {
            return Ok(());
        }
        self.append_commit(process, epoch, None);
        let of = self.judge.of(process);
        let last = self.disks[process].committed().last().copied();
        if of.last().copied() != last {
            return Err(broken(format!(
                "process {process} commits {last:?}, and {:?} was decided",
                of.last()
            )));
        }
        self.sync(process, Then::Nothing);
        Ok(())
    }

    fn append_commit(&mut self, process: usize, epoch: u64, changed: Option<&[bool]>) {
        let Some(start) = self.nodes[process].as_ref().and_then(|node| node.start) else {
            return;
        };
        let disk = &mut self.disks[process];
        let value = disk.prepared().map(|(_, _, value)| value);
        let members = changed.map(|changed| {
            let mut members = disk.offer(changed.len()).members;
            members.resize(changed.len(), CommitId::default());
            for (member, _) in members
                .iter_mut()
                .zip(changed)
                .filter(|(_, changed)| **changed)
            {
                (member.epoch, member.run) = (epoch, start.run);
            }
            members
        });
        disk.append(Record::Commit {
            epoch,
            run: start.run,
            cluster: start.cluster,
            members: members.unwrap_or_default(),
            value,
        });
    }

    fn prepare(&mut self, process: usize, epoch: u64) {
        let changed = self.random.below(2) == 0;
        let value = self.random.next_u64() | 1;
        let Some(node) = &mut self.nodes[process] else {
            return;
        };
        let run = node.start.map_or(0, |start| start.run);
        node.value = Some((epoch, if changed { value } else { 0 }));
        if changed {
            self.disks[process].append(Record::Prepared { epoch, run, value });
        }
        if self.kind == Kind::PreparedBeforeDurable {
            self.say_prepared(process, epoch, changed);
            self.sync(process, Then::Nothing);
        } else {
            self.sync(process, Then::Prepared { epoch, changed });
        }
    }

    fn say_prepared(&mut self, process: usize, epoch: u64, changed: bool) {
        if let Some(node) = &mut self.nodes[process] {
            let last = false;
            let notice = Notice::Prepared {
                epoch,
                changed,
                last,
            };
            node.machine.notice(notice, self.now_ms);
        }
        if process == 0 && self.kind == Kind::CommitsEarly {
            self.say_prepared_of_others(epoch);
        }
    }

    fn done(&mut self, process: usize, then: Then) -> Result<(), Broken> {
        match then {
            Then::Nothing => {}
            Then::Resolved => {
                let start = self.nodes[process].as_ref().and_then(|node| node.start);
                let epoch = start.map_or(0, |start| start.epoch);
                self.prepare(process, epoch + 1);
            }
            Then::Prepared { epoch, changed } => self.say_prepared(process, epoch, changed),
            Then::Committed { epoch, changed } => {
                self.decide(epoch, self.run(), &changed)?;
                self.committed(epoch)?;
            }
        }
        self.perform(process)
    }

    /// The commit record of process 0 is durable.
    fn decide(&mut self, epoch: u64, run: u64, changed: &[bool]) -> Result<(), Broken> {
        self.tally.commits += 1;
        // The directory of a process may have been replaced by an older copy meanwhile.
        let own = self.replaced.iter().zip(&self.disks);
        let disks: Vec<&Disk> = own
            .map(|(own, disk)| own.as_ref().unwrap_or(disk))
            .collect();
        let last = disks[0].committed().last().map(|(_, value)| *value);
        let values = |process: usize| match process {
            0 => last,
            _ => value_of(disks[process], epoch, run),
        };
        self.judge.decide(epoch, run, changed, &disks, values)
    }

    /// Process 0 was killed after it had written a commit record, and before it knew that the record is durable.
    fn decide_what_was_written(&mut self) -> Result<(), Broken> {
        let offer = self.disks[0].offer(self.disks.len());
        let Some(CommitId { epoch, run }) = offer.committed else {
            return Ok(());
        };
        if epoch <= self.judge.last() {
            return Ok(());
        }
        let changed: Vec<_> = offer
            .members
            .iter()
            .map(|member| member.epoch == epoch)
            .collect();
        self.decide(epoch, run, &changed)
    }

    /// Process 0 goes on to the next epoch.
    fn committed(&mut self, epoch: u64) -> Result<(), Broken> {
        if let Some(node) = &mut self.nodes[0] {
            node.machine.notice(Notice::Committed(epoch), self.now_ms);
            node.machine.notice(Notice::Raise(Raise::Next), self.now_ms);
        }
        self.perform(0)
    }

    /// Something goes wrong, as long as the storm lasts.
    fn mishap(&mut self) {
        if self.now_ms >= STORM_MS {
            return;
        }
        self.after(2_500, Happening::Mishap);
        let process = self.random.below(self.disks.len() as u64) as usize;
        match self.random.below(10) {
            0..=2 => self.kill(process, false),
            3..=4 => self.kill(process, true),
            5 => {
                let most_ms = self.random.below(15_000);
                if let Some(node) = &mut self.nodes[process] {
                    node.paused_until_ms = self.now_ms + most_ms;
                }
            }
            6 => {
                let until_ms = self.now_ms + self.random.below(15_000);
                self.network.cut_until_ms.insert(process, until_ms);
            }
            7 => {
                let connection = self.nodes[process]
                    .as_ref()
                    .and_then(|node| node.connection);
                if let Some(connection) = connection {
                    self.break_connection(connection);
                }
            }
            8 if process > 0 => self.copies[process] = Some(self.disks[process].clone()),
            9 if process > 0 && self.replaced[process].is_none() => {
                if let Some(mut copy) = self.copies[process].clone() {
                    self.kill(process, false);
                    copy.open();
                    self.replaced[process] =
                        Some(std::mem::replace(&mut self.disks[process], copy));
                }
            }
            _ => {}
        }
    }

    fn kill(&mut self, process: usize, loses_power: bool) {
        if self.nodes[process].is_none() {
            return;
        }
        self.tally.kills += 1;
        if loses_power {
            self.disks[process].lose_power(&mut self.random);
        }
        self.end(process);
    }
}

/// The value of the epoch that a process has prepared, or committed already, in this run.
fn value_of(disk: &Disk, epoch: u64, run: u64) -> Option<u64> {
    disk.records.iter().rev().find_map(|record| match record {
        Record::Prepared {
            epoch: of,
            run: by,
            value,
        } if (*of, *by) == (epoch, run) => Some(*value),
        _ => None,
    })
}
