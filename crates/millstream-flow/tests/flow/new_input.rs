//! A flow that has finished processes new input of its sources when it is run again.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use millstream_flow::checkpoint::{Crash, Saved};
use millstream_flow::source::Source;
use millstream_flow::testing::Collected;
use millstream_flow::window::Windowed;
use millstream_flow::{
    Emit, EventTime, Flow, FlowError, Options, Recovery, SourceExt, Window, codec, files, journals,
};
use millstream_journal::{Journal, Options as Opening};

use crate::recovery::{lines, run};
use crate::support::Random;

fn append(path: &Path, text: &str) {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.expect("it is written");
}

/// Lines `key number`, `count` of them from a number on.
fn numbers(from: usize, count: usize) -> String {
    let line = |n| format!("k{} {n}\n", n % 7);
    (from..from + count).map(line).collect()
}

fn key_of(line: &str) -> String {
    line.split(' ').next().unwrap_or_default().to_owned()
}

fn number_of(line: &str) -> i64 {
    let number = line.split(' ').nth(1).and_then(|text| text.parse().ok());
    number.expect("a number")
}

fn file(path: &Path) -> impl Source<Vec<String>> + use<> {
    codec::decode(files::read([path]), codec::text)
}

/// The counts of keys: running counts, and the output at the end, which is counted once more.
fn counting(source: impl Source<Vec<String>>, out: &Path) -> Flow {
    let flow = Flow::new("counting");
    let keyed = flow.source("lines", source).key_by(|line| key_of(line));
    let show = |(key, count): (String, u64)| format!("{key} {count}");
    let each = keyed.count(Emit::Each).named("each").items().map(show);
    let end = keyed.count(Emit::End).named("end").items();
    let ends = end.key_by(|(key, _)| key.clone()).count(Emit::Each);
    let ends = ends
        .named("ends")
        .items()
        .map(|(key, n)| format!("ends {key} {n}"));
    let end = end.map(move |pair| format!("end {}", show(pair)));
    each.merge(&[end, ends])
        .sink("out", codec::encode(files::write(out), codec::display));
    flow
}

/// The outputs of `counting` for `all` lines of which an earlier run has read the first `before`.
fn counted(before: usize, all: usize) -> Vec<String> {
    let mut given: Vec<String> = (before..all)
        .map(|n| format!("k{} {}", n % 7, n / 7 + 1))
        .collect();
    for key in 0..7 {
        given.push(format!("end k{key} {}", (all + 6 - key) / 7));
        given.push(format!("ends k{key} 1"));
    }
    given.sort();
    given
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

/// Runs until it ends, with a crash at a point of some commit each time.
fn with_crashes(flow: &Flow, state: &Path, random: &mut Random) -> usize {
    for crashes in 0..1000 {
        let at = Crash::MOMENTS[random.below(3) as usize](1 + random.below(4) as u64);
        let recovery = Recovery::new(state)
            .epoch(Duration::ZERO)
            .sync(false)
            .crash(at);
        match run(flow, 1 + random.below(3) as usize, recovery) {
            Ok(()) => return crashes,
            Err(FlowError::Crashed(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it gets nowhere");
}

#[test]
fn a_grown_file_resumes_and_each_run_emits_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let [input, out, state] = ["in", "out", "state"].map(|name| folder.path().join(name));
    let flow = counting(file(&input), &out);
    let mut expected = Vec::new();
    let mut before = 0;
    for all in [700, 800, 803] {
        append(&input, &numbers(before, all - before));
        run(&flow, 1, Recovery::new(&state)).expect("it runs");
        expected.extend(counted(before, all));
        assert_eq!(
            sorted(lines(&out)),
            sorted(expected.clone()),
            "{before} to {all}"
        );
        before = all;
        // Without new input nothing is emitted, however often it runs.
        for _ in 0..2 {
            run(&flow, 1, Recovery::new(&state)).expect("it runs");
            assert_eq!(lines(&out).len(), expected.len(), "{all}");
            let saved = Saved::open(&state).expect("it has kept its state");
            assert!(saved.commit().is_some_and(|commit| commit.finished));
        }
    }
}

#[test]
fn kills_between_and_inside_the_runs_do_not_change_the_results() {
    for seed in 0..12 {
        let folder = tempfile::tempdir().expect("a folder");
        let [input, out, state] = ["in", "out", "state"].map(|name| folder.path().join(name));
        let mut random = Random::new(seed);
        let source: Box<dyn Source<Vec<String>>> = match seed % 2 {
            0 => Box::new(file(&input)),
            _ => Box::new(file(&input).durable()),
        };
        let flow = counting(source, &out);
        let mut before = 0;
        let mut crashes = 0;
        let mut expected = Vec::new();
        for round in 0..3 {
            let all = before + 20_000 + random.below(500) as usize;
            append(&input, &numbers(before, all - before));
            crashes += with_crashes(&flow, &state, &mut random);
            // A kill after the last commit is the end of that run; new input is processed by the next.
            crashes += with_crashes(&flow, &state, &mut random);
            expected.extend(counted(before, all));
            assert_eq!(
                sorted(lines(&out)),
                sorted(expected.clone()),
                "seed {seed}, round {round}"
            );
            before = all;
        }
        assert!(crashes > 0, "seed {seed}");
    }
}

#[test]
fn an_open_window_continues_in_the_next_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let [input, out, state] = ["in", "out", "state"].map(|name| folder.path().join(name));
    let flow = Flow::new("windows");
    let tens = flow
        .source("lines", file(&input))
        .event_time(|line| number_of(line), EventTime::default())
        .key_by(|line| key_of(line))
        .window("tens", Window::tumbling(Duration::from_nanos(10)))
        .count();
    let show = |window: Windowed<u64>| format!("{} {}", window.start, window.value);
    tens.results
        .items()
        .map(move |(key, window)| format!("{key} {}", show(window.value)))
        .sink("out", codec::encode(files::write(&out), codec::display));
    append(&input, "a 1\na 2\na 11\n");
    run(&flow, 1, Recovery::new(&state)).expect("it runs");
    assert_eq!(lines(&out), ["a 0 2", "a 10 1"]);
    append(&input, "a 12\na 21\n");
    run(&flow, 1, Recovery::new(&state)).expect("it runs");
    assert_eq!(lines(&out)[2..], ["a 10 2", "a 20 1"]);
}

#[test]
fn a_list_that_is_not_full_at_the_end_of_a_run_is_emitted_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let [input, out, state] = ["in", "out", "state"].map(|name| folder.path().join(name));
    let flow = Flow::new("lists");
    flow.source("lines", file(&input))
        .collect("threes", 3, None)
        .map(|list| list.join(","))
        .sink("out", codec::encode(files::write(&out), codec::display));
    append(&input, "a\nb\nc\nd\n");
    run(&flow, 1, Recovery::new(&state)).expect("it runs");
    append(&input, "e\n");
    run(&flow, 1, Recovery::new(&state)).expect("it runs");
    assert_eq!(lines(&out), ["a,b,c", "d", "e"]);
}

#[test]
fn a_new_file_and_a_known_one_are_both_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let [first, second, state] = ["in1", "in2", "state"].map(|name| folder.path().join(name));
    let out = Collected::new();
    let flow = |paths: &[&Path]| {
        let flow = Flow::new("files");
        flow.source("lines", codec::decode(files::read(paths), codec::text))
            .sink("out", out.sink());
        flow
    };
    append(&first, "a\n");
    run(&flow(&[&first]), 1, Recovery::new(&state)).expect("it runs");
    append(&first, "b\n");
    append(&second, "c\n");
    run(&flow(&[&first, &second]), 1, Recovery::new(&state)).expect("it runs");
    let found: Vec<String> = out.take();
    assert_eq!(sorted(found), ["a", "b", "c"]);
}

#[test]
fn a_grown_journal_resumes() {
    let folder = tempfile::tempdir().expect("a folder");
    let [input, state] = ["in", "state"].map(|name| folder.path().join(name));
    let journal = Journal::open(&input, Opening::default()).expect("it is made");
    let writer = journal.writer().expect("it writes");
    let flow = Flow::new("read");
    let out = Collected::<String>::new();
    let source = codec::decode(journals::read(&input), codec::text);
    flow.source("in", source).sink("out", out.sink());
    let mut expected = Vec::new();
    for round in ["a", "b", "c"] {
        writer.append_many([round]).expect("it appends");
        expected.push(round);
        run(&flow, 1, Recovery::new(&state)).expect("it runs");
    }
    assert_eq!(out.take(), expected);
}

/// The error of a run over a file that was read before and is different now.
fn refused(before: &str, now: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let [input, state] = ["in", "state"].map(|name| folder.path().join(name));
    let flow = Flow::new("files");
    flow.source("lines", file(&input))
        .sink("out", Collected::<String>::new().sink());
    append(&input, before);
    run(&flow, 1, Recovery::new(&state)).expect("it runs");
    std::fs::write(&input, now).expect("it is written");
    let outcome = run(&flow, 1, Recovery::new(&state));
    format!("{:?}", outcome.expect_err("it is refused"))
}

#[test]
fn a_replaced_file_is_an_error() {
    let shorter = refused("a\nb\n", "a\n");
    assert!(
        shorter.contains("it has 2 bytes, fewer than the 4"),
        "{shorter}"
    );
    let longer = refused("a\nb", "a\nbc\n");
    assert!(longer.contains("the line before byte 3"), "{longer}");
}

#[test]
fn a_last_line_may_get_a_line_end_later() {
    for end in ["\n", "\r\n"] {
        let folder = tempfile::tempdir().expect("a folder");
        let [input, state] = ["in", "state"].map(|name| folder.path().join(name));
        let flow = Flow::new("files");
        let out = Collected::<String>::new();
        flow.source("lines", file(&input)).sink("out", out.sink());
        for text in ["a", end, "b\nc", &format!("{end}d")] {
            append(&input, text);
            run(&flow, 1, Recovery::new(&state)).expect("it runs");
        }
        assert_eq!(out.take(), ["a", "b", "c", "d"]);
    }
}

#[test]
fn a_stopped_run_emits_no_output_at_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let [input, out, state] = ["in", "out", "state"].map(|name| folder.path().join(name));
    append(&input, &numbers(0, 700));
    let flow = counting(file(&input), &out);
    let options = Options {
        recovery: Some(Recovery::new(&state)),
        ..Options::default()
    };
    let running = flow.start(options).expect("it starts");
    running.stop();
    crate::support::finish(running).expect("it stops");
    run(&flow, 1, Recovery::new(&state)).expect("it runs");
    assert_eq!(sorted(lines(&out)), counted(0, 700));
}

#[test]
fn a_fresh_run_removes_the_saved_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let [input, out, state] = ["in", "out", "state"].map(|name| folder.path().join(name));
    append(&input, &numbers(0, 700));
    for durable in [false, true] {
        let source: Box<dyn Source<Vec<String>>> = if durable {
            Box::new(file(&input).durable())
        } else {
            Box::new(file(&input))
        };
        let flow = counting(source, &out);
        for _ in 0..3 {
            run(&flow, 1, Recovery::new(&state).fresh()).expect("it runs");
            assert_eq!(sorted(lines(&out)), counted(0, 700));
        }
        let other = Flow::new("other");
        other
            .source("others", file(&input))
            .sink("nothing", Collected::new().sink());
        let refused = run(&other, 1, Recovery::new(&state).fresh()).expect_err("it is not its own");
        assert!(
            format!("{refused:?}")
                .contains("it is the state of flow \"counting\", not of \"other\""),
            "{refused}"
        );
        run(&flow, 1, Recovery::new(&state)).expect("it runs");
        assert_eq!(
            sorted(lines(&out)),
            counted(0, 700),
            "nothing was forgotten"
        );
    }
}

#[test]
fn a_file_at_the_path_of_the_state_directory_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let [input, state] = ["in", "state"].map(|name| folder.path().join(name));
    append(&input, "a\n");
    append(&state, "something\n");
    let flow = Flow::new("files");
    flow.source("lines", file(&input))
        .sink("out", Collected::<String>::new().sink());
    let refused = run(&flow, 1, Recovery::new(&state)).expect_err("it is refused");
    let said = format!(
        "Options::recovery: {} is a file, not a directory",
        state.display()
    );
    assert_eq!(format!("{refused:?}"), said);
}
