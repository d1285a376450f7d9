//! Sinks that one worker writes for all processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_flow::checkpoint::{Crash, rescale};
use millstream_flow::control::Control;
use millstream_flow::error::Cause;
use millstream_flow::outbox::{Outbox, OutboxIdentity, connector};
use millstream_flow::sink::{Sink, Writer};
use millstream_flow::testing::Collected;
use millstream_flow::{Flow, Frames, Options, Recovery, SourceExt, Stream, codec, files};

use super::hub::{Hub, Outcomes, finish, start_with, until};
use super::tables::{Table, Tables};

/// The files of the source, which are its partitions, and the lines of each.
const FILES: usize = 4;
const LINES: usize = 120;
const KEYS: usize = 7;

fn write_input(dir: &Path) {
    for file in 0..FILES {
        let lines = (0..LINES).map(|line| format!("{file}-{}\n", line % KEYS));
        std::fs::write(dir.join(format!("in{file}")), lines.collect::<String>()).unwrap();
    }
}

/// The number of each line among those of its key.
fn counted(dir: &Path, flow: &Flow) -> Stream<String> {
    let paths = (0..FILES).map(|file| dir.join(format!("in{file}")));
    let lines = codec::decode(files::read(paths), codec::text).batch_size(3);
    flow.source("lines", lines)
        .key_by(|line: &String| line.clone())
        .stateful(
            "numbers",
            |_| 0i64,
            |number, _, _| {
                *number += 1;
                Some(*number)
            },
        )
        .items()
        .map(|(key, number)| format!("{key} {number}"))
}

fn flow(dir: &Path, gathered: bool) -> Flow {
    let flow = Flow::new("gathered");
    let sink = codec::encode(files::write(dir.join("out.txt")), codec::display);
    let counted = counted(dir, &flow);
    if gathered {
        counted.sink_gathered("out", sink)
    } else {
        counted.sink("out", sink)
    }
    flow
}

fn recovery(dir: &Path) -> Recovery {
    Recovery::new(dir.join("state"))
        .epoch(Duration::ZERO)
        .sync(false)
}

/// Checks that one file has the output of all processes, in order for each key.
fn check(dir: &Path) {
    let names = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("out"))
        .collect();
    names.sort();
    assert_eq!(names, ["out.txt"]);
    check_file(&dir.join("out.txt"));
}

fn check_file(path: &Path) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut keys: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for line in text.lines() {
        let (key, number) = line.split_once(' ').unwrap();
        keys.entry(key).or_default().push(number.parse().unwrap());
    }
    assert_eq!(keys.len(), FILES * KEYS);
    for (key, numbers) in &keys {
        let expected: Vec<usize> = (1..=numbers.len()).collect();
        assert_eq!(*numbers, expected, "{key}");
    }
    let lines: usize = keys.values().map(Vec::len).sum();
    assert_eq!(lines, FILES * LINES);
}

/// Runs on several processes until all have ended, one of them by `crash` if there is one.
fn run(
    dir: &Path,
    (processes, workers): (usize, usize),
    gathered: bool,
    crash: Option<(usize, Crash)>,
) -> Outcomes {
    let hub = Hub::new(processes);
    let own = dir.to_owned();
    let recovery = |process: usize| {
        let recovery = recovery(dir);
        Some(match crash {
            Some((of, crash)) if of == process => recovery.crash(crash),
            _ => recovery,
        })
    };
    let running = start_with(&hub, workers, recovery, move |_| flow(&own, gathered));
    finish(running)
}

/// Runs on several processes or on one until there is more output, and stops.
fn run_a_while(dir: &Path, processes: usize, workers: usize) {
    let out = dir.join("out.txt");
    let size = || std::fs::metadata(&out).map_or(0, |about| about.len());
    let before = size();
    if processes == 1 {
        let mut options = Options::workers(workers);
        options.recovery = Some(recovery(dir));
        let running = flow(dir, true).start(options).unwrap();
        until("there is output", || {
            size() > before || running.ended_within(Duration::ZERO)
        });
        running.stop();
        running.wait().unwrap();
        return;
    }
    let hub = Hub::new(processes);
    let own = dir.to_owned();
    let running = start_with(
        &hub,
        workers,
        |_| Some(recovery(dir)),
        move |_| flow(&own, true),
    );
    until("there is output", || {
        size() > before || running.iter().all(|process| process.is_finished())
    });
    hub.stop();
    for outcome in finish(running) {
        outcome.unwrap();
    }
}

#[test]
fn all_processes_write_one_file() {
    for (processes, workers) in [(2, 1), (2, 2), (3, 1)] {
        let dir = tempfile::tempdir().unwrap();
        write_input(dir.path());
        for outcome in run(dir.path(), (processes, workers), true, None) {
            outcome.unwrap();
        }
        check(dir.path());
    }
    let dir = tempfile::tempdir().unwrap();
    write_input(dir.path());
    flow(dir.path(), true).run(Options::workers(3)).unwrap();
    check(dir.path());
}

#[test]
fn a_crash_at_any_point_of_a_commit_changes_no_line() {
    for of in [0, 1] {
        for at in [1, 3] {
            for crash in Crash::SHARED_MOMENTS.map(|moment| moment(at)) {
                let dir = tempfile::tempdir().unwrap();
                write_input(dir.path());
                run(dir.path(), (2, 2), true, Some((of, crash)));
                for outcome in run(dir.path(), (2, 2), true, None) {
                    outcome.unwrap();
                }
                check(dir.path());
            }
        }
    }
}

#[test]
fn another_number_of_processes_continues_the_file() {
    let dir = tempfile::tempdir().unwrap();
    write_input(dir.path());
    let state = dir.path().join("state");
    run_a_while(dir.path(), 1, 1);
    for (processes, workers) in [(3, 1), (1, 2), (2, 2), (2, 1), (1, 1), (4, 1)] {
        rescale(&state, processes, Some(workers), false).unwrap();
        run_a_while(dir.path(), processes, workers);
    }
    for outcome in run(dir.path(), (4, 1), true, None) {
        outcome.unwrap();
    }
    check(dir.path());
}

/// The error of the run on several processes: that of process 0, as the others have lost it.
fn refused(outcomes: Outcomes) -> String {
    let errors = outcomes.into_iter().filter_map(|outcome| match outcome {
        Err(error) if !error.is_lost() => Some(format!("{error:?}")),
        _ => None,
    });
    errors.collect::<Vec<_>>().join("; ")
}

#[test]
fn a_sink_that_is_gathered_or_no_longer_gathered_is_refused() {
    for before in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        write_input(dir.path());
        for outcome in run(dir.path(), (2, 1), before, None) {
            outcome.unwrap();
        }
        let words = if before {
            "sink \"out\" was gathered in the run before, and is not now"
        } else {
            "sink \"out\" was written by each process in the run before, and is gathered now"
        };
        let error = refused(run(dir.path(), (2, 1), !before, None));
        assert!(error.contains(words), "{error}");
        for outcome in run(dir.path(), (2, 1), before, None) {
            outcome.unwrap();
        }
        rescale(dir.path().join("state"), 3, None, false).unwrap();
        let error = refused(run(dir.path(), (3, 1), !before, None));
        assert!(error.contains(words), "{error}");
        // As before it continues.
        for outcome in run(dir.path(), (3, 1), before, None) {
            outcome.unwrap();
        }
        let hub = Hub::new(3);
        let own = dir.path().to_owned();
        let recovery = |_| Some(recovery(dir.path()).drop_state("out"));
        let running = start_with(&hub, 1, recovery, move |_| flow(&own, !before));
        for outcome in finish(running) {
            outcome.unwrap();
        }
    }
}

#[test]
fn a_file_of_one_process_becomes_the_one_of_all() {
    let dir = tempfile::tempdir().unwrap();
    write_input(dir.path());
    let mut options = Options::workers(2);
    options.recovery = Some(recovery(dir.path()).crash(Crash::After(3)));
    flow(dir.path(), false).run(options).unwrap_err();
    let mut options = Options::workers(1);
    options.recovery = Some(recovery(dir.path()));
    // On one process it does not matter.
    let running = flow(dir.path(), true).start(options).unwrap();
    running.stop();
    running.wait().unwrap();
    rescale(dir.path().join("state"), 2, Some(1), false).unwrap();
    for outcome in run(dir.path(), (2, 1), true, None) {
        outcome.unwrap();
    }
    check(dir.path());
}

#[test]
fn a_file_of_two_sinks_is_gathered_for_both_or_none() {
    let dir = tempfile::tempdir().unwrap();
    write_input(dir.path());
    let sink: Arc<dyn Sink<Frames>> = Arc::new(files::write(dir.path().join("out.txt")));
    let flow = Flow::new("two");
    let source = |name: &str| flow.source(name, files::read([dir.path().join("in0")]));
    source("one").sink("plain", Arc::clone(&sink));
    source("two").sink_gathered("gathered", sink);
    let error = format!("{:?}", flow.run(Options::default()).unwrap_err());
    assert!(error.contains("gather both or none"), "{error}");
}

/// Notes which workers open it.
struct Opened(Arc<Mutex<Vec<usize>>>);

struct Nothing;

impl Writer<Vec<i64>> for Nothing {
    fn write_batch(&mut self, batch: &mut Vec<i64>) -> Result<(), Cause> {
        batch.clear();
        Ok(())
    }
    fn flush(&mut self) -> Result<(), Cause> {
        Ok(())
    }
}

impl Sink<Vec<i64>> for Opened {
    fn describe(&self) -> String {
        "counted".to_owned()
    }
    fn open(&self, worker: usize, _: &Arc<Control>) -> Result<Box<dyn Writer<Vec<i64>>>, Cause> {
        self.0.lock().unwrap().push(worker);
        Ok(Box::new(Nothing))
    }
    fn in_one_process(&self) -> bool {
        true
    }
}

#[test]
fn a_sink_of_one_process_is_gathered_where_there_are_several() {
    let opened: Arc<Mutex<Vec<usize>>> = Arc::default();
    let described = {
        let opened = Arc::clone(&opened);
        move |_: usize| {
            let flow = Flow::new("numbers");
            let numbers = millstream_flow::testing::items(0..100i64);
            flow.source("in", numbers)
                .redistribute()
                .sink("out", Opened(Arc::clone(&opened)));
            flow
        }
    };
    described(0).run(Options::workers(2)).unwrap();
    let mut workers = std::mem::take(&mut *opened.lock().unwrap());
    workers.sort_unstable();
    assert_eq!(workers, [0, 1]);
    super::hub::run(2, 2, described);
    assert_eq!(*opened.lock().unwrap(), [0]);
}

#[test]
fn the_graph_shows_it() {
    let flow = Flow::new("shown");
    let numbers = flow.source("in", millstream_flow::testing::items([1i64]));
    numbers.sink_gathered("out", Collected::new().sink());
    let shown = flow.describe();
    assert!(shown.to_string().contains("gathered from in"), "{shown}");
    assert!(shown.to_mermaid().contains("==>"), "{shown}");
}

#[test]
fn a_gathered_outbox_has_one_identity() {
    let dir = tempfile::tempdir().unwrap();
    write_input(dir.path());
    let tables = Tables::default();
    let own = dir.path().to_owned();
    let run = |crash: Option<Crash>| {
        let tables = Arc::clone(&tables);
        let own = own.clone();
        let described = move |_: usize| {
            let tables = Arc::clone(&tables);
            let table = connector("a table", true, move |identity: &OutboxIdentity| {
                Ok(Table::of(&tables, identity))
            });
            let flow = Flow::new("delivered");
            counted(&own, &flow)
                .sink_gathered("out", codec::encode(Outbox::new(table), codec::display));
            flow
        };
        let recovery = |process: usize| {
            let recovery = recovery(dir.path());
            Some(match crash {
                Some(crash) if process == 1 => recovery.crash(crash),
                _ => recovery,
            })
        };
        finish(start_with(&Hub::new(2), 2, recovery, described))
    };
    run(Some(Crash::Within(3)));
    for outcome in run(None) {
        outcome.unwrap();
    }
    let tables = tables.lock().unwrap();
    assert_eq!(tables.len(), 1);
    for rows in tables.values() {
        let numbers: Vec<u64> = rows.iter().map(|row| row.0).collect();
        assert_eq!(numbers, (0..rows.len() as u64).collect::<Vec<_>>());
        let text: String = rows.iter().map(|row| format!("{}\n", row.1)).collect();
        let path = dir.path().join("delivered");
        std::fs::write(&path, text).unwrap();
        check_file(&path);
    }
}
