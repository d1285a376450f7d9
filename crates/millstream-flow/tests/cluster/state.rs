//! State over processes: whatever process ends at whatever point of a commit, the output is that of an unbroken run.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millstream_flow::checkpoint::{Crash, Saved, process_dir};
use millstream_flow::join::{Join, JoinKind, Pairs};
use millstream_flow::outbox::{Outbox, OutboxIdentity, connector};
use millstream_flow::source::Source;
use millstream_flow::window::{Outcome, Windowed};
use millstream_flow::{
    EventTime, Flow, FlowError, Frames, Options, Recovery, SourceExt, Stream, Timed, Window, codec,
    files,
};

use super::hub::{Hub, Outcomes, finish, start_with};
use super::tables::{Table, Tables};

/// The files of each source, which are its partitions.
const FILES: usize = 3;
/// The lines of each key.
const LINES: i64 = 40;

type Item = (u64, i64, i64);

/// Writes the input: lines `KEY TIME NUMBER`, each key in one file, in order.
pub fn write_input(dir: &Path) {
    for source in ["left", "right"] {
        for file in 0..FILES {
            let mut text = String::new();
            for number in 1..=LINES {
                for key in (0..9).filter(|key| key % FILES == file) {
                    text += &format!("{key} {} {number}\n", number * 3);
                }
            }
            std::fs::write(dir.join(format!("{source}{file}")), text).unwrap();
        }
    }
}

/// A pair of an outer join.
type Outer = (Option<i64>, Option<i64>);

fn parse(line: &[u8]) -> Result<Item, String> {
    let line = std::str::from_utf8(line).map_err(|error| error.to_string())?;
    let mut words = line.split(' ').map(str::parse::<i64>);
    let mut word = || words.next().and_then(Result::ok).ok_or("three numbers");
    Ok((word()? as u64, word()?, word()?))
}

/// Windows and joins by key, each into a file.
pub fn flow(dir: &Path) -> Flow {
    described(dir, false)
}

/// The same, with a source that is durable.
pub fn durable_flow(dir: &Path) -> Flow {
    described(dir, true)
}

fn described(dir: &Path, is_durable: bool) -> Flow {
    let flow = Flow::new("all");
    flow.saves::<Item>();
    let source = |name: &str| {
        let paths = (0..FILES).map(|file| dir.join(format!("{name}{file}")));
        let lines: Arc<dyn Source<Frames>> = if is_durable && name == "left" {
            Arc::new(files::read(paths).durable())
        } else {
            Arc::new(files::read(paths))
        };
        let source = codec::decode(lines, parse).batch_size(3);
        flow.source(name, source)
            .event_time(|item: &Item| item.1, EventTime::default())
    };
    let sink = |name: &str| codec::encode(files::write(dir.join(name)), codec::display);
    let left = source("left");
    let right = source("right");
    let keyed = |stream: &Stream<Timed<Item>>| {
        stream
            .key_by(|item| item.0)
            .map(|item| item.map(|(_, _, number)| number))
    };
    let closed: Outcome<u64, i64, Windowed<i64>> = keyed(&left)
        .window("windows", Window::tumbling(Duration::from_nanos(10)))
        .fold(0, |sum, number| *sum += number, |sum, later| *sum += later);
    let windows = closed.results.items();
    windows
        .map(|(key, window)| format!("{key} {} {}", window.time, window.value.value))
        .sink("windows-out", sink("windows.txt"));
    let joined: Pairs<u64, i64, i64> =
        keyed(&left).join("joined", &keyed(&right), Join::latest().how(JoinKind::Full));
    let results: Stream<(u64, Timed<Outer>)> = joined.results.items();
    results
        .map(|(key, pair)| format!("{key} {} {:?}", pair.time, pair.value))
        .sink("joined-out", sink("joined.txt"));
    flow
}

/// The lines of an output over the files of all processes, sorted.
pub fn lines(dir: &Path, stem: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with(stem) && name.ends_with(".txt") {
            let text = std::fs::read_to_string(&path).unwrap();
            lines.extend(text.lines().map(str::to_owned));
        }
    }
    lines.sort();
    lines
}

/// The outputs of a run on one process without state.
pub fn expected() -> [Vec<String>; 2] {
    let dir = tempfile::tempdir().unwrap();
    write_input(dir.path());
    flow(dir.path()).run(Options::default()).unwrap();
    outputs(dir.path())
}

pub fn outputs(dir: &Path) -> [Vec<String>; 2] {
    ["windows", "joined"].map(|stem| lines(dir, stem))
}

pub fn recovery(dir: &Path) -> Recovery {
    Recovery::new(dir.join("state"))
        .epoch(Duration::ZERO)
        .sync(false)
}

/// Runs on several processes until all have ended, one of them by `crash` if there is one.
fn run(dir: &Path, processes: usize, workers: usize, crash: Option<(usize, Crash)>) -> Outcomes {
    let hub = Hub::new(processes);
    let own = dir.to_owned();
    let recovery = |process: usize| {
        let recovery = recovery(dir);
        Some(match crash {
            Some((of, at)) if of == process => recovery.crash(at),
            _ => recovery,
        })
    };
    finish(start_with(&hub, workers, recovery, move |_| flow(&own)))
}

/// Runs until one of the processes ends by a crash, and the others for the lack of it.
pub fn crash(dir: &Path, processes: usize, workers: usize, (crashed, at): (usize, Crash)) {
    let outcomes = run(dir, processes, workers, Some((crashed, at)));
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let error = outcome.unwrap_err();
        if number == crashed {
            assert!(matches!(error, FlowError::Crashed(_)), "{error}")
        } else {
            assert!(error.is_lost(), "{error}")
        }
    }
}

#[test]
fn a_crash_at_any_point_of_a_commit_changes_no_output() {
    let expected = expected();
    for (process, workers) in [(0, 1), (1, 2)] {
        for moment in Crash::SHARED_MOMENTS {
            let dir = tempfile::tempdir().unwrap();
            write_input(dir.path());
            for commit in [1, 4, 2] {
                crash(dir.path(), 2, workers, (process, moment(commit)));
            }
            for outcome in run(dir.path(), 2, workers, None) {
                outcome.unwrap();
            }
            assert_eq!(
                outputs(dir.path()),
                expected,
                "process {process}, {}",
                moment(1)
            );
        }
    }
}

#[test]
fn a_flow_that_has_finished_emits_its_end_once() {
    let dir = tempfile::tempdir().unwrap();
    write_input(dir.path());
    for _ in 0..3 {
        for outcome in run(dir.path(), 3, 1, None) {
            outcome.unwrap();
        }
        assert_eq!(outputs(dir.path()), expected());
        for process in 0..3 {
            let saved = Saved::open(&process_dir(dir.path().join("state"), process)).unwrap();
            assert!(saved.commit().unwrap().finished);
        }
    }
}

#[test]
fn each_process_writes_files_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    write_input(dir.path());
    run(dir.path(), 2, 2, None);
    assert!(!dir.path().join("windows.txt").exists());
    let sizes = [0, 1].map(|process| {
        let path = dir.path().join(format!("windows.p{process}.txt"));
        std::fs::metadata(path).unwrap().len()
    });
    assert!(sizes.iter().all(|size| *size > 0), "{sizes:?}");
}

#[test]
fn a_state_of_another_number_of_processes_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_input(dir.path());
    run(dir.path(), 2, 1, None);
    for (processes, workers) in [(1, 1), (3, 1), (2, 2)] {
        let first = match processes {
            1 => {
                let mut options = Options::workers(workers);
                options.recovery = Some(recovery(dir.path()));
                flow(dir.path()).run(options).map(drop)
            }
            // The others wait for a process that does not join.
            _ => {
                let hub = Hub::new(processes);
                let mut options = hub.options(0, workers);
                options.recovery = Some(recovery(dir.path()));
                let shared = Arc::new(flow(dir.path()));
                shared.start(options).map(drop)
            }
        };
        let error = format!("{:?}", first.unwrap_err());
        assert!(error.contains("millstream scale"), "{error}");
    }
    for outcome in run(dir.path(), 2, 1, None) {
        outcome.unwrap();
    }
}

#[test]
fn each_process_delivers_from_an_outbox_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    write_input(dir.path());
    let tables = Tables::default();
    let own = dir.path().to_owned();
    for _ in 0..2 {
        let tables = Arc::clone(&tables);
        let own = own.clone();
        let described = move |_: usize| {
            let tables = Arc::clone(&tables);
            let table = connector("a table", true, move |identity: &OutboxIdentity| {
                Ok(Table::of(&tables, identity))
            });
            let flow = Flow::new("delivered");
            let paths = (0..FILES).map(|file| own.join(format!("left{file}")));
            flow.source(
                "lines",
                codec::decode(files::read(paths), codec::text).batch_size(5),
            )
            .sink("out", codec::encode(Outbox::new(table), codec::display));
            flow
        };
        let hub = Hub::new(2);
        let recovery = |_: usize| Some(recovery(dir.path()));
        for outcome in finish(start_with(&hub, 1, recovery, described)) {
            outcome.unwrap();
        }
    }
    let tables = tables.lock().unwrap();
    assert_eq!(tables.len(), 2);
    let mut found = Vec::new();
    for rows in tables.values() {
        let numbers: Vec<u64> = rows.iter().map(|row| row.0).collect();
        assert_eq!(numbers, (0..rows.len() as u64).collect::<Vec<_>>());
        found.extend(rows.iter().map(|row| row.1.clone()));
    }
    found.sort();
    let mut lines: Vec<String> = Vec::new();
    for file in 0..FILES {
        let text = std::fs::read_to_string(dir.path().join(format!("left{file}"))).unwrap();
        lines.extend(text.lines().map(str::to_owned));
    }
    lines.sort();
    assert_eq!(found, lines);
}
