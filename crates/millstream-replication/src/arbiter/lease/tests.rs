//! Candidates with clocks of their own that pause, and whose messages are slow or lost: do two of them hold the lease
//! at a time?

use std::sync::{Arc, Mutex};

use super::*;

/// What all share: true time, the record, and when each one holds the lease.
#[derive(Default)]
struct World {
    now: Duration,
    record: Option<(u64, LeaseRecord)>,
    dice: u64,
    /// Which request or answer is lost, of so many; 0: none.
    lost_of: u64,
    /// The longest way of a message.
    slow: Duration,
}

type Shared = Arc<Mutex<World>>;

impl World {
    /// A number below `end`, by xorshift.
    fn roll(&mut self, end: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % end
    }

    /// A message is under way. Returns whether it arrives.
    fn send(&mut self) -> bool {
        let slow = self.roll(1 + self.slow.as_micros() as u64);
        self.now += Duration::from_micros(slow);
        self.lost_of == 0 || self.roll(self.lost_of) > 0
    }
}

struct Away(Shared);

impl Arbiter for Away {
    fn read(&self) -> Result<Option<(Version, LeaseRecord)>, ArbiterError> {
        let mut world = self.0.lock().unwrap();
        let lost = || ArbiterError::new("sim", "lost");
        if !world.send() {
            return Err(lost());
        }
        let record = world.record.clone();
        if world.send() {
            Ok(record.map(|(version, record)| (Version(version.to_string()), record)))
        } else {
            Err(lost())
        }
    }

    fn replace(
        &self,
        version: Option<&Version>,
        record: &LeaseRecord,
    ) -> Result<Option<Version>, ArbiterError> {
        let mut world = self.0.lock().unwrap();
        let lost = || ArbiterError::new("sim", "lost");
        if !world.send() {
            return Err(lost());
        }
        let there = world
            .record
            .as_ref()
            .map(|(version, _)| version.to_string());
        let done = (there == version.map(|version| version.0.clone())).then(|| {
            let next = there.map_or(0, |there| there.parse::<u64>().unwrap() + 1);
            world.record = Some((next, record.clone()));
            Version(next.to_string())
        });
        if world.send() { Ok(done) } else { Err(lost()) }
    }
}

/// A clock that runs at a rate of its own, in parts per thousand of true time.
#[derive(Clone, Copy)]
struct Clock {
    per_mille: u32,
    offset: Duration,
}

impl Clock {
    fn read(self, true_time: Duration) -> Duration {
        self.offset + true_time * self.per_mille / 1000
    }

    /// The true time at which it shows this.
    fn when(self, shown: Duration) -> Duration {
        shown.saturating_sub(self.offset) * 1000 / self.per_mille
    }
}

struct Machine {
    name: String,
    candidate: Candidate,
    clock: Clock,
    held: Option<Held>,
    acts_at: Duration,
}

impl Machine {
    /// Looks, takes or renews, as a machine does.
    fn act(&mut self) {
        let name = self.name.clone();
        if self.held.is_some() {
            match self.candidate.renew(|record| record.at += 1) {
                Ok(Some(held)) => self.held = Some(held),
                Ok(None) => self.held = None,
                Err(_) => {}
            }
        } else if self.candidate.look().is_ok() && self.candidate.over_for().is_some() {
            let take = |record: &mut LeaseRecord| {
                record.holder = name;
                record.term += 1;
            };
            self.held = self.candidate.take(take).unwrap_or(None);
        }
    }
}

/// What has happened.
#[derive(Debug, Default)]
struct Outcome {
    /// For how long two held the lease at a time.
    twice: Duration,
    terms: u64,
}

/// Machines whose clocks differ by `drift` per mille, for `steps` of one of them.
fn run(seed: u64, margin: Duration, drift: u32, steps: usize) -> Outcome {
    let lease = Duration::from_secs(5);
    let world: Shared = Arc::default();
    {
        let mut world = world.lock().unwrap();
        world.dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        world.slow = Duration::from_millis(200);
        world.lost_of = [0, 20, 4][(seed % 3) as usize];
    }
    let mut machines: Vec<_> = (0..3_u32)
        .map(|number| {
            let clock = Clock {
                per_mille: 1000 - drift / 2 + drift * (number % 2),
                offset: Duration::from_secs(1000 * u64::from(number)),
            };
            let shared = Arc::clone(&world);
            let now = move || clock.read(shared.lock().unwrap().now);
            Machine {
                name: number.to_string(),
                candidate: Candidate::with_clock(
                    Box::new(Away(Arc::clone(&world))),
                    LeaseTimes { lease, margin },
                    Box::new(now),
                ),
                clock,
                held: None,
                acts_at: Duration::ZERO,
            }
        })
        .collect();
    let mut outcome = Outcome::default();
    for _ in 0..steps {
        let next = machines
            .iter_mut()
            .min_by_key(|machine| machine.acts_at)
            .unwrap();
        {
            let mut world = world.lock().unwrap();
            world.now = world.now.max(next.acts_at);
            // Mostly a beat, sometimes a pause that is longer than the lease.
            let rest = match world.roll(40) {
                0 => lease.as_millis() as u64 * 2 + world.roll(5000),
                _ => lease.as_millis() as u64 / 8 + world.roll(200),
            };
            next.acts_at = world.now + Duration::from_millis(rest);
        }
        next.act();
        let now = world.lock().unwrap().now;
        // Another one may hold it from now on: until when does each think that it has it?
        let mut ends: Vec<_> = machines
            .iter()
            .filter_map(|machine| Some(machine.clock.when(machine.held?.until)))
            .filter(|end| *end > now)
            .collect();
        ends.sort();
        if let [.., second, _] = ends.as_slice() {
            outcome.twice += *second - now;
        }
    }
    let record = world.lock().unwrap().record.clone();
    outcome.terms = record.map_or(0, |(_, record)| record.term);
    outcome
}

#[test]
fn two_never_hold_it_at_a_time() {
    let margin = Duration::from_secs(1);
    let mut terms = 0;
    for seed in 0..200 {
        let outcome = run(seed, margin, 100, 400);
        assert_eq!(outcome.twice, Duration::ZERO, "seed {seed}: {outcome:?}");
        terms += outcome.terms;
    }
    assert!(terms > 1000, "{terms} take-overs");
}

#[test]
fn without_a_margin_clocks_of_other_rates_let_two_hold_it() {
    let twice =
        |drift| (0..200).any(|seed| run(seed, Duration::ZERO, drift, 400).twice > Duration::ZERO);
    assert!(twice(100));
    // With equal clocks the rule alone is enough.
    assert!(!twice(0));
}

#[test]
fn a_lease_that_is_given_back_is_over_at_once() {
    let world: Shared = Arc::default();
    let candidate = || {
        let times = LeaseTimes {
            lease: Duration::from_secs(5),
            margin: Duration::from_secs(1),
        };
        let shared = Arc::clone(&world);
        let now = move || shared.lock().unwrap().now;
        Candidate::with_clock(Box::new(Away(Arc::clone(&world))), times, Box::new(now))
    };
    world.lock().unwrap().dice = 1;
    let mut first = candidate();
    let mut second = candidate();
    assert!(first.look().unwrap().is_none());
    assert_eq!(first.over_for(), None, "it may have vanished");
    let held = first.take(|record| record.term = 1).unwrap().unwrap();
    assert_eq!(held.until, Duration::from_secs(4));
    second.look().unwrap();
    assert_eq!(second.over_for(), None);
    assert!(first.release().unwrap());
    second.look().unwrap();
    assert_eq!(second.over_for(), Some(Duration::ZERO));
    assert!(second.take(|record| record.term += 1).unwrap().is_some());
    assert_eq!(first.renew(|_| {}).unwrap(), None);
    let record = world.lock().unwrap().record.clone().unwrap().1;
    assert_eq!((record.term, record.lease_ms), (2, 5000));
}
