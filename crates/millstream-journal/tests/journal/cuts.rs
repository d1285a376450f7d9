//! Records are removed from the end, within a segment and across several, and new records reuse their sequence numbers.

use millstream_journal::{CursorMode, Error, Journal, Options};

use crate::support::{Model, Random, fresh, small};

fn exclusive() -> Options {
    Options {
        exclusive: true,
        ..small()
    }
}

#[test]
fn after_a_cut_the_journal_continues_from_there() {
    let (_folder, journal) = fresh(exclusive());
    let writer = journal.writer().unwrap();
    let mut model = Model::default();
    let mut random = Random(6);
    for round in 0..30 {
        for _ in 0..random.below(300) {
            model.append(&writer, random.bytes(400));
        }
        let next = model.records.len() as u64;
        let sequence = next - random.below(next.min(if round % 3 == 0 { next } else { 20 }) + 1);
        journal.cut(sequence).unwrap();
        model.records.truncate(sequence as usize);
        assert_eq!(
            (journal.next().unwrap(), journal.durable()),
            (sequence, sequence.max(journal.durable()))
        );
        model.check(&mut journal.reader().unwrap());
    }
    let path = journal.path();
    drop((writer, journal));
    let journal = Journal::open(
        &path,
        Options {
            host: Options::default().host.with_boot(9),
            ..small()
        },
    )
    .unwrap();
    model.check(&mut journal.reader().unwrap());
    assert_eq!(Journal::verify(&path).unwrap().damages, []);
}

#[test]
fn a_cut_needs_the_journal_for_itself_and_a_record_that_is_there() {
    let (_folder, journal) = fresh(small());
    assert!(matches!(journal.cut(0), Err(Error::NotExclusive { .. })));
    let (_folder, journal) = fresh(exclusive());
    journal.writer().unwrap().append(b"a").unwrap();
    assert!(matches!(
        journal.cut(2),
        Err(Error::NotYet {
            sequence: 2,
            next: 1,
            ..
        })
    ));
    journal.cut(1).unwrap();
    journal.cut(0).unwrap();
    assert_eq!(journal.next().unwrap(), 0);
}

#[test]
fn a_cut_is_refused_while_a_reader_or_a_record_holds_its_segment() {
    let (_folder, journal) = fresh(exclusive());
    let writer = journal.writer().unwrap();
    writer.append_many(["old"; 3_000]).unwrap();
    let mut reader = journal.reader().unwrap();
    let first = reader.next_pinned().unwrap().unwrap();
    let refused = journal.cut(1_000);
    assert!(matches!(&refused, Err(Error::InUse { .. })), "{refused:?}");
    reader.seek(2_999).unwrap();
    let last = reader.next_pinned().unwrap().unwrap();
    assert_ne!(first.file(), last.file());
    // The reader is in a segment that the cut removes; the first record is in the one that it clears.
    let refused = journal.cut(0);
    assert!(matches!(&refused, Err(Error::InUse { .. })), "{refused:?}");
    assert_eq!((first.body(), last.body()), (&b"old"[..], &b"old"[..]));
    assert_eq!(journal.next().unwrap(), 3_000);
    drop(first);
    journal.cut(0).unwrap();
    writer.append(b"new").unwrap();
    assert_eq!(last.body(), b"old");
    let mut reader = journal.reader().unwrap();
    assert_eq!(reader.next().unwrap().unwrap().body, b"new");
}

#[test]
fn a_cut_waits_for_calls_of_other_threads() {
    let (_folder, journal) = fresh(exclusive());
    let writer = journal.writer().unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                journal.sync().unwrap();
                journal.next().unwrap();
            }
        });
        for round in 0..200 {
            writer.append_many(["a record"; 10]).unwrap();
            journal.cut(round + 1).unwrap();
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(journal.next().unwrap(), 200);
}

#[test]
fn a_reader_of_another_opening_after_the_cut_gets_an_error() {
    let (_folder, journal) = fresh(exclusive());
    let writer = journal.writer().unwrap();
    writer.append_many(["old"; 3_000]).unwrap();
    let reading = Journal::open(journal.path(), Options::read_only()).unwrap();
    let mut behind = reading.reader().unwrap();
    let mut before = reading.reader().unwrap();
    behind.seek(3_000).unwrap();
    before.seek(10).unwrap();
    assert_eq!(behind.next().unwrap(), None);
    journal.cut(100).unwrap();
    writer.append_many(["new, and longer"; 100]).unwrap();
    for _ in 10..200 {
        before.next().unwrap().unwrap();
    }
    assert_eq!(before.next().unwrap(), None);
    let told = (0..1_000).find_map(|_| behind.next().err());
    assert!(
        matches!(
            told,
            Some(Error::NotYet {
                sequence: 3_000,
                next: 200,
                ..
            })
        ),
        "{told:?}"
    );
}

#[test]
fn a_cut_that_was_interrupted_is_ended_by_the_next_opening() {
    let (_folder, journal) = fresh(exclusive());
    let writer = journal.writer().unwrap();
    let mut model = Model::default();
    let mut random = Random(7);
    for _ in 0..1_000 {
        model.append(&writer, random.bytes(400));
    }
    let path = journal.path();
    // A folder in the way of a removal stops the cut half way.
    let last = journal.info().unwrap().segments - 1;
    let name = path.join(format!("segment-{last:010}.log"));
    let aside = path.join("writers/aside");
    std::fs::rename(&name, &aside).unwrap();
    std::fs::create_dir(&name).unwrap();
    assert!(journal.cut(500).is_err());
    assert!(matches!(writer.append(b"x"), Err(Error::Poisoned { .. })));
    drop((writer, journal));
    std::fs::remove_dir(&name).unwrap();
    std::fs::rename(&aside, &name).unwrap();

    model.records.truncate(500);
    let reading = Journal::open(&path, Options::read_only()).unwrap();
    let journal = Journal::open(&path, small()).unwrap();
    model.check(&mut journal.reader().unwrap());
    assert_eq!(journal.durable(), 500);
    assert_eq!(Journal::verify(&path).unwrap().damages, []);
    drop(reading);
}

#[test]
fn a_cursor_after_a_cut_is_moved_back_and_misses_nothing() {
    let (_folder, journal) = fresh(exclusive());
    let writer = journal.writer().unwrap();
    writer.append_many(["old"; 100]).unwrap();
    let behind = journal.cursor("behind", CursorMode::Shared).unwrap();
    let before = journal.cursor("before", CursorMode::Shared).unwrap();
    behind.set(90).unwrap();
    before.set(20).unwrap();
    journal.cut(40).unwrap();
    writer.append_many(["new"; 60]).unwrap();
    assert_eq!(
        (behind.position().unwrap(), before.position().unwrap()),
        (40, 20)
    );
}
