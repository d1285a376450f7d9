//! A reader that sleeps is woken, also one that has opened the journal for reading only; one that no writer can wake
//! polls.

#![expect(clippy::disallowed_methods, reason = "a test that hangs ends")]

use std::time::{Duration, Instant};

use millstream_journal::storage::{Failing, Mapped, Storage};
use millstream_journal::{Journal, Options, Reader, Wait};

use crate::support::{fresh, small};

/// No progress for so long is a hang, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(60);
/// Where the control page says that a reader sleeps.
const WAITING: usize = 72;

/// Whether a reader sleeps that a writer would wake.
fn is_waiting<S: Storage>(journal: &Journal<S>) -> bool {
    let page = std::fs::read(journal.path().join("control")).unwrap();
    page[WAITING] == 1
}

fn take<S: Storage>(reader: &mut Reader<S>) -> u64 {
    assert!(reader.wait(Wait::Block, Some(LIMIT)).unwrap());
    reader.next().unwrap().unwrap().sequence
}

#[test]
fn a_reader_of_a_journal_that_was_opened_for_reading_sleeps_until_it_is_woken() {
    let (_folder, journal) = fresh(small());
    let writer = journal.writer().unwrap();
    for round in 0..20 {
        let only = Journal::open(journal.path(), Options::read_only()).unwrap();
        let mut reader = only.reader().unwrap();
        reader.seek(round * 2).unwrap();
        std::thread::scope(|scope| {
            let taken = scope.spawn(move || [take(&mut reader), take(&mut reader)]);
            for _ in 0..2 {
                let start = Instant::now();
                while !is_waiting(&journal) {
                    assert!(start.elapsed() < LIMIT, "nobody asks to be woken");
                    std::thread::yield_now();
                }
                writer.append(&[7; 3_000]).unwrap();
            }
            assert_eq!(taken.join().unwrap(), [round * 2, round * 2 + 1]);
        });
    }
}

#[test]
fn a_reader_that_may_not_store_anything_sees_what_comes() {
    let (_folder, journal) = fresh(small());
    let writer = journal.writer().unwrap();
    let storage = Failing::new(Mapped::new(journal.path()));
    storage.set_read_only(true);
    let only = Journal::open_in(storage, Options::read_only()).unwrap();
    let mut reader = only.reader().unwrap();
    for sequence in 0..20 {
        let asleep = reader.wait(Wait::Block, Some(Duration::from_millis(20)));
        assert!(!asleep.unwrap() && !is_waiting(&journal));
        writer.append(&[7; 3_000]).unwrap();
        assert_eq!(take(&mut reader), sequence);
    }
}

/// No process has the journal open since the machine started: the reader sees the records that a recovery will leave,
/// and then new ones.
#[test]
fn a_reader_that_comes_before_a_recovery_sees_what_comes_after_it() {
    let (folder, journal) = fresh(small());
    journal.writer().unwrap().append(b"first").unwrap();
    drop(journal);
    let path = folder.path().join("journal");
    std::fs::remove_file(path.join("control")).unwrap();
    let only = Journal::open(&path, Options::read_only()).unwrap();
    let mut reader = only.reader().unwrap();
    assert_eq!(take(&mut reader), 0);
    assert!(
        !reader
            .wait(Wait::Block, Some(Duration::from_millis(20)))
            .unwrap()
    );
    let journal = Journal::open(&path, small()).unwrap();
    journal.writer().unwrap().append(b"second").unwrap();
    assert_eq!(take(&mut reader), 1);
}
