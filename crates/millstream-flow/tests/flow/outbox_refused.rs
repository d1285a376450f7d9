//! Records that a destination refuses become dead letters: each once, whatever crashes, and at the end of a flow too.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_flow::checkpoint::Crash;
use millstream_flow::outbox::{
    Backoff, Connector, DeliveryError, Destination, Outbox, OutboxIdentity, Refusals, outbox_dir,
};
use millstream_flow::{
    DeadLetter, Flow, Frames, OnError, Options, Recovery, codec, files, testing,
};
use millstream_journal::{Journal, Options as Opening};

use crate::destination::{Table, recovery, run};
use crate::outbox_crashes::crash;
use crate::support::Random;

/// A destination that refuses multiples of three.
#[derive(Clone)]
struct Picky {
    contents: Arc<Mutex<Contents>>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Refuses the batch, and remembers its position.
    Remembers,
    /// Refuses the batch.
    Refuses,
    /// Takes the others, and leaves these out.
    LeavesOut,
    /// The same, and remembers its position.
    LeavesOutAndRemembers,
}

#[derive(Default)]
struct Contents {
    rows: BTreeMap<u64, u32>,
    next: u64,
    calls: u64,
    /// The first write fails, and later ones refuse nothing.
    relents: bool,
    /// The call that ends the run, before or after it takes effect.
    dies: Option<(u64, bool)>,
}

impl Contents {
    fn call(&mut self, after: bool) -> Result<(), DeliveryError> {
        if !after {
            self.calls += 1;
        }
        if self.dies == Some((self.calls, after)) {
            Err(DeliveryError::fatal("killed"))
        } else {
            Ok(())
        }
    }
}

impl Picky {
    fn new(kind: Kind) -> Self {
        let contents = Arc::default();
        Picky { contents, kind }
    }

    fn outbox(&self) -> Outbox {
        let first = Duration::from_millis(1);
        let backoff = Backoff {
            first,
            most: first,
            ..Backoff::default()
        };
        Outbox::new(self.clone()).batch(7).backoff(backoff)
    }

    fn rows(&self) -> Vec<u32> {
        let mut rows: Vec<u32> = self
            .contents
            .lock()
            .unwrap()
            .rows
            .values()
            .copied()
            .collect();
        rows.sort_unstable();
        rows
    }
}

impl Connector for Picky {
    fn describe(&self) -> String {
        "picky".to_owned()
    }
    fn remembers(&self) -> bool {
        matches!(self.kind, Kind::Remembers | Kind::LeavesOutAndRemembers)
    }
    fn connect(&self, outbox: &OutboxIdentity) -> Result<Box<dyn Destination>, DeliveryError> {
        Ok(Box::new(Connection {
            picky: self.clone(),
            refusals: outbox.refusals.clone(),
        }))
    }
}

struct Connection {
    picky: Picky,
    refusals: Refusals,
}

impl Destination for Connection {
    fn write(&mut self, batch: &Frames, first: u64, last: u64) -> Result<(), DeliveryError> {
        let mut contents = self.picky.contents.lock().unwrap();
        contents.call(false)?;
        let numbers: Vec<(u64, u32)> = (first..)
            .zip(
                batch
                    .iter()
                    .map(|row| std::str::from_utf8(row).unwrap().parse().unwrap()),
            )
            .collect();
        let is_bad = |row: &(u64, u32)| row.1.is_multiple_of(3);
        match self.picky.kind {
            Kind::Remembers | Kind::LeavesOutAndRemembers if contents.next != first => {
                return Err(DeliveryError::fatal(format!(
                    "{first} after {}",
                    contents.next
                )));
            }
            Kind::Remembers | Kind::Refuses if numbers.iter().any(is_bad) => {
                return Err(DeliveryError::refused("it is a multiple of three"));
            }
            _ => {}
        }
        let refuses = !contents.relents || contents.calls == 1;
        for (number, _) in numbers.iter().filter(|row| refuses && is_bad(row)) {
            let left_out = self
                .refusals
                .leave_out(*number, "it is a multiple of three");
            left_out.map_err(DeliveryError::Fatal)?;
        }
        if contents.relents && contents.calls == 1 {
            return Err(DeliveryError::retry("no route"));
        }
        contents.rows.extend(
            numbers
                .iter()
                .copied()
                .filter(|row| !refuses || !is_bad(row)),
        );
        contents.next = last + 1;
        contents.call(true)
    }
    fn position(&mut self) -> Result<Option<u64>, DeliveryError> {
        Ok(self.picky.contents.lock().unwrap().next.checked_sub(1))
    }
    fn skip(&mut self, number: u64) -> Result<(), DeliveryError> {
        let mut contents = self.picky.contents.lock().unwrap();
        contents.call(false)?;
        contents.next = number + 1;
        contents.call(true)
    }
}

fn letter(letter: &DeadLetter, out: &mut Vec<u8>) {
    let item = letter.item.as_deref().unwrap_or("?");
    let text = format!("{} {item} {}", letter.step, letter.error);
    out.extend_from_slice(text.as_bytes());
}

/// The numbers below `count`, of which 5 cannot be encoded, to the destination; dead letters go to the file.
fn copy(count: u32, picky: &Picky, letters: &Path) -> Flow {
    let flow = Flow::new("copy");
    let bad = OnError::dead_letter(codec::encode(files::write(letters), letter));
    let text = |n: &u32, out: &mut Vec<u8>| match n {
        5 => Err("five"),
        _ => {
            out.extend_from_slice(n.to_string().as_bytes());
            Ok(())
        }
    };
    flow.source("numbers", testing::items(0..count).batch_size(4))
        .redistribute()
        .try_sink("out", bad, codec::encode(picky.outbox(), text));
    flow
}

fn check(count: u32, picky: &Picky, letters: &Path, place: &str) {
    let good: Vec<u32> = (0..count).filter(|n| n % 3 != 0 && *n != 5).collect();
    assert_eq!(picky.rows(), good, "{place}");
    let text = std::fs::read_to_string(letters).unwrap();
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.splitn(3, ' ');
        let step = words.next();
        let item = words.next().unwrap();
        let error = words.next().unwrap();
        if item == "5" {
            assert!(error.contains("five"), "{line}");
        } else {
            assert_eq!(step, Some("out"), "{line}");
            assert!(
                error.contains("record ") && error.contains("multiple of three"),
                "{line}"
            );
        }
        found.push(item.parse::<u32>().unwrap());
    }
    found.sort_unstable();
    let bad: Vec<u32> = (0..count).filter(|n| n % 3 == 0 || *n == 5).collect();
    assert_eq!(found, bad, "{place}: {text}");
}

const KINDS: [Kind; 4] = [
    Kind::Remembers,
    Kind::Refuses,
    Kind::LeavesOut,
    Kind::LeavesOutAndRemembers,
];

#[test]
fn each_record_that_is_refused_is_a_dead_letter_once() {
    for kind in KINDS {
        for workers in [1, 3] {
            for durable in [true, false] {
                let dir = tempfile::tempdir().unwrap();
                let picky = Picky::new(kind);
                let letters = dir.path().join("letters");
                let flow = copy(40, &picky, &letters);
                let state = dir.path().join("state");
                let place = format!("{kind:?} {workers} {durable}");
                if !durable {
                    flow.run(Options::workers(workers)).unwrap();
                    check(40, &picky, &letters, &place);
                    continue;
                }
                let report = run(&flow, workers, recovery(&state)).unwrap();
                assert_eq!(report.outbox("out").unwrap().refused_records, 14);
                check(40, &picky, &letters, &place);
                // All are committed: nothing is left, and the next start adds none.
                let kept = dir.path().join("state/outputs/out%refused");
                let kept = Journal::open(kept, Opening::read_only()).unwrap();
                assert_eq!(
                    kept.info().unwrap().cursors[0].position,
                    kept.next().unwrap()
                );
                run(&flow, workers, recovery(&state)).unwrap();
                check(40, &picky, &letters, &place);
            }
        }
    }
}

#[test]
fn letters_are_written_while_the_flow_runs() {
    let dir = tempfile::tempdir().unwrap();
    let picky = Picky::new(Kind::Refuses);
    let letters = testing::Collected::<DeadLetter>::new();
    let flow = Flow::new("copy");
    let source = testing::script([vec![
        testing::Mark::Item(3u32),
        testing::Mark::Pause(Duration::from_secs(600)),
    ]]);
    let bad = OnError::dead_letter(letters.sink());
    flow.source("in", source)
        .try_sink("out", bad, codec::encode(picky.outbox(), codec::display));
    let running = flow
        .start(crate::destination::options(1, recovery(dir.path())))
        .unwrap();
    while letters.take().is_empty() {
        crate::support::wait(1);
    }
    running.stop();
    running.wait().unwrap();
}

#[test]
fn a_crash_around_any_commit_repeats_and_loses_no_letter() {
    for kind in [Kind::Refuses, Kind::LeavesOutAndRemembers] {
        for moment in Crash::MOMENTS {
            for commit in 1.. {
                let dir = tempfile::tempdir().unwrap();
                let picky = Picky::new(kind);
                let letters = dir.path().join("letters");
                let flow = copy(20, &picky, &letters);
                let at = |run| (run == 0).then_some(moment(commit));
                let crashes = crash(&flow, || 1, at);
                check(
                    20,
                    &picky,
                    &letters,
                    &format!("{kind:?} {}", moment(commit)),
                );
                if crashes == 0 {
                    assert!(commit > 3, "{commit}");
                    break;
                }
            }
        }
    }
}

#[test]
fn an_end_around_any_call_of_the_destination_repeats_and_loses_no_letter() {
    for kind in KINDS {
        for (n, after) in (1..).flat_map(|n| [(n, false), (n, true)]) {
            let dir = tempfile::tempdir().unwrap();
            let picky = Picky::new(kind);
            let letters = dir.path().join("letters");
            let flow = copy(10, &picky, &letters);
            picky.contents.lock().unwrap().dies = Some((n, after));
            let state = dir.path().join("state");
            let first = run(&flow, 1, recovery(&state));
            if first.is_err() {
                picky.contents.lock().unwrap().dies = None;
                run(&flow, 1, recovery(&state)).unwrap();
            }
            check(10, &picky, &letters, &format!("{kind:?} {n} {after}"));
            if first.is_ok() && !after {
                assert!(n > 2, "{n}");
                break;
            }
        }
    }
}

#[test]
fn random_ends_and_stops_repeat_and_lose_no_letter() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let dir = tempfile::tempdir().unwrap();
        let kind = KINDS[random.below(4) as usize];
        let picky = Picky::new(kind);
        let letters = dir.path().join("letters");
        let flow = copy(300, &picky, &letters);
        let state = dir.path().join("state");
        for _ in 0..8 {
            let workers = 1 + random.below(3) as usize;
            let recovery = || recovery(&state).epoch(Duration::from_micros(300));
            match random.below(3) {
                0 => {
                    let at = Crash::MOMENTS[random.below(3) as usize](1 + random.below(3) as u64);
                    let _ = run(&flow, workers, recovery().crash(at));
                }
                1 => {
                    let calls = picky.contents.lock().unwrap().calls;
                    picky.contents.lock().unwrap().dies =
                        Some((calls + 1 + random.below(9) as u64, random.below(2) == 0));
                    let _ = run(&flow, workers, recovery());
                    picky.contents.lock().unwrap().dies = None;
                }
                _ => {
                    let options = crate::destination::options(workers, recovery());
                    let running = flow.start(options).unwrap();
                    crate::support::wait(random.below(8) as u64);
                    running.stop();
                    running.wait().unwrap();
                }
            }
        }
        run(&flow, 2, recovery(&state)).unwrap();
        check(300, &picky, &letters, &format!("seed {seed} {kind:?}"));
    }
}

#[test]
fn letters_go_through_an_outbox_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let picky = Picky::new(Kind::Remembers);
    let table = Table::new(true);
    let flow = Flow::new("copy");
    let item = |letter: &DeadLetter, out: &mut Vec<u8>| {
        out.extend_from_slice(letter.item.as_deref().unwrap_or("?").as_bytes());
    };
    let bad = OnError::dead_letter(codec::encode(table.outbox(), item));
    flow.source("numbers", testing::items(0..10u32)).try_sink(
        "out",
        bad,
        codec::encode(picky.outbox(), codec::display),
    );
    run(&flow, 1, recovery(dir.path())).unwrap();
    assert_eq!(table.sorted(), ["0", "3", "6", "9"]);
}

#[test]
fn a_sink_with_dead_letters_gets_none_of_another() {
    let one = Picky::new(Kind::Refuses);
    let other = Picky::new(Kind::Refuses);
    let flow = Flow::new("circle");
    let shared: Arc<dyn millstream_flow::sink::Sink<Vec<DeadLetter>>> =
        Arc::new(codec::encode(other.outbox(), letter));
    let source = flow.source("numbers", testing::items(0..10u32));
    let first = OnError::DeadLetter(Arc::clone(&shared));
    source.try_sink("out", first, codec::encode(one.outbox(), codec::display));
    let letters = testing::Collected::<DeadLetter>::new();
    let to: Arc<dyn millstream_flow::sink::Sink<Vec<DeadLetter>>> = Arc::new(letters.sink());
    let refused = millstream_flow::stream::RefusedLetters::new(&to, |refused| {
        Ok(refused.iter().map(|_| unreachable!()).collect())
    });
    flow.source("letters", testing::items(Vec::<DeadLetter>::new()))
        .sink_with_letters("again", shared, false, &refused);
    let said = format!("{:?}", flow.run(Options::default()).unwrap_err());
    assert!(
        said.contains("the sink \"again\" has dead letters of its own and gets those of \"out\""),
        "{said}"
    );
}

#[test]
fn refused_records_that_were_removed_are_missed() {
    let dir = tempfile::tempdir().unwrap();
    let picky = Picky::new(Kind::Refuses);
    let letters = dir.path().join("letters");
    let state = dir.path().join("state");
    let flow = copy(20, &picky, &letters);
    run(&flow, 1, recovery(&state)).unwrap();
    std::fs::remove_dir_all(outbox_dir(&state, "out").with_file_name("out%refused")).unwrap();
    let said = format!("{:?}", run(&flow, 1, recovery(&state)).unwrap_err());
    assert!(said.contains("7 were passed on"), "{said}");
    let again = Recovery::new(&state).drop_state("out");
    run(&flow, 1, again).unwrap();
}

#[test]
fn what_is_taken_after_a_failed_write_is_no_letter() {
    for kind in [Kind::LeavesOut, Kind::LeavesOutAndRemembers] {
        let dir = tempfile::tempdir().unwrap();
        let picky = Picky::new(kind);
        let letters = dir.path().join("letters");
        // The first write leaves records out and fails; then the destination takes all.
        picky.contents.lock().unwrap().relents = true;
        let flow = copy(12, &picky, &letters);
        run(&flow, 1, recovery(&dir.path().join("state"))).unwrap();
        let all: Vec<u32> = (0..12).filter(|n| *n != 5).collect();
        assert_eq!(picky.rows(), all, "{kind:?}");
        let text = std::fs::read_to_string(&letters).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn a_sink_with_dead_letters_is_that_of_one_step() {
    let picky = Picky::new(Kind::Refuses);
    let dir = tempfile::tempdir().unwrap();
    let flow = Flow::new("shared");
    let shared: Arc<dyn millstream_flow::sink::Sink<Frames>> = Arc::new(picky.outbox());
    let numbers = flow.source("numbers", testing::items(0..4u32));
    for name in ["one", "two"] {
        let bad = OnError::dead_letter(codec::encode(files::write(dir.path().join(name)), letter));
        let sink = codec::encode(Arc::clone(&shared), codec::display);
        numbers.try_sink(name, bad, sink);
    }
    let said = format!("{:?}", flow.run(Options::default()).unwrap_err());
    assert!(
        said.contains("\"one\" and \"two\" write to one sink"),
        "{said}"
    );
}
