//! Recorded input runs through a flow again: at its times, in its order, with the same output each time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millstream_flow::durable::recorded_input_dir;
use millstream_flow::replay::{Point, Replay};
use millstream_flow::testing::{Collected, Mark, Trial, VirtualClock, script};
use millstream_flow::{
    Flow, FlowError, KeyContext, Logic, Options, Recovery, Rehearsal, SourceExt, Timer, codec,
    files, tcp,
};
use millstream_journal::{Journal, Options as Opening};

use crate::support::Random;

/// A word that has not occurred for this long is reported as quiet; nanoseconds.
const QUIET: i64 = 7_000;

/// A record: its time in nanoseconds, and its body.
type Record = (i64, String);

fn journal(path: &Path, records: &[Record]) {
    let journal = Journal::open(path, Opening::default()).expect("it is made");
    let writer = journal.writer().expect("it is open");
    for (time, body) in records {
        let appended = writer.append_at(*time as u64, body.as_bytes());
        appended.expect("it is appended");
    }
}

/// Counts a word, and reports when it has become quiet.
#[derive(Default)]
struct Count(u64);

impl Logic<String, char> for Count {
    type Out = String;

    fn on_item(&mut self, word: &String, from: char, cx: &mut KeyContext<'_, String>) {
        self.0 += 1;
        cx.emit(format!("{} {from} {word} {}", cx.now(), self.0));
        cx.set_timer(Timer::Processing(cx.now() + QUIET));
    }
    fn on_timer(&mut self, word: &String, timer: Timer, cx: &mut KeyContext<'_, String>) {
        if timer == Timer::Processing(cx.now()) {
            cx.emit(format!("{} quiet {word} {}", cx.now(), self.0));
        }
    }
}

/// Words from two sockets that cannot be opened.
fn words() -> Flow {
    let flow = Flow::new("words");
    flow.saves::<(char, String)>();
    let [left, right] = ["left", "right"].map(|name| {
        let from = name.chars().next().unwrap_or_default();
        flow.source(
            name,
            codec::decode(tcp::connect("127.0.0.1:1"), codec::text),
        )
        .map(move |word| (from, word))
    });
    left.merge(&[right])
        .key_by(|(_, word): &(char, String)| word.clone())
        .map(|(from, _)| from)
        .stateful_with("count", None, |_| Count::default())
        .values()
        .sink(
            "out",
            codec::encode(files::write("/dev/null/folder"), codec::display),
        );
    flow
}

/// The expected output, by a plain loop over all records; timers that are due fire before the next record.
fn expected(left: &[Record], right: &[Record]) -> Vec<String> {
    let tag = |from, records: &[Record]| -> Vec<(i64, char, String)> {
        let records = records.iter();
        records
            .map(|(time, word)| (*time, from, word.clone()))
            .collect()
    };
    let mut all = [tag('l', left), tag('r', right)].concat();
    all.sort_by_key(|(time, ..)| *time);
    let (mut out, mut counts) = (Vec::new(), BTreeMap::<String, u64>::new());
    let mut timers = BTreeMap::<i64, Vec<String>>::new();
    for (time, from, word) in all {
        while let Some((at, quiet)) = timers.pop_first() {
            if at > time {
                timers.insert(at, quiet);
                break;
            }
            out.extend(
                quiet
                    .iter()
                    .map(|word| format!("{at} quiet {word} {}", counts[word])),
            );
        }
        let count = counts.entry(word.clone()).or_default();
        *count += 1;
        out.push(format!("{time} {from} {word} {count}"));
        timers.entry(time + QUIET).or_default().push(word);
    }
    out
}

fn records(seed: u64) -> Vec<Record> {
    let mut random = Random::new(seed);
    let mut time = 1_000_000 + random.below(500);
    let mut next = || {
        time += 1_001 + random.below(5_000);
        (time, format!("w{}", random.below(5)))
    };
    (0..200).map(|_| next()).collect()
}

fn replayed(replay: &Replay, workers: usize) -> Vec<String> {
    let flow = words();
    let trial = Trial::new(&flow)
        .workers(workers)
        .replay(replay)
        .expect("it is there");
    let out = trial.run_all().expect("it runs").bytes("out");
    out.iter()
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect()
}

/// Fails with the first line that differs.
fn same(found: &[String], expected: &[String], seed: u64) {
    let lines = found.iter().zip(expected).enumerate();
    for (at, (found, expected)) in lines {
        assert_eq!(found, expected, "line {at}, seed {seed}");
    }
    assert_eq!(found.len(), expected.len(), "seed {seed}");
}

#[test]
fn two_inputs_are_merged_by_their_times_with_timers_between_them() {
    let folder = tempfile::tempdir().expect("a folder");
    for seed in 0..4 {
        let paths = ["left", "right"].map(|name| folder.path().join(format!("{name}{seed}")));
        let inputs = [records(2 * seed), records(2 * seed + 1)];
        paths
            .iter()
            .zip(&inputs)
            .for_each(|(path, records)| journal(path, records));
        let replay = Replay::new()
            .journal("left", &paths[0])
            .journal("right", &paths[1]);
        let expected = expected(&inputs[0], &inputs[1]);
        for _ in 0..3 {
            same(&replayed(&replay, 1), &expected, seed);
        }
        // With several workers the order between keys is no longer defined.
        let sorted = |mut lines: Vec<String>| {
            lines.sort();
            lines
        };
        let with_three = replayed(&replay, 3);
        same(&sorted(with_three), &sorted(expected), seed);
    }
}

/// A flow with a durable source, with items that are not bytes and a clock of its own.
fn durable(clock: &VirtualClock, out: &Collected<String>) -> Flow {
    let mut random = Random::new(7);
    let mut mark = || match random.below(4) {
        0 => Mark::Advance(clock.clone(), Duration::from_nanos(2_500)),
        _ => Mark::Item(("word".to_owned(), random.below(6) as u32)),
    };
    let marks = (0..300).map(|_| mark()).collect();
    let flow = Flow::new("durable");
    flow.saves::<(i64, (String, u32))>();
    flow.source("in", script([marks]).batch_size(5).durable())
        .processing_time()
        .map(|item| (item.time, item.value))
        .key_by(|(_, (_, number))| *number)
        .stateful(
            "count",
            |_| 0u64,
            |count, number, (time, (word, _))| {
                *count += 1;
                Some(format!("{time} {word} {number} {count}"))
            },
        )
        .values()
        .sink("out", out.sink());
    flow
}

#[test]
fn recorded_input_of_a_durable_source_has_the_same_output_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = VirtualClock::starting_at(1_000_000);
    let out = Collected::new();
    let flow = durable(&clock, &out);
    let options = Options {
        recovery: Some(Recovery::new(folder.path()).sync(false)),
        clock: Some(Arc::new(clock)),
        ..Options::default()
    };
    flow.run(options).expect("it runs");
    let live = out.take();
    let replayed = |replay: &Replay| {
        let trial = Trial::new(&flow).output::<String>("out").replay(replay);
        let ran = trial.and_then(Trial::run_all).expect("it runs");
        { ran }.items::<String>("out")
    };
    let replay = Replay::of_state(folder.path()).expect("it is there");
    assert_eq!(replayed(&replay), live);
    for items in [1, 2, 1000] {
        assert_eq!(replayed(&replay.clone().batch_size(items)), live);
    }
    // A part of it: the flow starts without the state before it.
    let some = replayed(
        &replay
            .clone()
            .from(Point::Time(1_100_000))
            .to(Point::Time(1_200_000)),
    );
    assert!(!some.is_empty() && some.len() < live.len());
    let times = some
        .iter()
        .map(|line| line.split(' ').next().unwrap_or_default());
    assert!(
        times
            .map(|time| time.parse())
            .all(|time| matches!(time, Ok(1_100_000..1_200_000)))
    );
    let recorded = Replay::new().recorded("in", recorded_input_dir(folder.path(), "in"));
    assert_eq!(replayed(&recorded.to(Point::Sequence(1 << 40))), live);
}

#[test]
fn input_that_cannot_be_replayed_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("left");
    journal(&path, &records(1));
    let flow = words();
    let failed = |replay: &Replay| -> String {
        let outcome = Trial::new(&flow).replay(replay).and_then(Trial::run_all);
        outcome
            .err()
            .map_or_else(|| "it ran".to_owned(), |error| format!("{error:?}"))
    };
    let one = Replay::new().journal("left", &path);
    let both = one.clone().journal("right", &path);
    for (replay, said) in [
        (
            one.clone(),
            "source \"right\" (tcp connect 127.0.0.1:1, u32): the replay has no input of it, only of left",
        ),
        (
            both.clone().journal("middle", &path),
            "has no source \"middle\", whose input the replay has",
        ),
        (
            both.clone().from(Point::Sequence(3)),
            "a sequence number is one of a single input, and there are left, right",
        ),
        (
            both.clone().from(Point::Time(1 << 60)),
            "nothing was recorded in the range",
        ),
        (
            one.clone().journal("right", folder.path().join("none")),
            "there is no journal here",
        ),
        (
            one.recorded("right", &path),
            "record 0 is no recorded input",
        ),
    ] {
        let error = failed(&replay);
        assert!(error.contains(said), "{error}");
    }
    let nothing = Replay::of_state(folder.path()).expect_err("nothing was recorded");
    assert!(
        format!("{nothing:?}").contains("no input was recorded here"),
        "{nothing:?}"
    );

    let rehearsal = Rehearsal::new()
        .other_sinks::<millstream_flow::Frames, _>(|_| Ok(Collected::<Vec<u8>>::new().sink()));
    let rehearsal = Arc::new(rehearsal.replay(&both).expect("it is there"));
    let mut options = Options {
        rehearsal: Some(rehearsal),
        ..Options::default()
    };
    flow.run(options.clone()).expect("it runs");
    assert!(
        matches!(flow.run(options.clone()), Err(FlowError::Usage(said)) if said == "a replay runs once")
    );
    options.recovery = Some(Recovery::new(folder.path().join("state")));
    assert!(flow.run(options).is_err());
}
