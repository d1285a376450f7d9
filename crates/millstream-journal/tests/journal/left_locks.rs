//! A writer that was killed inside an append does not block others, also while a child that it forked keeps its locks,
//! its parent has not waited for it, or another process has its process id by now.
//!
//! The children are this test program again: `child` does what the environment says.

#![expect(clippy::disallowed_methods, reason = "real processes take real time")]

use std::io::{BufRead, BufReader, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use millstream_journal::{Error, Journal, Options};
use rustix::process::{Signal, getpid, kill_process};

use crate::support::{fresh, small};

const ROLE: &str = "MILLSTREAM_LEFT_LOCKS_ROLE";
const PATH: &str = "MILLSTREAM_LEFT_LOCKS_PATH";

/// Long enough for the busiest machine; a lock that is never inherited takes all of it.
fn patient() -> Options {
    Options {
        busy_timeout: Duration::from_secs(20),
        ..small()
    }
}

fn again(role: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["left_locks::child", "--exact", "--nocapture"]);
    command.env(ROLE, role).env(PATH, path);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// A process that is inside an append, and has forked a child that lives until its standard input is closed.
fn start_holder(path: &Path) -> Child {
    let mut holder = again("hold", path).spawn().unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let said = lines.find(|line| line.as_ref().unwrap() == "holding");
    assert!(said.is_some(), "it ended before");
    holder
}

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let journal = Journal::open(std::env::var(PATH).unwrap(), patient()).unwrap();
    match &*role {
        "hold" => hold(&journal),
        "reuse" => reuse(&journal),
        _ => panic!("no such role"),
    }
}

#[expect(
    unsafe_code,
    reason = "nothing else runs code in a child that was forked"
)]
fn hold(journal: &Journal) {
    let writer = journal.writer().unwrap();
    let (mut is_forked, forked) = std::io::pipe().unwrap();
    std::thread::spawn(move || {
        let mut command = Command::new("true");
        let stay = move || {
            rustix::io::write(&forked, b"x")?;
            // SAFETY: standard input is open, and nothing closes it here.
            let input = unsafe { BorrowedFd::borrow_raw(0) };
            while rustix::io::read(input, &mut [0; 1])? > 0 {}
            // Without a word to a parent that is dead.
            Ok(kill_process(getpid(), Signal::KILL)?)
        };
        // SAFETY: the closure only calls the system, and takes no lock.
        unsafe { command.pre_exec(stay) };
        let _never_ran = command.spawn();
    });
    is_forked.read_exact(&mut [0; 1]).unwrap();
    let mut claim = writer.claim(100).unwrap();
    claim.fill(0xAA);
    println!("holding");
    std::io::stdin().lines().next();
}

/// Whether another process than the holder has the lock of its slot.
fn is_slot_locked(path: &Path, slot: u64) -> bool {
    use rustix::fs::{FlockOperation, flock};
    let file = std::fs::File::open(path.join(format!("writers/{slot}"))).unwrap();
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
}

#[test]
fn an_unreaped_writer_does_not_block_others() {
    let (_folder, journal) = fresh(patient());
    let writer = journal.writer().unwrap();
    writer.append(b"before").unwrap();
    let mut holder = start_holder(&journal.path());
    holder.kill().unwrap();
    // It is a zombie, or is about to become one.
    assert_eq!(writer.append(b"after").unwrap(), 1);
    assert!(is_slot_locked(&journal.path(), 1), "there is no child");
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert_eq!(Journal::verify(journal.path()).unwrap().damages, []);
}

/// In a namespace of its own, where a test can set the id of the next process.
#[test]
fn a_reused_process_id_does_not_block_writers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let inside = again("reuse", &path);
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
    ]);
    command.arg(inside.get_program()).args(inside.get_args());
    command.env(ROLE, "reuse").env(PATH, &path);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("appended"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn reuse(journal: &Journal) {
    let writer = journal.writer().unwrap();
    writer.append(b"before").unwrap();
    let mut holder = start_holder(&journal.path());
    let input = holder.stdin.take();
    holder.kill().unwrap();
    holder.wait().unwrap();
    // Start times are distinguished by clock ticks of 10 ms.
    std::thread::sleep(Duration::from_millis(30));
    let last = (holder.id() - 1).to_string();
    std::fs::write("/proc/sys/kernel/ns_last_pid", last).unwrap();
    let mut other = Command::new("sleep").arg("600").spawn().unwrap();
    assert_eq!(other.id(), holder.id(), "it did not get the number");
    assert!(is_slot_locked(&journal.path(), 1), "there is no child");
    let appended = writer.append(b"after");
    other.kill().unwrap();
    other.wait().unwrap();
    drop(input);
    assert_eq!(appended.unwrap(), 1);
    println!("appended");
}

/// A live holder is waited for, whatever the state of its locks.
#[test]
fn a_writer_that_lives_is_waited_for() {
    let (_folder, journal) = fresh(Options {
        busy_timeout: Duration::from_millis(100),
        ..small()
    });
    let writer = journal.writer().unwrap();
    let mut holder = start_holder(&journal.path());
    for _ in 0..5 {
        let error = writer.append(b"x").unwrap_err();
        assert!(
            matches!(error, Error::Busy { pid, .. } if pid == holder.id()),
            "{error}"
        );
    }
    drop(holder.stdin.take());
    holder.wait().unwrap();
}
