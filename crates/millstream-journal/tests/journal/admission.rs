//! The copy of a follower that was admitted counts, after each crash and with each damage no other.

use millstream_journal::storage::Simulated;
use millstream_journal::{Admission, CursorMode, Error, Host, Journal, Options};

use crate::support::{fresh, small};

const CURSOR: &str = "follower.backup";

/// A journal with a record, which copy 7 of the follower has, admitted or not.
fn followed(is_admitted: bool) -> (tempfile::TempDir, Journal) {
    let (folder, journal) = fresh(small());
    journal.writer().unwrap().append(b"a record").unwrap();
    let cursor = journal.cursor(CURSOR, CursorMode::Shared).unwrap();
    cursor.set_for(7, 1).unwrap();
    if is_admitted {
        cursor.admit(7).unwrap();
    }
    (folder, journal)
}

fn counted(journal: &Journal) -> Option<u64> {
    let view = journal.cursor_view(CURSOR).unwrap();
    let info = &journal.cursors().unwrap()[0];
    let counted = view.unwrap().counted().unwrap();
    assert_eq!(counted.is_some(), info.counts());
    counted
}

#[test]
fn a_move_without_a_copy_leaves_it_as_it_is() {
    let (_folder, journal) = followed(true);
    let cursor = journal.cursor(CURSOR, CursorMode::Shared).unwrap();
    cursor.set(0).unwrap();
    assert_eq!(counted(&journal), Some(0));
    assert_eq!(journal.cursors().unwrap()[0].copy, 7);
    assert!(journal.dismiss_follower("backup").unwrap());
    assert_eq!(counted(&journal), None);
    // Other cursors have no copies, whatever is stored for them.
    let other = journal.cursor("billing", CursorMode::Shared).unwrap();
    other.admit(0).unwrap();
    let found = journal.cursors().unwrap();
    assert_eq!((found[0].follower(), found[0].counts()), (None, false));
}

#[test]
fn an_opening_that_only_reads_admits_and_removes_followers() {
    let (_folder, journal) = followed(false);
    let path = journal.path();
    drop(journal);
    let exclusive = Options {
        exclusive: true,
        ..small()
    };
    let owner = Journal::open(&path, exclusive).unwrap();
    let reading = Journal::open(&path, Options::read_only()).unwrap();
    let view = owner.cursor_view(CURSOR).unwrap().unwrap();
    assert!(reading.admit_follower("backup").unwrap());
    assert_eq!(view.counted().unwrap(), Some(1));
    let open = owner.cursor(CURSOR, CursorMode::Shared).unwrap();
    assert_eq!(reading.is_cursor_open(CURSOR).unwrap(), Some(true));
    let removed = reading.remove_follower("backup");
    assert!(matches!(removed, Err(Error::CursorInUse { .. })));
    drop(open);
    assert_eq!(reading.is_cursor_open(CURSOR).unwrap(), Some(false));
    reading.remove_follower("backup").unwrap();
    // The view has the file that was removed.
    assert_eq!(view.counted().unwrap(), None);
    assert!(owner.cursor_view(CURSOR).unwrap().is_none());
    assert_eq!(owner.is_cursor_open(CURSOR).unwrap(), Some(false));
    assert!(!reading.admit_follower("backup").unwrap());
    assert!(!reading.dismiss_follower("backup").unwrap());
    let removed = reading.remove_cursor("billing");
    assert!(matches!(removed, Err(Error::ReadOnly { .. })));
}

#[test]
fn a_copy_that_any_process_has_counted_is_known_after_a_loss_of_power() {
    let options = |boot| Options {
        host: Host::simulated(|| 1, move || boot as u64).with_boot(boot),
        ..small()
    };
    let mut counted = 0;
    let mut unknown = 0;
    for steps in 0..8 {
        let machine = Simulated::new();
        let journal = Journal::open_in(machine.process(), options(1)).unwrap();
        journal.writer().unwrap().append(b"a record").unwrap();
        journal.sync().unwrap();
        let process = machine.process();
        let leader = Journal::open_in(process.clone(), options(1)).unwrap();
        let cursor = leader.cursor(CURSOR, CursorMode::Shared).unwrap();
        cursor.set_for(7, 1).unwrap();
        cursor.sync().unwrap();
        process.kill_after(steps);
        let _killed = cursor.admit(7);
        let view = journal.cursor_view(CURSOR).unwrap().unwrap();
        let counts = view.counted().unwrap() == Some(1);
        counted += u64::from(counts);
        for choice in 0..8 {
            let after = machine.lose_power(&mut |limit| choice % limit);
            let again = Journal::open_in(after.process(), options(2)).unwrap();
            let found = again.cursors().unwrap()[0].admission;
            match found.known() {
                None => assert!(!counts, "after {steps} stores: {found:?}"),
                copy => assert!(copy == Some(7) || !counts, "{steps}: {found:?}"),
            }
            unknown += u64::from(found == Admission::None);
        }
    }
    assert!(counted > 0 && unknown > 0, "{counted} {unknown}");
}

#[test]
fn a_damaged_admission_counts_nothing_and_is_named() {
    let (_folder, journal) = followed(true);
    let path = journal.path();
    drop(journal);
    let file = path.join("cursors").join(CURSOR);
    let sound = std::fs::read(&file).unwrap();
    for bit in 192 * 8..216 * 8 {
        let mut bytes = sound.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&file, bytes).unwrap();
        let journal = Journal::open(&path, Options::read_only()).unwrap();
        assert_eq!(counted(&journal), None, "bit {bit}");
        let known = journal.cursors().unwrap()[0].admission.known();
        assert!(known.is_some(), "bit {bit}: others wait for it");
        let damages = Journal::verify(&path).unwrap().damages;
        assert_eq!(damages.len(), 1, "bit {bit}");
    }
    std::fs::write(&file, sound).unwrap();
    let journal = Journal::open(&path, Options::read_only()).unwrap();
    assert_eq!(counted(&journal), Some(1));
}
