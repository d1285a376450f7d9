//! Pinned records do not change, whatever happens to the journal; appends that must not wait return instead.

use std::fs;

use millstream_journal::{Options, PinnedRecord, Retention, Sync};

use crate::support::{Random, fresh, small};

#[test]
fn kept_records_outlive_readers_and_retention() {
    let (folder, journal) = fresh(small());
    let writer = journal.writer().unwrap();
    let mut random = Random(1);
    let bodies: Vec<Vec<u8>> = (0..2_000).map(|_| random.bytes(300)).collect();
    writer.append_many(&bodies).unwrap();
    let mut reader = journal.reader().unwrap();
    let mut kept: Vec<PinnedRecord> = Vec::new();
    while let Some(record) = reader.next_pinned().unwrap() {
        assert_eq!(reader.position(), record.sequence() + 1);
        let file = fs::read(journal.path().join(record.file())).unwrap();
        let offset = record.offset() as usize;
        assert_eq!(&file[offset..offset + record.body().len()], record.body());
        kept.push(record);
    }
    let all = Retention {
        bytes: Some(0),
        ..Retention::default()
    };
    assert!(journal.prune(&all).unwrap().segments > 2);
    drop((reader, writer, journal, folder));
    let times: Vec<u64> = kept.iter().map(PinnedRecord::time_ns).collect();
    assert!(times.is_sorted());
    assert!(kept.iter().map(PinnedRecord::body).eq(bodies.iter()));
}

#[test]
fn an_append_that_would_wait_appends_nothing() {
    let (_folder, journal) = fresh(small());
    let writer = journal.writer().unwrap();
    assert_eq!(writer.try_append(b"at once").unwrap(), Some(0));
    let claim = writer.claim(10).unwrap();
    assert_eq!(writer.try_append(b"another has the lock").unwrap(), None);
    drop(claim);
    // Until the segment is full, then not before a process has begun the next one.
    let body = [7; 1_000];
    let mut appended = 1;
    while let Some(sequence) = writer.try_append(&body).unwrap() {
        assert_eq!(sequence, appended);
        appended += 1;
    }
    assert!(appended > 20);
    assert_eq!(journal.next().unwrap(), appended);
    assert_eq!(writer.append(&body).unwrap(), appended);
    assert_eq!(writer.try_append(&body).unwrap(), Some(appended + 1));
}

#[test]
fn with_a_sync_for_each_append_there_is_always_something_to_wait_for() {
    let (_folder, journal) = fresh(Options::default().with_sync(Sync::Always));
    let writer = journal.writer().unwrap();
    assert_eq!(writer.try_append(b"body").unwrap(), None);
    assert_eq!(journal.next().unwrap(), 0);
}
