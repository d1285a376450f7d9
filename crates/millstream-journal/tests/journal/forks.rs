//! A forked child shares the locks of its parent until it runs another program: a lock that the parent releases is
//! nevertheless free at once, and a handle that the child drops remains valid in the parent.

#![expect(
    unsafe_code,
    reason = "a process is forked, and the child calls nothing but the system"
)]

use std::io::{Read, Write, pipe};
use std::os::fd::AsRawFd;

use std::time::Duration;

use millstream_journal::{Cursor, CursorMode, Error, Sync};

use crate::support::{fresh, small};

/// A child that lives until the returned closure is called; `before` runs in it first.
fn fork(before: impl FnOnce()) -> impl FnOnce() {
    let (mut from_child, mut to_parent) = pipe().unwrap();
    let (from_parent, to_child) = pipe().unwrap();
    // SAFETY: the child drops values of its own copy of the memory, reads and writes pipes, and exits.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        before();
        let _told = to_parent.write(b"x");
        let mut byte = 0_u8;
        // SAFETY: a byte of this function; the parent's end of the pipe is closed first, or its read would not end.
        unsafe {
            libc::close(to_child.as_raw_fd());
            libc::read(from_parent.as_raw_fd(), (&raw mut byte).cast(), 1);
            libc::_exit(0);
        }
    }
    from_child.read_exact(&mut [0]).unwrap();
    move || {
        drop((to_child, from_parent, to_parent));
        // SAFETY: a child of this process that no other thread waits for.
        let ended = unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert_eq!(ended, child);
    }
}

#[test]
fn a_dropped_cursor_is_free_while_a_forked_child_lives() {
    let (_folder, journal) = fresh(small());
    let cursor = journal.cursor("c", CursorMode::Exclusive).unwrap();
    let end_child = fork(|| ());
    drop(cursor);
    let again = journal.cursor("c", CursorMode::Exclusive);
    let removed = again.map(drop).and_then(|()| journal.remove_cursor("c"));
    end_child();
    removed.unwrap();
}

#[test]
fn a_cursor_that_a_forked_child_drops_stays_taken() {
    let (_folder, journal) = fresh(small());
    let cursor = journal.cursor("c", CursorMode::Exclusive).unwrap();
    let copy: *const Cursor = &raw const cursor;
    // SAFETY: in the child, where this copy is the only one that is dropped.
    let end_child = fork(|| drop(unsafe { copy.read() }));
    let taken = journal.cursor("c", CursorMode::Exclusive);
    end_child();
    assert!(matches!(taken, Err(Error::CursorInUse { .. })), "{taken:?}");
}

/// The child has none of the threads that sync the journals of its parent.
#[test]
fn a_forked_child_syncs_its_own_journals() {
    let timed = || small().with_sync(Sync::Every(Duration::from_millis(5)));
    let (_folder, journal) = fresh(timed());
    let writer = journal.writer().unwrap();
    writer.append(b"of the parent").unwrap();
    let wait = |journal: &millstream_journal::Journal| {
        while journal.durable() == 0 {
            std::thread::yield_now();
        }
    };
    wait(&journal);
    let end_child = fork(|| {
        let (folder, own) = fresh(timed());
        let inherited = writer.append(b"of nobody");
        assert!(matches!(inherited, Err(Error::Forked { .. })));
        let writer = own.writer().unwrap();
        writer.append(b"of the child").unwrap();
        wait(&own);
        drop((writer, own, folder));
    });
    end_child();
    assert_eq!(writer.append(b"of the parent").unwrap(), 1);
}
