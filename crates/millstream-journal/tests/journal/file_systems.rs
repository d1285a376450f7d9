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
            for reader in [journal.reader().unwrap(), only.reader().unwrap()] {
                let stop = &stop;
                scope.spawn(move || follow(reader, stop));
            }
            let ended = append_until_full(&writer, next);
            stop.store(true, std::sync::atomic::Ordering::SeqCst);
            ended
        });
        for file in ballast {
            let _removed = fs::remove_file(file);
        }
        disks::run("sync", &["-f", disks::text(&disk.root)]).unwrap();
        match error {
            Error::DiskFull { .. } => next = acknowledged,
            Error::Fault { .. } => {
                assert!(matches!(writer.append(b"x"), Err(Error::Fault { .. })));
                assert!(matches!(writer.sync(), Err(Error::Fault { .. })));
                assert!(matches!(journal.next(), Err(Error::Fault { .. })));
                drop((writer, journal));
                journal = Journal::open(&path, options()).unwrap();
                writer = journal.writer().unwrap();
                reopened += 1;
                next = check(&journal, acknowledged);
            }
            other => panic!("{other}"),
        }
        journal.sync().unwrap();
    }
    writer.append(&body(next)).unwrap();
    check(&journal, next + 1);
    drop((writer, journal));
    let report = Journal::verify(&path).unwrap();
    assert_eq!(report.damages, []);
    reopened
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
            let arguments = ["-r", "--reflink=always", disks::text(journal), disks::text(&copy)];
            disks::run("cp", &arguments).unwrap();
            disks::run("sync", &["-f", disks::text(journal)]).unwrap();
        };
        assert!(fill_and_go_on(&disk, share) > 0, "{kind}: no store failed");
    }
}
