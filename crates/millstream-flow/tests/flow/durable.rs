//! Durable sources: recorded input is never requested from the source again, wherever the flow crashes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_flow::durable::{Kind, Recorded, Retain, inputs, recorded_input_dir};
use millstream_flow::error::Cause;
use millstream_flow::poller::Io;
use millstream_flow::source::{Events, Next, Partition, Position, Source};
use millstream_flow::{
    Flow, FlowError, Options, Recovery, SourceExt, codec, files, framing, testing,
};

use crate::support::{Random, address, finish, framed, listener, send, spawn};

/// A source that returns each number once: a number that is requested again is lost, as with a socket. Each
/// partition counts on its own, and ends at `end`; it would continue if it were asked again.
struct Once {
    given: Vec<Arc<AtomicU64>>,
    end: u64,
}

impl Once {
    fn new(partitions: usize, end: u64) -> Self {
        let given = (0..partitions).map(|_| Arc::default()).collect();
        Once { given, end }
    }
    fn again(&self) -> Self {
        let given = self.given.clone();
        let end = self.end;
        Once { given, end }
    }
}

impl Source<Vec<(usize, u64)>> for Once {
    fn describe(&self) -> String {
        "numbers that are given once".to_owned()
    }
    fn partitions(&self, _: usize) -> Result<Vec<String>, Cause> {
        Ok((0..self.given.len()).map(|p| format!("p{p}")).collect())
    }
    fn open(
        &self,
        partition: usize,
        _: Option<&Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Vec<(usize, u64)>>>, Cause> {
        let given = Arc::clone(&self.given[partition]);
        Ok(Box::new(OncePartition {
            partition,
            given,
            end: self.end,
        }))
    }
}

struct OncePartition {
    partition: usize,
    given: Arc<AtomicU64>,
    end: u64,
}

impl Partition<Vec<(usize, u64)>> for OncePartition {
    fn next_batch(
        &mut self,
        batch: &mut Vec<(usize, u64)>,
        _: &mut Events<'_>,
    ) -> Result<Next, Cause> {
        let from = self.given.load(Ordering::Relaxed);
        if from == self.end {
            self.given.store(self.end + 1, Ordering::Relaxed);
            return Ok(Next::End);
        }
        let to = if from > self.end {
            from + 7
        } else {
            self.end.min(from + 7)
        };
        self.given.store(to, Ordering::Relaxed);
        batch.extend((from..to).map(|number| (self.partition, number)));
        Ok(Next::Batch)
    }
    fn position(&self) -> Result<Position, Cause> {
        Ok(0.into())
    }
}

fn recovery(state: &Path) -> Recovery {
    Recovery::new(state).epoch(Duration::ZERO).sync(false)
}

fn run(flow: &Flow, workers: usize, recovery: Recovery) -> Result<(), FlowError> {
    let mut options = Options::workers(workers);
    options.recovery = Some(recovery);
    finish(flow.start(options)?).map(drop)
}

/// Each number with the sum of its partition so far.
fn sums(source: impl Source<Vec<(usize, u64)>>, out: &Path) -> Flow {
    let flow = Flow::new("sums");
    flow.source("once", source)
        .key_by(|(partition, _)| *partition)
        .map(|(_, number)| number)
        .stateful(
            "sum",
            |_| 0u64,
            |sum, partition, number| {
                *sum += number;
                Some(format!("{partition} {number} {sum}"))
            },
        )
        .values()
        .sink("out", codec::encode(files::write(out), codec::display));
    flow
}

fn expected(partitions: usize, end: u64) -> Vec<String> {
    let mut lines = Vec::new();
    for partition in 0..partitions {
        let mut sum = 0;
        for number in 0..end {
            sum += number;
            lines.push(format!("{partition} {number} {sum}"));
        }
    }
    lines.sort();
    lines
}

fn sorted(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("there is output");
    let mut lines: Vec<_> = text.lines().map(String::from).collect();
    lines.sort();
    lines
}

#[test]
fn a_crash_at_any_commit_loses_and_repeats_no_input_of_a_source_without_replay() {
    for seed in 0..6 {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        let state = folder.path().join("state");
        let partitions = 1 + seed as usize % 3;
        let end = 1_400;
        let source = Once::new(partitions, end);
        let mut random = Random::new(seed);
        let mut crashes = 0;
        loop {
            let flow = sums(source.again().durable(), &out);
            let workers = 1 + random.below(3) as usize;
            let commits = 1 + random.below(20) as u64;
            match run(&flow, workers, recovery(&state).crash_after(commits)) {
                Ok(()) => break,
                Err(FlowError::Crashed(_)) => crashes += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
        assert!(crashes > 1, "seed {seed}: {crashes} crashes");
        assert_eq!(sorted(&out), expected(partitions, end), "seed {seed}");
        assert!(
            source
                .given
                .iter()
                .all(|given| given.load(Ordering::Relaxed) == end + 1)
        );
    }
}

#[test]
fn tcp_input_is_in_the_output_once_despite_repeated_kills() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let state = folder.path().join("state");
    for run_number in 0..6u64 {
        let (source, told) = listener();
        // The last run is ended by its senders, not by a crash.
        let source = if run_number == 5 {
            source.connections(1)
        } else {
            source
        };
        let flow = Flow::new("tcp");
        flow.source("in", codec::decode(source.durable(), codec::text))
            .sink("out", codec::encode(files::write(&out), codec::display));
        let numbers = (run_number * 1_000_000..)
            .take(200_000)
            .map(|n| n.to_string());
        let bytes = framed(&framing::Framing::U32, numbers);
        let mut options = Options::workers(1);
        let recovery = recovery(&state);
        let dies = recovery.clone().crash_after(1 + run_number);
        options.recovery = Some(if run_number == 5 { recovery } else { dies });
        let running = flow.start(options).expect("it starts");
        let to = address(&told);
        let sender = spawn(move || {
            // The flow may die before it has read all of it.
            let _ = std::panic::catch_unwind(|| send(to, &bytes));
        });
        match finish(running) {
            Ok(_) => assert_eq!(run_number, 5),
            Err(FlowError::Crashed(_)) => assert!(run_number < 5),
            Err(error) => panic!("{error}"),
        }
        sender.join().expect("it catches what goes wrong");
    }
    let mut recorded = Recorded::open(recorded_input_dir(&state, "in")).expect("it is there");
    let mut input = Vec::new();
    while let Some(batch) = recorded.next_batch().expect("it is sound") {
        assert_eq!(batch.kind, Kind::Bytes);
        input.extend(
            batch
                .items()
                .map(|item| String::from_utf8_lossy(item).into_owned()),
        );
    }
    assert!(
        input.len() >= 200_000,
        "the last sender was heard: {}",
        input.len()
    );
    let text = std::fs::read_to_string(&out).expect("there is output");
    assert_eq!(text.lines().collect::<Vec<_>>(), input);
}

#[test]
fn a_durable_source_needs_a_state_directory() {
    let flow = Flow::new("no-state");
    flow.source("numbers", testing::items(0..3).durable())
        .sink("out", testing::Collected::new().sink());
    let said = format!(
        "{:?}",
        flow.run(Options::default()).expect_err("it has no place")
    );
    assert_eq!(
        said,
        "source \"numbers\" (test script, durable): it is durable, and needs a directory for its state: \
         Options::recovery"
    );
}

/// A flow of 40 items of 2 MiB; returns where the records of its input begin when it has ended.
fn first_kept(keep: Retain) -> (u64, u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let flow = Flow::new("big");
    let items = testing::items((0..40).map(|_| "x".repeat(2 << 20))).batch_size(1);
    let out = testing::Collected::new();
    flow.source("big", items.durable().keep(keep))
        .map(|text| text.len())
        .sink("out", out.sink());
    run(&flow, 1, recovery(folder.path())).expect("it runs");
    assert_eq!(out.take().len(), 40);
    let path = recorded_input_dir(folder.path(), "big");
    let journal = millstream_journal::Journal::open(path, millstream_journal::Options::read_only())
        .expect("it is there");
    (
        journal.first().expect("it is sound"),
        journal.next().expect("it is sound"),
    )
}

#[test]
fn recorded_input_is_removed_when_no_epoch_needs_it_unless_retained() {
    let (first, next) = first_kept(Retain::Needed);
    // One record at the beginning of the partition and one at its end.
    assert_eq!(next, 42);
    assert!(first > 20, "{first}");
    assert_eq!(first_kept(Retain::All).0, 0);
    assert_eq!(first_kept(Retain::Age(Duration::from_secs(3600))).0, 0);
    let (first, _) = first_kept(Retain::Bytes(64 << 20));
    assert!(first > 0 && first < 27, "{first}");
}

#[test]
fn a_source_may_become_durable_and_resumes() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = testing::Collected::new();
    let items = || testing::items(0..100u64).batch_size(1);
    let plain = Flow::new("flow");
    plain.source("n", items()).sink("out", out.sink());
    let died = run(&plain, 1, recovery(folder.path()).crash_after(3));
    assert!(matches!(died, Err(FlowError::Crashed(_))));

    let durable = Flow::new("flow");
    durable
        .source("n", items().durable())
        .sink("out", out.sink());
    let died = run(&durable, 1, recovery(folder.path()).crash_after(3));
    assert!(matches!(died, Err(FlowError::Crashed(_))));

    let said = format!(
        "{:?}",
        run(&plain, 1, recovery(folder.path())).expect_err("it was durable")
    );
    assert!(
        said.contains("it was durable") && said.contains("Recovery::drop_state(\"n\")"),
        "{said}"
    );
    run(&durable, 1, recovery(folder.path())).expect("it goes on");
    assert_eq!(out.take(), (0..100).collect::<Vec<_>>());
    assert_eq!(inputs(folder.path()).expect("it is read").len(), 1);
}

#[test]
fn a_source_without_its_state_starts_from_the_beginning() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = testing::Collected::new();
    let flow = Flow::new("flow");
    let items = testing::items(0..50u64).batch_size(1);
    flow.source("n", items.durable()).sink("out", out.sink());
    let died = run(&flow, 1, recovery(folder.path()).crash_after(4));
    assert!(matches!(died, Err(FlowError::Crashed(_))));
    run(&flow, 1, recovery(folder.path()).drop_state("n")).expect("it begins anew");
    let anew = (0..50).collect::<Vec<_>>();
    let items = out.take();
    let committed = items.len() - 50;
    assert!(committed > 0, "it died before its first commit");
    assert_eq!(items[committed..], anew);
    assert_eq!(items[..committed], anew[..committed]);
}

#[test]
fn truncated_input_and_input_of_another_kind_are_errors_that_name_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = testing::Collected::new();
    let flow = Flow::new("flow");
    let items = testing::items(0..50u64).batch_size(1);
    flow.source("n", items.durable()).sink("out", out.sink());
    let died = run(&flow, 1, recovery(folder.path()).crash_after(4));
    assert!(matches!(died, Err(FlowError::Crashed(_))));

    let frames = Flow::new("flow");
    let path = folder.path().join("lines");
    std::fs::write(&path, "one\n").expect("it is written");
    frames
        .source(
            "n",
            codec::decode(files::read([&path]).durable(), codec::text),
        )
        .sink("out", testing::Collected::new().sink());
    let said = format!(
        "{:?}",
        run(&frames, 1, recovery(folder.path()).drop_state("out"))
            .expect_err("it has other partitions")
    );
    assert!(
        said.contains("input of its partition \"0\" was recorded"),
        "{said}"
    );

    let frames = Flow::new("flow");
    let (source, _told) = listener();
    frames
        .source("n", codec::decode(source.durable(), codec::text))
        .sink("out", testing::Collected::new().sink());
    let said = format!(
        "{:?}",
        run(&frames, 1, recovery(folder.path()).drop_state("out"))
            .expect_err("it is of another kind")
    );
    assert!(
        said.contains("recorded as MessagePack") && said.contains("gives Bytes now"),
        "{said}"
    );

    let input = recorded_input_dir(folder.path(), "n");
    std::fs::remove_dir_all(&input).expect("it was there");
    let said = format!(
        "{:?}",
        run(&flow, 1, recovery(folder.path())).expect_err("its end is lost")
    );
    assert!(
        said.contains("it ends before record") && said.contains("inputs/n"),
        "{said}"
    );
}
