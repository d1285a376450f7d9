//! Logic with timers, compared with a plain loop over the items.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use millstream_flow::testing::{Collected, Mark, VirtualClock, script};
use serde::{Deserialize, Serialize};

use millstream_flow::{EventTime, Flow, KeyContext, Logic, Options, Timed, Timer};

use super::support::{Random, by_key, finish, run};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Event {
    key: u32,
    time: i64,
    number: i64,
}

/// An output of a key: an item by its number, or a timer by its time; and the watermark.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Item(i64, i64),
    Timer(i64, i64),
    End(usize),
}

const LATENESS: i64 = 8;

/// The behaviour of both the logic and the model, with the timers of one key.
fn wish(event: &Event) -> (i64, Option<i64>, bool) {
    let set = event.time + event.number % 13;
    let cancel = (event.number % 5 == 0).then_some(event.time + 3);
    (set, cancel, event.number % 17 == 0)
}

#[derive(Default)]
struct Diary {
    seen: usize,
}

impl Logic<u32, Event> for Diary {
    type Out = Said;
    fn on_item(&mut self, _: &u32, event: Event, cx: &mut KeyContext<'_, Said>) {
        self.seen += 1;
        let (set, cancel, discard) = wish(&event);
        cx.emit(Said::Item(event.number, cx.watermark()));
        cx.set_timer(Timer::Event(set));
        if let Some(at) = cancel {
            cx.cancel_timer(Timer::Event(at));
        }
        if discard {
            cx.discard();
        }
    }
    fn on_timer(&mut self, _: &u32, timer: Timer, cx: &mut KeyContext<'_, Said>) {
        let Timer::Event(at) = timer else {
            panic!("{timer:?}")
        };
        assert_eq!(cx.time(), at);
        cx.emit(Said::Timer(at, 0));
        if at % 3 == 0 {
            cx.set_timer(Timer::Event(at + 4));
        }
    }
    fn on_end(&mut self, _: &u32, cx: &mut KeyContext<'_, Said>) {
        cx.emit(Said::End(self.seen));
    }
}

/// Timers and number of items of a key.
type Model = BTreeMap<u32, (BTreeSet<i64>, usize)>;

fn fire(timers: &mut BTreeSet<i64>, until: i64, out: &mut Vec<Said>) {
    while let Some(&at) = timers.first().filter(|at| **at <= until) {
        timers.remove(&at);
        out.push(Said::Timer(at, 0));
        if at % 3 == 0 {
            timers.insert(at + 4);
        }
    }
}

fn model(events: &[Event]) -> BTreeMap<u32, Vec<Said>> {
    let mut out: BTreeMap<u32, Vec<Said>> = BTreeMap::new();
    let mut keys = Model::new();
    let mut watermark = i64::MIN;
    for event in events {
        let out = out.entry(event.key).or_default();
        let (timers, seen) = keys.entry(event.key).or_default();
        watermark = watermark.max(event.time - LATENESS);
        fire(timers, watermark, out);
        *seen += 1;
        out.push(Said::Item(event.number, watermark));
        let (set, cancel, discard) = wish(event);
        timers.insert(set);
        if let Some(at) = cancel {
            timers.remove(&at);
        }
        if discard {
            keys.remove(&event.key);
        }
    }
    for (key, (mut timers, seen)) in keys {
        let out = out.entry(key).or_default();
        fire(&mut timers, watermark, out);
        out.push(Said::End(seen));
    }
    out
}

fn events(seed: u64) -> Vec<Event> {
    let mut random = Random::new(seed);
    let mut now = 0;
    (0..3000)
        .map(|number| {
            now += random.below(4) + if random.below(100) == 0 { 500 } else { 0 };
            let key = random.below(40) as u32;
            let time = now - random.below(20);
            Event { key, time, number }
        })
        .collect()
}

#[test]
fn items_and_timers_of_a_key_have_a_fixed_order() {
    for seed in 0..5 {
        let events = events(seed);
        let due = model(&events);
        for workers in 1..=3 {
            for batch in [1, 7, 100, 10_000] {
                let flow = Flow::new("timers");
                let out = Collected::new();
                flow.saves::<Event>();
                let marks = events.iter().cloned().map(Mark::Item).collect();
                flow.source("in", script([marks]).batch_size(batch))
                    .event_time(
                        |event: &Event| event.time,
                        EventTime::default().lateness(Duration::from_nanos(LATENESS as u64)),
                    )
                    .key_by(|event| event.key)
                    .stateful_with("diary", None, |_| Diary::default())
                    .map(|said: Timed<Said>| said.value)
                    .items()
                    .sink("out", out.sink());
                run(&flow, workers).unwrap();
                let seen = by_key(out.take());
                assert!(
                    seen == due,
                    "seed {seed}, {workers} workers, batches of {batch}"
                );
            }
        }
    }
}

/// Emits the number of items of the key since it was created.
struct Lives(usize);

impl Logic<u32, i64> for Lives {
    type Out = usize;
    fn on_item(&mut self, _: &u32, _: i64, cx: &mut KeyContext<'_, usize>) {
        self.0 += 1;
        cx.emit(self.0);
    }
}

#[test]
fn a_key_without_items_expires_in_event_time() {
    // Key 1 expires at 19, before its own item at 20; and at 31, by the item of key 2 at 33.
    let items = [
        (1, 0),
        (1, 9),
        (1, 20),
        (2, 29),
        (1, 21),
        (2, 33),
        (1, 30),
        (1, 31),
    ];
    for workers in 1..=2 {
        for batch in [1, 100] {
            let flow = Flow::new("ttl");
            let out = Collected::new();
            flow.saves::<Event>();
            let marks = items.map(Mark::Item).to_vec();
            flow.source("in", script([marks]).batch_size(batch))
                .event_time(|item: &(u32, i64)| item.1, EventTime::default())
                .key_by(|item| item.0)
                .map(|item| item.map(|(_, time)| time))
                .stateful_with("lives", Some(Duration::from_nanos(10)), |_| Lives(0))
                .items()
                .sink("out", out.sink());
            run(&flow, workers).unwrap();
            let lives = by_key(out.take());
            let lives = lives[&1].iter().map(|n: &Timed<usize>| n.value);
            assert_eq!(
                lives.collect::<Vec<_>>(),
                [1, 2, 1, 2, 1, 2],
                "{workers} workers, batches of {batch}"
            );
        }
    }
}

#[test]
fn the_only_key_expires_and_fires_before_its_own_next_item() {
    for batch in [1, 100] {
        let flow = Flow::new("alone");
        let lives = Collected::new();
        let rings = Collected::new();
        let marks = [0, 5, 100, 105, 300].map(Mark::Item).to_vec();
        let items = flow
            .source("in", script([marks]).batch_size(batch))
            .event_time(|time: &i64| *time, EventTime::default())
            .key_by(|_| 1_u32);
        items
            .stateful_with("lives", Some(Duration::from_nanos(10)), |_| Lives(0))
            .values()
            .sink("lives out", lives.sink());
        items
            .stateful_with("rings", None, |_| Rings)
            .values()
            .sink("rings out", rings.sink());
        run(&flow, 1).unwrap();
        let lives: Vec<usize> = lives.take().iter().map(|life| life.value).collect();
        assert_eq!(lives, [1, 2, 1, 2, 1], "batches of {batch}");
        let rings: Vec<_> = rings.take().iter().map(|ring| ring.value).collect();
        let due = [(0, false), (5, false), (50, true), (55, true), (100, false)];
        assert_eq!(rings[..5], due, "batches of {batch}");
    }
}

/// Emits the time of each item, and of a timer 50 after it with true.
struct Rings;

impl Logic<u32, i64> for Rings {
    type Out = (i64, bool);
    fn on_item(&mut self, _: &u32, time: i64, cx: &mut KeyContext<'_, (i64, bool)>) {
        cx.emit((time, false));
        cx.set_timer(Timer::Event(time + 50));
    }
    fn on_timer(&mut self, _: &u32, _: Timer, cx: &mut KeyContext<'_, (i64, bool)>) {
        cx.emit((cx.time(), true));
    }
}

/// A heartbeat: emits the processing time of each of its timers, three in all.
struct Beats(usize);

impl Logic<u32, i64> for Beats {
    type Out = i64;
    fn on_item(&mut self, _: &u32, _: i64, cx: &mut KeyContext<'_, i64>) {
        cx.set_timer(Timer::Processing(cx.now() + 1000));
    }
    fn on_timer(&mut self, _: &u32, timer: Timer, cx: &mut KeyContext<'_, i64>) {
        let Timer::Processing(at) = timer else {
            panic!("{timer:?}")
        };
        assert!(cx.now() >= at);
        cx.emit(at);
        self.0 += 1;
        if self.0 < 3 {
            cx.set_timer(Timer::Processing(at + 1000));
        }
    }
}

fn beats(marks: Vec<Mark<i64>>, clock: &VirtualClock, workers: usize) -> Vec<(u32, i64)> {
    let flow = Flow::new("beats");
    let out = Collected::new();
    flow.saves::<Event>();
    flow.source("in", script([marks]))
        .key_by(|n| *n as u32)
        .stateful_with("beats", None, |_| Beats(0))
        .items()
        .sink("out", out.sink());
    let options = Options {
        clock: Some(Arc::new(clock.clone())),
        ..Options::workers(workers)
    };
    finish(flow.start(options).unwrap()).unwrap();
    out.take()
}

#[test]
fn timers_in_processing_time_follow_the_clock_of_the_run() {
    let clock = VirtualClock::starting_at(0);
    let on = |time| Mark::Advance(clock.clone(), Duration::from_nanos(time));
    let marks = vec![Mark::Item(1), on(400), Mark::Item(2), on(700), on(5000)];
    assert_eq!(
        beats(marks, &clock, 1),
        // At 1100 one timer is due; at 6100 the three others, and those that they set.
        [
            (1, 1000),
            (2, 1400),
            (2, 2400),
            (2, 3400),
            (1, 2000),
            (1, 3000)
        ]
    );
}

#[test]
fn a_real_clock_wakes_a_worker_for_its_timer() {
    let flow = Flow::new("beats");
    let out = Collected::new();
    flow.saves::<Event>();
    let marks = vec![Mark::Item(1), Mark::Pause(Duration::from_millis(60))];
    flow.source("in", script([marks]))
        .key_by(|n: &i64| *n as u32)
        .stateful_with("beats", None, |_| Beats(0))
        .values()
        .sink("out", out.sink());
    for workers in 1..=3 {
        run(&flow, workers).unwrap();
        assert_eq!(out.take().len(), 3);
    }
}

/// Says what it knows of time, by the stream that it is in.
struct Clock;

impl<K> Logic<K, i64> for Clock {
    type Out = (i64, i64);
    fn on_item(&mut self, _: &K, time: i64, cx: &mut KeyContext<'_, (i64, i64)>) {
        cx.emit((cx.time(), cx.watermark()));
        cx.set_timer(Timer::Event(time + 5));
    }
    fn on_timer(&mut self, _: &K, _: Timer, cx: &mut KeyContext<'_, (i64, i64)>) {
        cx.emit((cx.time(), -1));
    }
}

#[test]
fn the_verb_of_a_logic_follows_the_times_of_its_stream() {
    let flow = Flow::new("timed");
    let out = Collected::new();
    flow.source("in", script([[1, 9, 30].map(Mark::Item).to_vec()]))
        .event_time(|time: &i64| *time, EventTime::default())
        .key_by(|_| 0_u32)
        .stateful_with("clock", None, |_| Clock)
        .values()
        .map(|said| (said.time, said.value))
        .sink("out", out.sink());
    run(&flow, 1).unwrap();
    let due = [
        (1, (1, 1)),
        (6, (6, -1)),
        (9, (9, 9)),
        (14, (14, -1)),
        (30, (30, 30)),
    ];
    assert_eq!(out.take(), due);
}

#[test]
fn a_timer_in_event_time_without_times_ends_the_flow() {
    let flow = Flow::new("timeless");
    flow.source("in", script([[1].map(Mark::Item).to_vec()]))
        .key_by(|_| 7_u32)
        .stateful_with("clock", None, |_| Clock)
        .values()
        .sink("out", Collected::new().sink());
    assert_eq!(
        format!("{:?}", run(&flow, 1).unwrap_err()),
        "step \"clock\", key 7: a timer in event time needs event_time before key_by"
    );
}
