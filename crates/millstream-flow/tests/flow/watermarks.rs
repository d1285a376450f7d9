//! The watermark of several partitions, of merged streams, and of idle ones.

use std::sync::Arc;
use std::time::Duration;

use millstream_flow::testing::{Collected, Mark, VirtualClock, items, script};
use millstream_flow::{EventTime, Flow, KeyContext, KeyedStream, Logic, Options, Timed, Timer};

use super::support::{failure, finish, run};

/// Emits the watermark with each item, and when it passes 50.
struct Tell;

impl Logic<u32, i64> for Tell {
    type Out = String;
    fn on_item(&mut self, _: &u32, time: i64, cx: &mut KeyContext<'_, String>) {
        cx.emit(format!("{time}"));
        cx.set_timer(Timer::Event(50));
    }
    fn on_timer(&mut self, _: &u32, _: Timer, cx: &mut KeyContext<'_, String>) {
        cx.emit("passed".to_owned());
    }
}

fn tell(keyed: &KeyedStream<u32, Timed<i64>>, out: &Collected<String>) {
    keyed
        .stateful_with("tell", None, |_| Tell)
        .values()
        .map(|said: Timed<String>| said.value)
        .sink("out", out.sink());
}

fn timed(
    flow: &Flow,
    name: &str,
    marks: Vec<Vec<Mark<i64>>>,
    how: EventTime,
) -> KeyedStream<u32, Timed<i64>> {
    flow.source(name, script(marks).batch_size(1))
        .event_time(|time: &i64| *time, how)
        .key_by(|_| 7u32)
}

#[test]
fn the_slowest_partition_decides() {
    for workers in 1..=3 {
        let flow = Flow::new("slowest");
        let out = Collected::new();
        let fast = [10, 90, 91].map(Mark::Item).to_vec();
        let mut slow = vec![Mark::Item(11), Mark::Pause(Duration::from_millis(30))];
        slow.extend([12, 40].map(Mark::Item));
        let keyed = timed(&flow, "in", vec![fast, slow], EventTime::default());
        tell(&keyed, &out);
        run(&flow, workers).unwrap();
        let said = out.take();
        let at = |what: &str| said.iter().position(|said| said == what).unwrap();
        assert!(at("passed") > at("40"), "{workers} workers: {said:?}");
        // They have come before it, and wait for the timer that is due before them.
        assert!(at("90") > at("passed"), "{workers} workers: {said:?}");
        assert!(at("91") > at("90"), "{workers} workers: {said:?}");
    }
}

#[test]
fn merged_streams_wait_for_each_other() {
    for workers in 1..=3 {
        let flow = Flow::new("merged");
        let out = Collected::new();
        let slow = vec![
            Mark::Pause(Duration::from_millis(30)),
            Mark::Item(12),
            Mark::Item(49),
        ];
        let fast = vec![[10, 90].map(Mark::Item).to_vec()];
        let one = timed(&flow, "one", fast, EventTime::default());
        let two = timed(&flow, "two", vec![slow], EventTime::default());
        tell(&one.merge(&[two]), &out);
        run(&flow, workers).unwrap();
        assert_eq!(
            out.take(),
            ["10", "12", "49", "passed", "90", "passed"],
            "{workers} workers"
        );
    }
}

#[test]
fn an_idle_partition_does_not_hold_back_others() {
    for workers in 1..=3 {
        let clock = VirtualClock::starting_at(0);
        let flow = Flow::new("idle");
        let out = Collected::new();
        // The clock advances until the worker of the other partition has read it twice.
        let mut busy = vec![Mark::Item(10), Mark::Item(60)];
        for n in 0..5 {
            busy.push(Mark::Pause(Duration::from_millis(40)));
            busy.push(Mark::Advance(clock.clone(), Duration::from_secs(5)));
            busy.push(Mark::Item(61 + n));
        }
        let idle = vec![
            Mark::Item(11),
            Mark::Pause(Duration::from_millis(500)),
            Mark::Item(12),
        ];
        let how = EventTime::default().idle(Duration::from_secs(4));
        tell(&timed(&flow, "in", vec![busy, idle], how), &out);
        let options = Options {
            clock: Some(Arc::new(clock)),
            ..Options::workers(workers)
        };
        finish(flow.start(options).unwrap()).unwrap();
        let said = out.take();
        let at = |what: &str| said.iter().position(|said| said == what).unwrap();
        assert!(at("passed") < at("60"), "{workers} workers: {said:?}");
        assert!(at("passed") < at("12"), "{workers} workers: {said:?}");
    }
}

#[test]
fn processing_time_advances_without_items() {
    let flow = Flow::new("processing");
    let out = Collected::new();
    let marks = vec![Mark::Item(1), Mark::Pause(Duration::from_millis(50))];
    flow.source("in", script([marks]))
        .processing_time()
        .key_by(|_| 7u32)
        .stateful_with("soon", None, |_| Soon)
        .values()
        .sink("out", out.sink());
    run(&flow, 2).unwrap();
    let out: Vec<Timed<i64>> = out.take();
    assert_eq!(out.len(), 1, "{out:?}");
}

/// Fires a moment after each item, in the time of the stream.
struct Soon;

impl Logic<u32, i64> for Soon {
    type Out = i64;
    fn on_item(&mut self, _: &u32, _: i64, cx: &mut KeyContext<'_, i64>) {
        cx.set_timer(Timer::Event(cx.time() + 1));
    }
    fn on_timer(&mut self, _: &u32, timer: Timer, cx: &mut KeyContext<'_, i64>) {
        let Timer::Event(at) = timer else {
            panic!("{timer:?}")
        };
        cx.emit(at);
    }
}

#[test]
fn times_are_assigned_before_partitions_are_merged() {
    let flow = Flow::new("behind");
    let numbers = flow
        .source("in", items(0..10i64))
        .redistribute()
        .named("dealt");
    numbers
        .event_time(|n| *n, EventTime::default())
        .sink("out", Collected::new().sink());
    assert_eq!(
        failure_at_start(&flow),
        "flow \"behind\": event_time is applied after \"dealt\"; move it before that step, where each partition \
         has its own watermark"
    );
}

fn failure_at_start(flow: &Flow) -> String {
    match flow.run(Options::default()) {
        Ok(_) => panic!("it ran"),
        Err(error) => format!("{error:?}"),
    }
}

#[test]
fn a_timer_that_would_fire_for_ever_is_an_error() {
    struct Again;
    impl Logic<u32, i64> for Again {
        type Out = i64;
        fn on_item(&mut self, _: &u32, _: i64, cx: &mut KeyContext<'_, i64>) {
            cx.set_timer(Timer::Event(3));
        }
        fn on_timer(&mut self, _: &u32, timer: Timer, cx: &mut KeyContext<'_, i64>) {
            cx.set_timer(timer);
        }
    }
    let flow = Flow::new("again");
    let marks = vec![(0..10).map(Mark::Item).collect()];
    timed(&flow, "in", marks, EventTime::default())
        .stateful_with("again", None, |_| Again)
        .values()
        .sink("out", Collected::new().sink());
    assert_eq!(
        failure(&flow, 2),
        "step \"again\", key 7: a timer that is set in on_timer must be later than the one that fires"
    );
}
