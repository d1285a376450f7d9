//! Steps with timers in processing time, killed at any commit, with clocks that jump: each timer fires once,
//! each item is in one list, whatever the clock shows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_flow::clock::Clock;
use millstream_flow::testing::{Mark, VirtualClock, script};
use millstream_flow::{Flow, FlowError, KeyContext, Logic, Options, Recovery, Timer, codec, files};
use serde::{Deserialize, Serialize};

use crate::recovery::lines;
use crate::support::{Random, finish};

const SECOND: i64 = 1_000_000_000;
const HOUR: Duration = Duration::from_secs(3600);
const LAST: Duration = Duration::from_secs(100 * 3600);
const START: i64 = 1_000_000 * SECOND;

/// Emits the number of items five seconds after the first one, and removes itself.
#[derive(Default, Serialize, Deserialize)]
struct Tally {
    items: u64,
}

impl Logic<i64, i64> for Tally {
    type Out = u64;
    fn on_item(&mut self, _: &i64, _: i64, cx: &mut KeyContext<'_, u64>) {
        if self.items == 0 {
            cx.set_timer(Timer::Processing(cx.now() + 5 * SECOND));
        }
        self.items += 1;
    }
    fn on_timer(&mut self, _: &i64, _: Timer, cx: &mut KeyContext<'_, u64>) {
        cx.emit(self.items);
        cx.discard();
    }
}

/// Counts its items until its time to live has passed.
#[derive(Default, Serialize, Deserialize)]
struct Alive(u64);

impl Logic<i64, i64> for Alive {
    type Out = u64;
    fn on_item(&mut self, _: &i64, _: i64, cx: &mut KeyContext<'_, u64>) {
        self.0 += 1;
        cx.emit(self.0);
    }
}

fn numbers(clock: &VirtualClock, seed: u64) -> Vec<Mark<i64>> {
    let mut random = Random::new(seed);
    let mut marks = Vec::new();
    for number in 0..200 {
        marks.push(Mark::Item(number));
        if random.below(9) == 0 {
            let by = Duration::from_secs(random.below(4) as u64 + 1);
            marks.push(Mark::Advance(clock.clone(), by));
        }
    }
    // By then the clock has caught up, wherever a restart has set it.
    marks.push(Mark::Advance(clock.clone(), LAST));
    // Another worker may have read its clock for this turn already, and would reach the end of the input in the
    // same turn.
    marks.push(Mark::Pause(Duration::from_millis(20)));
    marks
}

fn flow(clock: &VirtualClock, seed: u64, out: &std::path::Path) -> Flow {
    let flow = Flow::new("clocks");
    flow.saves::<Tally>();
    flow.saves::<Alive>();
    let numbers = flow.source("in", script([numbers(clock, seed)]).batch_size(5));
    let keyed = numbers.key_by(|n| n % 6);
    let tallies = keyed.stateful_with("tally", None, |_| Tally::default());
    let tallies = tallies
        .items()
        .map(|(key, items)| format!("tally {key} {items}"));
    let life = Some(Duration::from_secs(2));
    let alive = keyed.stateful_with("alive", life, |_| Alive::default());
    let alive = alive.items().map(|(key, nth)| format!("alive {key} {nth}"));
    let wait = Some(Duration::from_secs(3));
    let lists = keyed.collect("lists", 4, wait).values();
    let lists = lists.map(|list| format!("list {list:?}"));
    tallies
        .merge(&[alive, lists])
        .sink("out", codec::encode(files::write(out), codec::display));
    flow
}

/// Checks that each item is counted by one timer, is in one list and extended one life, as the model of each
/// says.
fn judge(said: &[String], seed: u64) {
    let (mut tallied, mut alive) = (BTreeMap::<&str, u64>::new(), BTreeMap::<&str, u64>::new());
    let mut listed = Vec::new();
    for line in said {
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        match words[0] {
            "tally" => {
                *tallied.entry(words[1]).or_default() += words[2].parse::<u64>().expect("a number");
            }
            "alive" => {
                let nth: u64 = words[2].parse().expect("a number");
                let before = alive.insert(words[1], nth).unwrap_or(0);
                assert!(
                    nth == before + 1 || nth == 1,
                    "seed {seed}: {line} behind {before}"
                );
            }
            _ => {
                let list: Vec<i64> = line[6..line.len() - 1]
                    .split(", ")
                    .map(|n| n.parse().expect("a number"))
                    .collect();
                assert!(list.len() <= 4 && list.is_sorted(), "seed {seed}: {line}");
                listed.extend(list);
            }
        }
    }
    assert_eq!(
        tallied.values().sum::<u64>(),
        200,
        "seed {seed}: {tallied:?}"
    );
    listed.sort_unstable();
    assert_eq!(listed, (0..200).collect::<Vec<_>>(), "seed {seed}");
    let signs = said.iter().filter(|line| line.starts_with("alive"));
    assert_eq!(signs.count(), 200, "seed {seed}");
}

#[test]
fn timers_fire_once_and_lists_are_complete_whatever_the_clock_shows() {
    for seed in 1..=3 {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        let clock = VirtualClock::starting_at(START);
        let flow = flow(&clock, seed, &out);
        let mut random = Random::new(seed);
        let mut crashes = 0;
        loop {
            assert!(crashes < 1000, "seed {seed}: it gets nowhere");
            // The machine's clock is set between two runs: back an hour, forward an hour, or not at all. It is
            // not set back after the last advance, which may be after the last commit: no restart would repeat
            // it.
            let over = clock.time_ns() > START + LAST.as_nanos() as i64 / 2;
            match random.below(6) {
                0 if !over => clock.set(START - 3600 * SECOND),
                1 => clock.advance(HOUR),
                _ => {}
            }
            let mut options = Options::workers(1 + random.below(3) as usize);
            options.clock = Some(Arc::new(clock.clone()));
            let recovery = Recovery::new(folder.path().join("state"));
            let recovery = recovery.epoch(Duration::ZERO).sync(false);
            options.recovery = Some(recovery.crash_after(2));
            match finish(flow.start(options).expect("it starts")) {
                Ok(_) => break,
                Err(FlowError::Crashed(_)) => crashes += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
        assert!(crashes > 5, "seed {seed}: {crashes}");
        judge(&lines(&out), seed);
    }
}
