//! The disk is full, or a sync fails: clean errors, no loss, and no wrong acknowledgement.

use millstream_journal::storage::{Failing, Simulated};
use millstream_journal::{Error, Host, Journal, Mapped, Options, Sync};

use crate::support::small;

#[test]
fn a_full_disk_is_an_error_and_work_continues_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Failing::new(Mapped::new(folder.path()));
    let journal = Journal::open_in(storage.clone(), small()).unwrap();
    let writer = journal.writer().unwrap();
    storage.set_full(true);
    let mut appended = 0;
    let error = loop {
        match writer.append(&[1; 1_000]) {
            Ok(sequence) => appended = sequence + 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert!(matches!(
        writer.append(&[1; 1_000]),
        Err(Error::DiskFull { .. })
    ));
    assert!(matches!(
        writer.append_many([[1; 1_000]; 3]),
        Err(Error::DiskFull { .. })
    ));
    assert!(matches!(writer.claim(1_000), Err(Error::DiskFull { .. })));
    assert_eq!(journal.next().unwrap(), appended);
    storage.set_full(false);
    assert_eq!(writer.append(&[2; 1_000]).unwrap(), appended);
    let mut reader = journal.reader().unwrap();
    for _ in 0..appended {
        assert_eq!(reader.next().unwrap().unwrap().body, [1; 1_000]);
    }
    assert_eq!(reader.next().unwrap().unwrap().body, [2; 1_000]);
}

#[test]
fn a_journal_that_cannot_be_made_is_an_error() {
    for nth in 1..4 {
        let folder = tempfile::tempdir().unwrap();
        let storage = Failing::new(Mapped::new(folder.path()));
        storage.fail_create(nth);
        match Journal::open_in(storage, small()) {
            Ok(_) => assert!(nth > 2, "creation {nth}"),
            Err(error) => assert!(matches!(error, Error::DiskFull { .. }), "{error}"),
        }
        Journal::open(folder.path(), small())
            .unwrap()
            .writer()
            .unwrap()
            .append(b"a")
            .unwrap();
    }
}

#[test]
fn zeros_are_written_in_front_of_records_that_are_synced() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Failing::new(Mapped::new(folder.path()));
    let options = Options {
        sync: Sync::Always,
        ..Options::default()
    };
    let journal = Journal::open_in(storage.clone(), options).unwrap();
    let writer = journal.writer().unwrap();
    // Each record is one sync; every 512 KiB before them is another, 15 in all.
    let syncs = 2_000;
    storage.fail_sync(syncs);
    let appended = (0..syncs).take_while(|_| writer.append(&[1; 4_000]).is_ok());
    let appended = appended.count();
    assert!(appended < syncs as usize - 12, "{appended}");
}

fn always(boot: u128) -> Options {
    let host = Host::simulated(|| 1, || 1).with_boot(boot);
    Options {
        sync: Sync::Always,
        host,
        ..small()
    }
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged() {
    for nth in 1..60 {
        let machine = Simulated::new();
        let process = machine.process();
        let journal = Journal::open_in(process.clone(), always(1)).unwrap();
        let other = Journal::open_in(machine.process(), always(1)).unwrap();
        let writer = journal.writer().unwrap();
        let bystander = other.writer().unwrap();
        machine.fail_sync(nth);
        let mut acknowledged = 0;
        let error = loop {
            match writer.append(&[acknowledged as u8; 2_500]) {
                Ok(_) => acknowledged += 1,
                Err(error) => break error,
            }
        };
        assert!(
            matches!(
                error,
                Error::Io {
                    verb: "sync" | "create",
                    ..
                }
            ),
            "sync {nth}: {error}"
        );
        if matches!(error, Error::Io { verb: "sync", .. }) {
            for writer in [&writer, &bystander] {
                assert!(matches!(
                    writer.append(b"more"),
                    Err(Error::Poisoned { .. })
                ));
                assert!(matches!(writer.sync(), Err(Error::Poisoned { .. })));
                assert!(matches!(writer.claim(1), Err(Error::Poisoned { .. })));
            }
        }
        drop((writer, bystander, journal, other));
        // Opened again, the journal is as good as ever, and what it says to be durable is so.
        let journal = Journal::open_in(machine.process(), always(1)).unwrap();
        assert!(journal.next().unwrap() >= acknowledged && journal.durable() >= acknowledged);
        journal.writer().unwrap().append(b"again").unwrap();
        let next = journal.next().unwrap();
        let after = machine.lose_power(&mut |_| 0);
        let journal = Journal::open_in(after.process(), always(2)).unwrap();
        assert_eq!(journal.next().unwrap(), next, "sync {nth}");
        let mut reader = journal.reader().unwrap();
        for number in 0..acknowledged {
            assert_eq!(
                reader.next().unwrap().unwrap().body,
                [number as u8; 2_500],
                "sync {nth}"
            );
        }
    }
}

/// Many concurrent waiters do not sleep: they must still be notified of a sync, and of a failed one.
#[test]
fn a_crowd_is_acknowledged_what_is_durable_and_nothing_after_a_failed_sync() {
    const THREADS: usize = 40;
    for syncs in [1, 2, 50, 200] {
        let folder = tempfile::tempdir().unwrap();
        let storage = Failing::new(Mapped::new(folder.path()));
        let options = small().with_sync(Sync::Always);
        let journal = Journal::open_in(storage.clone(), options).unwrap();
        let writer = journal.writer().unwrap();
        writer.append(b"first").unwrap();
        storage.fail_sync(syncs);
        let append_until_it_fails = || {
            let mut last = 0;
            for appended in 0.. {
                // The sync that failed may have been that of a segment which was being made, and made anew.
                if appended == 2_000 {
                    storage.fail_sync(1);
                }
                match writer.append(&[7; 40]) {
                    Ok(sequence) => {
                        assert!(journal.durable() > sequence, "{sequence} is not durable");
                        last = sequence;
                    }
                    Err(error) => return (last, error),
                }
            }
            unreachable!("it appends until it fails");
        };
        let ended: Vec<(u64, Error)> = std::thread::scope(|scope| {
            let threads = [(); THREADS].map(|()| scope.spawn(append_until_it_fails));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        let durable = journal.durable();
        for (last, error) in ended {
            assert!(last < durable, "{last} of {durable}");
            assert!(
                matches!(error, Error::Poisoned { .. } | Error::Io { .. }),
                "{error}"
            );
        }
    }
}

#[test]
fn a_real_disk_that_is_full() {
    let Some(disk) = SmallDisk::new() else {
        eprintln!("skipped: only root may mount");
        return;
    };
    let journal =
        Journal::open(disk.0.join("journal"), small().with_segment_bytes(1 << 20)).unwrap();
    let writer = journal.writer().unwrap();
    let mut appended = 0;
    while writer
        .append(&[3; 5_000])
        .map_err(|error| assert!(matches!(error, Error::DiskFull { .. }), "{error}"))
        .is_ok()
    {
        appended += 1;
    }
    assert!(appended > 500);
    let pruned = journal
        .prune(&millstream_journal::Retention {
            bytes: Some(4 << 20),
            ..Default::default()
        })
        .unwrap();
    assert!(pruned.segments > 0);
    // A thread of the journal that waits for a processor may still hold the segments that were removed.
    let resumed = (0..1_000).find_map(|_| {
        let attempt = writer.append(&[3; 5_000]);
        if attempt.is_err() {
            std::thread::yield_now();
        }
        attempt.ok()
    });
    assert_eq!(resumed, Some(appended));
    let mut reader = journal.reader().unwrap();
    for _ in pruned.first..=appended {
        assert_eq!(reader.next().unwrap().unwrap().body, [3; 5_000]);
    }
}

/// A file system of 8 MiB in memory.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn new() -> Option<Self> {
        let path = tempfile::tempdir().unwrap().keep();
        let mut mount = std::process::Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"])
            .arg(&path);
        let mounted = mount.stderr(std::process::Stdio::null()).status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(SmallDisk(path))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _status = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
        let _removed = std::fs::remove_dir(&self.0);
    }
}
