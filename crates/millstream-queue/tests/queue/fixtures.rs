//! A fixture of the version that is written: a queue with items in every kind of record, over a journal whose segments
//! have grown. Its items are there, and it works on. `tests/write-fixtures` writes it.

use std::fs;
use std::path::{Path, PathBuf};

use millstream_queue::Moment;
use millstream_queue::broker::{Broker, EndedBy};
use millstream_queue::config::{Config, Sync};
use millstream_queue::history::{History, Origin, Reason};
use millstream_queue::salvage::Salvage;
use millstream_queue::session::{Session, SessionOptions};
use millstream_queue::storage::operation::{Head, Operation};
use millstream_queue::storage::{JournalStorage, Log, Storage};

const NOW: Moment = Moment {
    wall_ms: 1_700_000_000_000,
    steady_us: 0,
};
const HEAD: Head = Head {
    flags: 2,
    added_ms: 1_700_000_000_000,
    expiry_ms: 0,
};
/// When the delayed item is due.
const DUE_MS: u64 = 1_700_003_600_000;
/// `xxh3_128` of the ids ORDER-16 and ORDER-17.
const KEYS: [u128; 2] = [
    50_494_362_432_499_636_045_870_423_425_501_409_931,
    133_322_464_477_520_910_691_551_331_698_028_245_207,
];
/// So many items follow those in every kind of record, and so many of them were removed.
const FILLING: usize = 120;
const REMOVED: usize = 5;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1/jobs")
}

fn body(number: usize) -> String {
    format!("item {number:03} of the fixture; ").repeat(20)
}

/// A record of every kind: what is left are `one`, `two`, `delayed`, `numbered`, `moved` and `once`.
fn every_kind() -> impl Iterator<Item = Operation<'static>> {
    let once = Operation::Once {
        head: HEAD,
        due_ms: 0,
        key: KEYS[1].to_le_bytes(),
        body: b"once",
    };
    let known = Operation::Known {
        set_ms: 1_700_000_000_000,
        key: KEYS[0].to_le_bytes(),
    };
    without_ids().into_iter().chain([once, known])
}

fn without_ids() -> [Operation<'static>; 12] {
    let add = |body| Operation::Add {
        head: HEAD,
        due_ms: 0,
        body,
    };
    let history = History {
        first_failed_ms: 1_700_000_000_500,
        origin: Some(Origin {
            queue: "work",
            reason: Reason::Failed,
            left_ms: 1_700_000_000_900,
            expiry_ms: 0,
            deliveries: 3,
        }),
    };
    [
        add(b"flushed"),
        Operation::Flush { from: 1 },
        add(b"one"),
        add(b"two"),
        Operation::Add {
            head: HEAD,
            due_ms: DUE_MS,
            body: b"delayed",
        },
        Operation::From {
            head: HEAD,
            source: 7,
            index: 4,
            body: b"numbered",
        },
        Operation::Mark {
            source: 9,
            index: 5,
        },
        Operation::Moved {
            due_ms: 0,
            head: HEAD,
            history,
            body: b"moved",
        },
        Operation::Delivered {
            id: 2,
            count: 1,
            first_ms: 1_700_000_000_500,
        },
        Operation::Remove { id: 0, bytes: 7 },
        Operation::Again {
            head: HEAD,
            due_ms: 0,
            id: 3,
            deliveries: 0,
            history: None,
            body: b"two",
        },
        Operation::Again {
            head: HEAD,
            due_ms: 0,
            id: 7,
            deliveries: 2,
            history: Some(history),
            body: b"moved",
        },
    ]
}

/// Write the fixture, if the environment says so.
fn write_if_wanted() {
    if std::env::var_os("MILLSTREAM_WRITE_FIXTURES").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut storage = JournalStorage::open(folder.path(), 1 << 20).unwrap();
    let mut log = storage.open("jobs").unwrap();
    let mut append = |operation: Operation<'_>| {
        let mut record = Vec::new();
        operation.encode(&mut record);
        log.append(&record).unwrap()
    };
    every_kind().for_each(|operation| {
        append(operation);
    });
    let filling: Vec<u64> = (0..FILLING)
        .map(|number| {
            append(Operation::Add {
                head: HEAD,
                due_ms: 0,
                body: body(number).as_bytes(),
            })
        })
        .collect();
    for id in &filling[..REMOVED] {
        append(Operation::Remove {
            id: *id,
            bytes: body(0).len() as u32,
        });
    }
    log.sync().unwrap();
    drop((log, storage));
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

fn open(folder: &Path) -> Broker<JournalStorage> {
    let storage = JournalStorage::open(folder, 1 << 20).unwrap();
    let config: Config = "[defaults]\ndedupe = '1h'".parse().unwrap();
    Broker::open(storage, config.or_sync(Sync::Always), NOW).unwrap()
}

fn ask(queues: &mut Broker<JournalStorage>, request: &str) -> String {
    let mut session = Session::new(queues, SessionOptions::default());
    session.receive(queues, request.replace('|', "\r\n").as_bytes(), NOW);
    queues.commit().unwrap();
    let answer = String::from_utf8_lossy(session.output()).replace("\r\n", "|");
    session.end(queues, EndedBy::Client, NOW);
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

#[test]
fn the_queue_of_the_repository_is_read_and_continues() {
    write_if_wanted();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs");
    copy(&fixture(), &path);
    for (number, bytes) in [16_u64 << 10, 32 << 10, 64 << 10].into_iter().enumerate() {
        let file = path.join(format!("segment-{number:010}.log"));
        assert_eq!(fs::metadata(file).unwrap().len(), bytes);
    }
    let mut salvage = Salvage::read(&path).unwrap();
    let salvaged: Vec<(Vec<u8>, u32)> = std::iter::from_fn(|| salvage.next_item())
        .map(|found| (found.item.body.to_vec(), found.item.deliveries))
        .collect();
    assert_eq!(salvage.lost(), []);
    drop(salvage);
    let kinds: [(&[u8], u32); 6] = [
        (b"one", 1),
        (b"two", 0),
        (b"delayed", 0),
        (b"numbered", 0),
        (b"moved", 2),
        (b"once", 0),
    ];
    let kinds = kinds.map(|(body, deliveries)| (body.to_vec(), deliveries));
    let filling = (REMOVED..FILLING).map(|number| (body(number).into_bytes(), 0));
    assert!(salvaged.into_iter().eq(kinds.into_iter().chain(filling)));

    let mut queues = open(folder.path());
    assert_eq!(queues.closed().count(), 0);
    assert_eq!(queues.items("jobs"), Some((6 + FILLING - REMOVED) as u64));
    assert_eq!(
        ask(&mut queues, "get jobs/details|get jobs|"),
        "VALUE jobs/details 2 3 2 1700000000000 0 1 1700000000500|one|END|VALUE jobs 2 3|two|END|"
    );
    assert_eq!(
        ask(&mut queues, "get jobs|get jobs/details|"),
        "VALUE jobs 2 8|numbered|END|\
         VALUE jobs/details 2 5 7 1700000000000 0 2 1700000000500 work failed 1700000000900 3 0|moved|END|"
    );
    assert_eq!(ask(&mut queues, "get jobs|"), "VALUE jobs 2 4|once|END|");
    for id in ["ORDER-16", "ORDER-17"] {
        let request = format!("set jobs/id={id} 0 0 1|x|");
        assert_eq!(ask(&mut queues, &request), "STORED|");
    }
    assert_eq!(queues.items("jobs"), Some((FILLING - REMOVED + 1) as u64));
    (REMOVED..40).for_each(|number| take(&mut queues, number));
    (FILLING..200).for_each(|number| set(&mut queues, number));
    drop(queues);
    let mut queues = open(folder.path());
    (40..200).for_each(|number| take(&mut queues, number));
    assert_eq!(ask(&mut queues, "get jobs|"), "END|");
    assert_eq!(queues.items("jobs"), Some(1));
}
