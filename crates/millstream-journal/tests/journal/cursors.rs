//! Named cursors persist, move in both directions, and belong to one reader unless shared.

use millstream_journal::{CursorMode, Error, Journal};

use crate::support::{fresh, small};

#[test]
fn a_cursor_keeps_its_position() {
    let (_folder, journal) = fresh(small());
    journal.writer().unwrap().append_many(["a"; 100]).unwrap();
    let cursor = journal.cursor("billing", CursorMode::Exclusive).unwrap();
    assert_eq!(cursor.position().unwrap(), 0);
    for position in [1, 100, 50, 0, 99] {
        cursor.set(position).unwrap();
        assert_eq!(cursor.position().unwrap(), position);
    }
    assert!(matches!(
        cursor.set(101),
        Err(Error::NotYet {
            sequence: 101,
            next: 100,
            ..
        })
    ));
    cursor.sync().unwrap();
    let path = journal.path();
    drop((cursor, journal));

    let journal = Journal::open(path, small()).unwrap();
    assert_eq!(
        journal
            .cursor("billing", CursorMode::Exclusive)
            .unwrap()
            .position()
            .unwrap(),
        99
    );
    journal.cursor("audit.2", CursorMode::Exclusive).unwrap();
    let found: Vec<_> = journal
        .cursors()
        .unwrap()
        .into_iter()
        .map(|c| (c.name, c.position))
        .collect();
    assert_eq!(
        found,
        [("audit.2".to_owned(), 0), ("billing".to_owned(), 99)]
    );
    journal.remove_cursor("audit.2").unwrap();
    assert_eq!(journal.cursors().unwrap().len(), 1);
}

#[test]
fn two_readers_with_one_cursor_must_agree_to_share() {
    let (_folder, journal) = fresh(small());
    let other = Journal::open(journal.path(), small()).unwrap();
    let alone = journal.cursor("c", CursorMode::Exclusive).unwrap();
    for share in [CursorMode::Exclusive, CursorMode::Shared] {
        assert!(matches!(
            other.cursor("c", share),
            Err(Error::CursorInUse { .. })
        ));
        assert!(matches!(
            journal.cursor("c", share),
            Err(Error::CursorInUse { .. })
        ));
    }
    assert!(matches!(
        journal.remove_cursor("c"),
        Err(Error::CursorInUse { .. })
    ));
    drop(alone);
    let first = journal.cursor("c", CursorMode::Shared).unwrap();
    let second = other.cursor("c", CursorMode::Shared).unwrap();
    assert!(matches!(
        other.cursor("c", CursorMode::Exclusive),
        Err(Error::CursorInUse { .. })
    ));
    journal.writer().unwrap().append_many(["a"; 9]).unwrap();
    first.set(5).unwrap();
    assert_eq!(second.position().unwrap(), 5);
}

#[test]
fn a_shared_cursor_is_consistent_under_many_movers() {
    let (_folder, journal) = fresh(small());
    journal
        .writer()
        .unwrap()
        .append_many(vec!["a"; 1_000])
        .unwrap();
    std::thread::scope(|scope| {
        for start in 0..3 {
            let cursor = journal.cursor("c", CursorMode::Shared).unwrap();
            scope.spawn(move || {
                for position in (start..1_000).step_by(3) {
                    cursor.set(position).unwrap();
                    assert!(cursor.position().unwrap() < 1_000);
                }
            });
        }
    });
    assert!(journal.cursors().unwrap()[0].position >= 997);
}

#[test]
fn a_damaged_slot_gives_way_to_the_other_and_two_are_an_error() {
    let (_folder, journal) = fresh(small());
    journal.writer().unwrap().append_many(["a"; 10]).unwrap();
    let cursor = journal.cursor("c", CursorMode::Exclusive).unwrap();
    cursor.set(3).unwrap();
    cursor.set(4).unwrap();
    drop(cursor);
    let file = journal.path().join("cursors/c");
    let flip = |at: usize| {
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[at] ^= 1;
        std::fs::write(&file, bytes).unwrap();
    };
    let position = || {
        journal
            .cursor("c", CursorMode::Exclusive)
            .map(|c| c.position().unwrap())
    };
    // The third position has generation 3, in the second slot.
    flip(128 + 8);
    assert_eq!(position().unwrap(), 3);
    flip(64 + 8);
    let Err(Error::Damage { path, offset, .. }) = position() else {
        panic!("no slot is sound")
    };
    assert_eq!((path, offset), (file, 64));
}

#[test]
fn names_are_checked() {
    let (_folder, journal) = fresh(small());
    for name in [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        ".hidden",
        "_x",
        "ä",
        "a b",
        &"x".repeat(101),
    ] {
        assert!(
            matches!(
                journal.cursor(name, CursorMode::Exclusive),
                Err(Error::CursorName { .. })
            ),
            "{name}"
        );
    }
    assert!(
        journal
            .cursor(&"x".repeat(100), CursorMode::Exclusive)
            .is_ok()
    );
}
