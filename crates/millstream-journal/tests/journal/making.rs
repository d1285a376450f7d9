//! A journal is made once, and its first record has the number that was asked for.

use millstream_journal::{Error, Journal, Options};

use crate::support::{Random, fresh, small};

fn new() -> Options {
    Options {
        create_new: true,
        ..small()
    }
}

#[test]
fn one_that_is_there_is_not_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path(), new()).unwrap();
    let refused = |outcome| matches!(outcome, Err(Error::Exists { path }) if path == folder.path());
    assert!(refused(Journal::open(folder.path(), new())), "while open");
    drop(journal);
    assert!(
        refused(Journal::open(folder.path(), new())),
        "after closing"
    );
    let exclusive = Options {
        exclusive: true,
        ..new()
    };
    assert!(refused(Journal::open(folder.path(), exclusive)));
}

#[test]
fn of_many_creators_one_succeeds() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let made: Vec<Result<Journal, Error>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| Journal::open(folder.path(), new())))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1);
    }
}

#[test]
fn numbers_begin_at_the_given_one() {
    let first = 1_000_000_007;
    let (_folder, journal) = fresh(Options {
        first_sequence: first,
        ..small()
    });
    let writer = journal.writer().unwrap();
    let mut random = Random(1);
    let bodies: Vec<Vec<u8>> = (0..2_000).map(|_| random.bytes(300)).collect();
    assert_eq!(journal.durable(), first);
    assert_eq!(writer.append_many(&bodies).unwrap(), first..first + 2_000);
    let path = journal.path();
    drop((journal, writer));

    // The option is for making only.
    let journal = Journal::open(&path, small()).unwrap();
    assert_eq!(
        (journal.first().unwrap(), journal.next().unwrap()),
        (first, first + 2_000)
    );
    let mut reader = journal.reader().unwrap();
    for at in [0, 1, 999, 1_999] {
        let record = reader.read(first + at).unwrap();
        assert_eq!(
            (record.sequence, record.body),
            (first + at, &bodies[at as usize][..])
        );
    }
    assert!(matches!(
        reader.read(first - 1),
        Err(Error::Pruned { first: told, .. }) if told == first
    ));
}

#[test]
fn numbers_that_would_overflow_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        first_sequence: u64::MAX,
        ..small()
    };
    let error = Journal::open(folder.path(), options).err().unwrap();
    assert!(
        error
            .to_string()
            .starts_with("first_sequence = 18446744073709551615: at most"),
        "{error}"
    );
}
