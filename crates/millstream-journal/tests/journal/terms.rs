//! Terms: a superseded journal and a copy refuse appends, in all processes and after any restart.

use std::path::Path;

use millstream_journal::{Error, Journal, Leadership, Options, Sync};

use crate::support::{fresh, small};

fn sole() -> Options {
    Options {
        sole_writer: true,
        ..small()
    }
}

fn appends(path: &Path, options: Options) -> Result<u64, Error> {
    Journal::open(path, options)?.writer()?.append(b"one more")
}

#[test]
fn a_newer_term_stops_all_writers_at_once_and_forever() {
    let (_folder, journal) = fresh(small());
    let path = journal.path();
    let writer = journal.writer().unwrap();
    writer.append(b"first").unwrap();
    // Another opening of the same journal, as another process has it.
    let leader = Journal::open(&path, small()).unwrap();
    assert!(!leader.supersede(0).unwrap());
    writer.append(b"second").unwrap();
    assert!(leader.supersede(3).unwrap());
    let superseded = |outcome: Result<u64, Error>| {
        let error = outcome.unwrap_err();
        assert!(
            matches!(error, Error::Superseded { term: 0, by: 3, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("superseded by term 3"));
    };
    superseded(writer.append(b"third"));
    superseded(writer.write(b"third"));
    superseded(writer.append_many([b"third"]).map(|range| range.start));
    superseded(writer.try_append(b"third").map(|_| 0));
    assert!(matches!(writer.claim(5), Err(Error::Superseded { .. })));
    assert!(journal.is_superseded());
    superseded(appends(&path, small()));
    drop((writer, journal, leader));
    // No process has it open, and the control page is created again.
    std::fs::remove_file(path.join("control")).unwrap();
    superseded(appends(&path, small()));
    let again = Journal::open(&path, small()).unwrap();
    assert!(again.is_superseded());
    assert_eq!(again.next().unwrap(), 2);
    again.sync().unwrap();
    // An older term is no news.
    assert!(again.supersede(2).unwrap());
    let leadership = Leadership {
        term: 0,
        superseded_by: Some(3),
        is_copy: false,
    };
    assert_eq!(again.leadership().unwrap(), leadership);
}

#[test]
fn only_the_sole_writer_appends_to_a_copy_until_it_begins_a_term() {
    let (_folder, journal) = fresh(small());
    let path = journal.path();
    journal.writer().unwrap().append(b"first").unwrap();
    assert!(matches!(
        journal.mark_as_copy(),
        Err(Error::NotSoleWriter { .. })
    ));
    drop(journal);
    let follower = Journal::open(&path, sole()).unwrap();
    follower.mark_as_copy().unwrap();
    follower.mark_as_copy().unwrap();
    follower.writer().unwrap().append(b"second").unwrap();
    // While the follower has it open, it cannot become a leader.
    let other = Journal::open(&path, sole()).unwrap();
    assert!(matches!(other.begin_term(1), Err(Error::Locked { .. })));
    drop((other, follower));
    let error = appends(&path, small()).unwrap_err();
    assert!(matches!(error, Error::IsCopy { .. }), "{error}");
    // Others may read it and keep cursors.
    let reader = Journal::open(&path, small()).unwrap();
    reader
        .cursor("mine", millstream_journal::CursorMode::Exclusive)
        .unwrap();

    let promoted = Journal::open(&path, sole()).unwrap();
    let term = promoted.begin_term(4).unwrap();
    assert_eq!((term.number, term.start), (4, 2));
    assert_eq!(promoted.durable(), 2);
    assert!(matches!(
        promoted.begin_term(4),
        Err(Error::Option { name: "term", .. })
    ));
    assert_eq!(promoted.terms().unwrap(), [term]);
    drop((promoted, reader));
    assert_eq!(appends(&path, small()).unwrap(), 2);
}

#[test]
fn a_superseded_journal_comes_back_with_the_terms_of_the_leader() {
    let (_folder, new) = fresh(sole());
    let first = new.begin_term(1).unwrap();
    new.writer().unwrap().append(b"first").unwrap();
    let second = new.begin_term(2).unwrap();
    assert_eq!(new.terms().unwrap(), [first, second]);

    let (_other, old) = fresh(sole());
    let own = old.begin_term(1).unwrap();
    assert_ne!(own.id, first.id);
    assert!(old.supersede(2).unwrap());
    assert!(old.is_superseded());
    old.mark_as_copy().unwrap();
    old.adopt_terms(&[first, second]).unwrap();
    assert_eq!(old.terms().unwrap(), [first, second]);
    assert!(!old.is_superseded());
    let path = old.path();
    drop(old);
    assert!(matches!(appends(&path, small()), Err(Error::IsCopy { .. })));
    assert_eq!(appends(&path, sole()).unwrap(), 0);
}

#[test]
fn records_that_were_appended_before_a_newer_term_can_still_be_synced() {
    let (_folder, journal) = fresh(small().with_sync(Sync::Never));
    journal.writer().unwrap().append(b"first").unwrap();
    journal.supersede(1).unwrap();
    assert_eq!(journal.sync().unwrap(), 1);
}

#[test]
fn damage_to_a_term_is_an_error_with_its_file() {
    let (_folder, journal) = fresh(sole());
    let path = journal.path();
    let term = journal.begin_term(7).unwrap();
    drop(journal);
    let name = format!("term-{:020}-{:016x}", term.number, term.id);
    let file = path.join(&name);
    let good = std::fs::read(&file).unwrap();
    for byte in 0..40 {
        let mut bad = good.clone();
        bad[byte] ^= 1;
        std::fs::write(&file, bad).unwrap();
        let error = appends(&path, small()).unwrap_err();
        assert!(
            matches!(&error, Error::Damage { path, .. } if path.ends_with(&name)),
            "byte {byte}: {error}"
        );
    }
    std::fs::write(&file, good).unwrap();
    appends(&path, small()).unwrap();
}
