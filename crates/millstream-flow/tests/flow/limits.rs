//! `dedupe` and `throttle`, compared with a plain loop over the items.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millstream_flow::testing::{Collected, Mark, VirtualClock, items, script};
use millstream_flow::{EventTime, Flow, FlowError, KeyedStream, Options, Recovery, Timed};

use super::recovery::{crash_everywhere, run as run_saving};
use super::support::{Random, by_key, run};

/// A key, a time, a number.
type Event = (u32, i64, i64);
type Events = KeyedStream<u32, Timed<Event>>;

const LATENESS: i64 = 8;
const LIFE: i64 = 30;

fn ns(nanoseconds: i64) -> Duration {
    Duration::from_nanos(nanoseconds.unsigned_abs())
}

/// Events out of order, some of them late, with leaps in time.
fn events(seed: u64, count: i64) -> Vec<Event> {
    let mut random = Random::new(seed);
    let mut now = 0;
    (0..count)
        .map(|number| {
            now += random.below(4) + if random.below(40) == 0 { 90 } else { 0 };
            (random.below(12) as u32, now - random.below(20), number)
        })
        .collect()
}

/// What a key remembers: the start of its period, how many values have passed in it, and the end of its life.
struct Held {
    begun: i64,
    passed: u64,
    until: i64,
}

/// The numbers that pass, by key. A period without a length lasts as long as the key is remembered.
fn model(events: &[Event], most: u64, every: Option<i64>) -> BTreeMap<u32, Vec<i64>> {
    let mut out: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    let mut keys: BTreeMap<u32, Held> = BTreeMap::new();
    let mut watermark = i64::MIN;
    for &(key, time, number) in events {
        watermark = watermark.max(time - LATENESS);
        keys.retain(|_, held| held.until > watermark);
        let held = keys.entry(key).or_insert(Held {
            begun: time,
            passed: 0,
            until: i64::MIN,
        });
        held.until = held.until.max(time + LIFE);
        if every.is_some_and(|every| time >= held.begun + every) {
            (held.begun, held.passed) = (time, 0);
        }
        if held.passed < most {
            held.passed += 1;
            out.entry(key).or_default().push(number);
        }
    }
    out
}

fn timed(flow: &Flow, events: &[Event], batch: usize) -> Events {
    flow.saves::<Event>();
    let marks = events.iter().copied().map(Mark::Item).collect();
    flow.source("in", script([marks]).batch_size(batch))
        .event_time(
            |event: &Event| event.1,
            EventTime::default().lateness(ns(LATENESS)),
        )
        .key_by(|event| event.0)
}

#[test]
fn the_values_that_pass_are_those_of_a_plain_loop() {
    type Verb = fn(&Events) -> Events;
    let verbs: [(Verb, u64, Option<i64>); 3] = [
        (|keyed| keyed.dedupe(Some(ns(LIFE))), 1, None),
        (|keyed| keyed.throttle(1, ns(LIFE)), 1, Some(LIFE)),
        (|keyed| keyed.throttle(3, ns(LIFE)), 3, Some(LIFE)),
    ];
    for seed in 0..5 {
        let events = events(seed, 2000);
        for (verb, most, every) in verbs {
            let wanted = model(&events, most, every);
            for (workers, batch) in [(1, 1), (2, 7), (3, 10_000)] {
                let flow = Flow::new("limits");
                let out = Collected::new();
                verb(&timed(&flow, &events, batch))
                    .map(|event| event.value.2)
                    .items()
                    .sink("out", out.sink());
                run(&flow, workers).unwrap();
                assert!(
                    by_key(out.take()) == wanted,
                    "seed {seed}, {most} values, {workers} workers, batches of {batch}"
                );
            }
        }
    }
}

#[test]
fn without_a_life_the_first_value_of_a_key_is_the_only_one() {
    let events = events(7, 500);
    let mut wanted: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    for (key, _, number) in &events {
        let first = wanted.entry(*key).or_default();
        if first.is_empty() {
            first.push(*number);
        }
    }
    for workers in 1..=3 {
        let flow = Flow::new("once");
        let plain = Collected::new();
        let times = Collected::new();
        let source = flow.source("plain", items(events.clone()));
        let keyed = source.key_by(|event| event.0).map(|event| event.2);
        keyed.dedupe(None).items().sink("plain out", plain.sink());
        let keyed = timed(&flow, &events, 10).dedupe(None).named("in time");
        let numbers = keyed.map(|event| event.value.2);
        numbers.items().sink("out", times.sink());
        run(&flow, workers).unwrap();
        assert_eq!(by_key(plain.take()), wanted);
        assert_eq!(by_key(times.take()), wanted);
    }
}

#[test]
fn without_times_a_period_is_one_of_the_clock() {
    let clock = VirtualClock::starting_at(0);
    let flow = Flow::new("periods");
    let once = Collected::new();
    let few = Collected::new();
    let minute = Duration::from_secs(60);
    let mut marks = Vec::new();
    for first in [0, 4, 8] {
        marks.extend((first..first + 4).map(Mark::Item));
        marks.push(Mark::Advance(clock.clone(), minute));
    }
    let keyed = flow.source("in", script([marks])).key_by(|_| "all");
    keyed
        .dedupe(Some(minute))
        .values()
        .sink("once", once.sink());
    keyed.throttle(2, minute).values().sink("few", few.sink());
    let mut options = Options::workers(1);
    options.clock = Some(Arc::new(clock));
    flow.run(options).unwrap();
    assert_eq!(once.take(), [0, 4, 8]);
    assert_eq!(few.take(), [0, 1, 4, 5, 8, 9]);
}

#[test]
fn a_throttle_that_passes_nothing_is_a_mistake() {
    let flow = Flow::new("none");
    let keyed = flow.source("in", items([1])).key_by(|n| *n);
    let out = Collected::new();
    keyed.throttle(0, ns(1)).values().sink("out", out.sink());
    let error = flow.check().unwrap_err().to_string();
    assert!(error.contains("throttle passes 1 value or more"), "{error}");
}

#[test]
fn a_crash_at_every_commit_does_not_change_what_passes() {
    let folder = tempfile::tempdir().unwrap();
    let build = |out: &Path| {
        let flow = Flow::new("limits");
        let events = events(3, 200);
        let keyed = timed(&flow, &events, 7);
        let once = keyed.dedupe(Some(ns(LIFE)));
        let few = keyed.throttle(2, ns(LIFE));
        let written = millstream_flow::codec::encode(
            millstream_flow::files::write(out),
            millstream_flow::codec::display,
        );
        let said = |verb: &'static str| move |event: Timed<Event>| format!("{verb} {event:?}");
        let both = once
            .map(said("once"))
            .values()
            .merge(&[few.map(said("few")).values()]);
        both.sink("out", written);
        flow
    };
    let sorted = |out: &Path| {
        let text = std::fs::read_to_string(out).unwrap();
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let plain = folder.path().join("plain");
    let crashed = folder.path().join("crashed");
    let uninterrupted: Result<(), FlowError> = run_saving(
        &build(&plain),
        1,
        Recovery::new(folder.path().join("plain state")).epoch(Duration::ZERO),
    );
    uninterrupted.unwrap();
    let mut workers = [1, 3, 2].into_iter().cycle();
    let state = folder.path().join("state");
    let crashes = crash_everywhere(&build(&crashed), &state, 1, || workers.next().unwrap_or(1));
    assert!(crashes > 6, "{crashes} crashes");
    assert_eq!(sorted(&crashed), sorted(&plain));
}
