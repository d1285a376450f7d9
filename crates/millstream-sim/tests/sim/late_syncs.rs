//! With `sync` a time T, a loss of power takes records that were acknowledged within T of each other, at most, however
//! long the disk takes for a sync. Time is simulated: nothing here waits.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_journal::random::Random;
use millstream_journal::storage::Simulated;
use millstream_journal::{Host, Journal, Options, Sync, Writer};

const EVERY_NS: u64 = 100_000_000;

/// Two processes on a machine whose syncs take their time.
struct World {
    machine: Simulated,
    clock: Arc<AtomicU64>,
    /// One appends while the other one syncs.
    writers: [Writer<Simulated>; 2],
    /// Which one is in a call.
    calling: AtomicUsize,
    random: Mutex<Random>,
    /// When each record was acknowledged, by its number.
    acknowledged: Mutex<BTreeMap<u64, u64>>,
    /// What must survive a loss of power, and the first time that it did not.
    promised: AtomicU64,
    broken: Mutex<Option<String>>,
    is_syncing: AtomicBool,
}

/// The wall clock of a machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wall {
    Moves,
    /// It does not move, and appends that wait for a late sync by it do not wait.
    Stands,
}

fn options(clock: &Arc<AtomicU64>, wall: Wall, boot: u128) -> Options {
    let begun_ns = clock.load(Ordering::Relaxed);
    let steady = Arc::clone(clock);
    let clock = Arc::clone(clock);
    let wall_ns = move || match wall {
        Wall::Moves => clock.load(Ordering::Relaxed),
        Wall::Stands => begun_ns,
    };
    let host = Host::simulated(wall_ns, || 1)
        .with_monotonic(move || steady.load(Ordering::Relaxed))
        .with_boot(boot);
    let every = Sync::Every(Duration::from_nanos(EVERY_NS));
    Options::on(host)
        .with_sync(every)
        .with_segment_bytes(64 << 10)
}

impl World {
    fn new(seed: u64, wall: Wall) -> Arc<Self> {
        let machine = Simulated::new();
        let clock = Arc::new(AtomicU64::new(1 << 60));
        let writers = [(); 2].map(|()| {
            let journal = Journal::open_in(machine.process(), options(&clock, wall, 1)).unwrap();
            journal.writer().unwrap()
        });
        let world = Arc::new(World {
            random: Mutex::new(Random::new(seed)),
            acknowledged: Mutex::default(),
            promised: AtomicU64::new(0),
            broken: Mutex::default(),
            calling: AtomicUsize::new(0),
            is_syncing: AtomicBool::new(false),
            machine,
            clock,
            writers,
        });
        let during = Arc::downgrade(&world);
        world.machine.during_syncs(move || {
            if let Some(world) = during.upgrade() {
                world.sync_takes_time();
            }
        });
        world
    }

    fn below(&self, limit: u64) -> u64 {
        self.random.lock().unwrap().below(limit)
    }

    /// A random part of the time between syncs, up to so many times that.
    fn pass_time(&self, times: u64) {
        let time_ns = self.below(times * EVERY_NS);
        self.clock.fetch_add(time_ns, Ordering::Relaxed);
    }

    fn sync_takes_time(&self) {
        if self.below(3) > 0 {
            return;
        }
        if self.is_syncing.swap(true, Ordering::Relaxed) {
            // The other process waits for a sync of its own inside this one.
            return self.pass_time(1);
        }
        for _ in 0..self.below(8) {
            self.pass_time(1);
            self.append(1 - self.calling.load(Ordering::Relaxed));
            if self.below(8) == 0 {
                self.lose_power();
            }
        }
        self.is_syncing.store(false, Ordering::Relaxed);
    }

    fn append(&self, process: usize) {
        let body = vec![7; self.below(300) as usize];
        let sequence = self.writers[process].append(&body).unwrap();
        let now = self.clock.load(Ordering::Relaxed);
        let mut acknowledged = self.acknowledged.lock().unwrap();
        acknowledged.insert(sequence, now);
        let old = acknowledged.iter().rev();
        let last = { old }.find(|(_, at)| **at + EVERY_NS < now);
        let promised = last.map_or(0, |(sequence, _)| sequence + 1);
        self.promised.fetch_max(promised, Ordering::Relaxed);
    }

    /// What one of the disks holds that could be left now.
    fn lose_power(&self) {
        let mut random = |limit| self.below(limit);
        let after = self.machine.lose_power(&mut random);
        let journal =
            Journal::open_in(after.process(), options(&self.clock, Wall::Moves, 2)).unwrap();
        let found = journal.next().unwrap();
        let promised = self.promised.load(Ordering::Relaxed);
        if found < promised {
            let mut broken = self.broken.lock().unwrap();
            broken.get_or_insert(format!(
                "{promised} records were promised, {found} are there"
            ));
        }
    }

    fn play(&self) {
        for _ in 0..60 {
            let process = self.below(2) as usize;
            self.calling.store(process, Ordering::Relaxed);
            match self.below(8) {
                0 => self.pass_time(1),
                1 => self.pass_time(3),
                2 | 3 => self.writers[process].background(),
                4 => self.lose_power(),
                _ => self.append(process),
            }
        }
        self.lose_power();
    }
}

fn play(seed: u64, wall: Wall) -> Option<String> {
    let world = World::new(seed, wall);
    world.play();
    // The machine holds what happens during its syncs.
    world.machine.during_syncs(|| ());
    world.broken.lock().unwrap().take()
}

#[test]
fn what_a_loss_of_power_takes_was_acknowledged_within_the_time() {
    for seed in 1..=100 {
        assert_eq!(play(seed, Wall::Moves), None, "seed {seed}");
    }
}

#[test]
fn an_append_that_does_not_wait_for_a_late_sync_is_found() {
    let found = (1..=300).find_map(|seed| play(seed, Wall::Stands));
    assert!(found.is_some());
}
