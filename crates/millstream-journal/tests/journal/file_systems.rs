//! What a file system does to a mapped file is an error, never a signal, and takes nothing that was acknowledged.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::time::Duration;

use millstream_journal::{Error, Journal, Options, Reader, Wait, Writer};

use crate::disks::{self, Disk};
use crate::support::{fresh, small};

const MIB: u64 = 1 << 20;

fn body(sequence: u64) -> Vec<u8> {
    sequence.to_le_bytes().repeat(64 + sequence as usize % 64)
}

/// Append until there is no room. Gives how many records there are, and why it ended.
fn append_until_full(writer: &Writer, from: u64) -> (u64, Error) {
    let mut next = from;
    loop {
        match writer.append(&body(next)) {
            Ok(sequence) => assert_eq!(sequence, next),
            Err(error) => return (next, error),
        }
        next += 1;
    }
}

/// All that was acknowledged is there, and at most the record that was not as well. Gives how many there are.
fn check(journal: &Journal, acknowledged: u64) -> u64 {
    let mut reader = journal.reader().unwrap();
    while let Some(record) = reader.next().unwrap() {
        assert!(record.body == body(record.sequence), "{}", record.sequence);
    }
    let next = reader.position();
    assert!(
        (acknowledged..=acknowledged + 1).contains(&next),
        "{next} of {acknowledged} records"
    );
    next
}

fn options() -> Options {
    small().with_segment_bytes(MIB)
}

/// Fill a file system to the end under a writer and readers, free it, go on; three times. `share` is called when the journal has
/// some records, and before the disk is full. Gives how often the writer had to open the journal again.
fn fill_and_go_on(disk: &Disk, share: impl Fn(&Path)) -> u32 {
    let path = disk.journal();
    let mut journal = Journal::open(&path, options()).unwrap();
    let mut writer = journal.writer().unwrap();
    let (mut next, mut reopened) = (0, 0);
    for _ in 0..3 {
        for _ in 0..2_000 {
            writer.append(&body(next)).unwrap();
            next += 1;
        }
        share(&path);
        let ballast = [disk.fill(MIB), disk.fill(0)];
        let stop = std::sync::atomic::AtomicBool::new(false);
        let (acknowledged, error) = std::thread::scope(|scope| {
            let only = Journal::open(&path, Options::read_only()).unwrap();
            // The background may have had a fault already.
            for reader in [journal.reader(), only.reader()] {
                let stop = &stop;
                match reader {
                    Ok(reader) => drop(scope.spawn(move || follow(reader, stop))),
                    Err(error) => assert!(matches!(error, Error::Fault { .. }), "{error}"),
                }
            }
            let ended = append_until_full(&writer, next);
            stop.store(true, std::sync::atomic::Ordering::SeqCst);
            ended
        });
        // Reading needs no room.
        let only = Journal::open(&path, Options::read_only()).unwrap();
        check(&only, acknowledged);
        drop(only);
        for file in ballast {
            let _removed = fs::remove_file(file);
        }
        // It gives back the room, and may fail for what did not fit before.
        let _synced = disks::run("sync", &["-f", disks::text(&disk.root)]);
        let full = matches!(error, Error::DiskFull { .. });
        assert!(full || has_failed(&error), "{error}");
        if full && journal.sync().is_ok() {
            next = acknowledged;
            continue;
        }
        for error in [
            writer.append(b"x").unwrap_err(),
            writer.sync().unwrap_err(),
            writer.claim(1).err().unwrap(),
        ] {
            assert!(has_failed(&error), "{error}");
        }
        drop((writer, journal));
        journal = Journal::open(&path, options()).unwrap();
        writer = journal.writer().unwrap();
        reopened += 1;
        next = check(&journal, acknowledged);
        journal.sync().unwrap();
    }
    writer.append(&body(next)).unwrap();
    check(&journal, next + 1);
    drop((writer, journal));
    let report = Journal::verify(&path).unwrap();
    assert_eq!(report.damages, []);
    reopened
}

/// Nothing is acknowledged any more, because of a fault or of a sync that had no room.
fn has_failed(error: &Error) -> bool {
    matches!(error, Error::Fault { .. } | Error::Poisoned { .. })
}

/// Read what comes, until there is an error or nothing more.
fn follow(mut reader: Reader, stop: &std::sync::atomic::AtomicBool) {
    loop {
        match reader.wait(Wait::Block, Some(Duration::from_millis(20))) {
            Ok(true) => match reader.next() {
                Ok(Some(record)) => {
                    assert!(record.body == body(record.sequence), "{}", record.sequence);
                }
                Ok(None) => {}
                Err(Error::Fault { .. }) => return,
                Err(error) => panic!("{error}"),
            },
            Ok(false) if stop.load(std::sync::atomic::Ordering::SeqCst) => return,
            Ok(false) => {}
            Err(Error::Fault { .. }) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_full_disk_with_room_set_aside_is_an_error_and_the_same_writer_goes_on() {
    for kind in ["ext4", "xfs", "tmpfs", "overlay"] {
        if let Some(disk) = Disk::new(kind) {
            assert_eq!(fill_and_go_on(&disk, |_| ()), 0, "{kind}");
        }
    }
}

/// A segment gets its name without replacing one that another process has just made.
#[test]
fn a_file_system_that_cannot_name_files_safely_is_refused() {
    if let Some(disk) = Disk::new("exfat") {
        let error = Journal::open(disk.journal(), options()).err().unwrap();
        assert!(error.to_string().contains("neither links nor"), "{error}");
    }
}

#[test]
fn a_full_btrfs_is_an_error_and_nothing_is_lost() {
    if let Some(disk) = Disk::new("btrfs") {
        let reopened = fill_and_go_on(&disk, |_| ());
        println!("btrfs: opened again {reopened} times");
    }
}

/// An ordinary backup makes the file system copy each block that is stored to next, for which it has set nothing aside.
#[test]
fn a_full_disk_with_shared_blocks_is_an_error_and_nothing_is_lost() {
    for kind in ["xfs", "btrfs"] {
        let Some(disk) = Disk::new(kind) else {
            continue;
        };
        let copy = disk.root.join("copy");
        let share = |journal: &Path| {
            let _before = fs::remove_dir_all(&copy);
            let arguments = [
                "-r",
                "--reflink=always",
                disks::text(journal),
                disks::text(&copy),
            ];
            disks::run("cp", &arguments).unwrap();
            disks::run("sync", &["-f", disks::text(journal)]).unwrap();
        };
        assert!(fill_and_go_on(&disk, share) > 0, "{kind}: no store failed");
    }
}

fn truncate(journal: &Journal, segment: u64, bytes: u64) {
    let file = journal.path().join(format!("segment-{segment:010}.log"));
    let file = OpenOptions::new().write(true).open(file).unwrap();
    file.set_len(bytes).unwrap();
}

fn is_truncated<T>(result: Result<T, Error>) -> bool {
    match result {
        Err(Error::Fault {
            path,
            offset,
            source,
        }) => {
            assert!(path.ends_with("segment-0000000000.log"), "{path:?}");
            assert!(offset.is_multiple_of(4096), "{offset}");
            assert!(source.to_string().contains("truncated"), "{source}");
            true
        }
        _ => false,
    }
}

#[test]
fn a_segment_that_is_truncated_under_its_writer_is_an_error() {
    for kept in [0, 4096, 8192, 32 << 10] {
        let (_folder, journal) = fresh(small());
        let writer = journal.writer().unwrap();
        for _ in 0..20 {
            writer.append(&[1; 1_000]).unwrap();
        }
        truncate(&journal, 0, kept);
        let mut appended = 20;
        let error = loop {
            match writer.append(&[2; 1_000]) {
                Ok(_) => appended += 1,
                Err(error) => break error,
            }
        };
        assert!(is_truncated::<()>(Err(error)), "{kept}");
        assert!(kept == 32 << 10 || appended == 20, "{kept}: {appended}");
        // Nothing is acknowledged any more, in any way.
        assert!(is_truncated(writer.append(b"more")), "{kept}");
        assert!(is_truncated(writer.append_many(["more", "yet"])), "{kept}");
        assert!(is_truncated(writer.claim(4)), "{kept}");
        assert!(is_truncated(writer.sync()), "{kept}");
        assert!(is_truncated(writer.wait_durable(0)), "{kept}");
        assert!(is_truncated(journal.reader().map(drop)), "{kept}");
        // Another opening is not held up by the append lock, and finds the damage.
        drop((writer, journal));
    }
}

#[test]
fn a_segment_that_is_truncated_under_its_readers_is_an_error() {
    for kept in [0, 4096, 8192, 40 << 10] {
        let (_folder, journal) = fresh(small());
        journal
            .writer()
            .unwrap()
            .append_many([[1; 1_000]; 60])
            .unwrap();
        let only = Journal::open(journal.path(), Options::read_only()).unwrap();
        for journal in [&journal, &only] {
            journal.reader().unwrap().next().unwrap().unwrap();
        }
        let mut reader = only.reader().unwrap();
        let pinned = reader.next_pinned().unwrap().unwrap();
        pinned.check().unwrap();
        truncate(&journal, 0, kept);
        let error = loop {
            match reader.next() {
                Ok(Some(record)) => assert_eq!(record.body, [1; 1_000]),
                Ok(None) => panic!("a quiet end at {}", reader.position()),
                Err(error) => break error,
            }
        };
        assert!(is_truncated::<()>(Err(error)), "{kept}");
        assert!(is_truncated(reader.next().map(drop)), "{kept}");
        assert!(is_truncated(reader.wait(Wait::Block, Some(Duration::ZERO))));
        assert!(is_truncated(reader.seek(0)), "{kept}");
        assert!(is_truncated(only.next()), "{kept}");
        assert!(is_truncated(only.info()), "{kept}");
        // What is kept of a record is not taken for it either.
        let zeros = pinned.body().iter().all(|byte| *byte == 0);
        assert_eq!(zeros, kept <= 8192, "{kept}");
        assert!(is_truncated(pinned.check()), "{kept}");
    }
}

#[test]
fn a_cursor_that_is_truncated_is_an_error_and_its_journal_is_not() {
    let (_folder, journal) = fresh(small());
    let writer = journal.writer().unwrap();
    writer.append(b"a").unwrap();
    let cursor = journal
        .cursor("c", millstream_journal::Share::Exclusive)
        .unwrap();
    let file = journal.path().join("cursors/c");
    OpenOptions::new()
        .write(true)
        .open(&file)
        .unwrap()
        .set_len(0)
        .unwrap();
    assert!(matches!(cursor.set(1), Err(Error::Fault { path, .. }) if path == file));
    assert!(matches!(cursor.position(), Err(Error::Fault { .. })));
    assert!(matches!(cursor.sync(), Err(Error::Io { .. })));
    drop(cursor);
    assert_eq!(writer.append(b"b").unwrap(), 1);
}

/// A writer whose memory fails leaves the append lock to others as a dead one does.
#[test]
fn other_openings_go_on_beside_one_whose_memory_has_failed() {
    let (_folder, journal) = fresh(small());
    let other = Journal::open(journal.path(), small()).unwrap();
    let (writer, healthy) = (journal.writer().unwrap(), other.writer().unwrap());
    healthy.append(&[1; 1_000]).unwrap();
    writer.append(&[2; 1_000]).unwrap();
    // The file grows again before the other comes there: only one of them touches the page meanwhile.
    for sequence in 2..20 {
        healthy.append(&[sequence as u8; 1_000]).unwrap();
    }
    let claim = writer.claim(30_000).unwrap();
    let mut claim = claim;
    truncate(&journal, 0, 40 << 10);
    claim.fill(9);
    truncate(&journal, 0, 64 << 10);
    assert!(is_fault(claim.commit(30_000)));
    assert_eq!(healthy.append(b"next").unwrap(), 20);
    let mut reader = other.reader().unwrap();
    for sequence in 0..20 {
        let body = reader.next().unwrap().unwrap().body;
        assert_eq!(body, [[1, 2][sequence.min(1)].max(sequence as u8); 1_000]);
    }
    assert_eq!(reader.next().unwrap().unwrap().body, b"next");
    drop((writer, journal));
    let again = Journal::open(other.path(), small()).unwrap();
    assert_eq!(again.writer().unwrap().append(b"again").unwrap(), 21);
}

fn is_fault<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Fault { .. }))
}
