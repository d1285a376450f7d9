//! Broker that could not be opened: opened later, deleted, or salvaged.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use millstream_queue::Moment;
use millstream_queue::broker::{Broker, EndedBy};
use millstream_queue::config::{Config, Sync};
use millstream_queue::salvage::Salvage;
use millstream_queue::session::{Session, SessionOptions};
use millstream_queue::storage::{JournalStorage, MemoryLog, MemoryStorage, Storage};

const NOW: Moment = Moment {
    wall_ms: 1_700_000_000_000,
    steady_us: 0,
};

fn later(seconds: u64) -> Moment {
    Moment {
        wall_ms: NOW.wall_ms + seconds * 1_000,
        steady_us: seconds * 1_000_000,
    }
}

/// One client of these queues, for one request.
fn ask<S: Storage>(queues: &mut Broker<S>, request: &str, now: Moment) -> String {
    let mut session = Session::new(queues, SessionOptions::default());
    session.receive(queues, request.replace('|', "\r\n").as_bytes(), now);
    let answer = String::from_utf8_lossy(session.output()).replace("\r\n", "|");
    session.end(queues, EndedBy::Client, now);
    answer
}

fn open(folder: &Path) -> Broker<JournalStorage> {
    let storage = JournalStorage::open(folder, 1 << 20).unwrap();
    Broker::open(storage, Config::with_sync(Sync::Never), NOW).unwrap()
}

/// Change one byte of this text in the journal of a queue.
fn damage(queue: &Path, text: &str) -> PathBuf {
    for entry in fs::read_dir(queue).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_file() {
            continue;
        }
        let mut bytes = fs::read(&path).unwrap();
        let found = bytes
            .windows(text.len())
            .position(|window| window == text.as_bytes());
        if let Some(at) = found {
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
            return path;
        }
    }
    panic!("no file has {text:?}")
}

#[test]
fn all_that_is_sound_in_a_damaged_queue_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut queues = open(folder.path());
    for number in 0..20 {
        let request = format!("set q {number} 0 7|item-{number:02}|");
        assert_eq!(ask(&mut queues, &request, NOW), "STORED|");
    }
    // One taken, one that came back, one delayed, one that expires.
    ask(&mut queues, "get q|", NOW);
    ask(&mut queues, "get q/open|", NOW);
    ask(
        &mut queues,
        "set q/delay=5000 7 0 4|late|set q 8 60 4|soon|",
        NOW,
    );
    queues.sync_all().unwrap();
    drop(queues);
    let path = damage(&folder.path().join("q"), "item-05");
    damage(&folder.path().join("q"), "item-11");
    let before = fs::read(&path).unwrap();

    let mut queues = open(folder.path());
    assert!(ask(&mut queues, "get q|", NOW).starts_with("SERVER_ERROR queue \"q\" is closed: "));

    let mut salvage = Salvage::read(folder.path().join("q")).unwrap();
    assert_eq!(salvage.items_left(), 19);
    let mut items = Vec::new();
    while let Some(found) = salvage.next_item() {
        items.push((
            String::from_utf8(found.item.body.to_vec()).unwrap(),
            found.item.flags,
            found.item.expiry_ms,
            found.due_ms,
        ));
    }
    let expected: Vec<_> = (1..20)
        .filter(|number| ![5, 11].contains(number))
        .map(|number| (format!("item-{number:02}"), number, 0, 0))
        .chain([
            ("late".to_owned(), 7, 0, NOW.wall_ms + 5_000),
            ("soon".to_owned(), 8, NOW.wall_ms + 60_000, 0),
        ])
        .collect();
    assert_eq!(items, expected);
    let lost: Vec<String> = salvage.lost().iter().map(ToString::to_string).collect();
    assert_eq!(lost.len(), 2, "{lost:?}");
    assert!(
        lost[0].starts_with(&format!("record 5: {}", path.display())) && lost[0].contains("offset"),
        "{lost:?}"
    );
    assert!(lost[1].starts_with("record 11: "), "{lost:?}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_queue_whose_creation_was_interrupted_is_created_again() {
    for made in [&[] as &[&str], &["writers"], &["writers", "cursors"]] {
        let folder = tempfile::tempdir().unwrap();
        for name in ["q", "q+copy"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            for part in made {
                fs::create_dir(folder.path().join(name).join(part)).unwrap();
            }
        }
        let mut queues = open(folder.path());
        assert_eq!(queues.closed().count(), 0, "{made:?}");
        assert_eq!(ask(&mut queues, "set q 0 0 4|item|", NOW), "STORED|");
        queues.sync_all().unwrap();
        drop(queues);
        let mut queues = open(folder.path());
        let taken = ask(&mut queues, "get q|get q+copy|", NOW);
        assert_eq!(taken, "VALUE q 0 4|item|END|VALUE q+copy 0 4|item|END|");
    }
}

#[test]
fn a_queue_that_has_lost_its_segments_stays_closed() {
    let folder = tempfile::tempdir().unwrap();
    let mut queues = open(folder.path());
    assert_eq!(ask(&mut queues, "set q 0 0 4|item|", NOW), "STORED|");
    queues.sync_all().unwrap();
    drop(queues);
    fs::remove_file(folder.path().join("q/segment-0000000000.log")).unwrap();
    let mut queues = open(folder.path());
    assert_eq!(queues.closed().count(), 1);
    assert!(ask(&mut queues, "get q|", NOW).starts_with("SERVER_ERROR queue \"q\" is closed: "));
}

/// Queues `p` and `p+c`, of which the second is damaged.
fn with_damaged_child(config: &str) -> (tempfile::TempDir, Broker<JournalStorage>) {
    let folder = tempfile::tempdir().unwrap();
    let mut queues = open(folder.path());
    assert_eq!(
        ask(&mut queues, "get p+c|set p 0 0 4|item|", NOW),
        "END|STORED|"
    );
    queues.sync_all().unwrap();
    drop(queues);
    damage(&folder.path().join("p+c"), "item");
    let mut queues = open(folder.path());
    queues.configure(config.parse().unwrap(), NOW);
    assert_eq!(queues.closed().count(), 1);
    (folder, queues)
}

#[test]
fn a_damaged_fan_out_queue_misses_no_item() {
    let (_folder, mut queues) = with_damaged_child("");
    let refused = "SERVER_ERROR queue \"p+c\" is closed: ";
    assert!(ask(&mut queues, "set p 0 0 1|2|", NOW).starts_with(refused));
    assert_eq!(
        ask(&mut queues, "get p|get p|", NOW),
        "VALUE p 0 4|item|END|END|"
    );
    // Deleted, it begins anew: only what was in it is given up.
    let script = "delete p+c|set p 0 0 1|3|get p+c|delete p+c|delete p+c|";
    let answers = "DELETED|STORED|VALUE p+c 0 1|3|END|DELETED|NOT_FOUND|";
    assert_eq!(ask(&mut queues, script, NOW), answers);
}

#[test]
fn kept_copies_expire_as_their_queue_says() {
    let (_folder, mut queues) =
        with_damaged_child("[queue.'p+c']\non_closed = 'keep'\nmax_age = '2s'\nexpire_to = 'late'");
    assert_eq!(ask(&mut queues, "set p 0 0 1|2|", NOW), "STORED|");
    let then = Moment {
        wall_ms: NOW.wall_ms + 2_000,
        steady_us: NOW.steady_us + 2_000_000,
    };
    let answers = ask(&mut queues, "delete p+c|get p+c|get late|", then);
    assert_eq!(answers, "DELETED|END|VALUE late 0 1|2|END|");
}

#[test]
fn the_ids_of_kept_copies_are_kept() {
    let config = "[queue.p]\ndedupe = '1h'\n[queue.'p+c']\non_closed = 'keep'";
    let (_folder, mut queues) = with_damaged_child(config);
    let set = "set p/id=1 0 0 1|2|";
    assert_eq!(ask(&mut queues, set, NOW), "STORED|");
    assert_eq!(ask(&mut queues, set, NOW), "STORED|");
    assert_eq!(ask(&mut queues, "delete p+c|", NOW), "DELETED|");
    assert_eq!(ask(&mut queues, set, NOW), "STORED|");
    assert_eq!(
        ask(&mut queues, "get p+c/max=9|", NOW),
        "VALUE p+c/max=9 0 1|2|END|"
    );
}

#[test]
fn delayed_copies_are_kept_with_their_delay_and_open_ones_are_not_deleted() {
    let (_folder, mut queues) = with_damaged_child("[queue.'p+c']\non_closed = 'keep'");
    let at = |ms| Moment {
        wall_ms: NOW.wall_ms + ms,
        steady_us: NOW.steady_us + ms * 1_000,
    };
    let answers = ask(&mut queues, "set p/delay=500 0 0 1|2|set p 0 0 1|3|", NOW);
    assert_eq!(answers, "STORED|STORED|");
    assert_eq!(
        ask(&mut queues, "delete p+c|get p+c|get p+c|", NOW),
        "DELETED|VALUE p+c 0 1|3|END|END|"
    );
    let answers = ask(&mut queues, "get p+c|get p+c|", at(500));
    assert_eq!(answers, "VALUE p+c 0 1|2|END|END|");

    let (_folder, mut queues) = with_damaged_child("[queue.'p+c']\non_closed = 'keep'");
    let mut reader = Session::new(&mut queues, SessionOptions::default());
    let script = b"set p 0 0 1\r\n2\r\nset p 0 0 1\r\n3\r\nget p%2Bc.kept/open\r\n";
    reader.receive(&mut queues, script, NOW);
    assert_eq!(
        ask(&mut queues, "delete p+c|get p+c|get p+c|", NOW),
        "DELETED|VALUE p+c 0 1|3|END|END|"
    );
    reader.end(&mut queues, EndedBy::Server, NOW);
    assert_eq!(
        ask(&mut queues, "redrive p%2Bc.kept p+c|get p+c|", NOW),
        "1|VALUE p+c 0 1|2|END|"
    );
}

#[test]
fn the_copies_of_a_damaged_fan_out_queue_are_kept_if_its_settings_say_so() {
    let (folder, mut queues) =
        with_damaged_child("[queue.'p+c']\non_closed = 'keep'\n[alias]\ntwice = ['p', 'p']");
    assert_eq!(
        ask(&mut queues, "set p 0 0 1|2|set twice 7 0 1|3|", NOW),
        "STORED|STORED|"
    );
    assert_eq!(queues.items("p%2Bc.kept"), Some(2));
    // After a restart too.
    queues.sync_all().unwrap();
    drop(queues);
    let mut queues = open(folder.path());
    assert!(ask(&mut queues, "get p+c|", NOW).starts_with("SERVER_ERROR"));
    let answers = ask(&mut queues, "delete p+c|set p 0 0 1|4|", NOW);
    assert_eq!(answers, "DELETED|STORED|");
    assert_eq!(queues.items("p%2Bc.kept"), None);
    let answers = ask(&mut queues, "get p+c|get p+c|get p+c|get p+c|", NOW);
    assert_eq!(
        answers,
        "VALUE p+c 0 1|2|END|VALUE p+c 7 1|3|END|VALUE p+c 0 1|4|END|END|"
    );
}

#[test]
fn two_damaged_fan_out_queues_have_a_place_each() {
    let folder = tempfile::tempdir().unwrap();
    let mut queues = open(folder.path());
    let script = "get a+b-c|get a-b+c|set a 0 0 4|item|set a-b 0 0 4|item|";
    assert_eq!(ask(&mut queues, script, NOW), "END|END|STORED|STORED|");
    queues.sync_all().unwrap();
    drop(queues);
    for child in ["a+b-c", "a-b+c"] {
        damage(&folder.path().join(child), "item");
    }
    let mut queues = open(folder.path());
    queues.configure("[defaults]\non_closed = 'keep'".parse().unwrap(), NOW);
    let script = "set a 0 0 1|1|set a-b 0 0 1|2|delete a+b-c|delete a-b+c|";
    assert_eq!(
        ask(&mut queues, script, NOW),
        "STORED|STORED|DELETED|DELETED|"
    );
    let script = "get a+b-c|get a+b-c|get a-b+c|get a-b+c|";
    let answers = "VALUE a+b-c 0 1|1|END|END|VALUE a-b+c 0 1|2|END|END|";
    assert_eq!(ask(&mut queues, script, NOW), answers);
}

#[test]
fn a_damaged_fan_out_queue_is_skipped_if_its_settings_say_so() {
    let (_folder, mut queues) = with_damaged_child("[queue.'p+c']\non_closed = 'skip'");
    let answers = ask(&mut queues, "set p 0 0 1|2|get p|get p|", NOW);
    assert_eq!(answers, "STORED|VALUE p 0 4|item|END|VALUE p 0 1|2|END|");
    assert!(ask(&mut queues, "get p+c|", NOW).starts_with("SERVER_ERROR"));
}

#[test]
fn a_fan_out_queue_that_the_system_refused_to_open_is_opened_again_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let mut queues = open(folder.path());
    let answers = ask(&mut queues, "get p+c|set p 0 0 1|1|", NOW);
    assert_eq!(answers, "END|STORED|");
    queues.sync_all().unwrap();
    drop(queues);
    let control = folder.path().join("p+c/control");
    let away = folder.path().join("away");
    fs::rename(&control, &away).unwrap();
    fs::create_dir(&control).unwrap();
    let mut queues = open(folder.path());
    assert_eq!(queues.closed().count(), 1);
    assert!(ask(&mut queues, "set p 0 0 1|9|", NOW).starts_with("SERVER_ERROR"));
    queues.configure("[queue.'p+c']\non_closed = 'keep'".parse().unwrap(), NOW);
    assert_eq!(ask(&mut queues, "set p 0 0 1|2|", NOW), "STORED|");
    fs::remove_dir(&control).unwrap();
    fs::rename(&away, &control).unwrap();
    let later = Moment {
        steady_us: NOW.steady_us + 5_000_000,
        ..NOW
    };
    assert!(queues.next_event().unwrap() <= later.steady_us);
    queues.run_due(later).unwrap();
    assert_eq!(queues.closed().count(), 0);
    let answers = ask(
        &mut queues,
        "set p 0 0 1|3|get p+c|get p+c|get p+c|get p+c|",
        later,
    );
    assert_eq!(
        answers,
        "STORED|VALUE p+c 0 1|1|END|VALUE p+c 0 1|2|END|VALUE p+c 0 1|3|END|END|"
    );
}

#[test]
fn a_damaged_queue_can_be_deleted_and_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let mut queues = open(folder.path());
    assert_eq!(ask(&mut queues, "set q 0 0 4|item|", NOW), "STORED|");
    queues.sync_all().unwrap();
    drop(queues);
    damage(&folder.path().join("q"), "item");
    let mut queues = open(folder.path());
    assert_eq!(queues.closed().count(), 1);
    // Time does not help.
    assert!(ask(&mut queues, "get q|", later(100)).starts_with("SERVER_ERROR "));
    assert_eq!(
        ask(
            &mut queues,
            "delete q|get q|set q 0 0 1|x|get q|delete q|",
            NOW
        ),
        "DELETED|END|STORED|VALUE q 0 1|x|END|DELETED|"
    );
    assert_eq!(queues.closed().count(), 0);
    drop(queues);
    assert!(!folder.path().join("q").exists());
}

#[test]
fn a_directory_that_is_no_queue_is_not_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let foreign = folder.path().join("photos");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("holiday.jpg"), "a picture").unwrap();
    let mut queues = open(folder.path());
    let answer = ask(&mut queues, "delete photos|", NOW);
    assert!(
        answer.starts_with("SERVER_ERROR queue \"photos\" is closed: "),
        "{answer}"
    );
    assert!(foreign.join("holiday.jpg").exists());
}

/// A disk that is full for a while.
struct Full {
    memory: MemoryStorage,
    full: Rc<Cell<bool>>,
    opened: Rc<Cell<u32>>,
}

impl Storage for Full {
    type Log = MemoryLog;

    fn names(&self) -> Result<Vec<String>, millstream_queue::Cause> {
        self.memory.names()
    }

    fn open(&mut self, name: &str) -> Result<MemoryLog, millstream_queue::Cause> {
        self.opened.set(self.opened.get() + 1);
        if self.full.get() {
            return Err("the disk is full".into());
        }
        self.memory.open(name)
    }

    fn remove(&mut self, name: &str) -> Result<(), millstream_queue::Cause> {
        self.memory.remove(name)
    }
}

#[test]
fn a_queue_that_the_system_refused_to_open_opens_when_it_can() {
    let memory = MemoryStorage::new(64);
    let mut before = Broker::open(memory.clone(), Config::default(), NOW).unwrap();
    assert_eq!(ask(&mut before, "set q 0 0 1|x|", NOW), "STORED|");
    drop(before);
    let full = Rc::new(Cell::new(true));
    let opened = Rc::new(Cell::new(0));
    let storage = Full {
        memory,
        full: Rc::clone(&full),
        opened: Rc::clone(&opened),
    };
    let mut queues = Broker::open(storage, Config::default(), NOW).unwrap();
    for _ in 0..100 {
        let answer = ask(&mut queues, "get q|set q 0 0 1|y|", NOW);
        assert_eq!(answer.matches("the disk is full").count(), 2, "{answer}");
    }
    assert_eq!(opened.get(), 1, "tried again at each request");
    assert!(ask(&mut queues, "get q|", later(2)).contains("the disk is full"));
    full.set(false);
    assert!(ask(&mut queues, "get q|", later(2)).contains("the disk is full"));
    assert_eq!(
        ask(&mut queues, "get q|set q 0 0 1|y|", later(4)),
        "VALUE q 0 1|x|END|STORED|"
    );
    assert_eq!(queues.closed().count(), 0);
}

#[test]
fn a_limit_on_queues_leaves_those_that_are_there_open() {
    use millstream_queue::broker::BrokerLimits;
    let memory = MemoryStorage::new(64);
    let mut before = Broker::open(memory.clone(), Config::default(), NOW)
        .unwrap()
        .with_limits(BrokerLimits {
            queues: 10_010,
            ..BrokerLimits::default()
        });
    for number in 0..10_010 {
        let request = format!("set q{number} 0 0 1|x|");
        assert_eq!(ask(&mut before, &request, NOW), "STORED|");
    }
    drop(before);
    let queues = Broker::open(memory, Config::default(), NOW).unwrap();
    assert_eq!((queues.names().len(), queues.closed().count()), (10_010, 0));
}

/// A queue of several segments, closed, and its items.
fn several_segments(folder: &Path) -> Vec<String> {
    let mut queues = open(folder);
    let items: Vec<String> = (0..120)
        .map(|number| format!("item-{number:03};").repeat(120))
        .collect();
    for item in &items {
        let request = format!("set q 0 0 {}|{item}|", item.len());
        assert_eq!(ask(&mut queues, &request, NOW), "STORED|");
    }
    queues.sync_all().unwrap();
    items
}

fn salvaged(queue: &Path) -> (Vec<String>, Vec<String>) {
    let mut salvage = Salvage::read(queue).unwrap();
    let bodies = std::iter::from_fn(|| salvage.next_item())
        .map(|found| String::from_utf8(found.item.body.to_vec()).unwrap())
        .collect();
    let lost = salvage.lost().iter().map(ToString::to_string).collect();
    (bodies, lost)
}

/// What is done to the bytes of a file.
type Change = fn(&mut Vec<u8>);

#[test]
fn a_queue_that_cannot_be_opened_is_salvaged() {
    let worlds: [(&str, Change); 5] = [
        ("segment-0000000000.log", |bytes| bytes[24] ^= 1),
        ("segment-0000000001.log", |bytes| bytes[..64].fill(0)),
        ("segment-0000000003.log", |bytes| bytes[0..8].fill(7)),
        ("segment-0000000003.log", |bytes| bytes[76] ^= 1),
        ("start", |bytes| bytes.fill(0)),
    ];
    for (file, change) in worlds {
        let folder = tempfile::tempdir().unwrap();
        let items = several_segments(folder.path());
        let queue = folder.path().join("q");
        let mut bytes = fs::read(queue.join(file)).unwrap();
        change(&mut bytes);
        fs::write(queue.join(file), bytes).unwrap();
        // After a loss of power nothing but the files tells where the records end.
        fs::remove_file(queue.join("control")).unwrap();
        let queues = open(folder.path());
        assert_eq!(queues.closed().count(), 1, "{file}");
        drop(queues);
        let (found, lost) = salvaged(&queue);
        assert_eq!(found, items, "{file}: {lost:?}");
        assert!(
            lost.iter().any(|lost| lost.contains(file)),
            "{file}: {lost:?}"
        );
    }
}

#[test]
fn a_missing_segment_costs_its_own_items() {
    let folder = tempfile::tempdir().unwrap();
    let items = several_segments(folder.path());
    let queue = folder.path().join("q");
    fs::remove_file(queue.join("segment-0000000001.log")).unwrap();
    let (found, lost) = salvaged(&queue);
    let missing = items.iter().filter(|item| !found.contains(item)).count();
    assert!((10..60).contains(&missing), "{missing} {lost:?}");
    assert_eq!(found.first(), items.first());
    assert_eq!(found.last(), items.last());
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert!(
        lost[0].starts_with("records ") && lost[0].contains("segment-0000000001.log"),
        "{lost:?}"
    );
}
