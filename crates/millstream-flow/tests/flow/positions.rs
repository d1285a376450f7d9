//! Sources whose positions are bytes of their own resume from them, also under an adapter and after a crash, and a
//! state directory of version 1, in `tests/fixtures/state-v1`, resumes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millstream_flow::durable::{Recorded, recorded_input_dir};
use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use millstream_flow::poller::Io;
use millstream_flow::source::{Events, Next, Partition, Position, Source};
use millstream_flow::testing::{self, Collected, Mark, Trial};
use millstream_flow::{Emit, Flow, FlowError, Recovery, SourceExt, codec, files};
use millstream_journal::{Journal, Options};

use crate::recovery::{lines, run};

/// Numbers up to an end. A partition, of which there are as many as workers, has its position as text.
struct Counting {
    end: u64,
    /// The newest version of a position that it reads, which it writes.
    version: u8,
    /// The numbers at which it was opened.
    opened: Arc<Mutex<Vec<u64>>>,
}

struct Reading {
    next: u64,
    end: u64,
    version: u8,
}

fn counting(end: u64) -> Counting {
    Counting {
        end,
        version: 1,
        opened: Arc::default(),
    }
}

impl Source<Frames> for Counting {
    fn describe(&self) -> String {
        "numbers".to_owned()
    }
    fn partitions(&self, workers: usize) -> Result<Vec<String>, Cause> {
        Ok((0..workers).map(|number| number.to_string()).collect())
    }
    fn open(
        &self,
        _: usize,
        resume: Option<&Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Frames>>, Cause> {
        let next = match resume {
            Some(position) => {
                let (_, text) = position.require_bytes(self.version)?;
                std::str::from_utf8(text)?.parse()?
            }
            None => 0,
        };
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.push(next);
        Ok(Box::new(Reading {
            next,
            end: self.end,
            version: self.version,
        }))
    }
}

impl Partition<Frames> for Reading {
    fn next_batch(&mut self, batch: &mut Frames, _: &mut Events<'_>) -> Result<Next, Cause> {
        if self.next == self.end {
            return Ok(Next::End);
        }
        batch.clear();
        batch.data.extend(self.next.to_string().bytes());
        batch.spans.push((0, batch.data.len() as u32));
        self.next += 1;
        Ok(Next::Batch)
    }
    fn position(&self) -> Result<Position, Cause> {
        let text = self.next.to_string().into_bytes();
        Ok(Position::bytes(self.version, text))
    }
}

#[test]
fn a_decoded_source_resumes_from_its_position() {
    let folder = tempfile::tempdir().unwrap();
    let out = Collected::new();
    let run_to = |end| {
        let flow = Flow::new("numbers");
        let source: Arc<dyn Source<Frames>> = Arc::new(counting(end));
        flow.source("in", codec::decode(source, codec::text))
            .sink("out", out.sink());
        run(&flow, 1, Recovery::new(folder.path())).unwrap();
    };
    run_to(3);
    run_to(5);
    assert_eq!(out.take(), ["0", "1", "2", "3", "4"]);
}

/// A flow of the numbers from a durable source, and the numbers at which it is opened.
fn durable(end: u64, out: &Collected<String>) -> (Flow, Arc<Mutex<Vec<u64>>>) {
    let flow = Flow::new("numbers");
    let opened = Arc::default();
    let source = Counting {
        opened: Arc::clone(&opened),
        ..counting(end)
    };
    flow.source("in", codec::decode(source.durable(), codec::text))
        .sink("out", out.sink());
    (flow, opened)
}

fn numbers(end: u64) -> Vec<String> {
    (0..end).map(|number| number.to_string()).collect()
}

#[test]
fn a_durable_source_resumes_from_the_position_of_its_last_record() {
    let folder = tempfile::tempdir().unwrap();
    let out = Collected::new();
    let mut crashes = 0;
    let mut end = 200;
    let recorded = || {
        let mut last = 0;
        let path = recorded_input_dir(folder.path(), "in");
        let mut recorded = Recorded::open(path).unwrap();
        while let Some(batch) = recorded.next_batch().unwrap() {
            let position = batch.position();
            let text = position.as_ref().and_then(Position::as_bytes);
            let text = text.map(|(_, text)| std::str::from_utf8(text).unwrap());
            last = text.map_or(0, |text| text.parse().unwrap());
        }
        last
    };
    for attempt in 0.. {
        let before = match attempt {
            0 => 0,
            _ => recorded(),
        };
        let (flow, opened) = durable(end, &out);
        let recovery = Recovery::new(folder.path()).epoch(Duration::ZERO);
        let outcome = run(&flow, 1, recovery.crash_after(1 + attempt % 30));
        // What was recorded is not asked of the source again.
        assert!(opened.lock().unwrap().iter().all(|at| *at == before));
        match outcome {
            Err(FlowError::Crashed(_)) => crashes += 1,
            ended => {
                ended.unwrap();
                if end == 300 {
                    break;
                }
                // It has ended, and resumes from where it ended.
                assert_eq!(recorded(), 200);
                end = 300;
            }
        }
    }
    assert!(crashes > 5, "{crashes}");
    assert_eq!(out.take(), numbers(300));
}

/// A flow of the numbers from a source that is not durable.
fn decoded(end: u64, out: &Collected<String>) -> Flow {
    let flow = Flow::new("numbers");
    flow.source("in", codec::decode(counting(end), codec::text))
        .sink("out", out.sink());
    flow
}

#[test]
fn a_source_that_becomes_durable_resumes_from_its_position() {
    let folder = tempfile::tempdir().unwrap();
    let out = Collected::new();
    run(&decoded(5, &out), 1, Recovery::new(folder.path())).unwrap();
    for end in [8, 8, 9] {
        let (flow, _) = durable(end, &out);
        run(&flow, 1, Recovery::new(folder.path())).unwrap();
    }
    assert_eq!(out.take(), numbers(9));
}

#[test]
fn a_crash_at_every_commit_changes_nothing() {
    let flow = Flow::new("numbers");
    let decoded = codec::decode(counting(0), codec::text);
    flow.source("in", decoded)
        .key_by(|number: &String| number.len())
        .count(Emit::Each)
        .items()
        .sink("out", Collected::new().sink());
    for workers in [1, 2] {
        let trial = || {
            let source = codec::decode(counting(12), codec::text);
            Trial::new(&flow)
                .workers(workers)
                .input("in", source)
                .output::<(usize, u64)>("out")
        };
        let crashes = trial().crash_everywhere().unwrap();
        assert!(crashes > 12, "{crashes}");
    }
}

/// Runs a source that has `first` as its newest version, then `second`; returns the error of the second run.
fn versions(first: u8, second: u8, durable: bool) -> Result<(), FlowError> {
    let folder = tempfile::tempdir().unwrap();
    let out = Collected::new();
    let run = |version, end| {
        let source = Counting {
            version,
            ..counting(end)
        };
        let flow = Flow::new("numbers");
        if durable {
            flow.source("in", codec::decode(source.durable(), codec::text))
        } else {
            flow.source("in", codec::decode(source, codec::text))
        }
        .sink("out", out.sink());
        run(&flow, 1, Recovery::new(folder.path()))
    };
    run(first, 3).unwrap();
    let outcome = run(second, 3);
    // The refusal has changed nothing: the source of before resumes.
    run(first.max(second), 3).unwrap();
    outcome
}

#[test]
fn a_position_of_a_newer_version_is_refused_with_source_and_partition() {
    for durable in [false, true] {
        versions(1, 2, durable).unwrap();
        let error = format!("{:?}", versions(2, 1, durable).unwrap_err());
        let kind = if durable { ", durable" } else { "" };
        let expected = format!(
            "source \"in\" (numbers{kind}): partition \"0\": the saved position is of version 2, and this program's \
             source reads up to version 1; use the newer program"
        );
        assert_eq!(error, expected);
    }
}

#[test]
fn a_source_of_numbers_refuses_a_position_in_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let out = Collected::new();
    run(&decoded(3, &out), 1, Recovery::new(folder.path())).unwrap();
    let flow = Flow::new("numbers");
    flow.source("in", testing::items(["a".to_owned()]))
        .sink("out", out.sink());
    let error = run(&flow, 1, Recovery::new(folder.path())).unwrap_err();
    let error = format!("{error:?}");
    let named = error.starts_with("source \"in\" (test script): partition \"0\": ");
    assert!(named && error.contains("v1:33 is not a number"), "{error}");
}

/// A source whose position cannot be read.
struct Unread;

impl Source<Frames> for Unread {
    fn describe(&self) -> String {
        "lost".to_owned()
    }
    fn open(
        &self,
        _: usize,
        _: Option<&Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Frames>>, Cause> {
        Ok(Box::new(Unread))
    }
}

impl Partition<Frames> for Unread {
    fn next_batch(&mut self, _: &mut Frames, _: &mut Events<'_>) -> Result<Next, Cause> {
        Ok(Next::End)
    }
    fn position(&self) -> Result<Position, Cause> {
        Err("the service says no".into())
    }
}

#[test]
fn a_position_that_fails_ends_the_flow_and_names_the_source() {
    for durable in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let flow = Flow::new("lost");
        if durable {
            flow.source("in", codec::decode(Unread.durable(), codec::text))
        } else {
            flow.source("in", codec::decode(Unread, codec::text))
        }
        .sink("out", Collected::new().sink());
        let error = run(&flow, 1, Recovery::new(folder.path())).unwrap_err();
        assert_eq!(format!("{error:?}"), "step \"in\": the service says no");
    }
}

/// The records of the fixture: the state journal, and the input of two durable sources.
const JOURNALS: [&str; 3] = ["epochs", "inputs/kept", "inputs/kept-tokens"];

fn fixture() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/state-v1")
}

fn fixture_of(journal: &str) -> PathBuf {
    fixture().join(format!("{}.records", journal.replace('/', "-")))
}

/// Writes a journal from its records: a line for each, with its time and its body in hexadecimal digits.
fn write_journal(records: &Path, journal: &Path) {
    let writer = Journal::open(journal, Options::default()).unwrap();
    let writer = writer.writer().unwrap();
    for line in std::fs::read_to_string(records).unwrap().lines() {
        let (time_ns, digits) = line.split_once(' ').unwrap();
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        let body: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
        writer.append_at(time_ns.parse().unwrap(), &body).unwrap();
    }
}

/// Writes the records of a journal.
fn write_records(journal: &Path, records: &Path) {
    let journal = Journal::open(journal, Options::read_only()).unwrap();
    let mut reader = journal.reader().unwrap();
    let mut text = String::new();
    while let Some(record) = reader.next().unwrap() {
        let digits = record.body.iter().map(|byte| format!("{byte:02x}"));
        text += &format!("{} {}\n", record.time_ns, digits.collect::<String>());
    }
    std::fs::write(records, text).unwrap();
}

/// The flow of the fixture, and the numbers at which its sources of text positions were opened.
fn positions(out: &Path) -> (Flow, [Arc<Mutex<Vec<u64>>>; 2]) {
    let flow = Flow::new("positions");
    let opened = [Arc::default(), Arc::default()];
    let tokens = |end, opened: &Arc<_>| Counting {
        opened: Arc::clone(opened),
        ..counting(end)
    };
    let items = |numbers: std::ops::Range<u64>| {
        let items = numbers.map(|number| Mark::Item(number.to_string()));
        items.collect::<Vec<_>>()
    };
    let numbers = testing::script([items(0..50)]).batch_size(3);
    let numbers = flow.source("numbers", numbers);
    let plain = codec::decode(tokens(40, &opened[0]), codec::text);
    let plain = flow.source("tokens", plain);
    let kept = testing::script([items(100..102), items(200..240)]).batch_size(2);
    let kept = flow.source("kept", kept.durable());
    let kept_tokens = codec::decode(tokens(30, &opened[1]).durable(), codec::text);
    let kept_tokens = flow.source("kept-tokens", kept_tokens);
    numbers
        .map(|number| format!("numbers {number}"))
        .merge(&[
            plain.map(|number| format!("tokens {number}")),
            kept.map(|number| format!("kept {number}")),
            kept_tokens.map(|number| format!("kept-tokens {number}")),
        ])
        .key_by(|line| line.split(' ').next().unwrap_or_default().to_owned())
        .count(Emit::Each)
        .named("count")
        .items()
        .map(|(name, count)| format!("{name} {count}"))
        .sink("out", codec::encode(files::write(out), codec::display));
    (flow, opened)
}

/// Writes the fixture: the state directory after the seventh commit, of a source of numbers, one of bytes, and both
/// kinds durable. One partition of the durable numbers has ended.
fn write_fixture() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let out = folder.path().join("out");
    let (flow, _) = positions(&out);
    let recovery = Recovery::new(&state).epoch(Duration::ZERO);
    run(&flow, 1, recovery.crash_after(7)).unwrap_err();
    std::fs::create_dir_all(fixture()).unwrap();
    std::fs::copy(&out, fixture().join("out")).unwrap();
    for journal in JOURNALS {
        write_records(&state.join(journal), &fixture_of(journal));
    }
}

/// With `MILLSTREAM_WRITE_FIXTURES` in its environment the test writes the fixture first.
#[test]
fn a_state_directory_of_version_1_resumes() {
    if std::env::var_os("MILLSTREAM_WRITE_FIXTURES").is_some() {
        write_fixture();
    }
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let out = folder.path().join("out");
    for journal in JOURNALS {
        write_journal(&fixture_of(journal), &state.join(journal));
    }
    std::fs::copy(fixture().join("out"), &out).unwrap();
    let before = lines(&out).len();
    assert!(before > 20, "{before}");
    let mut crashes = 0;
    loop {
        let (flow, opened) = positions(&out);
        let recovery = Recovery::new(&state).epoch(Duration::ZERO);
        match run(&flow, 1, recovery.crash_after(4)) {
            Err(FlowError::Crashed(_)) => crashes += 1,
            ended => break ended.unwrap(),
        }
        if crashes == 1 {
            let opened = opened.map(|opened| opened.lock().unwrap().clone());
            assert_eq!(opened, [vec![6], vec![6]]);
        }
    }
    assert!(crashes > 3, "{crashes}");
    let mut expected = Vec::new();
    for (name, count) in [
        ("numbers", 50),
        ("tokens", 40),
        ("kept", 42),
        ("kept-tokens", 30),
    ] {
        expected.extend((1..=count).map(|number| format!("{name} {number}")));
    }
    let mut found = lines(&out);
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}
