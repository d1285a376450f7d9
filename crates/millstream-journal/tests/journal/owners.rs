//! What root makes in another user's journal belongs to that user, whose processes must be able to continue.

#![expect(
    unsafe_code,
    reason = "a child of this process becomes another user, who may not run the test's program"
)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use millstream_journal::{CursorMode, Journal, Options, Retention};

use crate::support::{SEGMENT_BYTES, small};

/// The user and the group `nobody` of most systems.
const NOBODY: u32 = 65_534;

/// Runs `work` in a child with no right but those of [`NOBODY`]; panics if that panics.
fn as_nobody(work: impl FnOnce() + std::panic::UnwindSafe) {
    // SAFETY: no other thread of this process is in a call that a child would need, and the child ends without
    // returning.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: calls with values, and a null pointer for an empty list.
        let dropped = unsafe {
            libc::setgroups(0, std::ptr::null()) == 0
                && libc::setgid(NOBODY) == 0
                && libc::setuid(NOBODY) == 0
        };
        let worked = dropped && std::panic::catch_unwind(work).is_ok();
        // SAFETY: the child ends here.
        unsafe { libc::_exit(i32::from(!worked)) };
    }
    let mut status = 0;
    // SAFETY: a child of this process that no other thread waits for.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0), "see above");
}

/// Appends through several segments, with a cursor, a set and a prune, so that every kind of file is made.
fn use_journal(path: &Path, by: &str) {
    let journal = Journal::open(path, small()).unwrap();
    let writer = journal.writer().unwrap();
    for _ in 0..200 {
        writer.append(&[7; 1_000]).unwrap();
    }
    writer.sync().unwrap();
    let cursor = journal.cursor(by, CursorMode::Exclusive).unwrap();
    cursor.set(journal.next().unwrap()).unwrap();
    journal
        .prune(&Retention {
            bytes: Some(3 * SEGMENT_BYTES),
            ..Retention::default()
        })
        .unwrap();
}

/// All files and directories from `path` on.
fn all(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            found.extend(all(&entry.unwrap().path()));
        }
    }
    found
}

fn is_root() -> bool {
    // SAFETY: a call without arguments that cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("skipped: only root may become another user");
    }
    is_root
}

/// A directory that is another user's.
fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    home
}

#[test]
fn a_user_continues_after_root_has_used_the_journal() {
    if !is_root() {
        return;
    }
    let home = home();
    let path = home.path().join("journal");
    as_nobody(|| use_journal(&path, "first"));
    use_journal(&path, "root");
    for path in all(&path) {
        let found = fs::symlink_metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid()), (NOBODY, NOBODY), "{path:?}");
    }
    as_nobody(|| {
        use_journal(&path, "second");
        let journal = Journal::open(&path, small()).unwrap();
        assert_eq!(journal.next().unwrap(), 600);
        // What root has made is the user's to use, too.
        let cursor = journal.cursor("root", CursorMode::Exclusive).unwrap();
        cursor.set(600).unwrap();
    });
}

#[test]
fn an_empty_directory_of_a_user_becomes_the_user_s_journal() {
    if !is_root() {
        return;
    }
    let home = home();
    let exclusive = Options {
        exclusive: true,
        segment_bytes_first: Some(16 << 10),
        ..small()
    };
    let begin = |count: u64| {
        let journal = Journal::open(home.path(), exclusive.clone()).unwrap();
        let writer = journal.writer().unwrap();
        writer.reserve().unwrap();
        let mut struck = journal.record_set("struck").unwrap();
        struck.make_room(1_000).unwrap();
        for _ in 0..count {
            writer.append(&[7; 1_000]).unwrap();
        }
        journal.cut(journal.next().unwrap() - 1).unwrap();
        journal.next().unwrap()
    };
    assert_eq!(begin(100), 99);
    for path in all(home.path()) {
        let found = fs::symlink_metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid()), (NOBODY, NOBODY), "{path:?}");
    }
    as_nobody(std::panic::AssertUnwindSafe(|| assert_eq!(begin(100), 198)));
}

#[test]
fn files_that_were_there_keep_their_owner() {
    if !is_root() {
        return;
    }
    let home = home();
    let path = home.path().join("journal");
    as_nobody(|| use_journal(&path, "first"));
    // A user may put a link to anything in its own directory.
    let foreign = home.path().join("foreign");
    fs::write(&foreign, "").unwrap();
    std::os::unix::fs::symlink(&foreign, path.join("cursors").join("linked")).unwrap();
    let journal = Journal::open(&path, small()).unwrap();
    let _opened_or_not = journal.cursor("linked", CursorMode::Exclusive);
    assert_eq!(fs::metadata(&foreign).unwrap().uid(), 0);
}
