//! Which processes may open a journal at once, which openings are refused, and what a refused one leaves unchanged.

use std::fs;
use std::time::Duration;

use millstream_journal::{Error, Host, Journal, Options, Sync, Wait};

use crate::support::{fresh, small};

fn exclusive() -> Options {
    Options {
        exclusive: true,
        ..small()
    }
}

#[test]
fn an_exclusive_opening_excludes_all_that_write() {
    let (_folder, journal) = fresh(exclusive());
    journal.writer().unwrap().append(b"a").unwrap();
    let path = journal.path();
    for options in [small(), exclusive()] {
        let error = Journal::open(&path, options).err().unwrap();
        assert!(
            error.to_string().contains(&std::process::id().to_string()),
            "{error}"
        );
        assert!(matches!(error, Error::Locked { .. }));
    }
    let mut reader = Journal::open(&path, Options::read_only())
        .unwrap()
        .reader()
        .unwrap();
    assert_eq!(reader.next().unwrap().unwrap().body, b"a");
    drop(journal);
    Journal::open(&path, small()).unwrap();
}

#[test]
fn a_shared_opening_excludes_exclusive_ones() {
    let (_folder, journal) = fresh(small());
    let path = journal.path();
    assert!(matches!(
        Journal::open(&path, exclusive()),
        Err(Error::Locked { .. })
    ));
    let second = Journal::open(&path, small()).unwrap();
    drop(journal);
    assert!(matches!(
        Journal::open(&path, exclusive()),
        Err(Error::Locked { .. })
    ));
    drop(second);
    Journal::open(&path, exclusive()).unwrap();
}

#[test]
fn what_is_not_there_is_made_only_if_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b");
    let never = Options {
        create: false,
        ..small()
    };
    assert!(matches!(
        Journal::open(&path, never.clone()),
        Err(Error::NotFound { .. })
    ));
    assert!(matches!(
        Journal::open(&path, Options::read_only()),
        Err(Error::NotFound { .. })
    ));
    assert!(matches!(
        Journal::open(folder.path(), Options::read_only()),
        Err(Error::NotFound { .. })
    ));
    assert!(matches!(
        Journal::verify(&path),
        Err(Error::NotFound { .. })
    ));
    assert!(!path.exists());
    Journal::open(&path, small()).unwrap();
    Journal::open(&path, never).unwrap();
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("thesis.txt"), "years of work").unwrap();
    for options in [small(), Options::read_only()] {
        let error = Journal::open(folder.path(), options).err().unwrap();
        assert!(error.to_string().contains("thesis.txt"), "{error}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_journal_keeps_its_segment_size() {
    let (_folder, journal) = fresh(small());
    let path = journal.path();
    let other = Journal::open(&path, Options::default()).unwrap();
    assert_eq!(other.info().unwrap().segment_bytes, 64 << 10);
    drop((journal, other));
    assert_eq!(
        Journal::open(&path, Options::default())
            .unwrap()
            .info()
            .unwrap()
            .segment_bytes,
        64 << 10
    );
}

#[test]
fn options_out_of_range_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = [
        small().with_segment_bytes(0),
        small().with_segment_bytes((64 << 10) + 8),
        small().with_segment_bytes(1 << 50),
        Options {
            record_bytes_max: u32::MAX,
            ..small()
        },
    ];
    for options in wrong {
        assert!(matches!(
            Journal::open(folder.path(), options),
            Err(Error::Option { .. })
        ));
    }
}

#[test]
fn a_reader_may_not_write() {
    let (_folder, journal) = fresh(small());
    let only = Journal::open(journal.path(), Options::read_only()).unwrap();
    assert!(matches!(only.writer(), Err(Error::ReadOnly { .. })));
    assert!(matches!(only.sync(), Err(Error::ReadOnly { .. })));
    assert!(matches!(
        only.prune(&Default::default()),
        Err(Error::ReadOnly { .. })
    ));
    assert!(matches!(
        only.cursor("c", millstream_journal::CursorMode::Shared),
        Err(Error::ReadOnly { .. })
    ));
}

#[test]
fn info_describes_the_journal() {
    let (_folder, journal) = fresh(small());
    let empty = journal.info().unwrap();
    assert_eq!(
        (
            empty.first,
            empty.next,
            empty.segments,
            empty.bytes,
            empty.times_ns
        ),
        (0, 0, 1, 0, None)
    );
    assert!(empty.writers.is_empty());
    let writer = journal.writer().unwrap();
    writer.append_at(5, b"12345678").unwrap();
    writer.append_at(9, b"").unwrap();
    let info = journal.info().unwrap();
    assert_eq!(
        (info.next, info.bytes, info.times_ns),
        (2, 24 + 16, Some((5, 9)))
    );
    assert_eq!(info.writers, [std::process::id()]);
    assert_eq!(journal.sync().unwrap(), 2);
    assert_eq!(journal.info().unwrap().durable, 2);
}

#[test]
fn another_version_is_refused_with_the_name_of_the_file() {
    let (_folder, journal) = fresh(small());
    let path = journal.path();
    drop(journal);
    let file = path.join("segment-0000000000.log");
    let mut bytes = fs::read(&file).unwrap();
    for (version, options) in [(0, small()), (2, small()), (2, Options::read_only())] {
        bytes[8] = version;
        fs::write(&file, &bytes).unwrap();
        let error = Journal::open(&path, options).err().unwrap();
        assert_eq!(
            error.to_string(),
            format!(
                "{}: version {version}, this program reads 1",
                file.display()
            )
        );
    }
    assert!(matches!(Journal::verify(&path), Err(Error::Version { .. })));
}

#[test]
fn a_reader_that_is_first_after_a_loss_of_power_continues_with_the_first_writer() {
    let (_folder, journal) = fresh(small());
    journal.writer().unwrap().append(b"before").unwrap();
    let path = journal.path();
    drop(journal);
    let host = Host::real().with_boot(7);
    let reading = Options {
        host: host.clone(),
        ..Options::read_only()
    };
    let mut tail = Journal::open(&path, reading).unwrap().reader().unwrap();
    assert_eq!(tail.next().unwrap().unwrap().body, b"before");
    assert_eq!(tail.next().unwrap(), None);
    let journal = Journal::open(&path, Options { host, ..small() }).unwrap();
    journal.writer().unwrap().append(b"after").unwrap();
    assert!(
        tail.wait(Wait::BackOff, Some(Duration::from_secs(30)))
            .unwrap()
    );
    assert_eq!(tail.next().unwrap().unwrap().body, b"after");
}

#[test]
fn a_control_page_of_nonsense_is_made_anew() {
    let (_folder, journal) = fresh(small());
    journal.writer().unwrap().append(b"a").unwrap();
    journal.sync().unwrap();
    let path = journal.path();
    drop(journal);
    let mut random = crate::support::Random(3);
    let sound = fs::read(path.join("control")).unwrap();
    for _ in 0..200 {
        let mut bytes = sound.clone();
        // Anywhere but in the word that says which records are durable: that is believed in one boot.
        let at = random.below(192) as usize;
        bytes[at] ^= 1 << random.below(8);
        fs::write(path.join("control"), bytes).unwrap();
        // Alone for sure: a process that another test is just starting may still share the lock of the last opening,
        // and the page of a journal that others have open is believed.
        let alone = Options {
            exclusive: true,
            ..small()
        };
        let journal = Journal::open(&path, alone).unwrap();
        assert_eq!(journal.next().unwrap(), 1);
        assert_eq!(
            journal.reader().unwrap().next().unwrap().unwrap().body,
            b"a"
        );
    }
    fs::remove_file(path.join("control")).unwrap();
    let journal = Journal::open(&path, small()).unwrap();
    assert_eq!(journal.writer().unwrap().append(b"b").unwrap(), 1);
}

#[test]
fn what_a_dead_writer_left_unsynced_is_durable_once_the_journal_is_open() {
    for sync in [Sync::Always, Sync::Every(Duration::from_secs(3_600))] {
        let (_folder, journal) = fresh(small());
        journal.writer().unwrap().append(b"never synced").unwrap();
        let path = journal.path();
        drop(journal);
        let journal = Journal::open(path, small().with_sync(sync)).unwrap();
        assert_eq!(journal.durable(), 1, "{sync:?}");
    }
}

/// What an opening that appends has locked is one file, and says all that others must know.
#[test]
fn an_opening_that_appends_excludes_those_that_must_be_alone() {
    let (_folder, journal) = fresh(small());
    let path = journal.path();
    let alone = |exclusive: bool| {
        let options = Options {
            exclusive,
            sole_writer: !exclusive,
            ..small()
        };
        Journal::open(&path, options).and_then(|journal| journal.writer().map(drop))
    };
    let writer = journal.writer().unwrap();
    writer.append(b"a").unwrap();
    for exclusive in [true, false] {
        let refused = alone(exclusive);
        assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    }
    // Others take part, and do not recover: the batch that is not published yet stays as it is.
    let mut claim = writer.claim(10).unwrap();
    claim.fill(b'b');
    let second = Journal::open(&path, small()).unwrap();
    assert_eq!(claim.commit(10).unwrap(), 1);
    assert_eq!(second.writer().unwrap().append(b"c").unwrap(), 2);
    drop((writer, journal));
    assert!(alone(true).is_err() && alone(false).is_err());
    drop(second);
    alone(true).unwrap();
    alone(false).unwrap();
    assert_eq!(Journal::verify(&path).unwrap().damages, []);
}
