//! Slow steps: a turn is bounded by time, so that outputs, commits and a stop wait for an item and not for a
//! batch.
//!
//! No duration is measured: the tests count the calls of the step.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millstream_flow::checkpoint::Crash;
use millstream_flow::error::Cause;
use millstream_flow::poller::Io;
use millstream_flow::source::{Events, Next, Partition, Position, Source};
use millstream_flow::testing::{Collected, items};
use millstream_flow::{
    Emit, Flow, FlowError, Options, Recovery, SourceExt, Stream, codec, files, generator, journals,
};

use super::support::{finish, wait};

pub const LINES: usize = 4_000;
/// The number of items that may be processed before an output appears, a commit is made, or a stop is noticed:
/// far below a batch.
const FEW: usize = 64;

fn lines(path: &Path, count: usize) {
    let text: String = (0..count).map(|n| format!("{n}\n")).collect();
    std::fs::write(path, text).expect("it is written");
}

/// A source that returns so many items at once, whatever the limit is.
pub struct Greedy(pub usize);

struct AllAtOnce {
    count: usize,
    done: bool,
}

impl Source<Vec<String>> for Greedy {
    fn describe(&self) -> String {
        "greedy".to_owned()
    }
    fn open(
        &self,
        _: usize,
        resume: Option<&Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Vec<String>>>, Cause> {
        Ok(Box::new(AllAtOnce {
            count: self.0,
            done: resume == Some(&Position::from(1)),
        }))
    }
}

impl Partition<Vec<String>> for AllAtOnce {
    fn next_batch(
        &mut self,
        batch: &mut Vec<String>,
        events: &mut Events<'_>,
    ) -> Result<Next, Cause> {
        assert!(events.limit() >= 1);
        if std::mem::replace(&mut self.done, true) {
            return Ok(Next::End);
        }
        batch.extend((0..self.count).map(|n| n.to_string()));
        Ok(Next::Batch)
    }
    fn position(&self) -> Result<Position, Cause> {
        Ok(u64::from(self.done).into())
    }
}

type Named = (&'static str, fn(&Flow, &Path) -> Stream<String>);

const SOURCES: [Named; 5] = [
    ("lines", |flow, folder| {
        let path = folder.join("lines");
        lines(&path, LINES);
        flow.source("in", files::lines(path))
    }),
    ("generator", |flow, _| {
        let count = LINES as u64;
        flow.source(
            "in",
            generator::from_fn(move |n| (n < count).then(|| n.to_string())),
        )
    }),
    ("journal", |flow, folder| {
        use millstream_journal::{Journal, Options as Opening};
        let path = folder.join("journal");
        let journal = Journal::open(&path, Opening::default()).expect("it is made");
        let bodies = (0..LINES).map(|n| n.to_string());
        journal
            .writer()
            .and_then(|writer| writer.append_many(bodies))
            .expect("it is appended");
        flow.source("in", codec::decode(journals::read(&path), codec::text))
    }),
    ("script", |flow, _| {
        flow.source(
            "in",
            items((0..LINES).map(|n| n.to_string())).batch_size(LINES),
        )
    }),
    ("greedy", |flow, _| flow.source("in", Greedy(LINES))),
];

/// The position of the slow step in the flow: fused to its source, and after an exchange.
const PLACES: [&str; 2] = ["fused", "behind an exchange"];

/// A step that takes two milliseconds and counts its calls, and a sink after it.
fn slow(
    numbers: &Stream<String>,
    place: &str,
    handled: &Arc<AtomicUsize>,
    out: &Collected<String>,
) {
    let count = Arc::clone(handled);
    let work = move |text: String| {
        count.fetch_add(1, Ordering::SeqCst);
        wait(2);
        text
    };
    match place {
        "fused" => numbers.map(work).sink("out", out.sink()),
        _ => numbers
            .key_by(|text| text.len())
            .stateful("slow", |_| (), move |(), _, text| Some(work(text)))
            .values()
            .sink("out", out.sink()),
    }
}

#[test]
fn the_first_output_follows_the_first_items_and_a_stop_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, source) in SOURCES {
        for (place, workers) in [(PLACES[0], 1), (PLACES[1], 1), (PLACES[1], 2)] {
            let what = format!("{name}, {place}, {workers} workers");
            let folder = tempfile::tempdir_in(&folder).expect("a folder");
            let flow = Flow::new("slow");
            let handled = Arc::new(AtomicUsize::new(0));
            let out = Collected::new();
            slow(&source(&flow, folder.path()), place, &handled, &out);
            let running = flow.start(Options::workers(workers)).expect("it starts");
            let mut arrived = out.take().len();
            while arrived == 0 {
                wait(1);
                arrived = out.take().len();
            }
            let first = handled.load(Ordering::SeqCst);
            assert!(
                first <= FEW,
                "{what}: {first} items before the first output"
            );
            if name == "greedy" {
                // Its items are in the steps, and a second is not enough for them.
                drop(running);
                continue;
            }
            running.stop();
            let at_stop = handled.load(Ordering::SeqCst);
            finish(running).expect("it ends well");
            let all = handled.load(Ordering::SeqCst);
            assert!(
                all - at_stop <= FEW,
                "{what}: {all} items, {at_stop} at the stop"
            );
            assert_eq!(
                arrived + out.take().len(),
                all,
                "{what}: what was handled arrives"
            );
        }
    }
}

#[test]
fn a_commit_waits_for_a_few_items_and_a_flow_killed_after_each_makes_progress() {
    const SHORT: usize = 300;
    let folder = tempfile::tempdir().expect("a folder");
    for durable in [false, true] {
        let folder = tempfile::tempdir_in(&folder).expect("a folder");
        let input = folder.path().join("in");
        let output = folder.path().join("out");
        lines(&input, SHORT);
        let handled = Arc::new(AtomicUsize::new(0));
        let flow = Flow::new("slow");
        let read = files::lines(&input);
        let numbers = if durable {
            flow.source(
                "in",
                codec::decode(files::read([&input]).durable(), codec::text),
            )
        } else {
            flow.source("in", read)
        };
        let count = Arc::clone(&handled);
        numbers
            .map(move |text: String| {
                count.fetch_add(1, Ordering::SeqCst);
                wait(2);
                text
            })
            .sink("out", codec::encode(files::write(&output), codec::display));
        let mut crashes = 0;
        loop {
            let mut options = Options::default();
            let recovery = Recovery::new(folder.path().join("state"));
            let recovery = recovery.epoch(Duration::from_millis(1)).sync(false);
            // The first commits may be empty.
            options.recovery = Some(recovery.crash(Crash::After(2)));
            let before = handled.load(Ordering::SeqCst);
            match flow.run(options) {
                Ok(_) => break,
                Err(FlowError::Crashed(_)) => crashes += 1,
                Err(error) => panic!("durable {durable}: {error}"),
            }
            let ran = handled.load(Ordering::SeqCst) - before;
            assert!(ran <= FEW, "durable {durable}: {ran} items for two commits");
            assert!(crashes <= SHORT, "durable {durable}: no progress");
        }
        assert!(crashes > 3, "durable {durable}: {crashes} crashes");
        let expected: String = (0..SHORT).map(|n| format!("{n}\n")).collect();
        let found = std::fs::read_to_string(&output).expect("it is there");
        assert_eq!(found, expected, "durable {durable}");
    }
}

/// Items of a source that has begun the next epoch wait for a source that still passes on a batch of this one.
#[test]
fn an_epoch_ends_within_a_large_batch_beside_another_source() {
    const COUNT: usize = 300;
    let folder = tempfile::tempdir().expect("a folder");
    for workers in [1, 2] {
        let flow = Flow::new("two sources");
        let handled = Arc::new(AtomicUsize::new(0));
        let out = Collected::new();
        let count = COUNT as u64;
        let single = generator::from_fn(move |n| (n < count).then(|| n.to_string()));
        let both = flow.source("greedy", Greedy(COUNT));
        let both = both.merge(&[flow.source("single", single)]);
        slow(&both, PLACES[1], &handled, &out);
        let mut options = Options::workers(workers);
        let recovery = Recovery::new(folder.path().join(format!("state-{workers}")));
        options.recovery = Some(recovery.epoch(Duration::from_millis(1)).sync(false));
        finish(flow.start(options).expect("it starts")).expect("it ends well");
        assert_eq!(out.take().len(), 2 * COUNT, "{workers} workers");
    }
}

#[test]
fn items_left_a_second_after_a_stop_are_counted_and_resumed_by_the_next_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let handled = Arc::new(AtomicUsize::new(0));
    let quick = Arc::new(AtomicUsize::new(0));
    // The step after the source makes many items of one, and the source cannot hold them back.
    let describe = || {
        let flow = Flow::new("many");
        let count = Arc::clone(&handled);
        let fast = Arc::clone(&quick);
        let out = Collected::new();
        flow.source("in", items([0u64]))
            .flat_map(|_| 0..2_000u64)
            .key_by(|n| n % 3)
            .stateful(
                "slow",
                |_| 0u64,
                move |sum, _, n| {
                    count.fetch_add(1, Ordering::SeqCst);
                    if fast.load(Ordering::SeqCst) == 0 {
                        wait(2);
                    }
                    *sum += n;
                    None::<u64>
                },
            )
            .values()
            .sink("nothing", out.sink());
        flow
    };
    for kept in [false, true] {
        handled.store(0, Ordering::SeqCst);
        quick.store(0, Ordering::SeqCst);
        let mut options = Options::default();
        if kept {
            options.recovery = Some(Recovery::new(&state).sync(false));
        }
        let flow = describe();
        let running = flow.start(options.clone()).expect("it starts");
        while handled.load(Ordering::SeqCst) < 10 {
            wait(1);
        }
        let control = running.control();
        running.stop();
        finish(running).expect("to stop is no failure");
        let done = handled.load(Ordering::SeqCst);
        assert!(control.abandoned());
        assert_eq!(control.unfinished() + done, 2_000, "kept {kept}");
        if kept {
            quick.store(1, Ordering::SeqCst);
            handled.store(0, Ordering::SeqCst);
            flow.run(options).expect("it goes on");
            assert_eq!(handled.load(Ordering::SeqCst), 2_000);
        }
    }
}

#[test]
fn the_batches_of_a_fast_flow_are_not_divided() {
    let flow = Flow::new("quick");
    let out = Collected::new();
    flow.source("in", generator::from_fn(|n| (n < 200_000).then_some(n)))
        .key_by(|n| n % 7)
        .count(Emit::End)
        .items()
        .sink("out", out.sink());
    let report = flow.run(Options::default()).expect("it runs");
    let source = report.step("in").expect("it is there");
    // Batches have 1,024 items once the pace is known, also on a busy machine.
    assert!(source.batches < 5_000, "{} batches", source.batches);
    assert_eq!(
        out.take().iter().map(|(_, count)| count).sum::<u64>(),
        200_000
    );
}
