//! A missing file is damage, unless it was pruned. An end torn by a loss of power is no damage.

use std::fs;
use std::path::Path;

use millstream_journal::{CursorMode, Error, Identity, Journal, Options, Retention, Sync};

use crate::support::{Random, fresh, small};

const RECORDS: u64 = 600;

/// About sixty records of 1,000 bytes fit a segment.
fn filled() -> (tempfile::TempDir, std::path::PathBuf) {
    let (folder, journal) = fresh(small());
    let writer = journal.writer().unwrap();
    for _ in 0..RECORDS {
        writer.append(&[7; 1_000]).unwrap();
    }
    journal.sync().unwrap();
    let path = journal.path();
    (folder, path)
}

fn prune(path: &Path, keep: u64) -> u64 {
    let journal = Journal::open(path, small()).unwrap();
    let retention = Retention {
        bytes: Some(keep << 16),
        ..Retention::default()
    };
    journal.prune(&retention).unwrap().first
}

fn segments(path: &Path) -> Vec<String> {
    let names = fs::read_dir(path).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("segment-")).collect();
    names.sort_unstable();
    names
}

/// Each way to open names the missing file, and so does `verify`.
fn assert_missing(path: &Path, name: &str) {
    let never = Options {
        create: false,
        ..small()
    };
    for options in [Options::read_only(), never, small()] {
        let error = Journal::open(path, options).err().unwrap();
        let named = matches!(&error, Error::Damage { path: file, .. } if *file == path.join(name));
        assert!(named, "{error}");
    }
    let report = Journal::verify(path).unwrap();
    let named = |damage: &millstream_journal::Damage| damage.path == path.join(name);
    assert!(report.damages.iter().any(named), "{report:?}");
}

#[test]
fn each_missing_segment_is_named() {
    for with_control in [true, false] {
        for pruned in [false, true] {
            let (_folder, path) = filled();
            if pruned {
                assert!(prune(&path, 4) > 0);
            }
            if !with_control {
                fs::remove_file(path.join("control")).unwrap();
            }
            let names = segments(&path);
            assert!(names.len() > 3);
            // The last one may have been prepared and hold nothing yet.
            for name in &names[..names.len() - 2] {
                let aside = path.parent().unwrap().join("aside");
                fs::rename(path.join(name), &aside).unwrap();
                assert_missing(&path, name);
                fs::rename(&aside, path.join(name)).unwrap();
            }
            assert_eq!(Journal::verify(&path).unwrap().damages, []);
        }
    }
}

#[test]
fn a_journal_without_any_segment_is_no_new_one() {
    let remains: [&[&str]; 4] = [&["start"], &["control"], &["identity"], &["cursors"]];
    for kept in remains {
        let (_folder, path) = filled();
        let journal = Journal::open(&path, small()).unwrap();
        drop(journal.cursor("reader", CursorMode::Exclusive).unwrap());
        drop(journal);
        for name in segments(&path) {
            fs::remove_file(path.join(name)).unwrap();
        }
        for file in ["start", "control", "identity"] {
            if !kept.contains(&file) {
                let _gone = fs::remove_file(path.join(file));
            }
        }
        if !kept.contains(&"cursors") {
            fs::remove_dir_all(path.join("cursors")).unwrap();
        }
        assert_missing(&path, "segment-0000000000.log");
        assert_eq!(segments(&path).len(), 0);
    }
}

#[test]
fn the_start_of_a_pruned_journal_lasts_and_a_damaged_one_is_named() {
    let (_folder, path) = filled();
    let first = prune(&path, 5);
    let later = prune(&path, 3);
    assert!(first > 0 && later > first);
    let sound = fs::read(path.join("start")).unwrap();
    for at in 0..8 {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        fs::write(path.join("start"), bytes).unwrap();
        let error = Journal::open(&path, small()).err().unwrap();
        assert!(
            matches!(&error, Error::Damage { path: file, .. } if *file == path.join("start")),
            "{error}"
        );
        assert_eq!(Journal::verify(&path).unwrap().damages.len(), 1);
    }
    // As a copy that was taken while the prune went on: segments before the start are no gap, and go.
    fs::write(path.join("start"), &sound).unwrap();
    let oldest = segments(&path)[0].clone();
    fs::copy(path.join(&oldest), path.join("segment-0000000000.log")).unwrap();
    let reading = Journal::open(&path, Options::read_only()).unwrap();
    assert_eq!(reading.first().unwrap(), later);
    let journal = Journal::open(&path, small()).unwrap();
    assert_eq!(
        (journal.first().unwrap(), segments(&path)[0].clone()),
        (later, oldest)
    );
}

#[test]
fn a_journal_without_a_start_begins_with_the_oldest_segment_that_is_there() {
    let (_folder, path) = filled();
    let first = prune(&path, 4);
    fs::remove_file(path.join("start")).unwrap();
    let reading = Journal::open(&path, Options::read_only()).unwrap();
    assert_eq!(reading.first().unwrap(), first);
    assert!(!path.join("start").exists());
    let journal = Journal::open(&path, small()).unwrap();
    assert_eq!(journal.first().unwrap(), first);
    drop((reading, journal));
    let oldest = segments(&path)[0].clone();
    fs::remove_file(path.join(&oldest)).unwrap();
    assert_missing(&path, &oldest);
}

#[test]
fn a_copy_that_begins_later_knows_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let options = Options {
        first_sequence: 1_000,
        identity: Some(Identity::new(Some(7), &Options::default().host)),
        ..small()
    };
    drop(Journal::open(&path, options).unwrap());
    // Nothing but the start can tell: there is no record, and no segment before.
    let file = path.join("segment-0000000000.log");
    let mut bytes = fs::read(&file).unwrap();
    bytes[65] ^= 1;
    fs::write(&file, bytes).unwrap();
    let opened = Journal::open(&path, small()).and_then(|journal| journal.next());
    assert!(
        matches!(&opened, Err(Error::Damage { offset: 64, .. })),
        "{opened:?}"
    );
}

#[test]
fn a_torn_end_is_distinguished_from_damage() {
    for synced in [true, false] {
        let (_folder, journal) = fresh(small().with_sync(Sync::Never));
        let writer = journal.writer().unwrap();
        let mut random = Random(4);
        for _ in 0..20 {
            writer.append(&random.bytes(900)).unwrap();
        }
        if synced {
            journal.sync().unwrap();
        }
        let path = journal.path();
        drop((writer, journal));
        fs::remove_file(path.join("control")).unwrap();
        let file = path.join("segment-0000000000.log");
        let mut bytes = fs::read(&file).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        bytes[end] ^= 1;
        fs::write(&file, bytes).unwrap();
        let report = Journal::verify(&path).unwrap();
        assert_eq!(
            (report.damages.is_empty(), report.torn.is_none()),
            (!synced, synced),
            "{report:?}"
        );
        if let Some(torn) = report.torn {
            assert_eq!(torn.path, file);
            assert!((torn.offset..torn.offset + torn.bytes).contains(&(end as u64)));
            assert!(torn.records_max >= 1 && torn.records_max <= torn.bytes.div_ceil(16));
            assert_eq!(report.records, 19);
            assert_eq!(Journal::open(&path, small()).unwrap().next().unwrap(), 19);
            let after = Journal::verify(&path).unwrap();
            assert_eq!((after.damages, after.torn), (vec![], None));
        }
    }
}

#[test]
fn a_flipped_bit_in_the_last_tail_is_seen_through_before_the_next_append() {
    for byte in 128..136 {
        for bit in 0..8 {
            let (_folder, path) = {
                let (folder, journal) = fresh(small().with_sync(Sync::Always));
                let writer = journal.writer().unwrap();
                for _ in 0..10 {
                    writer.append(b"0123456789").unwrap();
                }
                (folder, journal.path())
            };
            let file = path.join("segment-0000000000.log");
            let mut bytes = fs::read(&file).unwrap();
            bytes[byte] ^= 1 << bit;
            fs::write(&file, bytes).unwrap();
            let reading = Journal::open(&path, Options::read_only()).unwrap();
            assert_eq!(reading.next().unwrap(), 10, "byte {byte}, bit {bit}");
            assert_eq!(Journal::verify(&path).unwrap().records, 10);
            let journal = Journal::open(&path, small().with_sync(Sync::Always)).unwrap();
            assert_eq!(journal.writer().unwrap().append(b"next").unwrap(), 10);
            let mut reader = journal.reader().unwrap();
            reader.seek(9).unwrap();
            assert_eq!(reader.next().unwrap().unwrap().body, b"0123456789");
            assert_eq!(reader.next().unwrap().unwrap().body, b"next");
        }
    }
}
