//! A machine's clock that is set forward, back, or before 1970: times, searches by time, and retention by age.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_journal::{Host, Journal, Options, Retention, Writer};

use crate::support::{Random, SEGMENT_BYTES, fresh, small};

const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 24 * 3_600 * SECOND_NS;
const START_NS: u64 = 1_800_000_000 * SECOND_NS;

/// A wall clock that a test sets.
#[derive(Clone)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn new() -> Self {
        Clock(Arc::new(AtomicU64::new(START_NS)))
    }

    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, time_ns: u64) {
        self.0.store(time_ns, Ordering::Relaxed);
    }

    fn pass(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::Relaxed);
    }

    fn options(&self) -> Options {
        let clock = self.clone();
        let numbers = AtomicU64::new(1);
        let random = move || numbers.fetch_add(1, Ordering::Relaxed);
        Options::on(Host::simulated(move || clock.now_ns(), random))
            .with_segment_bytes(SEGMENT_BYTES)
    }
}

fn times(journal: &Journal) -> Vec<u64> {
    let mut reader = journal.reader().unwrap();
    let mut times = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        times.push(record.time_ns);
    }
    times
}

/// Appends records of about 1,000 bytes in each way that there is.
fn append(writer: &Writer, random: &mut Random) -> u64 {
    let body = random.bytes(2_000);
    match random.below(4) {
        0 => {
            let bodies = vec![body; random.below(20) as usize];
            writer.append_many(&bodies).unwrap();
            bodies.len() as u64
        }
        1 => {
            let mut claim = writer.claim(body.len()).unwrap();
            claim.copy_from_slice(&body);
            claim.commit(body.len()).unwrap();
            1
        }
        2 => u64::from(writer.try_append(&body).unwrap().is_some()),
        _ => {
            writer.append(&body).unwrap();
            1
        }
    }
}

#[test]
fn a_clock_that_was_ahead_is_followed_once_it_is_put_right() {
    let clock = Clock::new();
    let (_folder, journal) = fresh(clock.options());
    let writer = journal.writer().unwrap();
    let mut expected = Vec::new();
    for (set_to, stored) in [
        (START_NS, START_NS),
        // A thread that has read the clock before another one.
        (START_NS - 1, START_NS),
        (START_NS - SECOND_NS, START_NS),
        (START_NS + 365 * DAY_NS, START_NS + 365 * DAY_NS),
        (START_NS + SECOND_NS, START_NS + SECOND_NS),
        (START_NS + 2 * SECOND_NS, START_NS + 2 * SECOND_NS),
        // The clock starts in 1970, until it is put right.
        (0, 0),
        (5, 5),
        (START_NS + 3 * SECOND_NS, START_NS + 3 * SECOND_NS),
    ] {
        clock.set(set_to);
        writer.append(b"x").unwrap();
        expected.push(stored);
    }
    assert_eq!(times(&journal), expected);
}

#[test]
fn a_given_time_is_stored_as_it_is() {
    let (_folder, journal) = fresh(small());
    let writer = journal.writer().unwrap();
    let given = [100, 50, 200, 0, 199, u64::MAX, 7];
    for time_ns in given {
        writer.append_at(time_ns, b"x").unwrap();
    }
    assert_eq!(times(&journal), given);
}

/// The times of the records that are there, from number `first` on.
#[derive(Default)]
struct Model {
    first: u64,
    times: Vec<u64>,
    /// The latest time of the records that were pruned.
    pruned_ns: u64,
}

impl Model {
    /// `count` records were appended at `now_ns`. After another opening, or a cut, the last record may count as one of
    /// the latest time.
    fn append(&mut self, now_ns: u64, count: u64, journal: &Journal) {
        if count == 0 {
            return;
        }
        let latest = self.times.iter().copied().fold(self.pruned_ns, u64::max);
        let last = self.times.last().copied().unwrap_or(latest);
        let rule = |before: u64| {
            if before.saturating_sub(now_ns) <= SECOND_NS {
                now_ns.max(before)
            } else {
                now_ns
            }
        };
        let next = self.first + self.times.len() as u64;
        let time_ns = journal.reader().unwrap().read(next).unwrap().time_ns;
        assert!([rule(last), rule(latest)].contains(&time_ns));
        self.times
            .extend(std::iter::repeat_n(time_ns, count as usize));
    }

    fn prune(&mut self, first: u64) {
        let gone = self.times.drain(..(first - self.first) as usize);
        self.pruned_ns = gone.fold(self.pruned_ns, u64::max);
        self.first = first;
    }

    /// Compares all times, and searches for times around those of some records.
    fn check(&self, journal: &Journal, random: &mut Random) {
        assert_eq!(times(journal), self.times);
        let mut reader = journal.reader().unwrap();
        for _ in 0..30 {
            let some = random.below(self.times.len() as u64 + 1) as usize;
            let some = self.times.get(some).copied().unwrap_or(START_NS);
            for sought in [some.saturating_sub(1), some, some.saturating_add(1)] {
                let from = self.times.iter().position(|time| *time >= sought);
                let from = from.unwrap_or(self.times.len()) as u64;
                reader.seek_time(sought).unwrap();
                assert_eq!(reader.position(), self.first + from, "from {sought}");
                let before = self.times.iter().rposition(|time| *time < sought);
                let end = before.map_or(0, |last| last as u64 + 1);
                reader.seek_time_end(sought).unwrap();
                assert_eq!(reader.position(), self.first + end, "until {sought}");
            }
        }
    }
}

#[test]
fn searches_by_time_find_what_a_plain_search_finds_whatever_the_clock_did() {
    for seed in 1..=12 {
        let mut random = Random(seed);
        let clock = Clock::new();
        let options = Options {
            exclusive: true,
            ..clock.options()
        };
        let (_folder, mut journal) = fresh(options.clone());
        let mut writer = journal.writer().unwrap();
        let mut model = Model::default();
        for _ in 0..400 {
            match random.below(40) {
                0 => clock.set(clock.now_ns().saturating_sub(random.below(3 * DAY_NS))),
                1 => clock.pass(random.below(3 * DAY_NS)),
                2 if random.below(4) == 0 => clock.set(random.below(DAY_NS)),
                3 => clock.set(START_NS + random.below(DAY_NS)),
                4 if random.below(4) == 0 => {
                    let kept = random.below(model.times.len() as u64 + 1);
                    journal.cut(model.first + kept).unwrap();
                    model.times.truncate(kept as usize);
                }
                5 => {
                    let path = journal.path();
                    drop((writer, journal));
                    journal = Journal::open(path, options.clone()).unwrap();
                    writer = journal.writer().unwrap();
                }
                6 => model.check(&journal, &mut random),
                7 => {
                    let bytes = Some((1 + random.below(6)) * SEGMENT_BYTES);
                    let retention = Retention {
                        bytes,
                        ..Retention::default()
                    };
                    model.prune(journal.prune(&retention).unwrap().first);
                }
                _ => {
                    clock.pass(random.below(SECOND_NS));
                    let count = append(&writer, &mut random);
                    model.append(clock.now_ns(), count, &journal);
                }
            }
        }
        model.check(&journal, &mut random);
        let reading = Journal::open(journal.path(), Options::read_only()).unwrap();
        model.check(&reading, &mut random);
    }
}

/// Fills one segment after the other, an hour for each, and calls `set` before each record. Returns the numbers with
/// which the segments begin.
fn fill(clock: &Clock, writer: &Writer, segments: u64) -> Vec<u64> {
    let mut starts = Vec::new();
    while starts.len() < segments as usize {
        let claim = writer.claim(1_000).unwrap();
        if starts.last() != Some(&claim.segment_start()) {
            starts.push(claim.segment_start());
            clock.pass(3_600 * SECOND_NS);
        }
        clock.pass(SECOND_NS);
        claim.commit(1_000).unwrap();
    }
    starts
}

fn by_age(age_ns: u64) -> Retention {
    Retention {
        age: Some(Duration::from_nanos(age_ns)),
        ..Retention::default()
    }
}

#[test]
fn retention_by_age_is_not_held_up_by_a_clock_that_was_ahead() {
    let clock = Clock::new();
    let (_folder, journal) = fresh(clock.options());
    let writer = journal.writer().unwrap();
    fill(&clock, &writer, 2);
    let right_ns = clock.now_ns();
    clock.pass(365 * DAY_NS);
    fill(&clock, &writer, 3);
    // It is put right: the journal has segments from before, from the wrong time, and from after it.
    clock.set(right_ns + DAY_NS);
    let starts = fill(&clock, &writer, 6);
    assert_eq!(journal.prune(&by_age(20 * DAY_NS)).unwrap().segments, 0);
    // Those of the wrong time were written before the next one that begins with a right time: as old as that.
    let pruned = journal.prune(&by_age(7 * 1_800 * SECOND_NS)).unwrap();
    assert_eq!(pruned.first, starts[2], "{starts:?}");
    // Each of the others goes as it comes of age, although the wrong time is still to come.
    clock.pass(3_600 * SECOND_NS);
    let later = journal.prune(&by_age(7 * 1_800 * SECOND_NS)).unwrap();
    assert_eq!(later.first, starts[3], "{starts:?}");
    clock.pass(3 * DAY_NS);
    let last = journal.prune(&by_age(DAY_NS)).unwrap();
    assert_eq!(
        last.first, starts[5],
        "only the segment that is appended to is left"
    );
}

#[test]
fn retention_by_age_keeps_records_that_a_clock_from_1970_follows() {
    let clock = Clock::new();
    let (_folder, journal) = fresh(clock.options());
    let writer = journal.writer().unwrap();
    let starts = fill(&clock, &writer, 3);
    let right_ns = clock.now_ns();
    clock.set(0);
    fill(&clock, &writer, 2);
    clock.set(right_ns);
    fill(&clock, &writer, 2);
    assert_eq!(journal.prune(&by_age(DAY_NS)).unwrap().first, starts[0]);
    clock.pass(2 * DAY_NS);
    assert!(journal.prune(&by_age(DAY_NS)).unwrap().first > starts[2]);
}
