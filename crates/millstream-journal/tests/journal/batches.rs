//! A batch that fails leaves nothing: it is checked before any of it is visible.

use millstream_journal::storage::{Failing, Mapped, Simulated, Storage};
use millstream_journal::{Error, Host, Journal, Options};

use crate::support::{Random, small};

const LIMIT: u32 = 3_000;

fn open<S: Storage>(storage: &S, host: Host) -> Journal<S> {
    let options = Options {
        record_bytes_max: LIMIT,
        host,
        ..small()
    };
    Journal::open_in(storage.clone(), options).unwrap()
}

/// All bodies, in order, as another opening reads them.
fn contents<S: Storage>(storage: &S) -> Vec<Vec<u8>> {
    let options = Options {
        host: Host::simulated(|| 1, || 1),
        ..Options::read_only()
    };
    let journal = Journal::open_in(storage.clone(), options).unwrap();
    let mut reader = journal.reader().unwrap();
    let mut bodies = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        bodies.push(record.body.to_vec());
    }
    bodies
}

#[test]
fn a_record_that_is_too_large_leaves_nothing_of_its_batch() {
    let machine = Simulated::new();
    let storage = machine.process();
    let journal = open(&storage, Host::simulated(|| 1, || 1));
    let writer = journal.writer().unwrap();
    let mut random = Random(1);
    let mut expected = Vec::new();
    let mut over_segments = 0;
    for round in 0..200 {
        let count = 1 + random.below(120) as usize;
        let mut batch: Vec<Vec<u8>> = (0..count).map(|_| random.bytes(1_500)).collect();
        let wrong = random.below(2) == 0;
        if wrong {
            batch[count - 1].resize(LIMIT as usize + 1, 7);
        }
        let before = journal.info().unwrap().segments;
        match writer.append_many(&batch) {
            Ok(_) if !wrong => expected.append(&mut batch),
            Err(Error::RecordTooLarge { bytes, .. }) if wrong => {
                assert_eq!(bytes, u64::from(LIMIT) + 1);
                assert_eq!(journal.info().unwrap().segments, before, "round {round}");
                over_segments += u32::from(batch.iter().map(Vec::len).sum::<usize>() > 60_000);
            }
            other => panic!("round {round}: {other:?}"),
        }
        assert_eq!(
            journal.next().unwrap(),
            expected.len() as u64,
            "round {round}"
        );
    }
    assert_eq!(contents(&storage), expected);
    assert!(over_segments > 10, "{over_segments}");
}

#[test]
fn a_batch_that_needs_another_segment_is_complete_or_absent_on_a_full_disk() {
    let storage = Failing::new(Simulated::new().process());
    let journal = open(&storage, Host::simulated(|| 1, || 1));
    let writer = journal.writer().unwrap();
    let mut random = Random(2);
    let mut expected = Vec::new();
    let mut refused = 0;
    for round in 0..100 {
        let mut batch: Vec<Vec<u8>> = (0..random.below(40)).map(|_| random.bytes(2_000)).collect();
        storage.set_full(random.below(2) == 0);
        match writer.append_many(&batch) {
            Ok(_) => expected.append(&mut batch),
            Err(Error::DiskFull { .. }) => refused += 1,
            Err(error) => panic!("round {round}: {error}"),
        }
        assert_eq!(
            journal.next().unwrap(),
            expected.len() as u64,
            "round {round}"
        );
    }
    assert_eq!(contents(&storage), expected);
    assert!(refused > 5, "{refused}");
}

#[test]
fn of_a_batch_over_many_segments_a_full_disk_leaves_the_segments_that_were_filled() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Failing::new(Mapped::new(folder.path()));
    let journal = open(&storage, Host::real());
    let writer = journal.writer().unwrap();
    let mut random = Random(3);
    let batch: Vec<Vec<u8>> = (0..400).map(|_| random.bytes(2_000)).collect();
    storage.fail_create(4);
    let error = writer.append_many(&batch).unwrap_err();
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    let found = contents(&storage);
    assert!(!found.is_empty() && found.len() < batch.len());
    assert_eq!(found, batch[..found.len()]);
    assert_eq!(journal.next().unwrap(), found.len() as u64);
    // The rest goes after it.
    writer.append_many(&batch[found.len()..]).unwrap();
    assert_eq!(contents(&storage), batch);
}
