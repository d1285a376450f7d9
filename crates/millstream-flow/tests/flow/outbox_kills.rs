//! Processes that are killed while they deliver: an independent reader of the destination finds each record once.

use std::path::Path;
use std::process::{Child, Stdio};

use millstream_flow::outbox::{Connector, DeliveryError, Destination, Outbox, OutboxIdentity};
use millstream_flow::{Emit, Flow, Frames, codec, testing};
use millstream_journal::{Journal, Options as Opening, Writer};

use crate::destination::{recovery, run};
use crate::support::{Random, start_own_process, wait};

const COUNT: u32 = 200_000;
const KEYS: u32 = 100;

/// A journal whose records have the numbers of those of the outbox: its end is the position.
struct Remote {
    path: std::path::PathBuf,
    remembers: bool,
}

impl Connector for Remote {
    fn describe(&self) -> String {
        format!("journal {}", self.path.display())
    }
    fn remembers(&self) -> bool {
        self.remembers
    }
    fn connect(&self, _: &OutboxIdentity) -> Result<Box<dyn Destination>, DeliveryError> {
        let journal = Journal::open(&self.path, Opening::default());
        let writer = journal.and_then(|journal| journal.writer());
        let writer = writer.map_err(DeliveryError::retry)?;
        Ok(Box::new(Connection {
            writer,
            remembers: self.remembers,
        }))
    }
}

struct Connection {
    writer: Writer,
    remembers: bool,
}

impl Destination for Connection {
    fn write(&mut self, batch: &Frames, first: u64, last: u64) -> Result<(), DeliveryError> {
        let next = self.position()?.map_or(0, |last| last + 1);
        if self.remembers && next != first {
            let cause = format!("record {first} comes after {next}");
            return Err(DeliveryError::fatal(cause));
        }
        assert_eq!(last - first + 1, batch.len() as u64);
        // One at a time, so that a kill also leaves a part of a batch.
        for (number, record) in (first..).zip(batch.iter()) {
            let row = format!("{number} {}", String::from_utf8_lossy(record));
            let appended = self.writer.append(row.as_bytes());
            appended.map_err(DeliveryError::retry)?;
        }
        Ok(())
    }
    fn position(&mut self) -> Result<Option<u64>, DeliveryError> {
        let next = self.writer.journal().next();
        Ok(next.map_err(DeliveryError::retry)?.checked_sub(1))
    }
}

/// The count of each key so far.
fn counts(outbox: Outbox) -> Flow {
    let flow = Flow::new("counts");
    let source = testing::items((0..COUNT).map(|n| n % KEYS));
    flow.source("numbers", source)
        .key_by(|number| *number)
        .count(Emit::Each)
        .items()
        .map(|(key, count)| format!("{key} {count}"))
        .sink("out", codec::encode(outbox, codec::display));
    flow
}

#[test]
#[ignore = "a process of its own, which is killed"]
fn the_process_that_delivers() {
    let dir = std::env::var("OUTBOX_DIR").expect("it is set");
    let workers = std::env::var("OUTBOX_WORKERS").expect("it is set");
    let remote = Remote {
        path: Path::new(&dir).join("remote"),
        remembers: std::env::var("OUTBOX_REMEMBERS").expect("it is set") == "true",
    };
    let outbox = Outbox::new(remote).batch(50).max_bytes(20_000);
    let workers = workers.parse().expect("it is a number");
    let flow = counts(outbox);
    run(&flow, workers, recovery(&Path::new(&dir).join("state"))).expect("it runs");
}

fn start(dir: &Path, workers: i64, remembers: bool) -> Child {
    start_own_process("outbox_kills::the_process_that_delivers", |command| {
        command
            .env("OUTBOX_DIR", dir)
            .env("OUTBOX_WORKERS", workers.to_string())
            .env("OUTBOX_REMEMBERS", remembers.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
    })
}

/// Kills processes until one ends by itself; returns the number of kills.
fn kill(dir: &Path, remembers: bool, seed: u64) -> usize {
    let mut random = Random::new(seed);
    for kills in 0..1000 {
        let mut child = start(dir, 1 + random.below(3), remembers);
        // Longer from kill to kill, so that it ends on a slow machine too.
        let life = 20 + random.below(20 + 40 * kills);
        for _ in 0..life {
            if child.try_wait().expect("it is there").is_some() {
                break;
            }
            wait(1);
        }
        drop(child.kill());
        let output = child.wait_with_output().expect("it has ended");
        if output.status.success() {
            return kills as usize;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), None, "seed {seed}: {said}");
    }
    panic!("it gets nowhere");
}

/// Checks the destination with a reader of its own.
fn judge(dir: &Path, remembers: bool, seed: u64) {
    let journal = Journal::open(dir.join("remote"), Opening::read_only()).expect("it is there");
    let mut reader = journal.reader().expect("it is sound");
    let mut rows: Vec<Option<String>> = vec![None; COUNT as usize];
    while let Some(record) = reader.next().expect("it is sound") {
        let text = String::from_utf8_lossy(record.body).into_owned();
        let (number, row) = text.split_once(' ').expect("it has a number");
        let known = &mut rows[number.parse::<usize>().expect("it is a number")];
        let known = known.replace(row.to_owned());
        match known {
            Some(known) => assert!(!remembers && known == row, "seed {seed}: twice {text}"),
            None => continue,
        }
    }
    let mut rows: Vec<String> = rows.into_iter().flatten().collect();
    let mut expected: Vec<String> = (0..COUNT)
        .map(|n| format!("{} {}", n % KEYS, n / KEYS + 1))
        .collect();
    rows.sort();
    expected.sort();
    assert!(rows == expected, "seed {seed}: rows differ");
}

#[test]
fn kills_lose_nothing_and_repeat_nothing_where_the_destination_remembers() {
    for remembers in [true, false] {
        // A fast machine ends a flow after few kills: flows are killed until there are enough.
        let mut kills = 0;
        let mut seed = 0;
        while kills <= 4 {
            seed += 1;
            let folder = tempfile::tempdir().expect("a folder");
            kills += kill(folder.path(), remembers, seed);
            judge(folder.path(), remembers, seed);
            // The next start finds nothing to do.
            let mut child = start(folder.path(), 1, remembers);
            assert!(child.wait().expect("it ends").success());
            judge(folder.path(), remembers, seed);
        }
    }
}
