//! A flow that is killed at any commit, or suspended, produces the same output as without an interruption.

use std::path::Path;
use std::time::Duration;

use millstream_flow::{Emit, Flow, FlowError, Options, Recovery, codec, files};

use crate::support::{Random, finish};

fn words(seed: u64, lines: usize) -> String {
    let mut random = Random::new(seed);
    let line = |random: &mut Random| -> String {
        let words = (0..4).map(|_| format!("w{}", random.below(20)));
        words.collect::<Vec<_>>().join(" ")
    };
    (0..lines).map(|_| line(&mut random) + "\n").collect()
}

/// Each word with its count so far, and all counts at the end.
fn word_count(inputs: &[&Path], out: &Path) -> Flow {
    let flow = Flow::new("word-count");
    let text = codec::decode(files::read(inputs), codec::text);
    let keyed = flow
        .source("lines", text)
        .flat_map(|line: String| line.split(' ').map(String::from).collect::<Vec<_>>())
        .key_by(|word| word.clone());
    let show = |(word, count): (String, u64)| format!("{word} {count}");
    let each = keyed.count(Emit::Each).named("each").items().map(show);
    let end = keyed.count(Emit::End).named("end").items();
    let end = end.map(move |pair| format!("end {}", show(pair)));
    each.merge(&[end])
        .sink("out", codec::encode(files::write(out), codec::display));
    flow
}

pub fn run(flow: &Flow, workers: usize, recovery: Recovery) -> Result<(), FlowError> {
    let mut options = Options::workers(workers);
    options.recovery = Some(recovery);
    finish(flow.start(options)?).map(drop)
}

pub fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("there is output");
    text.lines().map(String::from).collect()
}

/// The counts so far and the counts at the end, each in their order: the order between two branches is not fixed.
fn branches(path: &Path) -> (Vec<String>, Vec<String>) {
    let (ends, counts) = lines(path)
        .into_iter()
        .partition(|line| line.starts_with("end "));
    (counts, ends)
}

fn sorted(path: &Path) -> Vec<String> {
    let mut lines = lines(path);
    lines.sort();
    lines
}

/// Runs until it ends, each time with the number of workers that `workers` returns, and with a crash after each
/// n-th commit.
pub fn crash_everywhere(
    flow: &Flow,
    state: &Path,
    commits: u64,
    mut workers: impl FnMut() -> usize,
) -> usize {
    for crashes in 0.. {
        assert!(crashes < 10_000, "it gets nowhere");
        let recovery = Recovery::new(state).epoch(Duration::ZERO).sync(false);
        match run(flow, workers(), recovery.crash_after(commits)) {
            Ok(()) => return crashes,
            Err(FlowError::Crashed(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    0
}

#[test]
fn a_crash_at_every_commit_does_not_change_the_results() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("in");
    std::fs::write(&input, words(1, 40_000)).expect("it is written");
    let whole = folder.path().join("whole");
    word_count(&[&input], &whole)
        .run(Options::default())
        .expect("it runs");
    for commits in [1, 2, 3] {
        let out = folder.path().join(format!("out{commits}"));
        let state = folder.path().join(format!("state{commits}"));
        let flow = word_count(&[&input], &out);
        let crashes = crash_everywhere(&flow, &state, commits, || 1);
        assert!(crashes > 1, "{crashes}");
        assert_eq!(branches(&out), branches(&whole), "crashed after {commits}");
        // It has finished: another run emits nothing.
        run(&flow, 1, Recovery::new(&state)).expect("it runs");
        assert_eq!(branches(&out), branches(&whole));
    }
}

#[test]
fn another_number_of_workers_resumes_the_same_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let inputs: Vec<_> = (0..3)
        .map(|i| folder.path().join(format!("in{i}")))
        .collect();
    for (seed, input) in (7..).zip(&inputs) {
        std::fs::write(input, words(seed, 20_000)).expect("it is written");
    }
    let inputs: Vec<&Path> = inputs.iter().map(|path| path.as_path()).collect();
    let whole = folder.path().join("whole");
    word_count(&inputs, &whole)
        .run(Options::default())
        .expect("it runs");
    for seed in 0..4 {
        let out = folder.path().join(format!("out{seed}"));
        let state = folder.path().join(format!("state{seed}"));
        let flow = word_count(&inputs, &out);
        let mut random = Random::new(seed);
        let crashes = crash_everywhere(&flow, &state, 2, || 1 + random.below(3) as usize);
        assert!(crashes > 1, "seed {seed}: {crashes}");
        assert_eq!(sorted(&out), sorted(&whole), "seed {seed}");
    }
}

#[test]
fn a_stopped_run_resumes_and_ends_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("in");
    std::fs::write(&input, words(3, 60_000)).expect("it is written");
    let whole = folder.path().join("whole");
    let out = folder.path().join("out");
    word_count(&[&input], &whole)
        .run(Options::default())
        .expect("it runs");
    let flow = word_count(&[&input], &out);
    let mut stops = 0;
    loop {
        let mut options = Options::workers(2);
        options.recovery = Some(
            Recovery::new(folder.path().join("state"))
                .epoch(Duration::from_millis(5))
                .sync(false),
        );
        let running = flow.start(options).expect("it starts");
        if running.ended_within(Duration::from_millis(20)) || stops == 20 {
            finish(running).expect("it ends well");
            break;
        }
        running.stop();
        finish(running).expect("it stops well");
        stops += 1;
    }
    assert_eq!(sorted(&out), sorted(&whole), "{stops} stops");
}

#[test]
fn journals_are_read_and_truncated_at_the_commit() {
    use millstream_flow::journals;
    use millstream_journal::{Journal, Options as Opening};
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("in");
    let output = folder.path().join("out");
    let journal = Journal::open(&input, Opening::default()).expect("it is made");
    let numbers = (0..20_000u64).map(|n| n.to_string());
    journal
        .writer()
        .and_then(|writer| writer.append_many(numbers))
        .expect("it is appended");
    let flow = Flow::new("sums");
    let text = codec::decode(journals::read(&input), |bytes: &[u8]| {
        std::str::from_utf8(bytes)?
            .parse::<u64>()
            .map_err(millstream_flow::error::Cause::from)
    });
    flow.source("in", text)
        .key_by(|n| n % 7)
        .sum(Emit::Each)
        .items()
        .map(|(key, sum)| format!("{key} {sum}"))
        .sink(
            "out",
            codec::encode(journals::append(&output), codec::display),
        );
    let mut random = Random::new(5);
    let state = folder.path().join("state");
    let crashes = crash_everywhere(&flow, &state, 2, || 1 + random.below(2) as usize);
    assert!(crashes > 1, "{crashes}");
    let mut found = Vec::new();
    let mut reader = Journal::open(&output, Opening::read_only())
        .and_then(|journal| journal.reader())
        .expect("there is output");
    while let Some(record) = reader.next().expect("it is sound") {
        found.push(String::from_utf8_lossy(record.body).into_owned());
    }
    let mut sums = [0u64; 7];
    let mut expected: Vec<String> = (0..20_000u64)
        .map(|n| {
            let key = n % 7;
            sums[key as usize] += n;
            format!("{key} {}", sums[key as usize])
        })
        .collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_journal_is_given_back_where_nothing_was_opened() {
    use millstream_flow::sink::Sink;
    use millstream_flow::{Frames, journals};
    use millstream_journal::{Journal, Options as Opening};

    let folder = tempfile::tempdir().expect("it is made");
    let path = folder.path().join("out");
    let sink = journals::append(&path);
    let sink = Sink::<Frames>::transactional(&sink).expect("it commits");
    let append = || {
        Journal::open(&path, Opening::default())
            .and_then(|journal| journal.writer())
            .and_then(|writer| writer.append(b"mine"))
    };
    let first = sink
        .resume(&[])
        .expect("it begins")
        .expect("it has a token");
    assert!(append().is_err());
    sink.finish();
    assert_eq!(append().expect("it is given back"), 0);
    // The record of another stays, and a token from after it is that of the journal as it was given back.
    let second = sink
        .resume(&[first])
        .expect("it resumes")
        .expect("it has a token");
    sink.finish();
    sink.resume(&[second]).expect("it resumes");
    sink.finish();
    assert_eq!(append().expect("it is given back"), 1);
}
