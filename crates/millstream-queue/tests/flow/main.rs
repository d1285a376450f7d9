//! Queues as sources and sinks of flows: no item is lost and none counts twice, wherever the flow crashes.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by its panic, in the functions that tests share too"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use millstream_flow::checkpoint::Crash;
use millstream_flow::{Emit, Flow, FlowError, OnError, Options, Recovery, codec};
use millstream_queue::config::Sync;
use millstream_queue::embedded::{self, PutOptions, Queues};
use millstream_queue::flow as queues;

const NOW: Duration = Duration::ZERO;
const ITEMS: usize = 6_000;
const LONG: Duration = Duration::from_secs(120);

fn open(folder: &Path) -> Queues {
    let options = embedded::Options {
        sync: Sync::Never,
        ..embedded::Options::default()
    };
    Queues::open(folder, &options).unwrap()
}

/// Puts `count` words; returns the count of each.
fn fill(folder: &Path, count: usize) -> BTreeMap<String, usize> {
    let words: Vec<String> = (0..count).map(|n| format!("w{}", n * n % 37)).collect();
    let queue = open(folder).queue("in").unwrap();
    queue.put_many(&words, &PutOptions::default()).unwrap();
    let mut counts = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

/// Counts words, each count an item of `out` and of its fan-out queue.
fn counting(folder: &Path) -> Flow {
    let flow = Flow::new("counting");
    let source = queues::read(folder, "in").until_empty();
    flow.source("in", codec::decode(source, codec::text))
        .key_by(|word| word.clone())
        .count(Emit::Each)
        .items()
        .map(|(word, count)| format!("{word} {count}"))
        .sink(
            "out",
            codec::encode(queues::write(folder, "out"), codec::display),
        );
    flow
}

/// All counts of each word are there, in their order and once.
fn check(folder: &Path, counts: &BTreeMap<String, usize>) {
    let place = open(folder);
    for name in ["out", "out+copy"] {
        let queue = place.queue(name).unwrap();
        let mut last: BTreeMap<String, usize> = BTreeMap::new();
        while let Some(item) = queue.get(NOW).unwrap() {
            let item = String::from_utf8(item).unwrap();
            let (word, count) = item.split_once(' ').unwrap();
            let last = last.entry(word.to_owned()).or_default();
            *last += 1;
            assert_eq!(count.parse(), Ok(*last), "{name}: {word}");
        }
        assert_eq!(&last, counts, "{name}");
    }
    let input = place.queue("in").unwrap().stats().unwrap();
    assert_eq!((input["items"], input["open_transactions"]), (0, 0));
    let staged = folder.join(".flows");
    let left = std::fs::read_dir(staged).map_or(0, Iterator::count);
    assert_eq!(left, 0, "staging journals are left");
}

fn fan_out(folder: &Path) {
    let copy = open(folder).queue("out+copy").unwrap();
    assert_eq!(copy.get(NOW).unwrap(), None);
}

/// Crashes after every `commits` commits, until the flow ends.
fn crash_everywhere(workers: usize, commits: u64) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("queues");
    let state = folder.path().join("state");
    fan_out(&place);
    let counts = fill(&place, ITEMS);
    let mut crashes = 0;
    let mut halfway = false;
    loop {
        let recovery = Recovery::new(&state).epoch(NOW).crash_after(commits);
        let options = Options {
            recovery: Some(recovery.sync(crashes % 2 == 0)),
            ..Options::workers(workers)
        };
        match counting(&place).run(options) {
            Ok(_) => break,
            Err(FlowError::Crashed(_)) => crashes += 1,
            Err(error) => panic!("{error}"),
        }
        // In between others see what is committed, and may use the queues: an item is in one of them.
        let len = |name| open(&place).queue(name).unwrap().len().unwrap() as usize;
        let given = len("out");
        let left = len("in");
        assert_eq!(given + left, ITEMS, "behind crash {crashes}");
        halfway |= given > 0 && left > 0;
    }
    assert!(crashes >= 2 && halfway, "{crashes} crashes");
    check(&place, &counts);
}

#[test]
fn a_flow_that_crashes_after_every_commit_counts_each_item_once() {
    crash_everywhere(1, 1);
    crash_everywhere(2, 1);
}

#[test]
fn a_flow_that_crashes_now_and_then_counts_each_item_once() {
    crash_everywhere(1, 3);
    crash_everywhere(2, 2);
}

#[test]
fn a_flow_that_crashes_after_its_last_commit_leaves_nothing_unfinished() {
    for (workers, at) in [1, 2]
        .into_iter()
        .flat_map(|n| Crash::MOMENTS.map(|at| (n, at(1))))
    {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("queues");
        let state = folder.path().join("state");
        fan_out(&place);
        let counts = fill(&place, 3_000);
        // All in one commit, the last.
        let recovery = Recovery::new(&state).epoch(LONG);
        let run = |recovery| {
            counting(&place).run(Options {
                recovery: Some(recovery),
                ..Options::workers(workers)
            })
        };
        let crashed = run(recovery.clone().crash(at));
        assert!(matches!(crashed, Err(FlowError::Crashed(_))), "{at}");
        let input = open(&place).queue("in").unwrap();
        let left = if at == Crash::After(1) { 0 } else { 3_000 };
        assert_eq!(input.len().unwrap(), left, "{at}");
        drop(input);
        run(recovery.clone()).unwrap();
        check(&place, &counts);
        // It has ended; a second run continues with the items put since.
        open(&place).queue("in").unwrap().put(b"later").unwrap();
        run(recovery).unwrap();
        assert_eq!(open(&place).queue("in").unwrap().len().unwrap(), 0);
    }
}

#[test]
fn without_recovery_all_is_confirmed_once_it_is_done() {
    for workers in [1, 2, 3] {
        let folder = tempfile::tempdir().unwrap();
        fan_out(folder.path());
        let counts = fill(folder.path(), 5000);
        counting(folder.path())
            .run(Options::workers(workers))
            .unwrap();
        check(folder.path(), &counts);
    }
}

#[test]
fn a_flow_that_fails_gives_back_what_it_has_not_committed() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 100);
    for (opened, state) in [(0, None), (1, Some(folder.path().join("state")))] {
        let place = open(folder.path());
        let flow = Flow::new("failing");
        let source = queues::read(&place, "in").until_empty();
        flow.source("in", codec::decode(source, codec::text))
            .try_map("check", OnError::Fail, |word: &String| {
                match word.as_str() {
                    "w36" => Err("it is w36"),
                    _ => Ok(word.clone()),
                }
            })
            .sink(
                "out",
                codec::encode(queues::write(&place, "out"), codec::display),
            );
        let recovery = state.map(Recovery::new);
        let failed = flow.run(Options {
            recovery,
            ..Options::default()
        });
        assert!(failed.is_err());
        let queue = place.queue("in").unwrap();
        assert_eq!(queue.len().unwrap(), 100);
        let first = queue.open(NOW).unwrap().unwrap();
        // A flow that fails has not had them delivered; the test has, once each time.
        let found = (first.body(), first.item().deliveries);
        assert_eq!(found, (&b"w0"[..], opened));
    }
}

#[test]
fn others_see_output_at_its_commit_and_a_stopped_flow_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let place = open(folder.path());
    let state = folder.path().join("state");
    let input = place.queue("in").unwrap();
    let output = place.queue("out").unwrap();
    for round in 0..3 {
        let flow = Flow::new("passing");
        flow.source("in", queues::read(&place, "in"))
            .sink("out", queues::write(&place, "out"));
        let options = Options {
            recovery: Some(Recovery::new(&state).epoch(Duration::from_millis(5))),
            ..Options::default()
        };
        let running = flow.start(options).unwrap();
        for n in 0..50 {
            let item = format!("{round} {n}");
            input.put(item.as_bytes()).unwrap();
            assert_eq!(output.get(LONG).unwrap().as_deref(), Some(item.as_bytes()));
        }
        input.put(b"left").unwrap();
        running.stop();
        running.wait().unwrap();
        let left = input.get(NOW).unwrap().or(output.get(NOW).unwrap());
        assert_eq!(left.as_deref(), Some(&b"left"[..]));
        assert_eq!((input.len().unwrap(), output.len().unwrap()), (0, 0));
    }
}

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join(".config");
    std::fs::write(
        &config,
        "[alias]\nall = [\"a\"]\n[limits]\nitem_bytes = 3\n",
    )
    .unwrap();
    let options = embedded::Options {
        config: Some(config),
        ..embedded::Options::default()
    };
    let place = Queues::open(folder.path(), &options).unwrap();
    let run = |from: &str, to: &str| {
        let flow = Flow::new("mistaken");
        flow.source("from", queues::read(&place, from).until_empty())
            .sink("to", queues::write(&place, to));
        let error = flow.run(Options::default()).map(|_| ()).unwrap_err();
        format!("{error:?}")
    };
    assert!(run("a/b", "x").contains("\"a/b\": queue name has"));
    place.queue("in").unwrap().put(b"1").unwrap();
    assert!(run("in", "all").contains("\"all\" is an alias"));
    let flow = Flow::new("large");
    flow.source("from", millstream_flow::testing::items(["long".to_owned()]))
        .sink(
            "to",
            codec::encode(queues::write(&place, "x"), codec::display),
        );
    let error = flow.run(Options::default()).map(|_| ()).unwrap_err();
    assert!(
        format!("{error:?}").contains("an item of 4 bytes"),
        "{error}"
    );
}
