//! A fixture in the repository: a queue over a journal of format 3 whose segments have grown. Its items are there, and it works on.
//!
//! `MILLSTREAM_WRITE_FIXTURES=1 cargo test -p millstream-queue --test queue grown_queue` writes it. That of a version that was released is never
//! written again.

use std::fs;
use std::path::{Path, PathBuf};

use millstream_queue::Moment;
use millstream_queue::broker::Broker;
use millstream_queue::config::{Config, Sync};
use millstream_queue::salvage::Salvage;
use millstream_queue::session::{Session, SessionOptions};
use millstream_queue::storage::JournalStorage;

const NOW: Moment = Moment {
    wall_ms: 1_700_000_000_000,
    steady_us: 0,
};
const ITEMS: usize = 80;
/// So many were taken.
const TAKEN: usize = 5;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v3/jobs")
}

fn body(number: usize) -> String {
    format!("item {number:02} of the grown fixture; ").repeat(20)
}

fn open(folder: &Path) -> Broker<JournalStorage> {
    let storage = JournalStorage::open(folder, 1 << 20).unwrap();
    Broker::open(storage, Config::with_sync(Sync::Always), NOW).unwrap()
}

fn ask(queues: &mut Broker<JournalStorage>, request: &str) -> String {
    let mut session = Session::new(queues, SessionOptions::default());
    session.receive(queues, request.replace('|', "\r\n").as_bytes(), NOW);
    queues.commit().unwrap();
    let answer = String::from_utf8_lossy(session.output()).replace("\r\n", "|");
    session.end(queues, NOW);
    answer
}

fn set(queues: &mut Broker<JournalStorage>, number: usize) {
    let item = body(number);
    let request = format!("set jobs 0 0 {}|{item}|", item.len());
    assert_eq!(ask(queues, &request), "STORED|");
}

fn take(queues: &mut Broker<JournalStorage>, number: usize) {
    let answer = ask(queues, "get jobs|");
    assert!(answer.contains(&body(number)), "{number}: {answer}");
}

/// Write the fixture, if the environment says so.
fn write_if_wanted() {
    if std::env::var_os("MILLSTREAM_WRITE_FIXTURES").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut queues = open(folder.path());
    (0..ITEMS).for_each(|number| set(&mut queues, number));
    (0..TAKEN).for_each(|number| take(&mut queues, number));
    queues.sync_all().unwrap();
    drop(queues);
    if fixture().exists() {
        fs::remove_dir_all(fixture()).unwrap();
    }
    copy(&folder.path().join("jobs"), &fixture());
}

/// All that counts: not the control page nor the locks of this machine.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("cursors")).unwrap();
    for folder in ["", "cursors"] {
        for entry in fs::read_dir(from.join(folder)).unwrap() {
            let entry = entry.unwrap();
            if entry.path().is_file() && entry.file_name() != "control" {
                fs::copy(entry.path(), to.join(folder).join(entry.file_name())).unwrap();
            }
        }
    }
}

#[test]
fn the_grown_queue_of_the_repository_is_read_and_goes_on() {
    write_if_wanted();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs");
    copy(&fixture(), &path);
    for (number, bytes) in [16_u64 << 10, 32 << 10, 64 << 10].into_iter().enumerate() {
        let file = path.join(format!("segment-{number:010}.log"));
        assert_eq!(fs::metadata(file).unwrap().len(), bytes);
    }
    assert!(path.join("cursors/consumed").exists());
    let mut salvage = Salvage::read(&path).unwrap();
    let salvaged = std::iter::from_fn(|| salvage.next_item());
    assert_eq!(salvaged.count(), ITEMS - TAKEN);
    assert_eq!(salvage.lost(), []);
    drop(salvage);

    let mut queues = open(folder.path());
    assert_eq!(queues.closed().count(), 0);
    assert_eq!(queues.items("jobs"), Some((ITEMS - TAKEN) as u64));
    (TAKEN..40).for_each(|number| take(&mut queues, number));
    (ITEMS..200).for_each(|number| set(&mut queues, number));
    drop(queues);
    let mut queues = open(folder.path());
    (40..200).for_each(|number| take(&mut queues, number));
    assert_eq!(ask(&mut queues, "get jobs|"), "END|");
}
