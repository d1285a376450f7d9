//! A segment is full and the next one takes over, without a gap for writers, tailing readers and seekers.

use std::time::Duration;

use millstream_journal::Wait;

use crate::support::{Model, Random, fresh, small};

#[test]
fn a_tail_follows_across_segments() {
    let (_folder, journal) = fresh(small());
    let writer = journal.writer().unwrap();
    let mut tail = journal.reader().unwrap();
    let mut random = Random(4);
    for sequence in 0..5_000 {
        let body = random.bytes(200);
        assert!(!tail.wait(Wait::Spin, Some(Duration::ZERO)).unwrap());
        writer.append(&body).unwrap();
        assert!(tail.wait(Wait::Spin, None).unwrap());
        let record = tail.next().unwrap().unwrap();
        assert_eq!((record.sequence, record.body), (sequence, &body[..]));
    }
}

#[test]
fn every_record_is_found_by_its_number_and_by_its_time() {
    let (_folder, journal) = fresh(small());
    let writer = journal.writer().unwrap();
    let mut model = Model::default();
    let mut random = Random(5);
    for sequence in 0..3_000_u64 {
        let body = random.bytes(200);
        // Three records share a time.
        writer.append_at(1_000 + sequence / 3 * 10, &body).unwrap();
        model.records.push(body);
    }
    let mut reader = journal.reader().unwrap();
    for _ in 0..2_000 {
        let sequence = random.below(3_000);
        assert_eq!(
            reader.read(sequence).unwrap().body,
            model.records[sequence as usize]
        );
        reader.seek_time(1_000 + sequence / 3 * 10).unwrap();
        assert_eq!(reader.position(), sequence / 3 * 3);
        reader.seek_time(1_000 + sequence / 3 * 10 + 1).unwrap();
        assert_eq!(reader.position(), sequence / 3 * 3 + 3);
    }
    reader.seek_time(0).unwrap();
    model.check(&mut reader);
    reader.seek_time(u64::MAX).unwrap();
    assert_eq!(reader.position(), 3_000);
    reader.seek(3_000).unwrap();
    assert!(reader.seek(3_001).is_err());
}
