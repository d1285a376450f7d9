//! 300,000 keys that are created and removed: memory is that of the present keys.

use std::time::Duration;

use millstream_flow::{
    EventTime, Flow, KeyContext, Logic, Options, Stream, Timed, Timer, Window, generator,
};

use crate::support::finish;

const KEYS: u64 = 300_000;
/// Each wave has other keys, and begins this much later.
const WAVE_NS: i64 = 1_000_000_000;

/// Removes itself when its timer fires.
struct Brief([u8; 64]);

impl Logic<u64, u64> for Brief {
    type Out = u64;
    fn on_item(&mut self, _: &u64, n: u64, cx: &mut KeyContext<'_, u64>) {
        self.0[0] = n as u8;
        cx.set_timer(Timer::Event(cx.time() + WAVE_NS / 4));
    }
    fn on_timer(&mut self, _: &u64, _: Timer, cx: &mut KeyContext<'_, u64>) {
        cx.discard();
    }
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
    let resident = pages.split(' ').nth(1).expect("it has a second number");
    resident.parse::<u64>().expect("a number") * 4096
}

/// Waves of keys, each of which ends before the next begins; returns the resident bytes after each.
fn waves(waves: u64, step: fn(&Stream<Timed<u64>>)) -> Vec<u64> {
    let flow = Flow::new("waves");
    let source = generator::from_fn(move |n| (n < waves * KEYS).then_some(n));
    let (tell, told) = std::sync::mpsc::channel();
    let numbers = flow
        .source("numbers", source.batch_size(1024))
        .inspect(move |n| {
            if *n % KEYS == KEYS - 1 {
                tell.send(resident_bytes()).expect("the test listens");
            }
        });
    let time = |n: &u64| (n / KEYS) as i64 * WAVE_NS + (n % KEYS) as i64 / 10;
    step(&numbers.event_time(time, EventTime::default()));
    finish(flow.start(Options::default()).expect("it starts")).expect("it runs");
    told.try_iter().collect()
}

fn assert_bounded(what: &str, resident: &[u64]) {
    let first = resident[0];
    let last = resident[resident.len() - 1];
    // Keys of two waves at once would be about twice the first.
    assert!(last < first + first / 2, "{what}: {resident:?}");
}

fn swallow<T: Clone + Send + 'static>(stream: &Stream<T>) {
    let none: Stream<u8> = stream.filter_map(|_| None);
    none.sink("out", millstream_flow::testing::Collected::new().sink());
}

#[test]
fn memory_of_removed_keys_with_timers_is_released() {
    let resident = waves(5, |numbers| {
        let keyed = numbers.key_by(|n| n.value);
        let logic = keyed.stateful_with("brief", None, |_| Brief([0; 64]));
        swallow(&logic.items());
    });
    assert_bounded("timers", &resident);
}

#[test]
fn memory_of_keys_that_live_for_a_time_is_released() {
    struct Silent([u8; 64]);
    impl Logic<u64, u64> for Silent {
        type Out = u64;
        fn on_item(&mut self, _: &u64, n: u64, _: &mut KeyContext<'_, u64>) {
            self.0[0] = n as u8;
        }
    }
    let resident = waves(5, |numbers| {
        let life = Some(Duration::from_nanos(WAVE_NS as u64 / 4));
        let keyed = numbers.key_by(|n| n.value);
        swallow(
            &keyed
                .stateful_with("silent", life, |_| Silent([0; 64]))
                .items(),
        );
    });
    assert_bounded("time to live", &resident);
}

#[test]
fn memory_of_keys_with_windows_is_released() {
    let resident = waves(5, |numbers| {
        let window = Window::tumbling(Duration::from_nanos(WAVE_NS as u64));
        let counts = numbers.key_by(|n| n.value).window("counts", window).count();
        swallow(&counts.results.items());
    });
    assert_bounded("windows", &resident);
}
