//! A stored position knows the record before it: a journal that has lost its end is noticed, also when it has grown
//! again.

use std::sync::atomic::{AtomicBool, Ordering};

use millstream_journal::{Bookmark, CursorMode, Error, Journal, Options, Retention, checksum_of};

use crate::support::{Random, fresh, small};

fn alone() -> Options {
    Options {
        exclusive: true,
        ..small()
    }
}

fn bodies(count: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random(seed);
    (0..count).map(|_| random.bytes(200)).collect()
}

#[test]
fn each_position_of_a_journal_is_confirmed_and_by_readers_too() {
    let (_folder, journal) = fresh(small());
    journal
        .writer()
        .unwrap()
        .append_many(bodies(2_000, 7))
        .unwrap();
    let mut reader = journal.reader().unwrap();
    assert_eq!(reader.bookmark().unwrap(), journal.bookmark(0).unwrap());
    for next in 0..2_000_u64 {
        let record = reader.next().unwrap().unwrap();
        let number = record.sequence;
        let time_ns = record.time_ns;
        let checksum = record.checksum();
        assert_eq!(
            (number, checksum),
            (next, checksum_of(next, time_ns, record.body))
        );
        let bookmark = record.bookmark();
        assert_eq!(bookmark, Bookmark::after(number, checksum));
        assert_eq!(reader.bookmark().unwrap(), bookmark);
        if next % 97 == 0 {
            assert_eq!(journal.bookmark(next + 1).unwrap(), bookmark);
            journal.confirm(bookmark).unwrap();
        }
    }
    assert_eq!(journal.bookmark(0).unwrap().checksum, None);
    let beyond = journal.bookmark(2_001).unwrap_err();
    assert!(
        matches!(
            beyond,
            Error::NotYet {
                sequence: 2_001,
                ..
            }
        ),
        "{beyond}"
    );
}

#[test]
fn a_lost_end_is_noticed_before_and_after_it_has_grown_again() {
    let (_folder, journal) = fresh(alone());
    journal
        .writer()
        .unwrap()
        .append_many(["same"; 100])
        .unwrap();
    let known: Vec<_> = (0..=100)
        .map(|next| journal.bookmark(next).unwrap())
        .collect();
    let lost = |journal: &Journal, next: usize| match journal.confirm(known[next]) {
        Ok(()) => None,
        Err(Error::Lost { sequence, next, .. }) => Some((sequence, next)),
        Err(error) => panic!("{error}"),
    };
    journal.cut(60).unwrap();
    assert_eq!(lost(&journal, 60), None);
    assert_eq!(lost(&journal, 61), Some((60, 60)));
    assert_eq!(lost(&journal, 100), Some((99, 60)));
    let error = journal.confirm(known[100]).unwrap_err().to_string();
    assert!(
        error.contains(
            "record 99, which was read before, is lost: the journal ends before record 60"
        ),
        "{error}"
    );
    // The bodies are the same: the times are not.
    journal.writer().unwrap().append_many(["same"; 70]).unwrap();
    for next in 0..=60 {
        assert_eq!(lost(&journal, next), None);
    }
    for next in 61..=100 {
        assert_eq!(lost(&journal, next), Some((next as u64 - 1, 130)));
    }
    let error = journal.confirm(known[100]).unwrap_err().to_string();
    assert!(
        error.contains(
            "record 99, which was read before, is lost: another record has its number now"
        ),
        "{error}"
    );
}

#[test]
fn a_copy_confirms_the_positions_of_its_original() {
    let (folder, journal) = fresh(small());
    journal
        .writer()
        .unwrap()
        .append_many(bodies(3_000, 9))
        .unwrap();
    let larger = Options::default().with_segment_bytes(1 << 20);
    let copy = Journal::open(folder.path().join("copy"), larger).unwrap();
    let writer = copy.writer().unwrap();
    let mut reader = journal.reader().unwrap();
    while let Some(record) = reader.next().unwrap() {
        writer.append_at(record.time_ns, record.body).unwrap();
    }
    for next in (0..=3_000).step_by(100) {
        let bookmark = journal.bookmark(next).unwrap();
        assert_eq!(copy.bookmark(next).unwrap(), bookmark);
        copy.confirm(bookmark).unwrap();
    }
}

#[test]
fn what_retention_has_removed_is_not_compared() {
    let (_folder, journal) = fresh(small());
    journal
        .writer()
        .unwrap()
        .append_many(bodies(5_000, 3))
        .unwrap();
    let retention = Retention {
        bytes: Some(256 << 10),
        ..Retention::default()
    };
    journal.prune(&retention).unwrap();
    let first = journal.first().unwrap();
    assert!(first > 1);
    let wrong = |next| Bookmark::after(next - 1, 1);
    for next in [1, first - 1, first] {
        journal.confirm(wrong(next)).unwrap();
    }
    assert!(matches!(
        journal.confirm(wrong(first + 1)),
        Err(Error::Lost { .. })
    ));
    assert_eq!(journal.bookmark(first).unwrap().checksum, None);
    assert_eq!(journal.reader().unwrap().bookmark().unwrap().checksum, None);
    let pruned = journal.bookmark(first - 1).unwrap_err();
    assert!(matches!(pruned, Error::Pruned { .. }), "{pruned}");
}

#[test]
fn a_cursor_on_records_that_were_replaced_is_an_error_until_it_is_moved() {
    let (_folder, journal) = fresh(alone());
    journal.writer().unwrap().append_many(["day 1"; 5]).unwrap();
    let path = journal.path();
    drop(journal);
    let journal = Journal::open(&path, small()).unwrap();
    journal.writer().unwrap().append_many(["day 2"; 5]).unwrap();
    let cursor = journal.cursor("billing", CursorMode::Exclusive).unwrap();
    cursor.set(8).unwrap();
    drop((cursor, journal));
    let cursor_file = path.join("cursors/billing");
    let kept = std::fs::read(&cursor_file).unwrap();
    let journal = Journal::open(&path, alone()).unwrap();
    journal.cut(5).unwrap();
    journal.writer().unwrap().append_many(["new"; 8]).unwrap();
    // The cursors of a directory are newer than the segments that were restored into it.
    std::fs::write(&cursor_file, kept).unwrap();
    let cursor = journal.cursor("billing", CursorMode::Exclusive).unwrap();
    for _ in 0..2 {
        let error = cursor.position().unwrap_err();
        assert!(
            matches!(
                error,
                Error::Lost {
                    sequence: 7,
                    next: 13,
                    ..
                }
            ),
            "{error}"
        );
    }
    cursor.set(5).unwrap();
    assert_eq!(cursor.position().unwrap(), 5);
}

#[test]
fn what_is_pruned_while_it_is_confirmed_is_not_lost() {
    let (_folder, journal) = fresh(small());
    let writer = journal.writer().unwrap();
    let retention = Retention {
        bytes: Some(1),
        ..Retention::default()
    };
    for round in 0..40 {
        let first = journal.first().unwrap();
        writer.append_many(bodies(1_000, round)).unwrap();
        let known: Vec<_> = (first + 1..first + 40)
            .map(|next| journal.bookmark(next).unwrap())
            .collect();
        let begun = AtomicBool::new(false);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let confirming = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for bookmark in &known {
                        journal.confirm(*bookmark)?;
                    }
                    begun.store(true, Ordering::Relaxed);
                }
                Ok::<(), Error>(())
            });
            while !begun.load(Ordering::Relaxed) && !confirming.is_finished() {
                std::thread::yield_now();
            }
            journal.prune(&retention).unwrap();
            is_over.store(true, Ordering::Relaxed);
            confirming.join().unwrap().unwrap();
        });
        assert!(round == 0 || journal.first().unwrap() > 0);
    }
}
