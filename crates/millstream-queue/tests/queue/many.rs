//! Many idle queues: their cost at a start and in `stats`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use millstream_queue::Moment;
use millstream_queue::broker::{Broker, EndedBy};
use millstream_queue::config::{Config, Sync};
use millstream_queue::session::{Session, SessionOptions};
use millstream_queue::storage::{JournalStorage, Storage};

const NOW: Moment = Moment {
    wall_ms: 1_700_000_000_000,
    steady_us: 0,
};
const QUEUES: usize = 50;

fn start(folder: &Path) -> (Broker<JournalStorage>, JournalStorage) {
    let storage = JournalStorage::open(folder, 1 << 20).unwrap();
    let config = Config::with_sync(Sync::Never);
    (Broker::open(storage.clone(), config, NOW).unwrap(), storage)
}

fn ask(queues: &mut Broker<JournalStorage>, request: &str, now: Moment) -> String {
    let mut session = Session::new(queues, SessionOptions::default());
    session.receive(queues, request.replace('|', "\r\n").as_bytes(), now);
    let mut answer = String::new();
    loop {
        answer += &String::from_utf8_lossy(session.output()).replace("\r\n", "|");
        session.sent(usize::MAX);
        if !session.has_work() {
            break;
        }
        session.resume(queues, now);
    }
    session.end(queues, EndedBy::Client, now);
    answer
}

fn make(folder: &Path) {
    let (mut queues, _) = start(folder);
    for number in 0..QUEUES {
        let request = format!("set q{number} 0 0 1|x|");
        assert_eq!(ask(&mut queues, &request, NOW), "STORED|");
    }
}

fn number(queues: &mut Broker<JournalStorage>, name: &str, key: &str) -> u64 {
    let numbers = queues.numbers_of(name, NOW).unwrap();
    numbers.iter().find(|(found, _)| *found == key).unwrap().1
}

/// What the disk holds for a directory and all in it, in bytes. A file that is removed meanwhile counts for nothing.
fn held(path: &Path) -> u64 {
    let Ok(found) = fs::metadata(path) else {
        return 0;
    };
    let below = match fs::read_dir(path) {
        Ok(entries) if found.is_dir() => entries.flatten().map(|entry| held(&entry.path())).sum(),
        _ => 0,
    };
    found.blocks() * 512 + below
}

/// When each file below was last written or made.
fn times(folder: &Path, times: &mut BTreeMap<PathBuf, SystemTime>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let found = entry.metadata().unwrap();
        times.insert(entry.path(), found.modified().unwrap());
        if found.is_dir() {
            self::times(&entry.path(), times);
        }
    }
}

#[test]
fn a_start_opens_no_log_to_write_and_changes_no_file() {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path());
    let mut before = BTreeMap::new();
    let mut after = BTreeMap::new();
    for number in 0..QUEUES {
        times(&folder.path().join(format!("q{number}")), &mut before);
    }
    let (mut queues, storage) = start(folder.path());
    assert_eq!(queues.open_queues(), QUEUES);
    assert!(ask(&mut queues, "stats|", NOW).contains("STAT queue_q7_items 1|"));
    assert_eq!(storage.open_logs(), 0);
    for number in 0..QUEUES {
        times(&folder.path().join(format!("q{number}")), &mut after);
    }
    assert_eq!(before, after);
    assert_eq!(ask(&mut queues, "get q7|", NOW), "VALUE q7 0 1|x|END|");
    assert_eq!(storage.open_logs(), 1);
}

#[test]
fn a_sync_of_all_queues_opens_none_of_those_that_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path());
    let (mut queues, storage) = start(folder.path());
    assert_eq!(ask(&mut queues, "set q7 0 0 1|y|", NOW), "STORED|");
    queues.sync_all().unwrap();
    assert_eq!(storage.open_logs(), 1);
    assert_eq!(
        ask(&mut queues, "get q8|get q7|", NOW),
        "VALUE q8 0 1|x|END|VALUE q7 0 1|x|END|"
    );
}

#[test]
fn the_age_of_an_item_is_known_while_its_log_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path());
    let (mut queues, storage) = start(folder.path());
    let later = Moment {
        wall_ms: NOW.wall_ms + 5_000,
        ..NOW
    };
    let stats = ask(&mut queues, "stats q3|", later);
    assert!(stats.contains("STAT oldest_age 5000|"), "{stats}");
    assert_eq!(storage.open_logs(), 0);
    assert_eq!(ask(&mut queues, "flush q3|", NOW), "END|");
    assert_eq!(number(&mut queues, "q3", "oldest_age"), 0);
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the background thread of a journal tells nobody when it is done"
)]
fn the_directory_of_a_queue_is_read_again_only_when_its_files_change() {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path());
    let (mut queues, _) = start(folder.path());
    // The background thread of the journal makes files too, at moments of its own.
    let settled = |queues: &mut _| {
        let mut last = 0;
        let mut calm = 0;
        for _ in 0..2_000 {
            let held = held(&folder.path().join("q1"));
            let shown = number(queues, "q1", "logsize");
            calm = if (held, last) == (shown, shown) {
                calm + 1
            } else {
                0
            };
            last = shown;
            if calm == 20 {
                return shown;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("what is shown is not what the disk holds: {last}")
    };
    let first = settled(&mut queues);
    // Only the server changes files: it does not look for files that it did not create.
    let other = folder.path().join("q1/foreign-file");
    fs::write(&other, vec![1; 1 << 20]).unwrap();
    assert_eq!(number(&mut queues, "q1", "logsize"), first);
    fs::remove_file(&other).unwrap();
    let item = "x".repeat(10_000);
    let mut last = first;
    for _ in 0..4 {
        for _ in 0..10 {
            ask(&mut queues, &format!("set q1 0 0 10000|{item}|"), NOW);
        }
        let grown = settled(&mut queues);
        fs::write(&other, vec![1; 1 << 20]).unwrap();
        assert_eq!(number(&mut queues, "q1", "logsize"), grown);
        fs::remove_file(&other).unwrap();
        last = grown;
    }
    assert!(last > first + (400 << 10), "{last} after {first}");
    assert_eq!(ask(&mut queues, "flush q1|", NOW), "END|");
    settled(&mut queues);
}

#[test]
fn a_dead_letter_that_was_struck_out_on_a_full_disk_stays_away() {
    use millstream_journal::{Journal, Options};
    let folder = tempfile::tempdir().unwrap();
    let storage = JournalStorage::open(folder.path(), 1 << 20).unwrap();
    let config = "[queue.work]\nmax_deliveries = 1\nerror_queue = 'dead'".parse();
    let mut queues = Broker::open(storage, config.unwrap(), NOW).unwrap();
    ask(
        &mut queues,
        "set work 0 0 1|a|get work/open|get work/abort|",
        NOW,
    );
    assert_eq!(queues.items("dead"), Some(1));
    drop(queues);
    let options = Options {
        exclusive: true,
        ..Options::default()
    };
    let journal = Journal::open(folder.path().join("dead"), options).unwrap();
    journal.record_set("struck").unwrap().insert(0).unwrap();
    drop(journal);
    let (queues, _) = start(folder.path());
    assert_eq!(queues.items("dead"), Some(0));
}

#[test]
fn what_was_struck_out_on_a_full_disk_is_known_without_a_writer() {
    use millstream_journal::{Journal, Options};
    let folder = tempfile::tempdir().unwrap();
    let (mut queues, _) = start(folder.path());
    ask(&mut queues, "set q 0 0 1|a|set q 0 0 1|b|", NOW);
    drop(queues);
    let options = Options {
        exclusive: true,
        ..Options::default()
    };
    let journal = Journal::open(folder.path().join("q"), options).unwrap();
    journal.record_set("struck").unwrap().insert(0).unwrap();
    drop(journal);
    let (mut queues, storage) = start(folder.path());
    assert_eq!(queues.items("q"), Some(1));
    assert_eq!(storage.open_logs(), 0);
    assert_eq!(
        ask(&mut queues, "get q|get q|", NOW),
        "VALUE q 0 1|b|END|END|"
    );
}
