//! Full disks: an error, never a signal, and no acknowledged record is lost.

use std::fs;
use std::path::Path;
use std::time::Duration;

use millstream_journal::{CursorMode, Error, Journal, Options, Reader, Retention, Wait, Writer};

use crate::disk::{Disk, run, text};
use crate::support::small;

const MIB: u64 = 1 << 20;

fn body(sequence: u64) -> Vec<u8> {
    sequence.to_le_bytes().repeat(64 + sequence as usize % 64)
}

/// Append until there is no room. Returns how many records there are, and why it ended.
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

/// All acknowledged records exist, and at most one other. Returns how many there are.
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

/// Fill a file system to the end under a writer and readers, free it, continue; three times. `share` is called when the
/// journal has some records, and before the disk is full. Returns how often the writer had to open the journal again.
fn fill_and_go_on(disk: &Disk, share: impl Fn(&Path)) -> u32 {
    let path = disk.journal();
    let mut journal = Journal::open(&path, options()).unwrap();
    let mut writer = journal.writer().unwrap();
    let mut next = 0;
    let mut reopened = 0;
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
        // It frees space, and may fail for what did not fit before.
        let _synced = run("sync", &["-f", text(&disk.root)]);
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
fn a_full_disk_with_reserved_room_is_an_error_and_the_same_writer_continues() {
    for kind in ["ext4", "xfs", "tmpfs", "overlay"] {
        if let Some(disk) = Disk::new(kind) {
            assert_eq!(fill_and_go_on(&disk, |_| ()), 0, "{kind}");
        }
    }
}

/// A disk without a single block: the journal is opened again, what is no longer needed goes, and that makes room.
#[test]
fn a_journal_on_a_full_disk_is_opened_and_pruned() {
    for kind in ["ext4", "xfs", "tmpfs"] {
        let Some(disk) = Disk::new(kind) else {
            continue;
        };
        let path = disk.journal();
        let alone = Options {
            exclusive: true,
            ..options()
        };
        let journal = Journal::open(&path, alone.clone()).unwrap();
        let writer = journal.writer().unwrap();
        writer.append_many((0..8_000).map(body)).unwrap();
        journal.cursor("needed", CursorMode::Exclusive).unwrap();
        drop((writer, journal));
        for left in [MIB, 0] {
            disk.fill(left);
        }
        let journal = Journal::open(&path, alone).unwrap_or_else(|error| panic!("{kind}: {error}"));
        check(&journal, 8_000);
        // What says that a cut was begun needs a block of its own.
        if let Err(error) = journal.cut(7_990) {
            assert!(format!("{error:?}").contains("No space left"), "{error:?}");
            check(&journal, 8_000);
        }
        let cursor = journal.cursor("needed", CursorMode::Exclusive).unwrap();
        cursor.set(7_000).unwrap();
        cursor.sync().unwrap();
        let retention = Retention {
            keep_for_cursors: true,
            ..Retention::default()
        };
        assert!(journal.prune(&retention).unwrap().segments > 0, "{kind}");
        assert!(journal.first().unwrap() > 6_000, "{kind}");
        journal.cut(7_990).unwrap();
        check(&journal, 7_990);
        let writer = journal.writer().unwrap();
        for sequence in 7_990..9_000 {
            assert_eq!(writer.append(&body(sequence)).unwrap(), sequence, "{kind}");
        }
    }
}

/// A segment gets its name without replacing one that another process has just made.
#[test]
fn a_file_system_that_cannot_name_files_safely_is_refused() {
    if let Some(disk) = Disk::new("exfat") {
        let error = Journal::open(disk.journal(), options()).err().unwrap();
        assert!(
            format!("{error:?}").contains("neither links nor"),
            "{error:?}"
        );
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
            let arguments = ["-r", "--reflink=always", text(journal), text(&copy)];
            // The background of the writer may name a draft while it is copied.
            let is_copied = (0..50).any(|_| {
                let _before = fs::remove_dir_all(&copy);
                run("cp", &arguments).is_ok()
            });
            assert!(is_copied, "cp");
            run("sync", &["-f", text(journal)]).unwrap();
        };
        assert!(fill_and_go_on(&disk, share) > 0, "{kind}: no store failed");
    }
}
