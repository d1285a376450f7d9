//! Real file systems on devices that fail, or that lose what they had not written while the machine continues.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use millstream_journal::{Error, Journal, Options, Sync};

use crate::disk::{Disk, mount, run, text};
use crate::support::small;

const MIB: u64 = 1 << 20;

fn options() -> Options {
    small().with_segment_bytes(MIB)
}

fn body(sequence: u64) -> Vec<u8> {
    sequence.to_le_bytes().repeat(100)
}

/// Evict the files of a directory from the caches of the kernel.
fn forget(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let of = format!("of={}", text(&path));
            let arguments = [&of, "oflag=nocache", "conv=notrunc,fdatasync", "count=0"];
            run("dd", &arguments).unwrap();
        }
    }
}

/// Read all records. Returns how many there were before the end or the error.
fn read(journal: &Journal) -> (u64, Option<Error>) {
    let mut reader = match journal.reader() {
        Ok(reader) => reader,
        Err(error) => return (0, Some(error)),
    };
    loop {
        match reader.next() {
            Ok(Some(record)) => assert!(record.body == body(record.sequence)),
            Ok(None) => return (reader.position(), None),
            Err(error) => return (reader.position(), Some(error)),
        }
    }
}

#[test]
fn a_device_that_fails_is_an_error_and_not_damage() {
    let Some(disk) = Disk::new("ext4") else {
        return;
    };
    let path = disk.journal();
    let records = 8_000;
    let journal = Journal::open(&path, options().with_sync(Sync::Always)).unwrap();
    let bodies = (0..records).map(body);
    journal.writer().unwrap().append_many(bodies).unwrap();
    drop(journal);
    run("sync", &["-f", text(&disk.root)]).unwrap();
    // The end of the device is gone, and comes back.
    let image = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&disk.image)
        .unwrap();
    let mut contents = vec![0; image.metadata().unwrap().len() as usize];
    image.read_exact_at(&mut contents, 0).unwrap();
    let mut failed = 0;
    for kept in [2, 4, 8, 12] {
        let only = Journal::open(&path, Options::read_only()).unwrap();
        let both = Journal::open(&path, options()).unwrap();
        forget(&path);
        image.set_len(kept * MIB).unwrap();
        let found = [read(&only), read(&both)];
        let verified = Journal::verify(&path);
        image.write_all_at(&contents, 0).unwrap();
        for (end, error) in found {
            match error {
                None => assert_eq!(end, records),
                Some(Error::Fault { path, source, .. }) => {
                    assert!(path.to_string_lossy().contains("segment-"), "{path:?}");
                    assert_eq!(source.raw_os_error(), Some(5), "{source}");
                    failed += 1;
                }
                // The kernel may fail to open the file.
                Some(Error::Io { source, .. }) => {
                    assert_eq!(source.raw_os_error(), Some(5), "{source}");
                    failed += 1;
                }
                Some(error) => panic!("{error}"),
            }
        }
        match verified {
            Ok(report) => assert_eq!(report.damages, []),
            Err(error) => assert!(
                matches!(error, Error::Fault { .. } | Error::Io { .. }),
                "{error}"
            ),
        }
        drop((only, both));
        forget(&path);
        let again = Journal::open(&path, options()).unwrap();
        let (end, error) = read(&again);
        assert!(end == records && error.is_none(), "{end}: {error:?}");
    }
    assert!(failed > 0, "the device never failed");
}

/// The disk as it is found after it was pulled: of the last segment the header is written, with its tail, and the
/// frames after the durable watermark are not.
fn lose_frames(journal: &Path) {
    let path = journal.join("segment-0000000000.log");
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut word = [0; 8];
    file.read_exact_at(&mut word, 72).unwrap();
    let durable = (u64::from_le_bytes(word) >> 32) * 8;
    let from = durable.next_multiple_of(4096);
    file.write_all_at(&vec![0; (MIB - from) as usize], from)
        .unwrap();
    file.sync_all().unwrap();
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a directory is looked at from time to time"
)]
fn a_disk_that_lost_its_power_without_the_machine_is_recovered() {
    for first in [Options::read_only(), options()] {
        let Some(disk) = Disk::new("ext4") else {
            return;
        };
        let path = disk.journal();
        let journal = Journal::open(&path, options()).unwrap();
        let writer = journal.writer().unwrap();
        writer.append_many((0..300).map(body)).unwrap();
        let durable = journal.sync().unwrap();
        writer.append_many((300..600).map(body)).unwrap();
        run("sync", &["-f", text(&disk.root)]).unwrap();
        // The disk is removed while the journal is open, and comes back.
        let pulled: PathBuf = disk.image.with_extension("pulled");
        fs::copy(&disk.image, &pulled).unwrap();
        run("umount", &["-l", text(&disk.root)]).unwrap();
        mount(&pulled, &disk.root).unwrap();
        lose_frames(&path);
        run("umount", &[text(&disk.root)]).unwrap();
        mount(&pulled, &disk.root).unwrap();

        let again = Journal::open(&path, first).unwrap();
        let (end, error) = read(&again);
        assert!(error.is_none(), "{error:?}");
        assert!((durable..600).contains(&end), "{end} of {durable} to 600");
        assert_eq!(again.next().unwrap(), end);
        drop(again);
        let again = Journal::open(&path, options()).unwrap();
        assert_eq!(again.writer().unwrap().append(&body(end)).unwrap(), end);
        let (next, error) = read(&again);
        assert!(next == end + 1 && error.is_none(), "{next}: {error:?}");
        // A process that had it open before gets an error.
        let error = loop {
            if let Err(error) = writer.append(b"into the old disk") {
                break error;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        assert!(matches!(error, Error::Gone { .. }), "{error}");
        drop((again, writer, journal));
    }
}
