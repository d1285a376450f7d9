//! Segments that grow, the spare, and sets of records.

use std::fs;
use std::path::Path;

use millstream_journal::storage::{Failing, Mapped};
use millstream_journal::{CursorMode, Error, Journal, Options, Retention};

const FIRST: u64 = 16 << 10;

fn growing() -> Options {
    Options {
        exclusive: true,
        segment_bytes_first: Some(FIRST),
        record_bytes_max: 100_000,
        ..Options::default().with_segment_bytes(1 << 20)
    }
}

fn sizes(path: &Path) -> Vec<u64> {
    let mut files: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("segment-"))
        .map(|entry| (entry.file_name(), entry.metadata().unwrap().len()))
        .collect();
    files.sort();
    files.into_iter().map(|(_, bytes)| bytes).collect()
}

fn body(number: u64) -> Vec<u8> {
    vec![number as u8; 1_000 + (number as usize % 7) * 100]
}

#[test]
fn segments_double_up_to_the_full_size_and_are_read_and_recovered() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path(), growing()).unwrap();
    let writer = journal.writer().unwrap();
    for number in 0..3_000 {
        writer.write(&body(number)).unwrap();
    }
    drop((writer, journal));
    let found = sizes(folder.path());
    assert_eq!(found[..7], [1, 2, 4, 8, 16, 32, 64].map(|n| n * FIRST));
    assert!(
        found[7..].iter().all(|bytes| *bytes == 1 << 20),
        "{found:?}"
    );
    let report = Journal::verify(folder.path()).unwrap();
    assert!(report.damages.is_empty(), "{:?}", report.damages);
    // Also without a control page, as after a loss of power, and by an opening that does not grow.
    fs::remove_file(folder.path().join("control")).unwrap();
    for options in [Options::read_only(), growing(), Options::default()] {
        let journal = Journal::open(folder.path(), options).unwrap();
        let mut reader = journal.reader().unwrap();
        for number in 0..3_000 {
            assert_eq!(reader.next().unwrap().unwrap().body, body(number));
        }
        reader.seek(1_500).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().body, body(1_500));
        assert_eq!(journal.info().unwrap().segment_bytes, 1 << 20);
        assert_eq!(journal.info().unwrap().version, 1);
    }
}

#[test]
fn a_record_larger_than_the_next_segment_gets_one_that_is_large_enough() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path(), growing()).unwrap();
    let writer = journal.writer().unwrap();
    for (number, length) in [10, 90_000, 10, 100_000].into_iter().enumerate() {
        assert_eq!(writer.write(&vec![7; length]).unwrap(), number as u64);
    }
    let mut claim = writer.claim(60_000).unwrap();
    claim[..60_000].fill(9);
    claim.commit(60_000).unwrap();
    let mut reader = journal.reader().unwrap();
    let mut lengths = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        lengths.push(record.body.len());
    }
    assert_eq!(lengths, [10, 90_000, 10, 100_000, 60_000]);
}

#[test]
fn a_journal_of_one_size_grows_from_a_small_segment_once_it_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let fixed = Options::default().with_segment_bytes(1 << 20);
    let journal = Journal::open(folder.path(), fixed.clone()).unwrap();
    journal.writer().unwrap().write(b"one").unwrap();
    drop(journal);
    let journal = Journal::open(folder.path(), growing()).unwrap();
    let writer = journal.writer().unwrap();
    writer.begin_segment().unwrap();
    writer.write(b"two").unwrap();
    assert_eq!(sizes(folder.path()), [1 << 20, FIRST]);
    journal
        .cursor("c", CursorMode::Exclusive)
        .unwrap()
        .set(1)
        .unwrap();
    let retention = Retention {
        keep_for_cursors: true,
        ..Retention::default()
    };
    let pruned = journal.prune(&retention).unwrap();
    assert_eq!(
        (pruned.segments, pruned.bytes, pruned.first),
        (1, 1 << 20, 1)
    );
    drop((writer, journal));
    let journal = Journal::open(folder.path(), fixed).unwrap();
    assert_eq!(
        journal.reader().unwrap().next().unwrap().unwrap().body,
        b"two"
    );
}

#[test]
fn only_an_exclusive_opening_grows_and_has_a_spare() {
    let folder = tempfile::tempdir().unwrap();
    for first in [FIRST - 4096, FIRST + 1, 2 << 20] {
        let options = Options {
            segment_bytes_first: Some(first),
            ..growing()
        };
        let error = Journal::open(folder.path(), options).err().unwrap();
        assert!(
            matches!(
                error,
                Error::Option {
                    name: "segment_bytes_first",
                    ..
                }
            ),
            "{error}"
        );
    }
    let shared = Options {
        exclusive: false,
        ..growing()
    };
    assert!(Journal::open(folder.path(), shared).is_err());
    let journal = Journal::open(folder.path(), Options::default()).unwrap();
    let refused = journal.writer().unwrap().reserve();
    assert!(matches!(refused, Err(Error::NotExclusive { .. })));
    assert!(matches!(
        journal.record_set("s"),
        Err(Error::NotExclusive { .. })
    ));
}

#[test]
fn a_set_holds_what_was_added_and_nothing_that_gets_its_bit_later() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path(), growing()).unwrap();
    let writer = journal.writer().unwrap();
    let mut set = journal.record_set("s").unwrap();
    let mut members = Vec::new();
    for number in 0..100_000u64 {
        set.make_room(number).unwrap();
        writer.write(b"").unwrap();
        if number.is_multiple_of(977) {
            set.insert(number).unwrap();
            members.push(number);
        }
    }
    let held = |set: &millstream_journal::RecordSet| {
        (0..100_000)
            .filter(|&number| set.contains(number))
            .collect::<Vec<u64>>()
    };
    assert_eq!(held(&set), members);
    drop((set, writer, journal));
    let journal = Journal::open(folder.path(), growing()).unwrap();
    let mut set = journal.record_set("s").unwrap();
    assert_eq!(held(&set), members);
    // Records that are cut and appended again are others.
    drop(set);
    journal.cut(50_000).unwrap();
    set = journal.record_set("s").unwrap();
    let writer = journal.writer().unwrap();
    for _ in 50_000..100_000 {
        writer.write(b"").unwrap();
    }
    members.retain(|number| *number < 50_000);
    assert_eq!(held(&set), members);
    set.forget_before(20_000).unwrap();
    members.retain(|number| *number >= 20_000);
    assert_eq!(held(&set), members);
    assert!(set.insert(19_999).is_err());
}

#[test]
fn a_set_without_room_for_the_next_record_opens_on_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Failing::new(Mapped::new(folder.path()));
    let journal = Journal::open_in(storage.clone(), growing()).unwrap();
    let mut set = journal.record_set("s").unwrap();
    let records = (0..).find(|number| !set.has_room(*number)).unwrap();
    let bodies = std::iter::repeat_n(b"", records as usize);
    journal.writer().unwrap().append_many(bodies).unwrap();
    set.insert(records - 1).unwrap();
    drop(set);
    storage.set_full(true);
    let mut set = journal.record_set("s").unwrap();
    assert!(set.contains(records - 1) && !set.has_room(records));
    set.insert(0).unwrap();
    let refused = set.make_room(records);
    assert!(
        matches!(refused, Err(Error::DiskFull { .. })),
        "{refused:?}"
    );
    storage.set_full(false);
    set.make_room(records).unwrap();
    assert!(set.has_room(records) && set.contains(0) && set.contains(records - 1));
}
