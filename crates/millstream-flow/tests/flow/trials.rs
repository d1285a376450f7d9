//! Trials and rehearsals: no external system is used, and a crash that changes the results is found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_flow::testing::{self, Collected, Mark, Trial, VirtualClock};
use millstream_flow::{Emit, Flow, FlowError, OnError, Options, Rehearsal, codec, files, tcp};
use serde::{Deserialize, Serialize};

/// The state of a word.
#[derive(Default, Serialize, Deserialize)]
struct Seen {
    times: u64,
    #[serde(skip)]
    forgotten: u64,
}

fn words() -> Vec<String> {
    (0..24u32).map(|i| format!("w{}", i * i % 7)).collect()
}

/// A flow whose sources and sinks cannot be opened; `show` makes an output from the state of a word.
fn seen(show: impl Fn(&mut Seen) -> u64 + Send + Sync + 'static) -> Flow {
    let flow = Flow::new("seen");
    flow.saves::<Seen>();
    let lines = codec::decode(tcp::connect("127.0.0.1:1"), codec::text);
    flow.source("words", lines)
        .key_by(|word: &String| word.clone())
        .stateful(
            "see",
            |_| Seen::default(),
            move |seen, _, _| Some(show(seen)),
        )
        .items()
        .map(|(word, times)| format!("{word} {times}"))
        .sink(
            "out",
            codec::encode(files::write("/dev/null/folder"), codec::display),
        );
    flow
}

fn trial(flow: &Flow) -> Trial<'_> {
    Trial::new(flow).input("words", testing::items(words()).batch_size(3))
}

fn count(seen: &mut Seen) -> u64 {
    seen.times += 1;
    seen.times
}

#[test]
fn a_crash_does_not_change_the_saved_state() {
    let flow = seen(count);
    for workers in [1, 2] {
        let crashes = trial(&flow).workers(workers).crash_everywhere();
        assert!(crashes.expect("nothing differs") >= 3 * 8);
    }
}

#[test]
fn a_state_that_is_not_fully_saved_is_found() {
    let flow = seen(|seen| {
        seen.forgotten += 1;
        seen.forgotten
    });
    let error = trial(&flow).crash_everywhere().expect_err("it forgets");
    assert!(matches!(error, FlowError::Differs { .. }), "{error}");
    let said = format!("{error:?}");
    let what = "changes the results: output \"out\": item";
    assert!(
        said.starts_with("a crash before commit") && said.contains(what),
        "{said}"
    );
}

#[test]
fn state_shared_with_the_program_is_found() {
    let total = Arc::new(AtomicU64::new(0));
    let flow = seen(move |_| total.fetch_add(1, Ordering::SeqCst));
    let error = trial(&flow).crash_everywhere().expect_err("it counts on");
    assert!(format!("{error:?}").contains("before commit"), "{error}");
}

#[test]
fn a_state_that_differs_is_found_when_the_output_does_not() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let flow = seen(|seen| {
        // It is different each time, as an address or a time would be.
        seen.times = RUNS.fetch_add(1, Ordering::SeqCst);
        0
    });
    let said = format!(
        "{:?}",
        trial(&flow).crash_everywhere().expect_err("it differs")
    );
    assert!(
        said.contains("state of step \"see\", key \"w0\": it is {\"times\":"),
        "{said}"
    );
}

#[test]
fn outputs_of_a_declared_type_are_compared() {
    let flow = Flow::new("typed");
    let numbers = flow.source("numbers", testing::items(1..4u32));
    numbers.sink("typed", Collected::new().sink());
    let dead = OnError::dead_letter(codec::encode(tcp::send_to("127.0.0.1:1"), codec::display));
    numbers
        .try_map("pick", dead, |n: &u32| {
            if n.is_multiple_of(2) {
                Err("even")
            } else {
                Ok(*n)
            }
        })
        .sink(
            "odd",
            codec::encode(tcp::send_to("127.0.0.1:1"), codec::display),
        );
    let mut outputs = Trial::new(&flow)
        .output::<u32>("typed")
        .run_all()
        .expect("it runs");
    assert_eq!(outputs.items::<u32>("typed"), [1, 2, 3]);
    assert_eq!(outputs.bytes("odd"), [b"1", b"3"]);
    assert_eq!(outputs.bytes("pick.dead_letters").len(), 1);

    let error = Trial::new(&flow)
        .run_all()
        .err()
        .expect("a type is not known");
    assert!(
        format!("{error:?}").contains("no sink of alloc::vec::Vec<u32> as a replacement"),
        "{error}"
    );
    let wrong = Trial::new(&flow)
        .output::<u32>("typed")
        .input("numbers", testing::items(["one"]));
    let error = wrong.run_all().err().expect("the items have another type");
    assert!(
        format!("{error:?}").contains("source \"numbers\""),
        "{error}"
    );
}

#[test]
fn the_clock_is_rolled_back_to_the_commit() {
    let clock = VirtualClock::starting_at(100);
    let step = |clock: &VirtualClock| Mark::Advance(clock.clone(), Duration::from_nanos(5));
    let marks = vec![
        Mark::Item("a"),
        step(&clock),
        Mark::Item("b"),
        step(&clock),
        Mark::Item("c"),
    ];
    let flow = Flow::new("times");
    flow.source("in", testing::script([marks]).batch_size(1))
        .processing_time()
        .map(|item| format!("{} {}", item.value, item.time))
        .sink(
            "out",
            codec::encode(files::write("/dev/null/folder"), codec::display),
        );
    let trial = || Trial::new(&flow).clock(&clock);
    for _ in 0..2 {
        let mut outputs = trial().run_all().expect("it runs");
        assert_eq!(outputs.bytes("out"), [b"a 100", b"b 105", b"c 110"]);
        assert!(trial().crash_everywhere().expect("nothing differs") > 6);
    }
}

#[test]
fn the_calling_thread_runs_the_flow() {
    let flow = Flow::new("here");
    let here = std::thread::current().id();
    let out = Collected::new();
    flow.source("n", testing::items(0..3))
        .key_by(|n| *n)
        .count(Emit::End)
        .items()
        .map(move |_| std::thread::current().id() == here)
        .sink("out", out.sink());
    flow.run_here(Options::default()).expect("it runs");
    assert_eq!(out.take(), [true; 3]);
    let error = flow
        .run_here(Options::workers(2))
        .expect_err("there is one thread");
    assert!(format!("{error:?}").contains("2 workers"), "{error}");
    // Without a replacement of its sink nothing runs.
    let options = Options {
        rehearsal: Some(Arc::new(Rehearsal::new())),
        ..Options::default()
    };
    assert!(flow.run_here(options).is_err() && out.take().is_empty());
}
