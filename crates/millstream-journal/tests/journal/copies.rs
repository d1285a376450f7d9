//! What a copy of a journal on another machine needs: an identity that it shares with the original, and a writer that nobody joins.

use millstream_journal::{Error, Host, Identity, Journal, Options, Share};

use crate::support::{fresh, small};

#[test]
fn an_identity_is_made_when_it_is_asked_for_and_stays() {
    let (_folder, journal) = fresh(small());
    assert_eq!(journal.identity().unwrap(), None);
    let reading = Journal::open(journal.path(), Options::read_only()).unwrap();
    assert!(matches!(
        reading.identify(None),
        Err(Error::ReadOnly { .. })
    ));
    let identity = journal.identify(None).unwrap();
    let other = Identity::new(Some(7), &Host::real());
    assert_eq!(journal.identify(Some(other)).unwrap(), identity);
    let path = journal.path();
    drop(journal);
    let again = Journal::open(&path, small()).unwrap();
    assert_eq!(again.identity().unwrap(), Some(identity));
    let (_folder, other) = fresh(small());
    let copied = Identity::new(Some(identity.lineage), &Host::real());
    assert_eq!(other.identify(Some(copied)).unwrap(), copied);
    assert_eq!(other.identity().unwrap(), Some(copied));
    assert_ne!(copied.own, identity.own);
}

#[test]
fn several_who_ask_at_once_get_the_same() {
    let (_folder, journal) = fresh(small());
    let found: Vec<Identity> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| journal.identify(None).unwrap()))
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
    journal.identify(None).unwrap();
    let file = journal.path().join("identity");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    assert!(matches!(
        journal.identity(),
        Err(Error::Damage { path, offset: 0, .. }) if path == file
    ));
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
    let cursor = other.cursor("consumer", Share::Exclusive).unwrap();
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
