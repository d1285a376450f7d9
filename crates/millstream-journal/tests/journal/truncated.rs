//! Files that are truncated while they are mapped: an error, never a signal, and no zeros that are taken for records.

use std::fs::OpenOptions;
use std::time::Duration;

use millstream_journal::{Error, Journal, Options, Wait};

use crate::support::{fresh, small};

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
        .cursor("c", millstream_journal::CursorMode::Exclusive)
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
    let writer = journal.writer().unwrap();
    let healthy = other.writer().unwrap();
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
