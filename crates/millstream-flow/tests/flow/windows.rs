//! Windows, compared with a plain model that processes the items one by one.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_flow::testing::{Collected, Mark, script};
use millstream_flow::window::{Outcome, Windowed, Windows};
use millstream_flow::{EventTime, Flow, Timed, Window};

use super::support::{Random, by_key, run};

type Item = (u32, i64, i64);
type Result = (i64, i64, bool, Vec<i64>);

const LATENESS: i64 = 15;

fn ns(time: i64) -> Duration {
    Duration::from_nanos(time as u64)
}

/// Items (key, time, number): mostly in order, some too late, with occasional leaps, starting in the far past.
fn items(seed: u64) -> Vec<Item> {
    let mut random = Random::new(seed);
    let mut now = -(1i64 << 60);
    (0..2500)
        .map(|number| {
            now += random.below(5);
            if random.below(300) == 0 {
                now += if random.below(2) == 0 { 400 } else { 1 << 57 };
            }
            (random.below(12) as u32, now - random.below(40), number)
        })
        .collect()
}

/// The watermark before each item.
fn watermarks(items: &[Item]) -> Vec<i64> {
    let mut watermark = i64::MIN;
    items
        .iter()
        .map(|(_, time, _)| {
            let before = watermark;
            watermark = watermark.max(time - LATENESS);
            before
        })
        .collect()
}

type Model = (BTreeMap<u32, Vec<Result>>, Vec<Item>);

/// Windows on a grid: an item is in each of its windows that is open, and late once for each that is not.
fn aligned(items: &[Item], length: i64, every: i64, offset: i64) -> Model {
    let mut windows: BTreeMap<(u32, i64), Vec<i64>> = BTreeMap::new();
    let mut late = Vec::new();
    for (item, watermark) in items.iter().zip(watermarks(items)) {
        let (key, time, number) = *item;
        let last = (time - offset).div_euclid(every) * every + offset;
        let starts: Vec<i64> = (0..)
            .map(|n| last - n * every)
            .take_while(|s| s + length > time)
            .collect();
        for start in starts {
            if start + length <= watermark {
                late.push(*item)
            } else {
                windows.entry((key, start)).or_default().push(number)
            }
        }
    }
    let mut out: BTreeMap<u32, Vec<Result>> = BTreeMap::new();
    for ((key, start), numbers) in windows {
        out.entry(key)
            .or_default()
            .push((start, start + length, false, numbers));
    }
    (out, late)
}

/// Sessions: the items that are not before the watermark, divided at the gaps.
fn sessions(items: &[Item], gap: i64) -> Model {
    let mut kept: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
    let mut late = Vec::new();
    for (item, watermark) in items.iter().zip(watermarks(items)) {
        if item.1 < watermark {
            late.push(*item)
        } else {
            kept.entry(item.0).or_default().push((item.1, item.2))
        }
    }
    let mut out = BTreeMap::new();
    for (key, mut times) in kept {
        times.sort_unstable();
        let cut = times.chunk_by(|a, b| b.0 - a.0 <= gap);
        let made: Vec<Result> = cut
            .map(|group| {
                let mut numbers: Vec<i64> = group.iter().map(|(_, number)| *number).collect();
                numbers.sort_unstable();
                (group[0].0, group[group.len() - 1].0 + gap, false, numbers)
            })
            .collect();
        out.insert(key, made);
    }
    (out, late)
}

/// The expected order of the items in a window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// The order of arrival.
    Arrival,
    /// By time, then by arrival.
    Time,
    /// Any order.
    Any,
}

/// Runs windows that collect, with different workers, batches and partitions; the outputs must be those of the
/// model. `before_end`: the distance from the last moment of a window to its end.
fn judge(window: Window, before_end: i64, model: impl Fn(&[Item]) -> Model, order: Order) {
    for seed in 0..2 {
        let items = items(seed);
        let mut due = model(&items);
        if order == Order::Time {
            let results = due.0.values_mut().flatten();
            results.for_each(|result| {
                result
                    .3
                    .sort_by_key(|number| (items[*number as usize].1, *number));
            });
        }
        for workers in [1, 3] {
            for batch in [1, 10, 100_000] {
                let flow = Flow::new("windows");
                let out = Collected::new();
                let late = Collected::new();
                flow.saves::<(u32, i64, i64)>();
                let marks = items.iter().copied().map(Mark::Item).collect();
                let outcome = windows(&flow, vec![marks], batch, window).numbers();
                outcome.results.items().sink("out", out.sink());
                outcome.late.values().sink("late", late.sink());
                let report = run(&flow, workers).unwrap();
                let place = format!("seed {seed}, {workers} workers, batches of {batch}");
                let seen: Vec<(u32, Timed<Windowed<Vec<i64>>>)> = out.take();
                let seen = seen.into_iter().map(|(key, result)| {
                    let Windowed {
                        start,
                        end,
                        early,
                        mut value,
                    } = result.value;
                    assert_eq!(result.time, end - before_end, "{place}");
                    if order == Order::Any {
                        value.sort_unstable();
                    }
                    (key, (start, end, early, value))
                });
                assert!(by_key(seen.collect()) == due.0, "{place}");
                let mut seen_late: Vec<Item> = late
                    .take()
                    .into_iter()
                    .map(|i: Timed<Item>| i.value)
                    .collect();
                seen_late.sort_by_key(|item| item.2);
                assert!(seen_late == due.1, "{place}");
                assert_eq!(report.step("windows").unwrap().late, due.1.len() as u64);
            }
        }
    }
}

fn windows(
    flow: &Flow,
    partitions: Vec<Vec<Mark<Item>>>,
    batch: usize,
    window: Window,
) -> Windows<u32, Item> {
    flow.source("in", script(partitions).batch_size(batch))
        .event_time(
            |item: &Item| item.1,
            EventTime::default().lateness(ns(LATENESS)),
        )
        .key_by(|item| item.0)
        .window("windows", window)
}

/// Collects the numbers of the items.
trait Numbers {
    fn numbers(&self) -> Outcome<u32, Item, Windowed<Vec<i64>>>;
}

impl Numbers for Windows<u32, Item> {
    fn numbers(&self) -> Outcome<u32, Item, Windowed<Vec<i64>>> {
        self.fold(
            Vec::new(),
            |all, item| all.push(item.2),
            |all, later| all.extend_from_slice(later),
        )
    }
}

#[test]
fn tumbling() {
    let window = Window::tumbling(ns(10));
    let offset = Window::tumbling(ns(64)).offset(ns(5));
    let model = |items: &[Item]| aligned(items, 10, 10, 0);
    let of_offset = |items: &[Item]| aligned(items, 64, 64, 5);
    judge(window, 1, model, Order::Arrival);
    judge(offset, 1, of_offset, Order::Arrival);
    judge(window.ordered(), 1, model, Order::Time);
    judge(offset.ordered(), 1, of_offset, Order::Time);
}

#[test]
fn sliding() {
    // Panes are merged in the order of time: not in that of the items.
    for (length, every, offset) in [(30, 10, 0), (25, 10, 3), (7, 6, 0), (12, 1, 0)] {
        let window = Window::sliding(ns(length), ns(every)).offset(ns(offset));
        let model = |items: &[Item]| aligned(items, length, every, offset);
        judge(window, 1, model, Order::Any);
        judge(window.ordered(), 1, model, Order::Time);
    }
}

#[test]
fn session() {
    for gap in [3, 20, 500] {
        let model = |items: &[Item]| sessions(items, gap);
        judge(Window::session(ns(gap)), 0, model, Order::Any);
        judge(Window::session(ns(gap)).ordered(), 0, model, Order::Time);
    }
}

/// Two items exactly one gap apart are in one session, whichever arrives first, with a watermark that has
/// reached the second.
#[test]
fn items_one_gap_apart_are_in_one_session() {
    for times in [[0, 10, 21], [10, 0, 21]] {
        let flow = Flow::new("gap");
        let out = Collected::new();
        flow.saves::<(u32, i64, i64)>();
        let marks = times.map(Mark::Item).to_vec();
        flow.source("in", script([marks]))
            .event_time(
                |time: &i64| *time,
                EventTime::default().lateness(ns(if times[0] == 0 { 0 } else { 10 })),
            )
            .key_by(|_| 0u8)
            .window("sessions", Window::session(ns(10)))
            .count()
            .results
            .values()
            .map(|r: Timed<Windowed<u64>>| (r.start, r.end, r.value.value))
            .sink("out", out.sink());
        run(&flow, 1).unwrap();
        assert_eq!(out.take(), [(0, 20, 2), (21, 31, 1)]);
    }
}

/// A session closes after its end: its result is not late for later windows.
#[test]
fn windows_of_sessions_lose_no_item() {
    for seed in 0..20 {
        let flow = Flow::new("twice");
        let out = Collected::new();
        flow.saves::<(u32, i64, i64)>();
        let items = items(seed);
        let sessions: usize = sessions(&items, 7).0.values().map(Vec::len).sum();
        let marks = items.into_iter().map(Mark::Item).collect();
        let counts = windows(&flow, vec![marks], 1, Window::session(ns(7))).count();
        let outer = counts
            .results
            .map(|count| count.map(|count| count.value))
            .window("outer", Window::tumbling(ns(5)))
            .count();
        outer.results.values().sink("out", out.sink());
        let report = run(&flow, 1).unwrap();
        let held: Vec<Timed<Windowed<u64>>> = out.take();
        let held: u64 = held.iter().map(|r| r.value.value).sum();
        assert_eq!(held as usize, sessions, "seed {seed}");
        assert_eq!(report.step("outer").unwrap().late, 0, "seed {seed}");
    }
}

#[test]
fn counted() {
    for workers in 1..=3 {
        let flow = Flow::new("counted");
        let out = Collected::new();
        flow.saves::<(u32, i64, i64)>();
        let marks = items(1).into_iter().map(Mark::Item).collect();
        let windows = windows(&flow, vec![marks], 7, Window::count(10).early(4));
        windows.numbers().results.items().sink("out", out.sink());
        run(&flow, workers).unwrap();
        let mut due: BTreeMap<u32, Vec<Vec<i64>>> = BTreeMap::new();
        for (key, numbers) in by_key(items(1).into_iter().map(|i| (i.0, i.2)).collect()) {
            let out = due.entry(key).or_default();
            for group in numbers.chunks(10) {
                out.extend(
                    [4, 8]
                        .iter()
                        .filter(|n| group.len() >= **n)
                        .map(|n| group[..*n].to_vec()),
                );
                out.push(group.to_vec());
            }
        }
        let seen: Vec<(u32, Timed<Windowed<Vec<i64>>>)> = out.take();
        let seen = seen.into_iter().map(|(key, result)| {
            assert_eq!(
                result.value.early,
                [4, 8].contains(&result.value.value.len()) && result.early
            );
            (key, result.value.value)
        });
        assert_eq!(by_key(seen.collect()), due, "{workers} workers");
    }
}

/// Several partitions that are read at different speeds: the contents of windows and the late items are the
/// same.
#[test]
fn the_contents_of_a_window_do_not_depend_on_speed() {
    let parts: Vec<Vec<Item>> = (0..3)
        .map(|part| {
            items(part)
                .into_iter()
                .map(|(key, time, n)| (key, time % 5000, n * 3 + part as i64))
                .collect()
        })
        .collect();
    for window in [
        Window::tumbling(ns(40)),
        Window::sliding(ns(40), ns(10)),
        Window::session(ns(9)),
        Window::sliding(ns(40), ns(10)).ordered(),
    ] {
        let mut first = None;
        for workers in 1..=3 {
            for slow in 0..3 {
                let marks = parts.iter().enumerate().map(|(part, items)| {
                    let mut marks: Vec<_> = items.iter().copied().map(Mark::Item).collect();
                    if part == slow {
                        marks.insert(40, Mark::Pause(Duration::from_millis(10)));
                    }
                    marks
                });
                let flow = Flow::new("speed");
                let out = Collected::new();
                let late = Collected::new();
                flow.saves::<(u32, i64, i64)>();
                let outcome = windows(&flow, marks.collect(), 20 * (slow + 1), window).numbers();
                outcome.results.items().sink("out", out.sink());
                outcome.late.values().sink("late", late.sink());
                run(&flow, workers).unwrap();
                let mut seen: Vec<(u32, i64, i64, Vec<i64>)> = out
                    .take()
                    .into_iter()
                    .map(|(key, mut r): (u32, Timed<Windowed<Vec<i64>>>)| {
                        r.value.value.sort_unstable();
                        (key, r.value.start, r.value.end, r.value.value)
                    })
                    .collect();
                seen.sort();
                let mut late: Vec<Item> = late
                    .take()
                    .into_iter()
                    .map(|i: Timed<Item>| i.value)
                    .collect();
                late.sort();
                assert!(!seen.is_empty() && !late.is_empty());
                let first = first.get_or_insert_with(|| (seen.clone(), late.clone()));
                assert!(
                    *first == (seen, late),
                    "{window:?}, {workers} workers, slow {slow}"
                );
            }
        }
    }
}

#[test]
fn aggregates_and_early_results() {
    let flow = Flow::new("aggregates");
    let out = Collected::<String>::new();
    flow.saves::<(u32, i64, i64)>();
    let marks = [(0, 4), (1, 1), (2, 9), (3, 2), (11, 5)]
        .map(Mark::Item)
        .to_vec();
    let timed = flow
        .source("in", script([marks]))
        .event_time(|item: &(i64, i32)| item.0, EventTime::default());
    let keyed = timed.key_by(|_| 0u8).map(|item| item.map(|(_, n)| n));
    let of = |name: &str| keyed.window(name, Window::tumbling(ns(10)).early(3));
    fn tell<R: std::fmt::Debug + Clone + Send + 'static>(
        name: &'static str,
        outcome: &Outcome<u8, i32, Windowed<R>>,
        out: &Collected<String>,
    ) {
        let show = move |r: Timed<Windowed<R>>| {
            let early = if r.early { "early " } else { "" };
            format!("{name} {early}{}..{} {:?}", r.start, r.end, r.value.value)
        };
        outcome.results.values().map(show).sink(name, out.sink());
    }
    tell("1 sum", &of("sum").sum(), &out);
    tell("2 min", &of("min").min(), &out);
    tell("3 max", &of("max").max(), &out);
    tell("4 mean", &of("mean").mean(), &out);
    tell("5 count", &of("count").count(), &out);
    tell("6 list", &of("list").collect(), &out);
    run(&flow, 1).unwrap();
    let mut seen = out.take();
    seen.sort_by_key(|line| line[..1].to_owned());
    assert_eq!(
        seen,
        [
            "1 sum early 0..10 14",
            "1 sum 0..10 16",
            "1 sum 10..20 5",
            "2 min early 0..10 1",
            "2 min 0..10 1",
            "2 min 10..20 5",
            "3 max early 0..10 9",
            "3 max 0..10 9",
            "3 max 10..20 5",
            "4 mean early 0..10 4.666666666666667",
            "4 mean 0..10 4.0",
            "4 mean 10..20 5.0",
            "5 count early 0..10 3",
            "5 count 0..10 4",
            "5 count 10..20 1",
            "6 list early 0..10 [4, 1, 9]",
            "6 list 0..10 [4, 1, 9, 2]",
            "6 list 10..20 [5]",
        ]
    );
}

#[test]
fn windows_of_windows() {
    // The highest count of a minute in each hour.
    let minute = 60;
    let times: Vec<i64> = (0..7200)
        .filter(|t| (t / minute) % 7 != 0 || t % 5 == 0)
        .collect();
    for workers in 1..=3 {
        let flow = Flow::new("twice");
        let out = Collected::new();
        flow.saves::<(u32, i64, i64)>();
        let marks = times.iter().copied().map(Mark::Item).collect();
        flow.source("in", script([marks]).batch_size(1000))
            .event_time(|time: &i64| *time, EventTime::default())
            .key_by(|_| 0u8)
            .window("minutes", Window::tumbling(ns(minute)))
            .count()
            .results
            .map(|count| count.map(|count| count.value))
            .window("hours", Window::tumbling(ns(60 * minute)))
            .min()
            .results
            .values()
            .map(|r: Timed<Windowed<u64>>| (r.start, r.value.value))
            .sink("out", out.sink());
        run(&flow, workers).unwrap();
        assert_eq!(out.take(), [(0, 12), (3600, 12)]);
    }
}

#[test]
fn an_invalid_window_is_an_error() {
    for (window, words) in [
        (
            Window::tumbling(ns(0)),
            "the length of a window must be above 0",
        ),
        (
            Window::sliding(ns(5), ns(6)),
            "sliding windows must start at least once in each length",
        ),
        (
            Window::session(ns(0)),
            "the gap of a session must be above 0",
        ),
        (
            Window::count(0),
            "a window by number must have 1 item or more",
        ),
    ] {
        let flow = Flow::new("wrong");
        flow.saves::<(u32, i64, i64)>();
        let results = windows(&flow, vec![vec![]], 1, window).count().results;
        results.values().sink("out", Collected::new().sink());
        assert_eq!(
            format!("{:?}", flow.check().unwrap_err()),
            format!("flow \"wrong\": {words}")
        );
    }
    let flow = Flow::new("nameless");
    flow.saves::<(u32, i64, i64)>();
    let keyed = flow.source("in", script([vec![Mark::Item((0u32, 0i64, 0i64))]]));
    let timed = keyed
        .event_time(|i: &Item| i.1, EventTime::default())
        .key_by(|i| i.0);
    let results = timed.window("", Window::count(1)).count().results;
    results.values().sink("out", Collected::new().sink());
    assert!(
        format!("{:?}", flow.check().unwrap_err())
            .contains("a window step keeps state and needs a name")
    );
}
