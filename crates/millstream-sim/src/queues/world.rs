//! One world: clients of a server that is killed and started again, on a machine that loses power.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_journal::chain;
use millstream_journal::random::Random;
use millstream_journal::storage::Simulated;
use millstream_journal::{Host, Options};
use millstream_queue::Moment;
use millstream_queue::config::Config;

use super::disks::Disks;
use super::model::{Model, Number, QUEUES, body};
use super::server::Server;
use super::tally::{Kind, Tally};
use crate::bug::Bug;
use crate::crash::model::{Judged, broken};

/// The smallest segments, so that everything rolls.
const SEGMENT_BYTES: u64 = 64 << 10;
const CLIENTS: u8 = 6;
/// The client that reads the queues after a crash.
const JUDGE: u8 = u8::MAX;
/// How many disks are judged for each loss of power.
const IMAGES: u64 = 8;
/// How often power is lost again during a restart, at most.
const RELAPSES: u64 = 3;
/// Requests of a burst: enough for a log to check what it no longer needs.
const BURST: u64 = 1_500;
/// A process that is not to be killed.
const NEVER: u64 = i64::MAX as u64;
const CONFIG: &str = "[queue.unsynced]\nsync = \"never\"\n[queue.jobs]\nmemory_bytes = 2000\n";
const JUDGING: &str = "[defaults]\nmax_opens = 1000000\n";

/// Clients, their server, its machine, and the model of its queues.
pub struct World {
    random: Random,
    machine: Simulated,
    boot: u128,
    clock_ns: Arc<AtomicU64>,
    now: Moment,
    model: Model,
    pub tally: Tally,
    kind: Kind,
    configs: [Config; 2],
    running: Option<(Simulated, Server)>,
    /// The server was killed, and its queues were not checked yet.
    unjudged: bool,
    /// A sync is going to fail.
    may_fail: bool,
}

impl World {
    pub fn new(seed: u64, kind: Kind) -> Self {
        let config = |text: &str| text.parse::<Config>().unwrap_or_default();
        World {
            random: Random::new(seed),
            machine: Simulated::new(),
            boot: 1,
            clock_ns: Arc::new(AtomicU64::new(1_700_000_000_000_000_000)),
            now: Moment {
                wall_ms: 1_700_000_000_000,
                steady_us: 0,
            },
            model: Model::default(),
            tally: Tally::default(),
            kind,
            configs: [config(CONFIG), config(JUDGING)],
            running: None,
            unjudged: false,
            may_fail: false,
        }
    }

    /// Play all lives.
    pub fn play(&mut self) -> Judged<()> {
        for _ in 0..=self.random.below(3) {
            self.machine.set_defect(self.kind.defect());
            let fails = [Kind::FailingSyncs, Kind::Planted(Bug::ForgetFailedSync)];
            self.may_fail = fails.contains(&self.kind);
            if self.may_fail {
                self.machine.fail_sync(1 + self.random.below(400) as u32);
            }
            self.live()?;
            self.judge_images()?;
        }
        self.tally.acknowledged = self.model.acknowledged;
        self.tally.repeated = self.model.repeated;
        Ok(())
    }

    /// One life, from the start of the machine to a loss of power, which comes in the middle of the last turn.
    fn live(&mut self) -> Judged<()> {
        for _ in 0..self.random.below(120) {
            let kill = self.random.below(15) == 0;
            let steps = if kill { self.random.below(60) } else { NEVER };
            self.turn(steps)?;
        }
        let steps = self.random.below(60);
        self.turn(steps)?;
        if let Some((process, server)) = self.running.take() {
            process.kill();
            // What destructors do has no effect any more.
            drop(server);
        }
        Ok(())
    }

    /// A client or the clock does something, and the server is killed after so many steps.
    fn turn(&mut self, steps: u64) -> Judged<()> {
        let Some((process, _)) = &self.running else {
            return self.begin(steps);
        };
        let process = process.clone();
        process.kill_after(steps);
        if self.guard(&process, Self::act)? {
            self.tally.kills += 1;
            self.running = None;
            self.unjudged = true;
        } else {
            process.kill_after(NEVER);
        }
        Ok(())
    }

    /// A server starts. If it is killed meanwhile, another one starts that is not, and its queues are checked.
    fn begin(&mut self, steps: u64) -> Judged<()> {
        if steps != NEVER {
            let process = self.machine.process();
            process.kill_after(steps);
            let was_killed = self.guard(&process.clone(), |world| {
                world.started_again(process).map(drop)
            })?;
            self.tally.kills += u64::from(was_killed);
        }
        let process = self.machine.process();
        let mut server = self.started_again(process.clone())?;
        if self.unjudged {
            let found = self.look(&mut server)?;
            self.model.judge(&found, false)?;
            self.unjudged = false;
        }
        self.running = Some((process, server));
        Ok(())
    }

    /// Act in a process. The result of a process that was killed is ignored, and so is its panic.
    fn guard(
        &mut self,
        process: &Simulated,
        action: impl FnOnce(&mut Self) -> Judged<()>,
    ) -> Judged<bool> {
        let outcome = catch_unwind(AssertUnwindSafe(|| action(self)));
        if process.is_dead() {
            return Ok(true);
        }
        match outcome {
            Ok(done) => done.map(|()| false),
            Err(_) => broken(8, "the server panicked"),
        }
    }

    /// As [`started`](Self::started), at the second try if a sync has failed in the first.
    fn started_again(&mut self, process: Simulated) -> Judged<Server> {
        let started = self.started(process);
        if self.has_failed() {
            self.may_fail = false;
            // It holds the queues, if it is there.
            drop(started);
            return self.started(self.machine.process());
        }
        started
    }

    /// A sync has failed in this life, and the server was not restarted for it yet.
    fn has_failed(&self) -> bool {
        self.may_fail && self.machine.has_failed()
    }

    fn started(&mut self, process: Simulated) -> Judged<Server> {
        let fault = match self.kind {
            Kind::Faulty(fault) => Some(fault),
            _ => None,
        };
        let disks = Disks {
            process,
            options: self.options(),
            fault,
        };
        let mut server = Server::start(disks, &self.configs[0], self.now)
            .or_else(|error| broken(8, format!("cannot start: {}", chain(&error))))?;
        if let Some(why) = server.closed() {
            return broken(8, format!("kept closed: {why}"));
        }
        // A fan-out queue begins when it is mentioned.
        server.send(JUDGE, b"get orders+audit/peek\r\n", self.now);
        server.hang_up(JUDGE, self.now);
        Ok(server)
    }

    /// All items, which stay in their queues. A server that panics breaks its promise, as one does that
    /// [acts](Self::act).
    fn look(&mut self, server: &mut Server) -> Judged<BTreeMap<&'static str, Vec<Number>>> {
        catch_unwind(AssertUnwindSafe(|| self.items(server)))
            .unwrap_or_else(|_| broken(8, "the server panicked"))
    }

    fn items(&mut self, server: &mut Server) -> Judged<BTreeMap<&'static str, Vec<Number>>> {
        server.configure(&self.configs[1], self.now);
        let mut found = BTreeMap::new();
        for queue in QUEUES {
            let numbers: &mut Vec<Number> = found.entry(queue).or_default();
            loop {
                server.send(JUDGE, format!("get {queue}/open\r\n").as_bytes(), self.now);
                let got = String::from_utf8_lossy(&server.received(JUDGE)).into_owned();
                if got == "END\r\n" {
                    break;
                }
                let number = got
                    .split_once("\r\n")
                    .and_then(|(_, rest)| rest.split_once(':')?.0.parse().ok());
                let value = |number| {
                    let body = body(number);
                    format!("VALUE {queue}/open 0 {}\r\n{body}\r\nEND\r\n", body.len())
                };
                match number.filter(|number| got == value(*number)) {
                    Some(number) => numbers.push(number),
                    None => return broken(8, format!("{queue} gives {got:?}")),
                }
            }
        }
        server.hang_up(JUDGE, self.now);
        server.configure(&self.configs[0], self.now);
        Ok(found)
    }

    /// One event of a running server, and the answers of its clients.
    fn act(&mut self) -> Judged<()> {
        let Some((process, mut server)) = self.running.take() else {
            return Ok(());
        };
        let client = self.random.below(CLIENTS.into()) as u8;
        match self.random.below(80) {
            0 => {
                // It ends as it should, and all connections with it.
                self.unjudged = true;
                return Ok(());
            }
            1..4 => {
                server.hang_up(client, self.now);
                self.model.hang_up(client);
            }
            4..9 => self.pass_time(&mut server)?,
            9 => self.burst(&mut server, client),
            _ => self.request(&mut server, client),
        }
        for client in 0..CLIENTS {
            let got = String::from_utf8_lossy(&server.received(client)).into_owned();
            let expected = self.model.expected(client);
            if process.is_dead() {
                return Ok(());
            }
            let failed = self.has_failed();
            let holds = if failed {
                is_honest(&got, &expected)
            } else {
                got == expected
            };
            if !holds {
                let promise = if failed { 5 } else { 8 };
                return broken(promise, difference(client, &got, &expected));
            }
        }
        if self.has_failed() {
            // This server acknowledges nothing more; the next one is checked.
            self.may_fail = false;
            self.unjudged = true;
            return Ok(());
        }
        self.model.acknowledge_all();
        self.running = Some((process, server));
        Ok(())
    }

    fn request(&mut self, server: &mut Server, client: u8) {
        if self.model.is_waiting(client) {
            return;
        }
        let queue = QUEUES[self.random.below(QUEUES.len() as u64) as usize];
        let now_ms = self.now.steady_us / 1_000;
        let request = match self.random.below(20) {
            0..9 => self.model.set(client, queue),
            choice => {
                let options = match choice {
                    9..12 => "",
                    12..14 => "/open",
                    14 => "/close",
                    15..17 => "/close/open",
                    17 => "/abort",
                    18 => "/peek",
                    _ => "/t=20",
                };
                self.model.get(client, queue, options, now_ms)
            }
        };
        // In two pieces, as a network would.
        let cut = self.random.below(request.len() as u64) as usize;
        server.send(client, &request.as_bytes()[..cut], self.now);
        server.send(client, &request.as_bytes()[cut..], self.now);
    }

    /// Enough requests at once that logs roll and remove segments, then a check of the remaining items.
    fn burst(&mut self, server: &mut Server, client: u8) {
        let queue = QUEUES[self.random.below(QUEUES.len() as u64) as usize];
        let now_ms = self.now.steady_us / 1_000;
        for _ in 0..BURST {
            if self.model.is_waiting(client) {
                return;
            }
            let request =
                self.model.set(client, queue) + &self.model.get(client, queue, "", now_ms);
            server.send(client, request.as_bytes(), self.now);
        }
    }

    fn pass_time(&mut self, server: &mut Server) -> Judged<()> {
        let end_us = self.now.steady_us + (1 + self.random.below(30)) * 1_000;
        while self.now.steady_us < end_us {
            let due_us = server
                .next_event()
                .unwrap_or(end_us)
                .clamp(self.now.steady_us, end_us);
            // Whole milliseconds, so that both clocks agree.
            let passed_ms = (due_us - self.now.steady_us).div_ceil(1_000).max(1);
            self.now.steady_us += passed_ms * 1_000;
            self.now.wall_ms += passed_ms;
            self.clock_ns
                .fetch_add(passed_ms * 1_000_000, Ordering::Relaxed);
            self.model.pass(self.now.steady_us / 1_000);
            server
                .turn(self.now)
                .or_else(|error| broken(8, format!("a turn failed: {}", chain(&error))))?;
        }
        Ok(())
    }

    /// Judge the disks that could be left, and let the world continue with the last of them.
    fn judge_images(&mut self) -> Judged<()> {
        let machine = self.machine.clone();
        let model = self.model.clone();
        for _ in 0..IMAGES {
            self.model = model.clone();
            self.machine = self.after_power_loss(&machine);
            self.tally.images += 1;
            for _ in 0..self.random.below(RELAPSES + 1) {
                let process = self.machine.process();
                process.kill_after(self.random.below(60));
                let was_killed =
                    self.guard(&process.clone(), |world| world.started(process).map(drop))?;
                self.tally.relapses += u64::from(was_killed);
                self.machine = self.after_power_loss(&self.machine.clone());
            }
            let process = self.machine.process();
            let mut server = self.started(process.clone())?;
            let found = self.look(&mut server)?;
            self.model.judge(&found, true)?;
            process.kill();
        }
        self.unjudged = false;
        Ok(())
    }

    fn after_power_loss(&mut self, machine: &Simulated) -> Simulated {
        self.boot += 1;
        let random = &mut self.random;
        let after = machine.lose_power(&mut |limit| random.below(limit));
        if let Some(bug) = self.kind.bug() {
            bug.spoil(&after);
            after.set_defect(bug.defect());
        }
        after
    }

    fn options(&mut self) -> Options {
        let numbers = AtomicU64::new(self.random.next_u64());
        let random = move || Random::new(numbers.fetch_add(1, Ordering::Relaxed)).next_u64();
        let wall = Arc::clone(&self.clock_ns);
        let steady = Arc::clone(&self.clock_ns);
        let host = Host::simulated(move || wall.load(Ordering::Relaxed), random)
            .with_monotonic(move || steady.load(Ordering::Relaxed))
            .with_boot(self.boot);
        Options {
            exclusive: true,
            segment_bytes_first: Some(SEGMENT_BYTES / 4),
            ..Options::on(host).with_segment_bytes(SEGMENT_BYTES)
        }
    }
}

/// A sync has failed: a client has received the expected bytes up to the first error, which may be of a segment that
/// could not be created; once the error is that of a journal whose disk is in an unknown state, nothing is
/// acknowledged.
fn is_honest(got: &str, expected: &str) -> bool {
    let before = got.split("SERVER_ERROR").next();
    let behind = got.split_once("a sync has failed").map(|(_, rest)| rest);
    before.is_some_and(|before| expected.starts_with(before))
        && behind.is_none_or(|rest| !rest.contains("STORED"))
}

/// Where the received bytes differ from the expected ones.
fn difference(client: u8, got: &str, expected: &str) -> String {
    let same = got
        .bytes()
        .zip(expected.bytes())
        .take_while(|(got, expected)| got == expected)
        .count();
    let beginning = |words: &str| words.chars().skip(same).take(80).collect::<String>();
    format!(
        "client {client} got {:?} instead of {:?} behind {same} bytes that are right",
        beginning(got),
        beginning(expected)
    )
}
