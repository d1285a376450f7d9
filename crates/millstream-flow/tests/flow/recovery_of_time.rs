//! Steps in event time, killed at any commit and resumed with other numbers of workers: the output of each key
//! is that of an uninterrupted run.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use millstream_flow::Packets;
use millstream_flow::assign::EventClock;
use millstream_flow::checkpoint::Saved;
use millstream_flow::join::{Join, JoinKind};
use millstream_flow::testing::{Mark, script};
use millstream_flow::window::{Outcome, Windowed, Windower};
use millstream_flow::{
    EventTime, Flow, FlowError, KeyContext, KeyedStream, Logic, Options, Recovery, Stream, Timed,
    Timer, Window, codec, files,
};
use serde::{Deserialize, Serialize};

use crate::recovery::{crash_everywhere, lines, run};
use crate::support::Random;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Event {
    key: u32,
    time: i64,
    number: i64,
}

type Events = KeyedStream<u32, Timed<Event>>;
type Said = Stream<(u32, String)>;

const LATENESS: u64 = 8;
const KEYS: i64 = 12;

/// Events out of order, some of them late, with leaps in time. Those of a key are in one partition.
fn events(seed: u64, partitions: u32) -> Vec<Vec<Mark<Event>>> {
    let mut random = Random::new(seed);
    let mut now = 0;
    let mut all = vec![Vec::new(); partitions as usize];
    for number in 0..400 {
        now += random.below(4) + if random.below(40) == 0 { 90 } else { 0 };
        let key = random.below(KEYS) as u32;
        let time = now - random.below(20);
        let event = Event { key, time, number };
        all[(key % partitions) as usize].push(Mark::Item(event));
    }
    all
}

fn timed(flow: &Flow, name: &str, seed: u64, partitions: u32) -> Events {
    flow.source(name, script(events(seed, partitions)).batch_size(7))
        .event_time(
            |event: &Event| event.time,
            EventTime::default().lateness(Duration::from_nanos(LATENESS)),
        )
        .key_by(|event| event.key)
}

fn ns(nanoseconds: u64) -> Duration {
    Duration::from_nanos(nanoseconds)
}

/// Sets timers, cancels some, and removes itself occasionally.
#[derive(Default, Serialize, Deserialize)]
struct Diary {
    seen: usize,
}

impl Logic<u32, Event> for Diary {
    type Out = String;
    fn on_item(&mut self, _: &u32, event: Event, cx: &mut KeyContext<'_, String>) {
        self.seen += 1;
        cx.emit(format!(
            "{} sees {} at {}",
            self.seen,
            event.number,
            cx.watermark()
        ));
        cx.set_timer(Timer::Event(event.time + event.number % 13));
        if event.number % 5 == 0 {
            cx.cancel_timer(Timer::Event(event.time + 3));
        }
        if event.number % 17 == 0 {
            cx.discard();
        }
    }
    fn on_timer(&mut self, _: &u32, timer: Timer, cx: &mut KeyContext<'_, String>) {
        cx.emit(format!("{} {timer:?}", self.seen));
        if cx.time() % 3 == 0 {
            cx.set_timer(Timer::Event(cx.time() + 40));
        }
    }
    fn on_end(&mut self, _: &u32, cx: &mut KeyContext<'_, String>) {
        cx.emit(format!("{} at the end", self.seen));
    }
}

fn by_logic(events: &Events, ttl: Option<Duration>) -> Said {
    let said = events.stateful_with("step", ttl, |_| Diary::default());
    said.map(|said| said.value).items()
}

/// Results and late items.
fn both<R: Clone + Send + std::fmt::Debug + 'static>(
    outcome: Outcome<u32, Event, Windowed<R>>,
) -> Said {
    let results = outcome.results.map(|result| format!("{:?}", result.value));
    let late = outcome.late.map(|late| format!("late {}", late.number));
    results.items().merge(&[late.items()])
}

fn number(total: &mut i64, event: Event) {
    *total += event.number;
}

type Build = fn(&Flow) -> Said;

fn windows(flow: &Flow) -> KeyedStream<u32, Timed<Event>> {
    timed(flow, "in", 3, 2)
}

/// Windows of 7 and 13.
struct Uneven;

impl Windower for Uneven {
    fn windows(&self, time: i64) -> Vec<(i64, i64)> {
        let start = time - time.rem_euclid(20);
        match time - start {
            0..7 => vec![(start, start + 7)],
            _ => vec![(start + 7, start + 20)],
        }
    }
}

/// A clock slightly earlier than the latest item. This is its only state, and a run that resumes sets it.
struct Behind(i64);

impl EventClock<Event> for Behind {
    fn on_item(&mut self, event: &Event, _: i64) -> (i64, i64) {
        self.0 = self.0.max(event.time - 6);
        (event.time, self.0)
    }
    fn resume(&mut self, watermark: i64) {
        self.0 = watermark;
    }
}

const STEPS: [(&str, Build); 18] = [
    ("timers", |flow| by_logic(&timed(flow, "in", 1, 1), None)),
    ("ttl", |flow| {
        by_logic(&timed(flow, "in", 2, 1), Some(ns(30)))
    }),
    ("tumbling", |flow| {
        both(
            windows(flow)
                .window("step", Window::tumbling(ns(10)))
                .count(),
        )
    }),
    ("sliding", |flow| {
        // When early results are emitted, relative to those of other windows, depends on the speed of other
        // partitions.
        let window = Window::sliding(ns(15), ns(5)).early(3);
        both(
            timed(flow, "in", 3, 1)
                .window("step", window)
                .fold(0, number, |all, more| *all += more),
        )
    }),
    ("sessions", |flow| {
        let sessions = windows(flow).window("step", Window::session(ns(12)));
        both(sessions.reduce(|mut a, b| {
            a.number += b.number;
            a
        }))
    }),
    ("sliding in order", |flow| {
        let window = Window::sliding(ns(15), ns(5)).ordered();
        both(windows(flow).window("step", window).fold(
            Vec::new(),
            |all, event| all.push(event.number),
            |all, more| all.extend_from_slice(more),
        ))
    }),
    ("sessions in order", |flow| {
        let sessions = windows(flow).window("step", Window::session(ns(12)).ordered());
        both(sessions.reduce(|first, _| first))
    }),
    ("windows by the watermark of their key", |flow| {
        let window = Window::tumbling(ns(10)).per_key(ns(3), Some(ns(40)));
        both(timed(flow, "in", 3, 1).window("step", window).count())
    }),
    ("windows of one's own", |flow| {
        both(timed(flow, "in", 3, 1).window_by("step", Uneven).count())
    }),
    ("a clock of one's own", |flow| {
        let events = flow.source("in", script(events(3, 2)).batch_size(7));
        let keyed = events
            .event_clock(|_| Behind(i64::MIN))
            .key_by(|event| event.key);
        both(keyed.window("step", Window::tumbling(ns(10))).count())
    }),
    ("join within windows", |flow| {
        let left = timed(flow, "left", 4, 1);
        let right = timed(flow, "right", 5, 1);
        let outcome = left.join_windows(
            "step",
            &right,
            Window::sliding(ns(20), ns(10)),
            JoinKind::Full,
        );
        let number = |event: &Option<Event>| event.as_ref().map(|event| event.number);
        let pairs = outcome.results.map(move |pair| {
            let Windowed { start, value, .. } = &pair.value;
            format!("{start} {:?} {:?}", number(&value.0), number(&value.1))
        });
        let late = outcome.late.map(|late| format!("late {:?}", late.value));
        pairs.items().merge(&[late.items()])
    }),
    ("count windows", |flow| {
        both(windows(flow).window("step", Window::count(5)).collect())
    }),
    ("windows of windows", |flow| {
        let tens = windows(flow)
            .window("tens", Window::tumbling(ns(10)))
            .count();
        let fifties = tens
            .results
            .map(|count| count.map(|count| count.value as f64));
        let fifties = fifties.window("step", Window::tumbling(ns(50))).mean();
        fifties
            .results
            .map(|mean| format!("{:?}", mean.value))
            .items()
    }),
    ("join of the latest", |flow| {
        joined(flow, Join::latest().how(JoinKind::Full).ttl(ns(40)))
    }),
    ("join within a time", |flow| {
        joined(flow, Join::within(ns(6)).how(JoinKind::Full))
    }),
    ("lookup", |flow| joined(flow, Join::lookup())),
    ("lists of keys", |flow| {
        let numbers = timed(flow, "in", 6, 2).map(|event| event.number);
        numbers
            .collect("step", 4, None)
            .map(|list| format!("{list:?}"))
            .items()
    }),
    ("lists", |flow| {
        let numbers = timed(flow, "in", 6, 1).map(|event| event.number).values();
        numbers
            .collect("step", 4, None)
            .map(|list| (0, format!("{list:?}")))
    }),
];

fn joined(flow: &Flow, join: Join) -> Said {
    let left = timed(flow, "left", 4, 1);
    let right = timed(flow, "right", 5, 1);
    let outcome = left.join("step", &right, join);
    let number = |event: &Option<Event>| event.as_ref().map(|event| event.number);
    let pairs = outcome
        .results
        .map(move |pair| format!("{:?} {:?}", number(&pair.value.0), number(&pair.value.1)));
    let late = outcome.late.map(|late| format!("late {:?}", late.value));
    pairs.items().merge(&[late.items()])
}

fn flow(build: Build, out: &Path) -> Flow {
    let flow = Flow::new("time");
    flow.saves::<Event>();
    flow.saves::<Diary>();
    let lines = build(&flow).map(|(key, said)| format!("{key} {said}"));
    lines.sink("out", codec::encode(files::write(out), codec::display));
    flow
}

/// The outputs of each key, in order; and its late items, perhaps of two streams, in any order.
fn by_key(path: &Path) -> BTreeMap<(String, bool), Vec<String>> {
    let mut keys: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for line in lines(path) {
        let (key, said) = line.split_once(' ').expect("a key and what it said");
        let which = (key.to_owned(), said.starts_with("late"));
        keys.entry(which).or_default().push(said.to_owned());
    }
    let late = keys.iter_mut().filter(|((_, late), _)| *late);
    late.for_each(|(_, said)| said.sort());
    keys
}

/// Runs each step with crashes, and compares with a run without.
fn play(commits: u64, workers: impl Fn(usize) -> usize) {
    for (name, build) in STEPS {
        let folder = tempfile::tempdir().expect("a folder");
        let whole = folder.path().join("whole");
        let out = folder.path().join("out");
        flow(build, &whole)
            .run(Options::default())
            .expect("it runs");
        let mut starts = 0;
        let crashes = crash_everywhere(
            &flow(build, &out),
            &folder.path().join("state"),
            commits,
            || {
                starts += 1;
                workers(starts)
            },
        );
        assert!(crashes > 3, "{name}: {crashes}");
        let is = by_key(&out);
        let due = by_key(&whole);
        assert!(!due.is_empty(), "{name} says nothing");
        if name == "lists" {
            // Which items share a list depends on the workers; each item is in one list, in order.
            assert_eq!(numbers(&is), numbers(&due), "{name}");
        } else {
            for (key, said) in &due {
                assert_eq!(
                    is.get(key),
                    Some(said),
                    "{name}, {key:?}, crashed behind {commits}"
                );
            }
            assert_eq!(is.len(), due.len(), "{name}");
        }
    }
}

fn numbers(said: &BTreeMap<(String, bool), Vec<String>>) -> Vec<i64> {
    let lists = said.values().flatten();
    let numbers = lists.flat_map(|list| list.trim_matches(['[', ']']).split(", "));
    let mut numbers: Vec<i64> = numbers.map(|n| n.parse().expect("a number")).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn a_crash_at_every_commit_does_not_change_the_results() {
    play(3, |_| 1);
}

#[test]
fn other_numbers_of_workers_do_not_change_the_results() {
    play(2, |start| [1, 2, 3][start % 3]);
}

#[test]
fn removed_keys_are_removed_from_the_disk() {
    #[derive(Default, Serialize, Deserialize)]
    struct Twice(bool);
    impl Logic<u32, i64> for Twice {
        type Out = i64;
        fn on_item(&mut self, _: &u32, n: i64, cx: &mut KeyContext<'_, i64>) {
            if self.0 {
                cx.discard();
            }
            self.0 = true;
            cx.emit(n);
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let state = folder.path().join("state");
    let flow = Flow::new("twice");
    flow.saves::<Twice>();
    // Keys 0 to 299 occur twice, the others once.
    let numbers = (0..1000i64).chain(0..300);
    let marks = numbers.map(Mark::Item).collect();
    flow.source("in", script([marks]).batch_size(50))
        .key_by(|n| *n as u32)
        .stateful_with("twice", None, |_| Twice::default())
        .values()
        .sink("out", codec::encode(files::write(&out), codec::display));
    for workers in [1, 3] {
        let lockstep = Recovery::new(&state).epoch(Duration::ZERO).sync(false);
        match run(&flow, workers, lockstep.crash_after(15)) {
            Ok(()) | Err(FlowError::Crashed(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    run(&flow, 2, Recovery::new(&state)).expect("it runs");
    let saved = Saved::open(&state).expect("there is state");
    let keys = saved.keys("twice", |_| true).expect("it is sound");
    assert_eq!(keys.len(), 700);
}

#[test]
fn unsaved_and_unreadable_states_are_reported_with_step_and_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let state = folder.path().join("state");
    let make = |length: u64, announced: bool| {
        let flow = Flow::new("sums");
        if announced {
            flow.saves::<Event>();
        }
        let window = Window::tumbling(ns(length));
        let last = timed(&flow, "in", 3, 1)
            .window("last", window)
            .max_by_number();
        last.sink("out", codec::encode(files::write(&out), codec::display));
        flow
    };
    let recovery = || Recovery::new(&state).epoch(Duration::ZERO).sync(false);
    let told = |flow: Flow| match flow.run(Options {
        recovery: Some(recovery().crash_after(5)),
        // As bytes the items of an edge would be refused before the state.
        packets: Some(Packets::InMemory),
        ..Options::default()
    }) {
        Err(error) => format!("{error:?}"),
        Ok(_) => "it ran".to_owned(),
    };
    let unsaved = told(make(50, false));
    assert!(
        unsaved.contains("\"last\"") && unsaved.contains("flow.saves"),
        "{unsaved}"
    );
    assert!(told(make(50, true)).contains("a test ended the flow"));
    let changed = told(make(20, true));
    assert!(
        changed.contains("is a window (tumbling 20ns, reduce, event time) now")
            && changed.contains("of a window (tumbling 50ns, reduce, event time)"),
        "{changed}"
    );
}

trait MaxByNumber {
    fn max_by_number(&self) -> Stream<i64>;
}

impl MaxByNumber for millstream_flow::window::Windows<u32, Event> {
    fn max_by_number(&self) -> Stream<i64> {
        let latest = self.reduce(|a, b| if a.number > b.number { a } else { b });
        latest
            .results
            .values()
            .map(|result| result.value.value.number)
    }
}
