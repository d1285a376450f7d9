//! Copies of a journal on another machine: an identity that they share with the original, and an exclusive writer.

use millstream_journal::{CursorMode, Error, Host, Identity, Journal, Options};

use crate::support::{fresh, small};

#[test]
fn a_journal_is_made_with_an_identity_that_stays() {
    let (_folder, journal) = fresh(small());
    let identity = journal.identity().unwrap().unwrap();
    assert_eq!(journal.lineage().unwrap(), identity.lineage);
    let other = Identity::new(Some(7), &Host::real());
    assert_eq!(journal.identify(Some(other)).unwrap(), identity);
    let path = journal.path();
    drop(journal);
    let again = Journal::open(&path, small()).unwrap();
    assert_eq!(again.identity().unwrap(), Some(identity));
    assert_eq!(Identity::of(&path).unwrap(), Some(identity));
    let (_folder, other) = fresh(small());
    let theirs = other.identity().unwrap().unwrap();
    assert_ne!(
        (theirs.lineage, theirs.own),
        (identity.lineage, identity.own)
    );
}

#[test]
fn copies_of_a_journal_without_an_identity_get_the_same_lineage_each_by_itself() {
    let (folder, journal) = fresh(small());
    journal.writer().unwrap().append(b"a").unwrap();
    let path = journal.path();
    drop(journal);
    // As an earlier version has left it.
    std::fs::remove_file(path.join("identity")).unwrap();
    let copy = folder.path().join("copied");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(&path).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
    }
    let reading = Journal::open(&path, Options::read_only()).unwrap();
    assert_eq!(reading.identity().unwrap(), None);
    assert!(matches!(
        reading.identify(None),
        Err(Error::ReadOnly { .. })
    ));
    let read = reading.lineage().unwrap();
    let [one, other] = [&path, &copy].map(|path| {
        let journal = Journal::open(path, small()).unwrap();
        journal.identity().unwrap().unwrap()
    });
    assert_eq!((read, one.lineage), (other.lineage, other.lineage));
    assert_ne!(one.own, other.own);
    assert_eq!(reading.identity().unwrap(), Some(one));
}

#[test]
fn a_journal_becomes_a_copy_with_the_lineage_of_the_original() {
    let (_folder, journal) = fresh(small());
    let own = journal.identity().unwrap().unwrap().own;
    let copied = journal.become_copy(42).unwrap();
    assert_eq!((copied.lineage, copied.own), (42, own));
    assert_eq!(journal.identity().unwrap(), Some(copied));
    assert_eq!(journal.become_copy(42).unwrap(), copied);
    let reading = Journal::open(journal.path(), Options::read_only()).unwrap();
    assert!(matches!(
        reading.become_copy(43),
        Err(Error::ReadOnly { .. })
    ));
}

#[test]
fn several_that_open_an_older_journal_at_once_find_the_same_identity() {
    let (_folder, journal) = fresh(small());
    std::fs::remove_file(journal.path().join("identity")).unwrap();
    let found: Vec<Identity> = std::thread::scope(|scope| {
        let open = || Journal::open(journal.path(), small()).unwrap();
        let asking: Vec<_> = (0..4)
            .map(|_| scope.spawn(move || open().identity().unwrap().unwrap()))
            .collect();
        asking.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{found:?}");
    let names = std::fs::read_dir(journal.path()).unwrap();
    let drafts = names.filter(|name| {
        let name = name.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("draft-identity")
    });
    assert_eq!(drafts.count(), 0);
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
    assert_eq!(copy.identity().unwrap(), Some(identity));
    assert_eq!(copy.next().unwrap(), 1_000);
    drop(copy);
    // One that is there keeps its own.
    let other = Options {
        identity: Some(Identity::new(None, &Host::real())),
        ..options
    };
    let copy = Journal::open(&path, other).unwrap();
    assert_eq!(copy.identity().unwrap(), Some(identity));
}

#[test]
fn a_damaged_identity_is_named() {
    let (_folder, journal) = fresh(small());
    let file = journal.path().join("identity");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    assert!(matches!(
        journal.identity(),
        Err(Error::Damage { path, offset: 0, .. }) if path == file
    ));
    // The records can still be had.
    Journal::open(journal.path(), small()).unwrap();
}

#[test]
fn the_sole_writer_is_joined_by_nobody_while_others_read() {
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
