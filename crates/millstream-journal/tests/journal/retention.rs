//! Old segments are removed by bytes, by age and as cursors allow; a reader whose position is removed gets an error.

use std::time::Duration;

use millstream_journal::{CursorMode, Error, Host, Journal, Options, Retention, Wait};

use crate::support::{Random, SEGMENT_BYTES, fresh, small};

/// About sixty records of 1,000 bytes fit a segment.
fn filled(options: Options) -> (tempfile::TempDir, Journal) {
    let (folder, journal) = fresh(options);
    let writer = journal.writer().unwrap();
    for time_s in 0..600_u64 {
        writer
            .append_at(time_s * 1_000_000_000, &[7; 1_000])
            .unwrap();
    }
    (folder, journal)
}

fn files(journal: &Journal) -> usize {
    let names = std::fs::read_dir(journal.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| name.to_string_lossy().starts_with("segment-"))
        .count()
}

#[test]
fn bytes_limit_what_is_kept() {
    let (_folder, journal) = filled(small());
    let segments = journal.info().unwrap().segments;
    let retention = Retention {
        bytes: Some(3 * SEGMENT_BYTES),
        ..Retention::default()
    };
    let pruned = journal.prune(&retention).unwrap();
    assert_eq!(pruned.segments, segments - 3);
    assert_eq!(pruned.bytes, (segments - 3) * SEGMENT_BYTES);
    assert_eq!(pruned.first, journal.first().unwrap());
    assert!(pruned.first > 400 && files(&journal) <= 4);
    assert_eq!(
        journal.prune(&retention).unwrap().segments,
        0,
        "a second time there is nothing to do"
    );
    let mut reader = journal.reader().unwrap();
    assert_eq!(reader.position(), pruned.first);
    for sequence in pruned.first..600 {
        assert_eq!(reader.next().unwrap().unwrap().sequence, sequence);
    }
    let path = journal.path();
    drop((reader, journal));
    let journal = Journal::open(path, small()).unwrap();
    assert_eq!(
        (journal.first().unwrap(), journal.next().unwrap()),
        (pruned.first, 600)
    );
}

#[test]
fn age_is_judged_by_the_newest_record_of_a_segment() {
    let host = Host::simulated(|| 600_000_000_000, || 1);
    let (_folder, journal) = filled(Options { host, ..small() });
    let retention = Retention {
        age: Some(Duration::from_secs(300)),
        ..Retention::default()
    };
    let first = journal.prune(&retention).unwrap().first;
    // The oldest segment left still holds a record of the last 300 s.
    assert!((240..=300).contains(&first), "{first}");
}

#[test]
fn what_a_cursor_has_not_passed_stays() {
    let (_folder, journal) = filled(small());
    let slow = journal.cursor("slow", CursorMode::Exclusive).unwrap();
    let fast = journal.cursor("fast", CursorMode::Exclusive).unwrap();
    fast.set(600).unwrap();
    let by_cursor = Retention {
        keep_for_cursors: true,
        ..Retention::default()
    };
    let by_bytes = Retention {
        bytes: Some(1),
        keep_for_cursors: true,
        ..Retention::default()
    };
    assert_eq!(journal.prune(&by_bytes).unwrap().segments, 0);
    slow.set(250).unwrap();
    let first = journal.prune(&by_cursor).unwrap().first;
    assert!((150..=250).contains(&first), "{first}");
    slow.set(600).unwrap();
    assert!(journal.prune(&by_bytes).unwrap().first > 500);
    assert_eq!(
        journal.prune(&Retention::default()).unwrap().segments,
        0,
        "no limit removes nothing"
    );
}

#[test]
fn a_reader_that_was_overtaken_gets_an_error() {
    let (_folder, journal) = filled(small());
    let mut late = journal.reader().unwrap();
    late.seek(10).unwrap();
    journal
        .prune(&Retention {
            bytes: Some(1),
            ..Retention::default()
        })
        .unwrap();
    let first = journal.first().unwrap();
    let error = loop {
        match late.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the end came before the gap"),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error, Error::Pruned { first: told, .. } if told == first),
        "{error}"
    );
    assert!(matches!(
        late.seek(10),
        Err(Error::Pruned { sequence: 10, .. })
    ));
    late.seek(first).unwrap();
    assert_eq!(late.next().unwrap().unwrap().sequence, first);
}

#[test]
fn a_reader_that_was_there_before_all_writers_learns_what_was_pruned() {
    let (_folder, journal) = filled(small());
    let path = journal.path();
    drop(journal);
    // As after the machine was started again: what a recovery would leave is read.
    std::fs::remove_file(path.join("control")).unwrap();
    let reading = Journal::open(&path, Options::read_only()).unwrap();
    let mut late = reading.reader().unwrap();
    late.read(10).unwrap();
    let mut waiting = reading.reader().unwrap();
    let journal = Journal::open(&path, small()).unwrap();
    let everything = Retention {
        bytes: Some(1),
        ..Retention::default()
    };
    let first = journal.prune(&everything).unwrap().first;
    let is_pruned =
        |error: Error| matches!(error, Error::Pruned { first: told, .. } if told == first);
    let met = loop {
        match late.next() {
            Ok(found) => assert!(found.is_some(), "the end came before the gap"),
            Err(error) => break error,
        }
    };
    assert!(is_pruned(met));
    let met = loop {
        match waiting.wait(Wait::Spin, Some(Duration::ZERO)) {
            Ok(came) => assert!(came && waiting.next().unwrap().is_some()),
            Err(error) => break error,
        }
    };
    assert!(is_pruned(met));
    assert!(is_pruned(late.seek(10).unwrap_err()));
    assert!(is_pruned(
        reading.reader().unwrap().seek(first - 1).unwrap_err()
    ));
    assert_eq!(reading.first().unwrap(), first);
    assert_eq!(reading.reader().unwrap().position(), first);
    assert_eq!(reading.info().unwrap().first, first);
    late.seek_time(0).unwrap();
    assert_eq!(late.position(), first);
}

#[test]
fn the_background_prunes_at_each_roll() {
    let retention = Retention {
        bytes: Some(2 * SEGMENT_BYTES),
        ..Retention::default()
    };
    // Without threads, so that it has happened when the append returns.
    let host = Host::simulated(|| 1, || 1);
    let (_folder, journal) = filled(Options {
        host,
        ..small().with_retention(retention)
    });
    assert!(journal.first().unwrap() > 400);
    assert!(files(&journal) <= 3);
}

/// The segments that this process has mapped still, though their files are gone.
fn removed_but_mapped(journal: &Journal) -> usize {
    std::thread::yield_now();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let own = journal.path().display().to_string();
    let removed = maps
        .lines()
        .filter(|line| line.contains(&own) && line.ends_with("(deleted)"));
    removed.count()
}

#[test]
fn a_reader_moves_here_and_there_while_records_come_and_go() {
    let (_folder, journal) = filled(small());
    let reading = Journal::open(journal.path(), Options::read_only()).unwrap();
    let writer = journal.writer().unwrap();
    let mut readers = [journal.reader().unwrap(), reading.reader().unwrap()];
    let mut random = Random(7);
    for round in 0..3_000_u64 {
        let first = journal.first().unwrap();
        let next = journal.next().unwrap();
        let sequence = random.below(next);
        for reader in &mut readers {
            match reader.read(sequence) {
                Ok(record) => {
                    assert_eq!((record.sequence, record.body), (sequence, &[7; 1_000][..]));
                    assert!(sequence >= first);
                }
                Err(Error::Pruned {
                    sequence: of,
                    first: oldest,
                    ..
                }) => {
                    assert_eq!((of, oldest), (sequence, first));
                    assert!(sequence < first);
                }
                Err(error) => panic!("record {sequence} in round {round}: {error}"),
            }
        }
        writer
            .append_at((600 + round) * 1_000_000_000, &[7; 1_000])
            .unwrap();
        if round % 500 == 499 {
            let bytes = Some((5 + random.below(30)) * SEGMENT_BYTES);
            let retention = Retention {
                bytes,
                ..Retention::default()
            };
            journal.prune(&retention).unwrap();
            // What a reader had mapped of it is given back when it moves.
            for reader in &mut readers {
                reader.read(journal.next().unwrap() - 1).unwrap();
            }
            // The background thread may be at work on one of the segments.
            let mut looks = 0..20_000;
            assert!(looks.any(|_| removed_but_mapped(&journal) == 0));
        }
    }
}
