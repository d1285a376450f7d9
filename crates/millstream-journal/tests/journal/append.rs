//! What is appended one by one, in batches and by claims is read back, by the same opening, another one, and after
//! reopening.

use millstream_journal::{Error, Journal, Options};

use crate::support::{Model, Random, fresh, small};

#[test]
fn what_is_appended_is_read_back() {
    let (_folder, journal) = fresh(small());
    let writer = journal.writer().unwrap();
    let mut model = Model::default();
    let mut random = Random(1);
    for _ in 0..2_000 {
        model.append(&writer, random.bytes(300));
    }
    model.check(&mut journal.reader().unwrap());
    assert_eq!(
        (journal.first().unwrap(), journal.next().unwrap()),
        (0, 2_000)
    );
    let again = Journal::open(journal.path(), Options::default()).unwrap();
    model.check(&mut again.reader().unwrap());
    let only = Journal::open(journal.path(), Options::read_only()).unwrap();
    model.check(&mut only.reader().unwrap());
}

#[test]
fn a_journal_continues_where_it_was_closed() {
    let folder = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    let mut random = Random(2);
    for _ in 0..20 {
        let journal = Journal::open(folder.path(), small()).unwrap();
        let writer = journal.writer().unwrap();
        for _ in 0..random.below(200) {
            model.append(&writer, random.bytes(500));
        }
        model.check(&mut journal.reader().unwrap());
    }
    let journal = Journal::open(folder.path(), Options::read_only()).unwrap();
    model.check(&mut journal.reader().unwrap());
}

#[test]
fn batches_and_claims_and_single_records_mix() {
    let (_folder, journal) = fresh(small());
    let writer = journal.writer().unwrap();
    let mut model = Model::default();
    let mut random = Random(3);
    for _ in 0..400 {
        let next = model.records.len() as u64;
        match random.below(4) {
            0 => model.append(&writer, random.bytes(2_000)),
            1 => {
                let bodies: Vec<Vec<u8>> =
                    (0..random.below(50)).map(|_| random.bytes(100)).collect();
                assert_eq!(
                    writer.append_many(&bodies).unwrap(),
                    next..next + bodies.len() as u64
                );
                model.records.extend(bodies);
            }
            2 => {
                let body = random.bytes(3_000);
                let mut claim = writer
                    .claim(body.len() + random.below(100) as usize)
                    .unwrap();
                claim.fill(0xEE);
                claim[..body.len()].copy_from_slice(&body);
                assert_eq!(claim.sequence(), next);
                assert_eq!(claim.commit(body.len()).unwrap(), next);
                model.records.push(body);
            }
            _ => writer
                .claim(random.below(5_000) as usize)
                .unwrap()
                .fill(0xDD),
        }
    }
    model.check(&mut journal.reader().unwrap());
}

#[test]
fn a_record_over_a_limit_is_refused_and_leaves_nothing() {
    let options = Options {
        record_bytes_max: 100,
        ..small()
    };
    let (folder, journal) = fresh(options);
    let writer = journal.writer().unwrap();
    assert!(matches!(
        writer.append(&[0; 101]),
        Err(Error::RecordTooLarge {
            bytes: 101,
            limit: 100
        })
    ));
    assert!(matches!(
        writer.append_many([&[0; 100][..], &[0; 101]]),
        Err(Error::RecordTooLarge { .. })
    ));
    assert!(matches!(
        writer.claim(10).unwrap().commit(11),
        Err(Error::RecordTooLarge { .. })
    ));
    assert_eq!(journal.next().unwrap(), 0);
    assert_eq!(writer.append(&[0; 100]).unwrap(), 0);
    drop((writer, journal));

    let journal = Journal::open(folder.path().join("journal"), small()).unwrap();
    let writer = journal.writer().unwrap();
    let Err(Error::RecordTooLarge { limit, .. }) = writer.append(&[0; 1 << 20]) else {
        panic!("it cannot fit")
    };
    assert_eq!(
        writer.append(&vec![7; limit as usize]).unwrap(),
        1,
        "as long as a segment can hold"
    );
    assert_eq!(writer.append(&vec![8; limit as usize]).unwrap(), 2);
    let mut reader = journal.reader().unwrap();
    assert_eq!(reader.read(2).unwrap().body, vec![8; limit as usize]);
}
