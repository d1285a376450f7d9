//! Copies of a journal on another machine: an identity that they share with the original, and an exclusive writer.

use millstream_journal::storage::Simulated;
use millstream_journal::{CursorMode, Error, Host, Identity, Journal, Options};

use crate::support::{fresh, small};

#[test]
fn a_journal_is_made_with_an_identity_that_stays() {
    let (_folder, journal) = fresh(small());
    let identity = journal.identity().unwrap();
    assert_eq!(journal.lineage().unwrap(), identity.lineage);
    let path = journal.path();
    drop(journal);
    let again = Journal::open(&path, small()).unwrap();
    assert_eq!(again.identity().unwrap(), identity);
    assert_eq!(Identity::of(&path).unwrap(), identity);
    let (_folder, other) = fresh(small());
    let theirs = other.identity().unwrap();
    assert_ne!(
        (theirs.lineage, theirs.own),
        (identity.lineage, identity.own)
    );
}

#[test]
fn a_journal_becomes_a_copy_with_the_lineage_of_the_original() {
    let (_folder, journal) = fresh(small());
    let own = journal.identity().unwrap().own;
    let copied = journal.become_copy(42).unwrap();
    assert_eq!((copied.lineage, copied.own), (42, own));
    assert_eq!(journal.identity().unwrap(), copied);
    assert_eq!(journal.become_copy(42).unwrap(), copied);
    let reading = Journal::open(journal.path(), Options::read_only()).unwrap();
    assert!(matches!(
        reading.become_copy(43),
        Err(Error::ReadOnly { .. })
    ));
}

#[test]
fn a_copy_is_made_with_the_identity_of_the_original() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let identity = Identity::new(Some(42), &Host::real());
    let options = Options {
        identity: Some(identity),
        first_sequence: 1_000,
        ..small()
    };
    // An attempt that failed before the first segment has left its identity.
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("control"), [0; 4096]).unwrap();
    std::fs::write(path.join("identity"), b"half").unwrap();
    let copy = Journal::open(&path, options.clone()).unwrap();
    assert_eq!(copy.identity().unwrap(), identity);
    assert_eq!(copy.next().unwrap(), 1_000);
    drop(copy);
    // One that is there keeps its own.
    let other = Options {
        identity: Some(Identity::new(None, &Host::real())),
        ..options
    };
    let copy = Journal::open(&path, other).unwrap();
    assert_eq!(copy.identity().unwrap(), identity);
}

#[test]
fn a_damaged_or_missing_identity_is_named() {
    let (_folder, journal) = fresh(small());
    let file = journal.path().join("identity");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    for _ in 0..2 {
        let found = journal.identity();
        let named = matches!(&found, Err(Error::Damage { path, offset: 0, .. }) if *path == file);
        assert!(named, "{found:?}");
        let report = Journal::verify(journal.path()).unwrap();
        assert!(report.damages.iter().any(|damage| damage.path == file));
        // The records can be read all the same.
        Journal::open(journal.path(), small()).unwrap();
        let _removed = std::fs::remove_file(&file);
    }
}

#[test]
fn a_journal_that_becomes_a_copy_has_one_of_the_two_identities_at_any_time() {
    let host = || Host::simulated(|| 1, || 7);
    let options = || Options {
        host: host(),
        ..small()
    };
    for steps in 0..20 {
        let machine = Simulated::new();
        let journal = Journal::open_in(machine.process(), options()).unwrap();
        let before = journal.identity().unwrap();
        let process = machine.process();
        let other = Journal::open_in(process.clone(), options()).unwrap();
        process.kill_after(steps);
        let _killed = other.become_copy(42);
        let found = journal.identity().unwrap();
        assert!(found == before || found.lineage == 42, "{found:?}");
        for choice in 0..8 {
            let after = machine.lose_power(&mut |limit| choice % limit);
            let options = Options {
                host: host().with_boot(2),
                ..small()
            };
            let found = Journal::open_in(after.process(), options)
                .unwrap()
                .identity()
                .unwrap();
            assert!(found == before || found.lineage == 42, "{found:?}");
        }
    }
}

#[test]
fn the_sole_writer_excludes_writers_and_admits_readers() {
    let sole = || Options {
        sole_writer: true,
        ..small()
    };
    let (_folder, journal) = fresh(sole());
    let writer = journal.writer().unwrap();
    writer.append(b"a").unwrap();
    // Another writer of the same opening is no other writer.
    journal.writer().unwrap().append(b"b").unwrap();

    let other = Journal::open(journal.path(), small()).unwrap();
    assert!(matches!(other.writer(), Err(Error::Locked { .. })));
    let second = Journal::open(journal.path(), sole()).unwrap();
    assert!(matches!(second.writer(), Err(Error::Locked { .. })));
    let cursor = other.cursor("consumer", CursorMode::Exclusive).unwrap();
    assert_eq!(other.reader().unwrap().next().unwrap().unwrap().body, b"a");
    cursor.set(1).unwrap();

    drop((writer, journal));
    let writer = other.writer().unwrap();
    assert_eq!(writer.append(b"c").unwrap(), 2);
    let Err(Error::Locked { why, .. }) = second.writer() else {
        panic!("two writers, one of them the sole one")
    };
    assert!(why.contains("there can be only one"), "{why}");
}
