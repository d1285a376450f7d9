//! A fixture in the repository: a journal of format 3 whose segments have grown. It is read, appended to and read again.
//!
//! `MILLSTREAM_WRITE_FIXTURES=1 cargo test -p millstream-journal --test journal grown_journal` writes it. That of a version that was released
//! is never written again.

use std::fs;
use std::path::{Path, PathBuf};

use millstream_journal::{CursorMode, Journal, Options, Sync};

const RECORDS: u64 = 600;
const SIZES: [u64; 4] = [16 << 10, 32 << 10, 64 << 10, 64 << 10];

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v3/grown")
}

fn body(sequence: u64) -> Vec<u8> {
    let text = format!("record {sequence} of the grown fixture; ");
    text.repeat(sequence as usize % 7).into_bytes()
}

fn options() -> Options {
    Options {
        exclusive: true,
        segment_bytes: 64 << 10,
        segment_bytes_first: Some(16 << 10),
        sync: Sync::Always,
        ..Options::default()
    }
}

/// Write the fixture, if the environment says so.
fn write_if_wanted() {
    if std::env::var_os("MILLSTREAM_WRITE_FIXTURES").is_none() {
        return;
    }
    if fixture().exists() {
        fs::remove_dir_all(fixture()).unwrap();
    }
    let journal = Journal::open(fixture(), options()).unwrap();
    let writer = journal.writer().unwrap();
    for from in (0..RECORDS).step_by(50) {
        writer.append_many((from..from + 50).map(body)).unwrap();
    }
    let cursor = journal.cursor("reader", CursorMode::Exclusive).unwrap();
    cursor.set(321).unwrap();
    cursor.sync().unwrap();
    drop((cursor, writer, journal));
    fs::remove_file(fixture().join("control")).unwrap();
    fs::remove_dir_all(fixture().join("writers")).unwrap();
}

fn copy(to: &Path) {
    fs::create_dir_all(to.join("cursors")).unwrap();
    for folder in ["", "cursors"] {
        for entry in fs::read_dir(fixture().join(folder)).unwrap() {
            let entry = entry.unwrap();
            if entry.path().is_file() {
                fs::copy(entry.path(), to.join(folder).join(entry.file_name())).unwrap();
            }
        }
    }
}

fn check(journal: &Journal, records: u64) {
    let mut reader = journal.reader().unwrap();
    while let Some(record) = reader.next().unwrap() {
        assert_eq!(record.body, body(record.sequence));
    }
    assert_eq!(reader.position(), records);
}

#[test]
fn the_grown_journal_of_the_repository_is_read_and_appended_to() {
    write_if_wanted();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    copy(&path);
    for (number, bytes) in (0..).zip(SIZES) {
        let file = path.join(format!("segment-{number:010}.log"));
        assert_eq!(fs::metadata(file).unwrap().len(), bytes);
    }
    let journal = Journal::open(&path, Options::read_only()).unwrap();
    assert_eq!(journal.info().unwrap().version, 3);
    check(&journal, RECORDS);
    drop(journal);
    for round in 1..=3 {
        let journal = Journal::open(&path, options()).unwrap();
        let cursor = journal.cursor("reader", CursorMode::Exclusive).unwrap();
        assert_eq!(cursor.position().unwrap(), 320 + round);
        cursor.set(321 + round).unwrap();
        let writer = journal.writer().unwrap();
        let records = RECORDS + round * 500;
        writer
            .append_many((records - 500..records).map(body))
            .unwrap();
        check(&journal, records);
    }
    let report = Journal::verify(&path).unwrap();
    assert_eq!((report.damages, report.records), (vec![], RECORDS + 1_500));
}
