//! One world: a few processes that append to one journal, die, come back, and lose power together.
//!
//! A world has lives. In each life processes take turns at random; any of them may be killed between any two stores.
//! The life ends with a loss of power, also between any two stores, and the next one begins with one of the disks that
//! could be left.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_journal::chain;
use millstream_journal::random::Random;
use millstream_journal::storage::Simulated;
use millstream_journal::{
    CursorMode, Error, Host, Journal, Options, Reader, Retention, Sync, Writer,
};

use super::bodies::Bodies;
use super::model::{Broken, Judged, Model, SYNC_FAILED, broken};
use super::tally::{Kind, Tally};
use crate::bug::Bug;

/// The smallest segments, so that everything rolls.
const SEGMENT_BYTES: u64 = 64 << 10;
/// The longest step of the clock.
const STEP: Duration = Duration::from_millis(10);
const PROCESSES: u64 = 3;
/// A process that is not to be killed.
const NEVER: u64 = i64::MAX as u64;

/// A process that has the journal open.
struct Process {
    storage: Simulated,
    writer: Writer<Simulated>,
    tail: Reader<Simulated>,
}

/// Processes, a machine, and the model of its journal.
pub struct World {
    pub random: Random,
    pub machine: Simulated,
    pub clock: Arc<Clock>,
    pub boot: u128,
    pub model: Model,
    pub tally: Tally,
    pub kind: Kind,
    sync: Sync,
    bodies: Bodies,
    processes: Vec<Process>,
    /// A sync is going to fail.
    may_fail: bool,
    /// How long there has been a process, by the steady clock.
    pub attended_ns: u64,
    now_ns: u64,
}

/// The clocks of a world: a wall clock, which may be set, and a monotonic one.
pub struct Clock {
    wall_ns: AtomicU64,
    steady_ns: AtomicU64,
}

impl World {
    pub fn new(seed: u64, kind: Kind) -> Self {
        let mut random = Random::new(seed);
        let sync = match random.below(4) {
            0 => Sync::Never,
            1 => Sync::Every(STEP * (1 + random.below(20) as u32)),
            _ => Sync::Always,
        };
        let bodies = Bodies::new(&mut random);
        World {
            machine: Simulated::new(),
            clock: Arc::new(Clock {
                wall_ns: AtomicU64::new(1_700_000_000_000_000_000),
                steady_ns: AtomicU64::new(0),
            }),
            boot: 1,
            model: Model::default(),
            tally: Tally::default(),
            kind,
            sync,
            bodies,
            processes: Vec::new(),
            may_fail: false,
            attended_ns: 0,
            now_ns: 0,
            random,
        }
    }

    /// One life, from the start of the machine to a loss of power, which comes in the middle of the last turn.
    pub fn live(&mut self) -> Judged<()> {
        self.machine.set_defect(self.kind.defect());
        let fails = self.random.below(4) == 0;
        self.may_fail = fails
            && matches!(
                self.kind,
                Kind::FailingSyncs | Kind::Planted(Bug::ForgetFailedSync)
            );
        if self.may_fail {
            self.machine.fail_sync(1 + self.random.below(30) as u32);
        }
        for _ in 0..self.random.below(60) {
            let kill = self.random.below(10) == 0;
            let steps = if kill { self.random.below(40) } else { NEVER };
            if self.turn(steps)? {
                self.tally.kills += 1;
                self.after_kill()?;
            }
        }
        let steps = self.random.below(60);
        self.turn(steps)?;
        for process in &self.processes {
            process.storage.kill();
        }
        // What destructors do has no effect any more.
        self.processes.clear();
        Ok(())
    }

    /// One action by a process that is killed after this many steps. Returns whether it was killed.
    fn turn(&mut self, steps: u64) -> Judged<bool> {
        let room = self.processes.len() < PROCESSES as usize;
        if self.processes.is_empty() || room && self.random.below(16) == 0 {
            let storage = self.machine.process();
            return self.guard(&storage.clone(), steps, |world| world.start(storage));
        }
        let index = self.random.below(self.processes.len() as u64) as usize;
        let storage = self.processes[index].storage.clone();
        let was_killed = self.guard(&storage, steps, |world| world.act(index))?;
        if was_killed {
            self.processes.retain(|process| !process.storage.is_dead());
        }
        Ok(was_killed)
    }

    /// Act as a process. The result of a process that was killed is ignored, and so is its panic.
    fn guard(
        &mut self,
        storage: &Simulated,
        steps: u64,
        action: impl FnOnce(&mut Self) -> Judged<()>,
    ) -> Judged<bool> {
        storage.kill_after(steps);
        let outcome = catch_unwind(AssertUnwindSafe(|| action(self)));
        if storage.is_dead() {
            return Ok(true);
        }
        storage.kill_after(NEVER);
        match outcome {
            Ok(Err(failure)) if failure.promise == SYNC_FAILED && self.may_fail => {
                // Nothing is acknowledged until all have closed the journal and one has recovered it.
                self.may_fail = false;
                self.model.lose_cursor();
                self.processes.clear();
                Ok(false)
            }
            Ok(done) => done.map(|()| false),
            Err(_) => broken(3, "the journal panicked"),
        }
    }

    /// A process was killed: the records that it had published are there for the other processes, or for the next one.
    fn after_kill(&mut self) -> Judged<()> {
        if let Some(bug) = self.kind.bug() {
            bug.after_kill(&self.machine);
        }
        if self.processes.is_empty() {
            // The next turn starts one, and checks the records that are there.
            self.attended_ns = 0;
            return Ok(());
        }
        let World {
            processes, model, ..
        } = self;
        let next = read_on(&mut processes[0].tail, model)?;
        self.model.check_after_kill(next)
    }

    fn start(&mut self, storage: Simulated) -> Judged<()> {
        let options = self.options().with_sync(self.sync);
        let opened = self.open(storage.clone(), options);
        let journal = opened.map_err(|error| failed("open", &error))?;
        let writer = journal.writer().map_err(|error| failed("open", &error))?;
        let mut tail = journal.reader().map_err(|error| failed("read", &error))?;
        // In flight is nothing unless all processes died, and then this one has recovered.
        let next = read_on(&mut tail, &mut self.model)?;
        if storage.is_dead() {
            return Ok(());
        }
        self.model.check_after_kill(next)?;
        self.processes.push(Process {
            storage,
            writer,
            tail,
        });
        Ok(())
    }

    /// One call, of a process that is running.
    fn act(&mut self, index: usize) -> Judged<()> {
        match self.random.below(24) {
            0..6 => self.append(index, false),
            6..8 => self.append(index, true),
            8..11 => self.append_many(index),
            11..13 => self.claim(index),
            13 => self.sync(index),
            14 => {
                self.processes.remove(index);
                Ok(())
            }
            15 => self.seek(index),
            16 => self.set_clock(),
            17 => self.pass_time(),
            18 => self.prune(index),
            19 => self.move_cursor(index),
            _ => {
                let World {
                    processes, model, ..
                } = self;
                read_on(&mut processes[index].tail, model).map(drop)
            }
        }
    }

    fn append(&mut self, index: usize, unsynced: bool) -> Judged<()> {
        let body = self.bodies.make(&mut self.random);
        self.model
            .begin(std::slice::from_ref(&body), self.now_ns, self.wall_ns());
        let writer = &self.processes[index].writer;
        let appended = if unsynced {
            writer.write(&body)
        } else {
            writer.append(&body)
        };
        let sequence = appended.map_err(|error| failed("append", &error))?;
        self.alive(index)?;
        self.model.acknowledge(sequence)?;
        if !unsynced {
            self.promise_appended();
        }
        Ok(())
    }

    fn append_many(&mut self, index: usize) -> Judged<()> {
        let count = self.random.below(30);
        let bodies: Vec<Arc<[u8]>> = (0..count)
            .map(|_| self.bodies.make(&mut self.random))
            .collect();
        self.model.begin(&bodies, self.now_ns, self.wall_ns());
        let range = self.processes[index]
            .writer
            .append_many(&bodies)
            .map_err(|error| failed("append", &error))?;
        self.alive(index)?;
        self.model.acknowledge(range.start)?;
        if !bodies.is_empty() {
            self.promise_appended();
        }
        Ok(())
    }

    fn claim(&mut self, index: usize) -> Judged<()> {
        let body = self.bodies.make(&mut self.random);
        let room = body.len() + self.random.below(100) as usize;
        let is_committed = self.random.below(3) > 0;
        let filled = self.random.below(room as u64 + 1) as usize;
        self.model
            .begin(std::slice::from_ref(&body), self.now_ns, self.wall_ns());
        let mut claim = self.processes[index]
            .writer
            .claim(room)
            .map_err(|error| failed("claim", &error))?;
        if !is_committed {
            // Garbage, from the header on, as an abandoned claim may leave it.
            claim[..filled].fill(0xFF);
            drop(claim);
            self.alive(index)?;
            self.model.give_up();
            return Ok(());
        }
        claim[..body.len()].copy_from_slice(&body);
        let sequence = claim
            .commit(body.len())
            .map_err(|error| failed("commit", &error))?;
        self.alive(index)?;
        self.model.acknowledge(sequence)?;
        self.promise_appended();
        Ok(())
    }

    fn wall_ns(&self) -> u64 {
        self.clock.wall_ns.load(Ordering::Relaxed)
    }

    /// The calls of a process after it was killed are not checked.
    fn alive(&self, index: usize) -> Judged<()> {
        if self.processes[index].storage.is_dead() {
            broken(1, "killed")
        } else {
            Ok(())
        }
    }

    /// An append was acknowledged: with a time between syncs, all that is older than that is durable by now.
    fn promise_appended(&mut self) {
        match self.sync {
            Sync::Always => self.model.promise(self.model.len()),
            Sync::Every(every) => self.promise_older_than(every),
            Sync::Never => {}
        }
    }

    fn promise_older_than(&mut self, time: Duration) {
        let time_ns = time.as_nanos() as u64;
        if let Some(before_ns) = self.now_ns.checked_sub(time_ns + 1) {
            // Records that a dead writer has published without acknowledging them count with the next append.
            let appended = self.model.appended_by(before_ns);
            self.model.promise(appended.min(self.model.known()));
        }
    }

    fn sync(&mut self, index: usize) -> Judged<()> {
        let next = self.model.known();
        let writer = &self.processes[index].writer;
        if next > 0 && self.random.below(2) == 0 {
            let sequence = self.random.below(next);
            writer
                .wait_durable(sequence)
                .map_err(|error| failed("wait", &error))?;
            self.alive(index)?;
            self.model.promise(sequence + 1);
        } else {
            let durable = writer.sync().map_err(|error| failed("sync", &error))?;
            self.alive(index)?;
            if durable < next || durable > self.model.len() {
                return broken(3, format!("{durable} is durable, {next} were appended"));
            }
            self.model.promise(durable);
        }
        Ok(())
    }

    fn seek(&mut self, index: usize) -> Judged<()> {
        let first = self.processes[index].writer.journal().first();
        let first = first.map_err(|error| failed("ask", &error))?;
        self.model.check_first(first)?;
        // Records that a dead writer has published may have been pruned already.
        let end = self.model.known().max(first);
        let sequence = first + self.random.below(end - first + 1);
        let tail = &mut self.processes[index].tail;
        tail.seek(sequence)
            .map_err(|error| failed("seek", &error))?;
        if tail.position() != sequence {
            return broken(3, format!("sought {sequence}, came to {}", tail.position()));
        }
        Ok(())
    }

    fn prune(&mut self, index: usize) -> Judged<()> {
        let retention = Retention {
            bytes: Some((1 + self.random.below(8)) * SEGMENT_BYTES),
            keep_for_cursors: self.random.below(2) == 0,
            ..Retention::default()
        };
        self.model.begin_prune();
        let journal = self.processes[index].writer.journal();
        let pruned = journal
            .prune(&retention)
            .map_err(|error| failed("prune", &error))?;
        self.alive(index)?;
        self.model.prune(pruned.first)
    }

    fn move_cursor(&mut self, index: usize) -> Judged<()> {
        if self.model.is_cursor_lost() {
            return Ok(());
        }
        let journal = self.processes[index].writer.journal();
        let cursor = journal
            .cursor("reader", CursorMode::Shared)
            .map_err(|error| failed("open a cursor", &error))?;
        let position = cursor
            .position()
            .map_err(|error| failed("read a cursor", &error))?;
        self.alive(index)?;
        self.model.check_cursor(position)?;
        let sequence = self.random.below(self.model.known() + 1);
        self.model.begin_move(position, sequence);
        cursor
            .set(sequence)
            .map_err(|error| failed("move a cursor", &error))?;
        let moved = cursor
            .position()
            .map_err(|error| failed("read a cursor", &error))?;
        if moved != sequence {
            return broken(
                3,
                format!("a cursor was moved to {sequence} and is at {moved}"),
            );
        }
        self.model.end_move();
        if self.random.below(2) == 0 {
            cursor
                .sync()
                .map_err(|error| failed("sync a cursor", &error))?;
            self.alive(index)?;
            self.model.fix_cursor(sequence);
        }
        Ok(())
    }

    /// A process sets the wall clock.
    fn set_clock(&mut self) -> Judged<()> {
        const HOUR_NS: u64 = 3_600_000_000_000;
        let now = self.clock.wall_ns.load(Ordering::Relaxed);
        let set = match self.random.below(3) {
            0 => now.saturating_sub(HOUR_NS),
            1 => now + 24 * HOUR_NS,
            _ => 0,
        };
        self.clock.wall_ns.store(set, Ordering::Relaxed);
        Ok(())
    }

    /// Time passes, and backgrounds get their turn, or no processor all the while.
    fn pass_time(&mut self) -> Judged<()> {
        let step_ns = STEP.as_nanos() as u64;
        let starved = self.random.below(4) == 0;
        for _ in 0..self.random.below(30) {
            if self.kind != Kind::Planted(Bug::LateAppends) {
                self.clock.wall_ns.fetch_add(step_ns, Ordering::Relaxed);
            }
            self.clock.steady_ns.fetch_add(step_ns, Ordering::Relaxed);
            self.now_ns += step_ns;
            self.attended_ns += step_ns;
            if starved {
                self.attended_ns = 0;
                continue;
            }
            for process in &self.processes {
                process.writer.background();
            }
            if self
                .processes
                .iter()
                .all(|process| process.storage.is_dead())
            {
                return Ok(());
            }
            // The next append returns the error of a background sync that failed.
            if let Sync::Every(every) = self.sync
                && !self.may_fail
            {
                let limit = every + STEP;
                if u128::from(self.attended_ns) >= limit.as_nanos() {
                    self.promise_older_than(limit);
                }
            }
        }
        Ok(())
    }

    /// A process opens the journal.
    pub fn open(&self, process: Simulated, options: Options) -> Result<Journal<Simulated>, Error> {
        let machine = process.clone();
        if let Some(defect) = self.kind.bug().and_then(Bug::defect_of_recovery) {
            machine.set_defect(Some(defect));
        }
        let opened = Journal::open_in(process, options);
        machine.set_defect(self.kind.defect());
        opened
    }

    /// Options of a process of this boot.
    pub fn options(&mut self) -> Options {
        let numbers = AtomicU64::new(self.random.next_u64());
        let random = move || Random::new(numbers.fetch_add(1, Ordering::Relaxed)).next_u64();
        let wall = Arc::clone(&self.clock);
        let steady = Arc::clone(&self.clock);
        let host = Host::simulated(move || wall.wall_ns.load(Ordering::Relaxed), random)
            .with_monotonic(move || steady.steady_ns.load(Ordering::Relaxed))
            .with_boot(self.boot);
        Options::on(host).with_segment_bytes(SEGMENT_BYTES)
    }
}

/// Read to the end; returns the position.
pub fn read_on(reader: &mut Reader<Simulated>, model: &mut Model) -> Judged<u64> {
    loop {
        match reader.next() {
            Ok(Some(record)) => model.check(record.sequence, record.time_ns, record.body)?,
            Ok(None) => return Ok(reader.position()),
            Err(Error::Pruned { first, .. }) => {
                model.check_first(first)?;
                reader.seek(first).map_err(|error| failed("seek", &error))?;
            }
            Err(error) => return Err(failed("read", &error)),
        }
    }
}

/// A call that had no reason to fail.
pub fn failed(verb: &str, error: &Error) -> Broken {
    let sync_failed = match error {
        Error::Poisoned { .. } => true,
        Error::Io { source, .. } => source.to_string() == "the disk failed",
        _ => false,
    };
    Broken {
        promise: if sync_failed { SYNC_FAILED } else { 3 },
        what: format!("cannot {verb}: {}", chain(error)),
    }
}
