//! How long a commit over many processes takes, from the raise of an epoch to its commit record, with delays of
//! networks and disks.
//!
//! The messages are those of the state machines, and go through their bytes. Delays are random:
//!
//! | | |
//! |---|---|
//! | a message on the network | 0.2 ms and up to 0.2 ms more |
//! | a sync | lognormal, median 4 ms, sigma 0.7, between 1 and 40 ms |
//!
//! ```
//! let few = millstream_sim::cluster::latency::measure(1, 2, 50);
//! let many = millstream_sim::cluster::latency::measure(1, 64, 50);
//! assert!(few.p50_ms < many.p50_ms && many.p50_ms <= many.p99_ms);
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use millstream_cluster::protocol::{Coordinator, Ids, Message, Notice, Output, Participant, Times};
use millstream_flow::cluster::{Event, Offer, Raise};

use millstream_journal::random::Random;

/// The latency of commits of this many processes.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// The number of processes.
    pub processes: usize,
    /// Half of the commits take at most this time, in milliseconds.
    pub p50_ms: f64,
    /// 99 of 100 commits take at most this time, in milliseconds.
    pub p99_ms: f64,
    /// The messages that process 0 receives and sends for a commit.
    pub messages: f64,
    /// The time of the processor that they cost process 0, in microseconds, without the system calls.
    pub processor_us: f64,
}

enum Arrival {
    /// At process 0, by connection.
    AtZero(u64, Message),
    /// At another process, by number.
    At(usize, Message),
    /// The sync of a process is over.
    Prepared(usize),
    /// The commit record is durable.
    Committed,
}

struct Cluster {
    random: Random,
    now_us: u64,
    zero: Coordinator,
    others: Vec<Participant>,
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    arrivals: Vec<Option<Arrival>>,
    epoch: u64,
    committed: bool,
    messages: u64,
    processor: Duration,
}

/// Plays this many commits of a cluster.
#[must_use]
pub fn measure(seed: u64, processes: usize, commits: usize) -> Latency {
    let mut cluster = Cluster::new(seed, processes);
    let mut took_us: Vec<u64> = (0..commits).map(|_| cluster.commit()).collect();
    took_us.sort_unstable();
    let at = |part: f64| took_us[((took_us.len() - 1) as f64 * part) as usize] as f64 / 1e3;
    Latency {
        processes,
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        messages: cluster.messages as f64 / commits as f64,
        processor_us: cluster.processor.as_secs_f64() * 1e6 / commits as f64,
    }
}

impl Cluster {
    fn new(seed: u64, processes: usize) -> Self {
        let offer = Offer {
            flow: "flow".to_owned(),
            workers: 1,
            ..Offer::default()
        };
        let times = Times::default();
        let ids = Ids { run: 1, cluster: 1 };
        let zero = Coordinator::new(processes, offer.clone(), ids, times);
        let Ok(zero) = zero else {
            unreachable!("no state is refused")
        };
        let mut cluster = Cluster {
            random: Random::new(seed),
            now_us: 0,
            zero,
            others: (1..processes)
                .map(|_| Participant::new(offer.clone(), times))
                .collect(),
            queue: BinaryHeap::new(),
            arrivals: Vec::new(),
            epoch: 0,
            committed: false,
            messages: 0,
            processor: Duration::ZERO,
        };
        for process in 1..processes {
            cluster.zero.connected(process as u64, process, 0);
            cluster.others[process - 1].connected(process as u64, 0);
            cluster.perform_other(process);
        }
        cluster.drain();
        (cluster.messages, cluster.processor) = (0, Duration::ZERO);
        cluster
    }

    /// Returns the microseconds from the raise to the durable commit record.
    fn commit(&mut self) -> u64 {
        let since = self.now_us;
        self.epoch += 1;
        self.committed = false;
        self.zero.notice(Notice::Raise(Raise::Next), 0);
        self.prepare(0);
        self.perform_zero();
        self.drain();
        self.now_us - since
    }

    fn drain(&mut self) {
        while let Some(Reverse((at_us, index))) = self.queue.pop() {
            // After the commit record only notices are under way.
            if !self.committed {
                self.now_us = at_us;
            }
            match self.arrivals[index].take() {
                Some(Arrival::AtZero(connection, message)) => self.at_zero(connection, &message),
                Some(Arrival::At(process, message)) => {
                    self.others[process - 1].received(process as u64, message, 0);
                    self.perform_other(process);
                }
                Some(Arrival::Prepared(process)) => self.prepared(process),
                Some(Arrival::Committed) => {
                    self.committed = true;
                    self.zero.notice(Notice::Committed(self.epoch), 0);
                    self.perform_zero();
                }
                None => {}
            }
        }
        self.arrivals.clear();
    }

    fn prepared(&mut self, process: usize) {
        let notice = Notice::Prepared {
            epoch: self.epoch,
            changed: true,
            last: false,
        };
        if process == 0 {
            self.zero.notice(notice, 0);
            return self.perform_zero();
        }
        self.others[process - 1].notice(notice);
        self.perform_other(process);
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the cost of process 0 is measured"
    )]
    fn at_zero(&mut self, connection: u64, message: &Message) {
        self.messages += 1;
        let payload = message.encode();
        let since = Instant::now();
        if let Ok(message) = Message::decode(&payload) {
            self.zero.received(connection, message, 0);
        }
        self.processor += since.elapsed();
        self.perform_zero();
    }

    #[expect(clippy::disallowed_methods, reason = "as above")]
    fn perform_zero(&mut self) {
        loop {
            let since = Instant::now();
            let output = self.zero.next_output();
            self.processor += since.elapsed();
            match output {
                Some(Output::Send { to, message }) => {
                    self.messages += 1;
                    let since = Instant::now();
                    let bytes = message.encode();
                    self.processor += since.elapsed();
                    drop(bytes);
                    let wait_us = self.network_us();
                    self.after(wait_us, Arrival::At(to as usize, message));
                }
                Some(Output::Event(Event::AllPrepared { .. })) => {
                    let wait_us = self.sync_us();
                    self.after(wait_us, Arrival::Committed);
                }
                Some(_) => {}
                None => return,
            }
        }
    }

    fn perform_other(&mut self, process: usize) {
        while let Some(output) = self.others[process - 1].next_output() {
            match output {
                Output::Send { to, message } => {
                    let wait_us = self.network_us();
                    self.after(wait_us, Arrival::AtZero(to, message));
                }
                Output::Event(Event::Raise(_)) => self.prepare(process),
                _ => {}
            }
        }
    }

    fn prepare(&mut self, process: usize) {
        let wait_us = self.sync_us();
        self.after(wait_us, Arrival::Prepared(process));
    }

    fn after(&mut self, wait_us: u64, arrival: Arrival) {
        self.queue
            .push(Reverse((self.now_us + wait_us, self.arrivals.len())));
        self.arrivals.push(Some(arrival));
    }

    fn network_us(&mut self) -> u64 {
        200 + self.random.below(201)
    }

    /// A lognormal time, of a normal one by the method of Box and Muller (1958).
    fn sync_us(&mut self) -> u64 {
        let mut uniform = || (self.random.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
        let normal = (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
        ((4_000.0 * (0.7 * normal).exp()) as u64).clamp(1_000, 40_000)
    }
}
