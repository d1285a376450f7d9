//! Windows with a watermark for each key, windows and clocks of the user, joins within windows: compared with a
//! plain model that processes the items one by one.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_flow::assign::EventClock;
use millstream_flow::join::{JoinKind, Side};
use millstream_flow::testing::{Collected, Mark, VirtualClock, script};
use millstream_flow::window::{Windowed, Windower};
use millstream_flow::{EventTime, Flow, KeyedStream, Options, Timed, Window};

use super::support::{Random, finish, run};

/// Key, time, number.
type Item = (u32, i64, i64);
/// Key, start and end of a window, the numbers of its items.
type Held = Vec<(u32, i64, i64, Vec<i64>)>;

const LATENESS: i64 = 10;

fn ns(time: i64) -> Duration {
    Duration::from_nanos(time as u64)
}

/// Keys with different delays: the items of some are always late relative to others.
fn items(seed: u64) -> Vec<Item> {
    let mut random = Random::new(seed);
    let mut now = 0;
    (0..1500)
        .map(|number| {
            now += random.below(5);
            let key = random.below(8);
            (key as u32, now - key * 15 - random.below(30), number)
        })
        .collect()
}

fn timed(flow: &Flow, name: &str, items: &[Item], batch: usize) -> KeyedStream<u32, Timed<Item>> {
    let marks = items.iter().copied().map(Mark::Item).collect();
    timed_marks(flow, name, marks, batch)
}

fn timed_marks(
    flow: &Flow,
    name: &str,
    marks: Vec<Mark<Item>>,
    batch: usize,
) -> KeyedStream<u32, Timed<Item>> {
    flow.source(name, script([marks]).batch_size(batch))
        .event_time(
            |item: &Item| item.1,
            EventTime::default().lateness(ns(LATENESS)),
        )
        .key_by(|item| item.0)
}

/// The watermark just before each item: of the partition, or of the key.
fn limits(items: &[Item], per_key: Option<(i64, Option<i64>)>) -> Vec<i64> {
    let mut shared = i64::MIN;
    let mut own = BTreeMap::new();
    let limits = items.iter().map(|(key, time, _)| {
        let before = shared;
        shared = shared.max(time - LATENESS);
        let Some((lateness, patience)) = per_key else {
            return before;
        };
        let own = own.entry(*key).or_insert(i64::MIN);
        if let Some(patience) = patience {
            *own = (*own).max(before.saturating_sub(patience));
        }
        let limit = *own;
        *own = limit.max(time - lateness);
        limit
    });
    limits.collect()
}

/// The windows that contain a moment.
type Choose = fn(i64) -> Vec<(i64, i64)>;

fn model(items: &[Item], limits: &[i64], choose: Choose) -> (Held, Vec<i64>) {
    let (mut held, mut late) = (BTreeMap::<_, Vec<i64>>::new(), Vec::new());
    for ((key, time, number), limit) in items.iter().zip(limits) {
        for (start, end) in choose(*time) {
            if end <= *limit {
                late.push(*number)
            } else {
                held.entry((*key, start, end)).or_default().push(*number)
            }
        }
    }
    let held = held
        .into_iter()
        .map(|((k, start, end), numbers)| (k, start, end, numbers));
    (held.collect(), late)
}

fn tens(time: i64) -> Vec<(i64, i64)> {
    let start = time.div_euclid(10) * 10;
    vec![(start, start + 10)]
}

fn thirties(time: i64) -> Vec<(i64, i64)> {
    let last = time.div_euclid(10) * 10;
    [last - 20, last - 10, last]
        .map(|start| (start, start + 30))
        .to_vec()
}

/// Days of uneven lengths that overlap by two, and a pause that is in none.
fn days(time: i64) -> Vec<(i64, i64)> {
    let week = time.div_euclid(50) * 50;
    let all = [(0, 12), (10, 30), (28, 45)].map(|(start, end)| (week + start, week + end));
    all.into_iter()
        .filter(|(start, end)| (*start..*end).contains(&time))
        .collect()
}

struct Chosen(Choose);

impl Windower for Chosen {
    fn windows(&self, time: i64) -> Vec<(i64, i64)> {
        (self.0)(time)
    }
}

type Windows = millstream_flow::window::Windows<u32, Item>;

/// The contents of windows of one name, and the late items.
fn played(
    seed: u64,
    windows: impl Fn(&KeyedStream<u32, Timed<Item>>) -> Windows,
) -> (Held, Vec<i64>) {
    let mut random = Random::new(seed + 1000);
    let batch = 1 + random.below(40) as usize;
    let workers = 1 + random.below(3) as usize;
    let flow = Flow::new("choices");
    let out = Collected::new();
    let late = Collected::new();
    flow.saves::<(u32, i64, i64)>();
    let outcome = windows(&timed(&flow, "in", &items(seed), batch)).fold(
        Vec::new(),
        |all, item: Item| all.push(item.2),
        |all, later| all.extend_from_slice(later),
    );
    outcome.results.items().sink("out", out.sink());
    outcome.late.values().sink("late", late.sink());
    run(&flow, workers).unwrap();
    let results: Vec<(u32, Timed<Windowed<Vec<i64>>>)> = out.take();
    let results = results.into_iter().map(|(key, result)| {
        let Windowed {
            start,
            end,
            mut value,
            ..
        } = result.value;
        value.sort_unstable();
        (key, start, end, value)
    });
    let mut held: Held = results.collect();
    held.sort();
    let late: Vec<Timed<Item>> = late.take();
    let mut late: Vec<i64> = late.into_iter().map(|item| item.2).collect();
    late.sort_unstable();
    (held, late)
}

#[test]
fn an_item_is_late_only_if_its_key_has_seen_later_ones() {
    for seed in 0..6 {
        let items = items(seed);
        for (lateness, patience) in [(0, None), (12, None), (0, Some(0)), (5, Some(60))] {
            let limits = limits(&items, Some((lateness, patience)));
            for (window, choose) in [
                (Window::tumbling(ns(10)), tens as Choose),
                (Window::sliding(ns(30), ns(10)), thirties),
            ] {
                let window = window.per_key(ns(lateness), patience.map(ns));
                let seen = played(seed, |keyed| keyed.window("windows", window));
                let due = model(&items, &limits, choose);
                assert!(seen == due, "seed {seed}, {lateness}, {patience:?}");
            }
        }
    }
}

#[test]
fn a_silent_key_has_its_windows_closed_when_patience_has_run_out() {
    // Key 1 is silent after its item at 3. The shared watermark is 10 before key 0: it is 30 at the last item.
    let marks = [(1, 3, 0), (0, 29, 1), (0, 40, 2), (0, 41, 3)];
    for (patience, first) in [(None, (0, 20)), (Some(9), (1, 0))] {
        let flow = Flow::new("silent");
        let out = Collected::new();
        flow.saves::<(u32, i64, i64)>();
        let window = Window::tumbling(ns(10)).per_key(ns(5), patience.map(ns));
        let mut marks = marks.map(Mark::Item).to_vec();
        // During a pause the watermark reaches all keys.
        marks.insert(2, Mark::Pause(Duration::from_millis(20)));
        let counts = timed_marks(&flow, "in", marks, 1)
            .window("tens", window)
            .count();
        counts
            .results
            .items()
            .map(|(key, result)| (key, result.value.start))
            .sink("out", out.sink());
        run(&flow, 1).unwrap();
        let mut seen: Vec<(u32, i64)> = out.take();
        assert_eq!(seen[0], first);
        seen.sort_unstable();
        assert_eq!(seen, [(0, 20), (0, 40), (1, 0)]);
    }
}

#[test]
fn windows_of_the_user_contain_the_chosen_items() {
    for seed in 0..6 {
        let items = items(seed);
        for choose in [tens as Choose, thirties, days] {
            let shared = limits(&items, None);
            let seen = played(seed, |keyed| keyed.window_by("windows", Chosen(choose)));
            assert!(seen == model(&items, &shared, choose), "seed {seed}");
            let own = limits(&items, Some((7, Some(40))));
            let seen = played(seed, |keyed| {
                let windows = keyed.window_by("windows", Chosen(choose));
                windows.with(|window| window.per_key(ns(7), Some(ns(40))).ordered())
            });
            assert!(seen == model(&items, &own, choose), "seed {seed}");
        }
    }
}

#[test]
fn a_window_that_does_not_contain_its_item_ends_the_flow() {
    let flow = Flow::new("wrong");
    flow.saves::<(u32, i64, i64)>();
    let windows = timed(&flow, "in", &[(0, 5, 0)], 1).window_by("mine", Chosen(|_| vec![(6, 9)]));
    windows
        .count()
        .results
        .items()
        .sink("out", Collected::new().sink());
    let failed = format!("{:?}", run(&flow, 1).expect_err("it fails"));
    assert!(failed.contains("\"mine\""), "{failed}");
    assert!(
        failed.contains("the window 6..9 does not contain its item, at 5"),
        "{failed}"
    );
}

/// Pairs by a loop over both sides of each window.
fn pairs(left: &Held, right: &Held, how: JoinKind) -> Vec<(u32, i64, Option<i64>, Option<i64>)> {
    let mut windows: BTreeMap<(u32, i64), [Vec<i64>; 2]> = BTreeMap::new();
    for (side, held) in [left, right].into_iter().enumerate() {
        for (key, start, _, numbers) in held {
            windows.entry((*key, *start)).or_default()[side].clone_from(numbers);
        }
    }
    let mut out = Vec::new();
    for ((key, start), [left, right]) in windows {
        for l in &left {
            for r in &right {
                out.push((key, start, Some(*l), Some(*r)));
            }
            if right.is_empty() && how != JoinKind::Inner {
                out.push((key, start, Some(*l), None));
            }
        }
        if left.is_empty() && how == JoinKind::Full {
            out.extend(right.iter().map(|r| (key, start, None, Some(*r))));
        }
    }
    out.sort();
    out
}

#[test]
fn a_join_within_windows_pairs_the_items_of_one_window() {
    for seed in 0..6 {
        let lefts = items(seed);
        let rights = items(seed + 50);
        for (window, choose) in [
            (Window::tumbling(ns(10)), tens as Choose),
            (Window::sliding(ns(30), ns(10)), thirties),
        ] {
            let held = |items: &[Item]| model(items, &limits(items, None), choose);
            let left = held(&lefts);
            let right = held(&rights);
            for how in [JoinKind::Inner, JoinKind::Left, JoinKind::Full] {
                let flow = Flow::new("join");
                let out = Collected::new();
                let late = Collected::new();
                flow.saves::<(u32, i64, i64)>();
                let outcome = timed(&flow, "left", &lefts, 20).join_windows(
                    "pairs",
                    &timed(&flow, "right", &rights, 7),
                    window,
                    how,
                );
                outcome.results.items().sink("out", out.sink());
                outcome.late.values().sink("late", late.sink());
                run(&flow, 1 + seed as usize % 3).unwrap();
                type Paired = Timed<Windowed<(Option<Item>, Option<Item>)>>;
                let seen: Vec<(u32, Paired)> = out.take();
                let seen = seen.into_iter().map(|(key, pair)| {
                    let (left, right) = pair.value.value;
                    let number = |item: Option<Item>| item.map(|item| item.2);
                    (key, pair.value.start, number(left), number(right))
                });
                let mut seen: Vec<_> = seen.collect();
                seen.sort();
                assert!(seen == pairs(&left.0, &right.0, how), "seed {seed}");
                let late: Vec<Timed<Side<Item, Item>>> = late.take();
                assert_eq!(late.len(), left.1.len() + right.1.len(), "seed {seed}");
            }
        }
    }
}

/// The clock advances with the items by half a step, and with processing time when there are none.
struct Halved {
    reached: i64,
}

impl EventClock<Item> for Halved {
    fn on_item(&mut self, item: &Item, _: i64) -> (i64, i64) {
        self.reached = self.reached.max(item.1 / 2);
        (item.1, self.reached)
    }
    fn on_pause(&mut self, now: i64) -> Option<i64> {
        (now > 0).then_some(now)
    }
}

#[test]
fn a_clock_of_the_user_defines_late_items_and_advances_without_items() {
    let clock = VirtualClock::starting_at(0);
    let marks = [(0, 10, 0), (0, 4, 1), (0, 30, 2), (0, 9, 3)].map(Mark::Item);
    let mut marks = marks.to_vec();
    marks.push(Mark::Advance(clock.clone(), ns(25)));
    marks.push(Mark::Pause(Duration::from_millis(50)));
    marks.push(Mark::Item((0, 21, 4)));
    let flow = Flow::new("clock");
    let out = Collected::new();
    let late = Collected::new();
    flow.saves::<(u32, i64, i64)>();
    let counts = flow
        .source("in", script([marks]).batch_size(1))
        .event_clock(|partition| {
            assert!(!partition.is_empty());
            Halved { reached: i64::MIN }
        })
        .key_by(|item| item.0)
        .window("tens", Window::tumbling(ns(10)))
        .count();
    let shown = |r: Timed<Windowed<u64>>| (r.start, r.value.value);
    counts.results.values().map(shown).sink("out", out.sink());
    counts
        .late
        .values()
        .map(|item| item.2)
        .sink("late", late.sink());
    let options = Options {
        clock: Some(std::sync::Arc::new(clock)),
        ..Options::default()
    };
    finish(flow.start(options).expect("it starts")).unwrap();
    // 9 is late after 30 (15); 21 is not, because its window ends at 30.
    assert_eq!(late.take(), [3]);
    assert_eq!(out.take(), [(0, 1), (10, 1), (20, 1), (30, 1)]);
}
